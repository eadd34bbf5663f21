"""rabbet.special beside SciPy, over the whole range of each function."""

import numpy as np
import pytest
import rabbet
import rabbet.special

scipy_special = pytest.importorskip("scipy.special")
scipy_stats = pytest.importorskip("scipy.stats")
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


# ---- Bessel and Airy functions

OF_ALL = np.concatenate(
    [-np.logspace(3, -6, 80), [0.0], np.logspace(-6, 3, 120), np.linspace(0.5, 30, 200)]
)
ABOVE_ZERO = np.concatenate([[0.0], np.logspace(-6, 2.5, 150), np.linspace(0.5, 30, 200)])
# Of oscillating functions the error is relative to the amplitude.
WAVES = {
    "bessel_j0": ("j0", OF_ALL), "bessel_j1": ("j1", OF_ALL), "bessel_y0": ("y0", ABOVE_ZERO),
    "bessel_y1": ("y1", ABOVE_ZERO),
}  # fmt: skip
DECAYS = {
    "modified_bessel_i0": ("i0", OF_ALL[np.abs(OF_ALL) < 500]), "modified_bessel_i1": ("i1", OF_ALL[np.abs(OF_ALL) < 500]),
    "modified_bessel_k0": ("k0", ABOVE_ZERO), "modified_bessel_k1": ("k1", ABOVE_ZERO),
    "scaled_modified_bessel_k0": ("k0e", ABOVE_ZERO), "scaled_modified_bessel_k1": ("k1e", ABOVE_ZERO),
    "erfcx": ("erfcx", OF_ALL[OF_ALL > -5]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", WAVES)
def test_waves_differ_by_little_of_their_amplitude(name, dtype):
    reference, x = WAVES[name]
    x = x.astype(dtype)
    want = getattr(scipy_special, reference)(x.astype(float))
    got = getattr(rabbet.special, name)(rabbet.tensor(x))
    assert str(got.dtype) == f"rabbet.{dtype}"
    amplitude = 1 / np.sqrt(1 + np.abs(x))
    bound = (32 if dtype == "float64" else 1) * np.finfo(dtype).eps
    finite = np.isfinite(want)
    error = np.abs(got.numpy()[finite] - want[finite]) / np.maximum(amplitude, np.abs(want))[finite]
    # The phase of float64 arguments is rounded with the argument itself.
    assert (error <= bound * (1 + np.abs(x[finite]) / 100)).all()
    assert (got.numpy()[~finite] == want[~finite]).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", DECAYS)
def test_functions_without_zeros_keep_their_digits(name, dtype):
    reference, x = DECAYS[name]
    x = x.astype(dtype)
    want = getattr(scipy_special, reference)(x.astype(float))
    with np.errstate(over="ignore"):
        want = want.astype(dtype)
    got = getattr(rabbet.special, name)(rabbet.tensor(x)).numpy()
    np.testing.assert_allclose(got, want, 20 * np.finfo(dtype).eps, 1e-44)


def test_airy_and_spherical_functions():
    x = np.concatenate([np.linspace(-20, 20, 401), [0.0, 100.0]])
    got = rabbet.special.airy_ai(rabbet.tensor(x)).numpy()
    want = scipy_special.airy(x)[0]
    np.testing.assert_allclose(got[x > -4], want[x > -4], 2e-14, 1e-300)
    np.testing.assert_allclose(got[x <= -4], want[x <= -4], 0, 2e-14)
    got = rabbet.special.spherical_bessel_j0(rabbet.tensor(x)).numpy()
    np.testing.assert_allclose(got, scipy_special.spherical_jn(0, x), 1e-15, 1e-16)


def test_limits_of_bessel_functions():
    inf, nan = np.inf, np.nan
    x = rabbet.tensor([0.0, -0.0, inf, -inf, nan, -1.0], dtype=rabbet.float64)
    for name, want in (
        ("bessel_j0", [1, 1, 0, 0, nan]), ("bessel_j1", [0, 0, 0, 0, nan]), ("bessel_y0", [-inf, -inf, 0, nan, nan, nan]),
        ("bessel_y1", [-inf, -inf, 0, nan, nan, nan]), ("modified_bessel_k0", [inf, inf, 0, nan, nan, nan]),
        ("scaled_modified_bessel_k1", [inf, inf, 0, nan, nan, nan]), ("spherical_bessel_j0", [1, 1, 0, 0, nan]),
        ("modified_bessel_i0", [1, 1, inf, inf, nan]), ("modified_bessel_i1", [0, 0, inf, -inf, nan]),
    ):  # fmt: skip
        got = getattr(rabbet.special, name)(x)[: len(want)].numpy()
        np.testing.assert_array_equal(got, want, name)


# ---- orthogonal polynomials

FAMILIES = {
    "chebyshev_polynomial_t": "eval_chebyt", "chebyshev_polynomial_u": "eval_chebyu",
    "shifted_chebyshev_polynomial_t": "eval_sh_chebyt", "shifted_chebyshev_polynomial_u": "eval_sh_chebyu",
    "hermite_polynomial_h": "eval_hermite", "hermite_polynomial_he": "eval_hermitenorm",
    "laguerre_polynomial_l": "eval_laguerre", "legendre_polynomial_p": "eval_legendre",
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_polynomials_of_every_degree(name):
    x = np.concatenate([np.linspace(-2.5, 2.5, 41), [-1.0, 0.0, 1.0]])
    n = np.arange(-1, 14)[:, None]
    want = np.where(n < 0, 0.0, getattr(scipy_special, FAMILIES[name])(n, x))
    function = getattr(rabbet.special, name)
    got = function(rabbet.tensor(x), rabbet.tensor(n)).numpy()
    assert (np.abs(got - want) <= 1e-11 * (1 + np.abs(want).max(1, keepdims=True))).all()
    # Either argument may be a number, and degrees are truncated.
    np.testing.assert_allclose(function(rabbet.tensor(x), 9).numpy(), got[10], 1e-12, 1e-12)
    np.testing.assert_allclose(
        function(0.25, rabbet.tensor([2.9, 5.0])).numpy(),
        [getattr(scipy_special, FAMILIES[name])(k, 0.25) for k in (2, 5)],
        1e-5,
    )
    out = rabbet.empty(0, dtype=rabbet.float64)
    assert function(rabbet.tensor(x), 3, out=out) is out


def test_third_and_fourth_kind_are_made_of_the_second():
    x = rabbet.tensor(np.linspace(-1.5, 1.5, 31))
    for n in (1, 2, 6, 7, 12):
        u, before = (rabbet.special.chebyshev_polynomial_u(x, k) for k in (n, n - 1))
        for name, want in (("v", u - before), ("w", u + before)):
            got = getattr(rabbet.special, f"chebyshev_polynomial_{name}")(x, n)
            np.testing.assert_allclose(got.numpy(), want.numpy(), 1e-9, 1e-9)
            moved = getattr(rabbet.special, f"shifted_chebyshev_polynomial_{name}")((x + 1) / 2, n)
            np.testing.assert_allclose(moved.numpy(), want.numpy(), 1e-8, 1e-8)


KINDS = [f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"]


def _chebyshev_slope(name, x, n):
    """The derivative of the recurrence, in extended precision."""
    x = x.astype(np.longdouble)
    x, inner = (2 * x - 1, 2) if "shifted" in name else (x, 1)
    factor, shift = {"t": (1, 0), "u": (2, 0), "v": (2, -1), "w": (2, 1)}[name[-1]]
    before, value = np.ones_like(x), factor * x + shift
    slope_before, slope = np.zeros_like(x), np.full_like(x, factor)
    for _ in range(n - 1):
        before, value, slope_before, slope = (
            value,
            2 * x * value - before,
            slope,
            2 * value + 2 * x * slope - slope_before,
        )
    return (slope * inner).astype(np.float64) if n else np.zeros(x.shape)


@pytest.mark.parametrize("n", [0, 1, 2, 6, 7, 40, 1000])
@pytest.mark.parametrize("name", KINDS)
def test_slopes_of_chebyshev_polynomials_keep_their_digits(name, n):
    at = [-1.0, -0.9999, -0.7, 0.0, 0.3, 0.99, 1 - 1e-9, 1.0, 1 + 1e-9] + (
        [1.5, -2.5] if n < 50 else []
    )
    points = np.array(at)
    points = (points + 1) / 2 if "shifted" in name else points
    x = rabbet.tensor(points, requires_grad=True)
    (slope,) = rabbet.autograd.grad(getattr(rabbet.special, name)(x, n).sum(), x)
    want = _chebyshev_slope(name, points, n)
    # Slopes that oscillate cross 0.
    np.testing.assert_allclose(slope.numpy(), want, 2e-12, 1e-12 * (1 + n * n))


@pytest.mark.parametrize("name", KINDS)
def test_second_derivatives_of_chebyshev_polynomials(name):
    points = np.array([-1.2, -1.0, -0.4, 0.3, 1.0, 1.3])
    x = rabbet.tensor((points + 1) / 2 if "shifted" in name else points, requires_grad=True)
    for n in (1, 2, 5, 8):
        assert rabbet.autograd.gradgradcheck(lambda x, n=n: getattr(rabbet.special, name)(x, n), x)


@pytest.mark.parametrize("n", [3, 9])
@pytest.mark.parametrize("name", [*FAMILIES, "chebyshev_polynomial_v", "chebyshev_polynomial_w"])
def test_slopes_of_polynomials(name, n):
    # At 1 the third and fourth kind are quotients of zeros.
    points = [0.1, 0.5, 0.9, 1.7, -1.4] + ([] if n == 3 else [1.0])
    x = rabbet.tensor(points, dtype=rabbet.float64, requires_grad=True)
    function = getattr(rabbet.special, name)
    (slope,) = rabbet.autograd.grad(function(x, n).sum(), x)
    h = 1e-5
    numeric = (function(x.detach() + h, n) - function(x.detach() - h, n)) / (2 * h)
    np.testing.assert_allclose(slope.numpy(), numeric.numpy(), 1e-5, 1e-7)


# ---- zeta and incomplete gamma functions


def test_zeta_of_two_arguments():
    s, q = np.meshgrid(
        [1.01, 1.5, 2.0, 3.0, 8.0, 30.5],
        np.concatenate([np.logspace(-3, 4, 40), np.linspace(1, 12, 30)]),
    )
    got = rabbet.special.zeta(rabbet.tensor(s), rabbet.tensor(q)).numpy()
    np.testing.assert_allclose(got, scipy_special.zeta(s, q), 4e-15)
    # Below 0 as the sum over the terms up to a positive number.
    below = rabbet.tensor([-0.5, -3.25, -20.75], dtype=rabbet.float64)
    want = [
        sum((b + k) ** -3.0 for k in range(30)) + scipy_special.zeta(3.0, b + 30)
        for b in below.tolist()
    ]
    np.testing.assert_allclose(rabbet.special.zeta(3.0, below).numpy(), want, 1e-13)
    ends = rabbet.special.zeta(
        rabbet.tensor([1.0, 0.5, 2.0, 2.0, 2.5, np.nan]),
        rabbet.tensor([2.0, 2.0, 0.0, -3.0, -0.5, 1.0]),
    )
    np.testing.assert_array_equal(ends.numpy(), [np.inf, np.nan, np.inf, np.inf, np.nan, np.nan])


@pytest.mark.parametrize(("low", "high"), [(1e-3, 1), (1, 30), (30, 3000)])
def test_incomplete_gamma_functions(low, high):
    rng = np.random.RandomState(0)
    a = np.exp(rng.uniform(np.log(low), np.log(high), 500))
    x = a * rng.uniform(0.2, 2.5, 500)
    p = rabbet.special.gammainc(rabbet.tensor(a), rabbet.tensor(x)).numpy()
    q = rabbet.igammac(rabbet.tensor(a), rabbet.tensor(x)).numpy()
    np.testing.assert_allclose(p, scipy_special.gammainc(a, x), 1e-11, 1e-300)
    np.testing.assert_allclose(q, scipy_special.gammaincc(a, x), 1e-11, 1e-300)
    np.testing.assert_allclose(p + q, 1, 4e-16)
    single = rabbet.tensor(a, dtype=rabbet.float32).igamma(rabbet.tensor(x, dtype=rabbet.float32))
    np.testing.assert_allclose(
        single.numpy(), scipy_special.gammainc(a.astype("f"), x.astype("f")), 3e-6, 1e-37
    )


def test_limits_and_slopes_of_incomplete_gamma_functions():
    inf, nan = np.inf, np.nan
    a = np.array([0.0, 0.0, 1.0, 1.0, inf, inf, 2.0, -1.0, nan])
    x = np.array([0.0, 1.0, 0.0, inf, 1.0, inf, -1.0, 1.0, 1.0])
    for name in ("gammainc", "gammaincc"):
        got = getattr(rabbet.special, name)(rabbet.tensor(a), rabbet.tensor(x)).numpy()
        np.testing.assert_array_equal(got, getattr(scipy_special, name)(a, x))
    x = rabbet.tensor([0.3, 2.0, 7.0], dtype=rabbet.float64, requires_grad=True)
    a = rabbet.tensor([0.5, 2.5, 4.0], dtype=rabbet.float64)
    assert rabbet.autograd.gradcheck(lambda x: rabbet.igamma(a, x), (x,))
    assert rabbet.autograd.gradcheck(lambda x: rabbet.igammac(a, x), (x,))
    with pytest.raises(TypeError, match="float"):
        rabbet.igamma(rabbet.tensor([1]), rabbet.tensor([2]))


def test_incomplete_gamma_functions_far_from_the_shape():
    a = np.array([1e-300, 1e300, 1e300, 1e300, 3.0, 5e-324, 1e15, 2.5])
    x = np.array([1e300, 1e300, 9e299, 1.1e300, 1e-320, 5e-324, 2e15, 800.0])
    p = rabbet.igamma(rabbet.tensor(a), rabbet.tensor(x)).numpy()
    q = rabbet.igammac(rabbet.tensor(a), rabbet.tensor(x)).numpy()
    np.testing.assert_array_equal(p, [1, 0.5, 0, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(q, [0, 0.5, 1, 0, 0 + 1, 5e-324 * 744, 0, 0])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("a", [0.3, 2.5, 40.0, 3000.0])
def test_slopes_of_incomplete_gamma_functions_are_the_density(a, dtype):
    points = np.array([0.2, 0.9, 1.0, 1.1, 3.0], dtype) * np.array(a, dtype)
    want = scipy_stats.gamma.pdf(points.astype(np.float64), float(np.array(a, dtype)))
    for f, sign in ((rabbet.igamma, 1), (rabbet.igammac, -1)):
        x = rabbet.tensor(points, requires_grad=True)
        (slope,) = rabbet.autograd.grad(f(rabbet.tensor(a, dtype=x.dtype), x).sum(), x)
        with np.errstate(under="ignore"):
            np.testing.assert_allclose(
                sign * slope.numpy(), want.astype(dtype), 2e-11 if dtype == "float64" else 3e-7
            )


def test_second_derivatives_of_incomplete_gamma_functions():
    a = rabbet.tensor([0.5, 2.5, 40.0], dtype=rabbet.float64)
    x = rabbet.tensor([0.3, 2.0, 37.0], dtype=rabbet.float64, requires_grad=True)
    assert rabbet.autograd.gradgradcheck(lambda x: rabbet.igamma(a, x), (x,))
    assert rabbet.autograd.gradgradcheck(lambda x: rabbet.igammac(a, x), (x,))


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma_functions_read_no_data_on_the_host(name):
    # vmap refuses to read data, and the meta device has none.
    f = getattr(rabbet.special, name)
    a = rabbet.tensor([0.2, 3.0, 50.0], dtype=rabbet.float64)
    x = rabbet.tensor([0.1, 2.0, 61.0], dtype=rabbet.float64)
    assert rabbet.vmap(f)(a, x).tolist() == f(a, x).tolist()
    assert f(a.to("meta"), x.to("meta")).shape == (3,)


POLYNOMIALS = [
    *KINDS,
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
]


@pytest.mark.parametrize("degree", [*range(16), -1, 2.5])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_of_a_number_as_degree(name, degree):
    """Beside those of a tensor of degrees in float64; an ulp is that of the function's scale near a zero."""
    f = getattr(rabbet.special, name)
    x = np.concatenate(
        [np.linspace(-1.05, 1.05, 85), [0.0, -0.0, 1.5, -3.0, 10.0, 12.0, np.nan]]
    ).astype(np.float32)
    exact = f(rabbet.tensor(x).double(), rabbet.tensor(float(degree), dtype=rabbet.float64)).numpy()
    scale = np.maximum(np.abs(exact), np.abs(exact[np.abs(x) <= 1]).max() / 8).astype(np.float32)
    got = f(rabbet.tensor(x), degree)
    assert got.dtype is rabbet.float32
    error = np.abs(got.numpy() - exact) / np.spacing(scale)
    assert (np.isnan(got.numpy()) == np.isnan(exact)).all() and np.nanmax(error) <= 0.75
    np.testing.assert_array_equal(f(rabbet.tensor(x)[::2], degree).numpy(), got.numpy()[::2])
    np.testing.assert_allclose(
        f(rabbet.tensor(x).double(), degree).numpy(), exact, rtol=1e-14, atol=0
    )
    halves = rabbet.tensor([0.25, -0.5, 1.0], dtype=rabbet.bfloat16)
    expected = f(halves.double(), degree).to(rabbet.bfloat16)
    assert f(halves, degree).dtype is rabbet.bfloat16 and f(halves, degree).equal(expected)
    assert f(rabbet.tensor([2, 3]), degree).equal(f(rabbet.tensor([2.0, 3.0]), degree))


@pytest.mark.parametrize("degree", [1, 4, 5, 12, 13])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_derivatives_of_polynomials_of_a_number_as_degree(name, degree):
    found = []
    for dtype, n in (
        (rabbet.float32, degree),
        (rabbet.float64, rabbet.tensor(float(degree), dtype=rabbet.float64)),
    ):
        x = rabbet.linspace(-0.9, 0.8, 7, dtype=rabbet.float32).to(dtype).requires_grad_()
        (slope,) = rabbet.autograd.grad(
            getattr(rabbet.special, name)(x, n).sum(), x, create_graph=True
        )
        second = rabbet.autograd.grad(slope.sum(), x)[0] if degree > 1 else slope
        found.append([slope.detach().double().numpy(), second.detach().double().numpy()])
    for got, exact in zip(*found, strict=True):
        np.testing.assert_allclose(got, exact, rtol=3e-5, atol=3e-6 * np.abs(exact).max())
