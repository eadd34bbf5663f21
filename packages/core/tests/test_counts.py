"""Poisson and binomial numbers: their distributions, seeds, dtypes and what is refused."""

import numpy as np
import pytest
import rabbet
import scipy.stats


def test_poisson_numbers_have_their_distribution():
    rates = rabbet.tensor([0.0, 0.3, 4.0, 9.9, 10.0, 75.0]).expand(20_000, 6)
    drawn = rabbet.poisson(rates, rabbet.Generator().manual_seed(0)).numpy()
    for rate, column in zip((0.3, 4.0, 9.9, 10.0, 75.0), drawn.T[1:], strict=True):
        fits(column, scipy.stats.poisson(rate))
    assert (drawn[:, 0] == 0).all()


@pytest.mark.parametrize("n,p", [(1, 0.3), (12, 0.7), (45, 0.2), (60, 0.5), (400, 0.93)])
def test_binomial_numbers_have_their_distribution(n, p):
    count, prob = rabbet.full((20_000,), float(n)), rabbet.tensor(p)
    fits(
        rabbet.binomial(count, prob, rabbet.Generator().manual_seed(1)).numpy(),
        scipy.stats.binom(n, p),
    )


def fits(column, reference):
    edges = np.unique(np.r_[-0.5, reference.ppf(np.linspace(0.05, 0.95, 12)) + 0.5, np.inf])
    counts, expected = np.histogram(column, edges)[0], np.diff(reference.cdf(edges))
    kept = expected > 1e-12
    assert counts.sum() == counts[kept].sum() == len(column)
    assert (
        scipy.stats.chisquare(counts[kept], len(column) * expected[kept] / expected.sum()).pvalue
        > 1e-3
    )


def test_seeds_dtypes_and_shapes():
    for dtype in (rabbet.float64, rabbet.float32, rabbet.bfloat16):
        count, prob = rabbet.full((3, 1), 30.0, dtype=dtype), rabbet.full((4,), 0.5, dtype=dtype)
        draws = []
        for _ in range(2):
            rabbet.manual_seed(3)
            draws.append((rabbet.poisson(count), rabbet.binomial(count, prob)))
        assert all(rabbet.equal(a, b) for a, b in zip(*draws, strict=True))
        assert [x.dtype for x in draws[0]] == [dtype, dtype]
        assert [tuple(x.shape) for x in draws[0]] == [(3, 1), (3, 4)]
    assert rabbet.poisson(rabbet.zeros(0, 2)).shape == (0, 2)
    assert not rabbet.poisson(rabbet.ones(2, requires_grad=True)).requires_grad


def test_what_binomial_makes_of_bad_numbers():
    count, prob = rabbet.tensor([-1.0, 3.9, 3.0, 3.0]), rabbet.tensor([0.5, 1.0, 1.5, float("nan")])
    assert rabbet.binomial(count, prob)[:3].tolist() == [0, 3, 3]
    assert rabbet.binomial(count, prob)[3].isnan()


BAD = {
    "negative": (lambda: rabbet.poisson(rabbet.tensor([-1.0])), RuntimeError, "invalid Poisson rate"),
    "nan": (lambda: rabbet.poisson(rabbet.tensor([float("nan")])), RuntimeError, "invalid Poisson"),
    "integers": (lambda: rabbet.poisson(rabbet.tensor([1])), TypeError, "floating 'input', got"),
    "number": (lambda: rabbet.poisson(2.0), TypeError, "poisson: argument 'input' must be Tensor"),
    "count": (
        lambda: rabbet.binomial(rabbet.tensor([1]), rabbet.tensor([0.5])), TypeError, "floating 'count'"
    ),
    "prob": (lambda: rabbet.binomial(rabbet.ones(1), 0.5), TypeError, "'prob' must be Tensor"),
    "dtypes": (
        lambda: rabbet.binomial(rabbet.ones(1), rabbet.ones(1, dtype=rabbet.float64)), TypeError, "'count' has dtype"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, kind, text = BAD[name]
    with pytest.raises(kind, match=text):
        call()
