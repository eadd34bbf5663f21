"""rabbet.special beside SciPy, over the whole range of each function."""

import numpy as np
import pytest
import rabbet
import rabbet.special

scipy_special = pytest.importorskip("scipy.special")
wide = np.concatenate([-np.logspace(2, -8, 60), [0.0], np.logspace(-8, 2, 60)])
RANGES = {
    "i0": wide,
    "i0e": wide * 100,
    "i1": wide,
    "i1e": wide * 100,
    "entr": np.abs(wide),
    "ndtr": wide[wide > -37],
    "log_ndtr": wide * 100,
    "ndtri": np.concatenate([np.logspace(-300, -1, 80), np.linspace(0.1, 0.9, 50), 1 - np.logspace(-14, -1, 40)]),
    "expit": wide,
    "gammaln": np.abs(wide),
    "psi": np.abs(wide) + 1e-6,
    "erfinv": np.linspace(-0.999, 0.999, 99),
}  # fmt: skip


@pytest.mark.parametrize("name", RANGES)
def test_the_whole_range(name):
    x = RANGES[name]
    with np.errstate(all="ignore"):
        want = getattr(scipy_special, name)(x)
    got = getattr(rabbet.special, name)(rabbet.tensor(x)).numpy()
    np.testing.assert_allclose(got, want, 2e-12, 1e-15 if name in ("psi", "gammaln") else 0)


@pytest.mark.parametrize("name", ["i0", "i1", "i0e", "i1e", "entr", "ndtr", "log_ndtr", "ndtri"])
def test_single_precision(name):
    x = RANGES[name].astype(np.float32)
    x = x[(x > 1e-30) & (x < 1)] if name == "ndtri" else x[np.abs(x) < 80]
    if name == "ndtr":
        x = x[x > -13]
    want = getattr(scipy_special, name)(x.astype(np.float64))
    got = getattr(rabbet.special, name)(rabbet.tensor(x)).numpy()
    np.testing.assert_allclose(got, want, 3e-5, 1e-37)


def test_ends():
    inf, nan = float("inf"), float("nan")
    edges = rabbet.tensor([-1.0, 0.0, 1.0, 2.0, nan])
    got = rabbet.special.ndtri(edges).tolist()
    assert got[1:3] == [-inf, inf] and all(np.isnan(got[i]) for i in (0, 3, 4))
    assert rabbet.special.entr(edges).tolist()[:2] == [-inf, 0]
    values = rabbet.special.xlog1py(rabbet.tensor([0.0, 0.0, 2.0]), rabbet.tensor([-1.0, nan, 1.0]))
    assert values[0] == 0 and values[1].isnan() and values[2] == 2 * rabbet.log(rabbet.tensor(2.0))
    assert rabbet.i0(rabbet.tensor([1, 2])).dtype is rabbet.float32
    assert rabbet.special.log_ndtr(rabbet.tensor([-inf, inf])).tolist() == [-inf, 0]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_derivatives_of_digamma(n):
    x = np.abs(wide) + 0.01
    got = rabbet.polygamma(n, rabbet.tensor(x)).numpy()
    np.testing.assert_allclose(got, scipy_special.polygamma(n, x), 1e-11, 1e-12)
    inside = rabbet.tensor([0.3, 1.7, 4.2], dtype=rabbet.float64, requires_grad=True)
    assert rabbet.autograd.gradcheck(lambda t: t.polygamma(n), inside)


def test_the_first_derivative_below_zero():
    # Euler's reflection of trigamma at -0.5 and -1.5.
    got = rabbet.polygamma(1, rabbet.tensor([-0.5, -1.5], dtype=rabbet.float64)).numpy()
    want = np.pi**2 - scipy_special.polygamma(1, [1.5, 2.5])
    np.testing.assert_allclose(got, want, 1e-13)


@pytest.mark.parametrize("p", [1, 2, 5])
def test_multivariate_gamma(p):
    x = np.linspace(p, p + 4, 9)
    want = [scipy_special.multigammaln(v, p) for v in x]
    np.testing.assert_allclose(rabbet.mvlgamma(rabbet.tensor(x), p).numpy(), want, 1e-13)
    assert rabbet.special.multigammaln is rabbet.mvlgamma


def test_refused():
    with pytest.raises(RuntimeError, match="polygamma"):
        rabbet.polygamma(-1, rabbet.ones(2))
    with pytest.raises(RuntimeError, match="mvlgamma"):
        rabbet.mvlgamma(rabbet.ones(2), 0)
    with pytest.raises((RuntimeError, TypeError), match="entr"):
        rabbet.special.entr(rabbet.ones(2, dtype=rabbet.complex64))
