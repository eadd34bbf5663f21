"""Special functions against SciPy, far and near, and their derivatives."""

import numpy as np
import pytest
import rabbet
import scipy.special

RNG = np.random.default_rng(3)
POSITIVE = np.concatenate([10.0 ** RNG.uniform(-6, 6, 500), RNG.uniform(0.4, 10, 500)])
NEGATIVE = -RNG.uniform(0, 30, 300)
CENTRAL = np.concatenate([RNG.uniform(-1, 1, 300), 1 - 10.0 ** RNG.uniform(-7, -1, 300)])
SPECIAL = np.array([0.0, -0.0, 1.0, 2.0, 3.0, -1.0, -7.0, np.inf, np.nan])
CASES = {
    "lgamma": (scipy.special.gammaln, np.concatenate([POSITIVE, NEGATIVE, SPECIAL])),
    "digamma": (scipy.special.digamma, np.concatenate([POSITIVE, SPECIAL])),
    "erfinv": (scipy.special.erfinv, np.concatenate([CENTRAL, [0, 1, -1, 1.5, np.nan]])),
    "logit": (scipy.special.logit, np.concatenate([abs(CENTRAL), [0, 1, -0.5, np.nan]])),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_values_are_scipys(name, dtype):
    reference, x = CASES[name]
    x = x.astype(dtype)
    got = getattr(rabbet, name)(rabbet.from_numpy(x))
    assert str(got.dtype) == f"rabbet.{dtype}"
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(got.numpy(), reference(x.astype("float64")), 12 * eps, 8 * eps)


def test_logarithms_of_gamma_keep_their_digits_near_one_and_two():
    d = np.array([-1e-9, -3e-13, 1e-10, 1e-7])
    slope, curve = np.array([[-np.euler_gamma], [1 - np.euler_gamma]]), np.pi**2 / 12
    x = rabbet.from_numpy(np.array([[1.0], [2.0]]) + d)
    d = (x - rabbet.tensor([[1.0], [2.0]], dtype=x.dtype)).numpy()
    want = slope * d + (curve - np.array([[0], [0.5]])) * d**2
    np.testing.assert_allclose(rabbet.lgamma(x).numpy(), want, 1e-13)


def test_digamma_below_zero():
    # The pole is next to where the tangent is steep: the error is relative to the slope.
    got = rabbet.digamma(rabbet.from_numpy(NEGATIVE)).numpy()
    slope = 1 + np.pi**2 / np.sin(np.pi * NEGATIVE) ** 2
    want = scipy.special.digamma(NEGATIVE)
    assert (abs(got - want) < 1e-14 * slope + 1e-13).all()


@pytest.mark.parametrize("name", CASES)
def test_integers_become_floats(name):
    assert getattr(rabbet, name)(rabbet.tensor([1])).dtype == rabbet.float32


@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_first_and_second_order(name):
    x = rabbet.tensor([0.3, 2.2, -1.3, -4.7, 12.0], dtype=rabbet.float64)
    x = {"erfinv": x.tanh(), "logit": x.sigmoid()}.get(name, x)[: 2 if name == "logit" else 4]
    x.requires_grad_()
    assert rabbet.autograd.gradcheck(getattr(rabbet, name), x)
    assert rabbet.autograd.gradgradcheck(getattr(rabbet, name), x)


def test_derivatives_of_digamma_at_integers():
    x = rabbet.tensor([1.0, 4.0, 12.0], dtype=rabbet.float64, requires_grad=True)
    for order in range(1, 5):
        y = rabbet.digamma(x)
        for _ in range(order):
            (y,) = rabbet.autograd.grad(y.sum(), x, create_graph=True)
        want = scipy.special.polygamma(order, x.detach().numpy())
        np.testing.assert_allclose(y.detach().numpy(), want, 1e-13)


def test_logit_with_eps_is_flat_outside():
    x = rabbet.tensor([0.0, 0.05, 0.5, 1.0, -3.0], dtype=rabbet.float64, requires_grad=True)
    y = rabbet.logit(x, eps=0.1)
    np.testing.assert_allclose(
        y.detach().numpy(), scipy.special.logit([0.1, 0.1, 0.5, 0.9, 0.1]), atol=1e-16
    )
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 4, 0, 0]
    x.grad = None
    rabbet.logit(x).sum().backward()
    assert x.grad[4].isnan() and x.grad[2] == 4


@pytest.mark.parametrize("name", CASES)
def test_complex_numbers_are_refused(name):
    with pytest.raises(TypeError, match=f"{name}: expected .*complex64"):
        getattr(rabbet, name)(rabbet.ones(2, dtype=rabbet.complex64))


def _polygamma(n, x):
    """Of any real number that is no pole, in exact fractions of mpmath's kind: sums of the terms on both sides of 0."""
    below = int(max(0, np.ceil(-x)))
    terms = [(x + k) ** -(n + 1) for k in range(below)]
    factor = (1 if n % 2 else -1) * float(scipy.special.factorial(n))
    return factor * (sum(terms) + scipy.special.zeta(n + 1, x + below))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_polygamma_of_negative_numbers_and_near_poles(n):
    x = np.concatenate([NEGATIVE[:60], [-0.5, -100.5, -1e-5, 1e-5, -3 + 2**-20, -3 - 2**-20]])
    got = rabbet.polygamma(n, rabbet.from_numpy(x)).numpy()
    want = np.array([_polygamma(n, v) for v in x])
    # Where terms of both signs cancel the error is relative to the terms.
    distance = abs(x - np.round(x))
    largest = float(scipy.special.factorial(n)) * (distance ** -(n + 1.0) + 2)
    assert (abs(got - want) <= 1e-13 * abs(want) + 4e-15 * largest).all()


@pytest.mark.parametrize("n", [2, 3])
def test_polygamma_at_its_poles_and_at_infinity(n):
    x = rabbet.tensor([0.0, -0.0, -1.0, -2.0, np.inf, np.nan])
    pole = np.inf if n % 2 else -np.inf
    want = [pole, pole, pole, pole, 0.0, np.nan]
    np.testing.assert_array_equal(abs(rabbet.polygamma(n, x)).numpy(), np.abs(want))
    assert rabbet.polygamma(n, x)[:4].tolist() == want[:4]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_derivative_of_polygamma_is_the_next_one(n):
    x = rabbet.tensor([0.3, 2.2, -0.7, -1.3, -4.8], dtype=rabbet.float64, requires_grad=True)
    assert rabbet.autograd.gradcheck(lambda t: rabbet.polygamma(n, t), x)
    (grad,) = rabbet.autograd.grad(rabbet.polygamma(n, x).sum(), [x])
    np.testing.assert_allclose(grad.numpy(), rabbet.polygamma(n + 1, x).detach().numpy(), 1e-12)


@pytest.mark.parametrize("p", [2**31 - 1, 2**62])
def test_the_multivariate_gamma_function_refuses_dimensions_that_would_take_minutes(p):
    with pytest.raises(ValueError, match="mvlgamma: expected p"):
        rabbet.mvlgamma(rabbet.ones(3), p)
    want = scipy.special.multigammaln(600.0, 1000)
    got = rabbet.mvlgamma(rabbet.tensor(600.0, dtype=rabbet.float64), 1000)
    np.testing.assert_allclose(got.item(), want, 1e-13)


def test_mvlgamma_of_many_elements():
    x = rabbet.linspace(2, 9, 100_000, dtype=rabbet.float64)
    np.testing.assert_allclose(
        rabbet.mvlgamma(x, 2)[::9999].numpy(), scipy.special.multigammaln(x[::9999].numpy(), 2)
    )
