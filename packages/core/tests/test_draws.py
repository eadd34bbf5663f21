"""Methods that fill tensors with random numbers: distributions, ranges, what they refuse; complex numbers."""

import math
import warnings

import pytest
import rabbet
from scipy import stats

FLOATS = ["float16", "bfloat16", "float32", "float64"]


def of(name, n=1):
    return rabbet.zeros(n, dtype=getattr(rabbet, name))


@pytest.mark.parametrize(
    "draw, distribution",
    [
        (lambda x: x.log_normal_(), stats.lognorm(2, scale=math.e)),
        (lambda x: x.log_normal_(0.5, 0.25), stats.lognorm(0.25, scale=math.exp(0.5))),
        (lambda x: x.cauchy_(), stats.cauchy()),
        (lambda x: x.cauchy_(median=1, sigma=2), stats.cauchy(1, 2)),
        (lambda x: x.exponential_(2), stats.expon(scale=0.5)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_follow_their_distribution(draw, distribution, dtype):
    rabbet.manual_seed(3)
    drawn = draw(of(dtype, 20000)).double().numpy()
    assert stats.kstest(drawn, distribution.cdf).pvalue > 0.001


@pytest.mark.parametrize("dtype", ["float32", "int64", "int32"])
def test_geometric_numbers_are_counts_of_trials(dtype):
    rabbet.manual_seed(3)
    drawn = of(dtype, 40000).geometric_(0.3).double()
    assert drawn.min().item() == 1
    for k in (1, 2, 5):
        share = (drawn == k).double().mean().item()
        assert abs(share - 0.3 * 0.7 ** (k - 1)) < 0.01
    assert of("int8", 1000).geometric_(1e-4).min().item() >= 1  # cut, not wrapped


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_floating_dtype_is_filled(dtype):
    for draw in (
        lambda x: x.log_normal_(0, 0.5),
        lambda x: x.cauchy_(0, 1e-3),
        lambda x: x.geometric_(0.5),
    ):
        filled = draw(of(dtype, 100))
        assert (
            filled.dtype is getattr(rabbet, dtype)
            and filled.isfinite().all()
            and filled.unique().numel() > 1
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda: of("float32").normal_(0, -1), lambda: of("float32").uniform_(2, 1),
        lambda: of("float32").exponential_(0), lambda: of("float32").cauchy_(0, 0),
        lambda: of("float32").log_normal_(0, 0), lambda: of("float32").geometric_(0),
        lambda: of("float32").geometric_(1), lambda: of("float32").bernoulli_(1.5),
        lambda: of("float32").random_(0), lambda: of("float32").random_(3, 3), lambda: of("uint8").random_(-5, 5),
        lambda: of("int8").random_(300), lambda: of("bool").random_(5), lambda: of("float16").random_(2**40),
        lambda: of("int64").normal_(), lambda: of("int64").exponential_(), lambda: of("int64").cauchy_(),
        lambda: of("int64").log_normal_(), lambda: of("bool").geometric_(0.5), lambda: of("complex64").random_(),
        lambda: of("complex64").exponential_(), lambda: of("float32", 3).bernoulli_(rabbet.full((2, 3), 0.5)),
        lambda: rabbet.normal(0.0, rabbet.ones(2, dtype=rabbet.complex64)),
        lambda: rabbet.normal(rabbet.zeros(2), rabbet.ones(2, dtype=rabbet.complex64)),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused(call):
    with pytest.raises(RuntimeError):
        call()


def test_wrong_kinds_of_parameters_are_refused():
    for call in (lambda x: x.random_(2.5), lambda x: x.random_(1, 2, 3), lambda x: x.random_(from_=1, to=5),
                 lambda x: x.geometric_(), lambda x: x.log_normal_("1")):  # fmt: skip
        with pytest.raises(TypeError):
            call(of("float32"))


@pytest.mark.parametrize(
    "dtype, most",
    [("int8", 127), ("uint8", 255), ("bool", 1), ("float16", 2048), ("bfloat16", 256)],
)
def test_random_numbers_reach_from_0_to_the_largest(dtype, most):
    drawn = of(dtype, 100000).random_().double()
    assert (drawn.min().item(), drawn.max().item()) == (0, most)


def test_ranges_of_random_numbers():
    x = of("int64", 1000)
    assert x.random_() is x and x.min().item() >= 0
    assert sorted(set(x.random_(3).tolist())) == [0, 1, 2]
    assert sorted(set(x.random_(to=2).tolist())) == [0, 1]
    assert sorted(set(x.random_(-2, 1).tolist())) == [-2, -1, 0]
    assert of("int8", 9).random_(126, None).unique().numel() <= 2
    assert x.random_(rabbet.tensor(1)).max().item() == 0
    with pytest.warns(UserWarning, match="out of bounds"):
        of("bfloat16").random_(300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        of("float32").random_(2**24)


def test_probabilities_of_bernoulli_may_be_a_tensor():
    x = of("int64", 4)
    assert x.bernoulli_(rabbet.tensor([1.0, 0.0, 1.0, 0.0])).tolist() == [1, 0, 1, 0]
    assert x.bernoulli_(p=rabbet.tensor(1.0)).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_have_normal_parts_of_half_the_variance(dtype):
    rabbet.manual_seed(1)
    for drawn in (of(dtype, 20000).normal_(3.0, 2.0), rabbet.normal(3.0, 2.0, (20000,), dtype=getattr(rabbet, dtype)),
                  rabbet.normal(rabbet.full((20000,), 3.0, dtype=getattr(rabbet, dtype)), 2.0)):  # fmt: skip
        assert drawn.dtype is getattr(rabbet, dtype)
        for part, mean in ((drawn.real, 3.0), (drawn.imag, 0.0)):
            assert stats.kstest(part.numpy(), stats.norm(mean, 2 * 0.5**0.5).cdf).pvalue > 0.001
    uniform = of(dtype, 2000).uniform_(-1.0, 2.0)
    assert -1 <= uniform.real.min() < uniform.real.max() <= 2 and uniform.imag.min().item() < -0.9


def test_a_leaf_that_requires_grad_is_not_filled():
    leaf = rabbet.ones(2, requires_grad=True)
    for draw in (
        lambda x: x.random_(3),
        lambda x: x.geometric_(0.5),
        lambda x: x.log_normal_(),
        lambda x: x.cauchy_(),
    ):
        with pytest.raises(RuntimeError, match="leaf"):
            draw(leaf)
    with rabbet.no_grad():
        leaf.random_(1)
    assert leaf.tolist() == [0.0, 0.0]
