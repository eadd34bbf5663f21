"""Derivatives of densities, of draws and of entropies: finite differences and SciPy's quantiles."""

import math

import numpy as np
import pytest
import rabbet
import rabbet.distributions as D
import scipy.special
import scipy.stats as S
from distribution_cases import CASES
from rabbet.distributions._incomplete_gamma import gammainc, quantile_slope

# Values that are no numbers on a line, or on which the density jumps.
DISCRETE = {
    "Bernoulli", "Geometric", "Binomial", "NegativeBinomial", "Poisson", "Categorical", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Multinomial",
}  # fmt: skip
CONSTRAINED = {
    "Dirichlet", "RelaxedOneHotCategorical", "LogisticNormal", "LKJCholesky", "Wishart", "Uniform", "HalfNormal",
}  # fmt: skip
# A step of one element leaves the symmetric matrices: they have a test of their own.
SYMMETRIC = ["MultivariateNormal", "MultivariateNormal of a precision", "Wishart", "Wishart of a precision"]  # fmt: skip
NAMES = [n for n in CASES if n != "Normal of numbers"]


def ours(x):
    return rabbet.tensor(x, dtype=rabbet.float64)


def with_leaves(name):
    leaves = []

    def leaf(x):
        leaves.append(ours(x).requires_grad_())
        return leaves[-1]

    CASES[name](D, leaf)
    return leaves


def rebuilt(name, values):
    """The distribution of a case with other tensors; constraints are not checked, as finite steps leave them."""
    rest = iter(values)
    D.Distribution.set_default_validate_args(False)
    try:
        return CASES[name](D, lambda x: next(rest))
    finally:
        D.Distribution.set_default_validate_args(True)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in SYMMETRIC])
def test_log_prob_by_parameters_and_value(name):
    leaves = with_leaves(name)
    rabbet.manual_seed(2)
    value = CASES[name](D, ours).sample((2,))
    kind = name.split(" ")[0]
    by_value = kind not in DISCRETE | CONSTRAINED
    inputs = [*leaves, value.clone().requires_grad_()] if by_value else leaves

    def log_prob(*given):
        x = given[-1] if by_value else value
        return rebuilt(name, given[: len(leaves)]).log_prob(x)

    assert rabbet.autograd.gradcheck(log_prob, tuple(inputs), eps=1e-6, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_log_prob_by_symmetric_matrices(name):
    leaves = with_leaves(name)
    value = CASES[name](D, ours).sample((2,))

    def log_prob(*given):
        return rebuilt(name, [(x + x.mT) / 2 if x.ndim == 2 else x for x in given]).log_prob(value)

    assert rabbet.autograd.gradcheck(log_prob, tuple(leaves), eps=1e-6, atol=1e-5, rtol=1e-4)


REPARAMETRIZED = [
    "Normal", "Laplace", "Cauchy", "Uniform", "Exponential", "LogNormal", "HalfNormal", "HalfCauchy", "Gumbel",
    "Weibull", "Pareto", "Kumaraswamy", "GeneralizedPareto", "RelaxedBernoulli", "RelaxedOneHotCategorical",
    "LogisticNormal", "MultivariateNormal of a factor", "LowRankMultivariateNormal", "Independent",
    "TransformedDistribution", "Logistic", "ContinuousBernoulli",
]  # fmt: skip


@pytest.mark.parametrize("name", REPARAMETRIZED)
def test_draws_by_parameters(name):
    """With one seed a draw is a function of the parameters."""

    def draw(*given):
        rabbet.manual_seed(4)
        return rebuilt(name, given).rsample((3,))

    leaves = tuple(with_leaves(name))
    assert rabbet.autograd.gradcheck(draw, leaves, eps=1e-6, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", REPARAMETRIZED)
def test_reparametrized_classes_say_so(name):
    distribution = CASES[name](D, ours)
    assert distribution.has_rsample
    assert not distribution.sample().requires_grad


def moved_quantile(a, p):
    """d log(x) / da of quantiles p of Gamma(a, 1), by differences of SciPy's quantiles."""
    h = 1e-3 * a
    points = np.array([scipy.special.gammaincinv(a + k * h, p) for k in (-2, -1, 1, 2)])
    return (np.log(points).T @ np.array([1, -8, 8, -1])) / (12 * h)


@pytest.mark.parametrize("a", [0.05, 0.4, 1.0, 3.3, 20.0, 150.0, 399.0, 401.0, 3000.0, 1e5])
def test_gamma_draws_move_as_the_quantiles_do(a):
    p = np.array([1e-3, 0.05, 0.3, 0.5, 0.8, 0.97, 0.999])
    log_x = rabbet.from_numpy(np.log(scipy.special.gammaincinv(a, p)))
    slope = quantile_slope(rabbet.full_like(log_x, a), log_x).numpy()
    np.testing.assert_allclose(slope, moved_quantile(a, p), rtol=2e-5)


def test_gamma_draws_that_underflow_have_a_slope():
    # For small x P is x^a / (a * gamma(a)): log(x) = (log(p) + log(gamma(a + 1))) / a.
    a, log_x = ours([0.01, 0.002]), ours([-900.0, -4000.0])
    want = (np.array([0.01, 0.002]) + 1.0, a.numpy(), log_x.numpy())
    want = (scipy.special.digamma(want[0]) - want[2]) / want[1]
    np.testing.assert_allclose(quantile_slope(a, log_x).numpy(), want, 1e-12)


def test_incomplete_gamma_function():
    rng = np.random.default_rng(0)
    a = 10.0 ** rng.uniform(-2, 5, 400)
    x = scipy.special.gammaincinv(a, rng.uniform(0.001, 0.999, 400))
    x, a = np.r_[x, 0.0, 1e3, 1e-3], np.r_[a, 2.0, 2.0, 500.0]
    got = gammainc(rabbet.from_numpy(a), rabbet.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, scipy.special.gammainc(a, x), 1e-12, 1e-15)
    inputs = tuple(ours(v).requires_grad_() for v in ([0.4, 3.0, 30.0], [0.7, 2.0, 36.0]))
    assert rabbet.autograd.gradcheck(gammainc, inputs)


MEANS = {  # a function of the parameters that the mean of the draws' gradients has to meet
    "Gamma": (lambda a, b: D.Gamma(a, b), [1.7, 0.6], lambda a, b: a / b),
    "Beta": (lambda a, b: D.Beta(a, b), [0.7, 2.5], lambda a, b: a / (a + b)),
    "StudentT": (lambda a, b: D.StudentT(a, 0.5, b), [5.5, 1.3], lambda a, b: 0.25 + b**2 * a / (a - 2)),
    "InverseGamma": (lambda a, b: D.InverseGamma(a, b), [6.0, 1.3], lambda a, b: b / (a - 1)),
    "FisherSnedecor": (lambda a, b: D.FisherSnedecor(a, b), [5.0, 14.0], lambda a, b: b / (b - 2) + 0 * a),
    "Dirichlet": (
        lambda a, b: D.Dirichlet(rabbet.stack([a, b, a + b])), [0.7, 1.6], lambda a, b: a / (a + b) / 2,
    ),
    "Chi2": (lambda a, b: D.Chi2(a + b), [0.7, 1.6], lambda a, b: a + b),
    "Wishart": (
        lambda a, b: D.Wishart(a, b * rabbet.eye(2, dtype=b.dtype)), [5.0, 1.6], lambda a, b: a * b,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANS)
def test_gradients_of_draws_have_the_right_mean(name):
    make, values, mean = MEANS[name]
    leaves = [ours(v).requires_grad_() for v in values]
    expected = [ours(v).requires_grad_() for v in values]
    mean(*expected).backward()
    rabbet.manual_seed(0)
    draws = make(*leaves).rsample((60_000,))
    draws = draws.square() if name == "StudentT" else draws
    draws.reshape(60_000, -1)[:, 0].mean().backward()
    for leaf, other in zip(leaves, expected, strict=True):
        assert abs(leaf.grad - other.grad) < 0.03 + 0.06 * abs(other.grad), (leaf.grad, other.grad)


def test_second_derivatives_of_gamma_draws_are_refused():
    a = ours(2.0).requires_grad_()
    (slope,) = rabbet.autograd.grad(D.Gamma(a, a).rsample(), a, create_graph=True)
    with pytest.raises(RuntimeError):
        rabbet.autograd.grad(slope, a)


def test_straight_through_draws_have_the_gradient_of_the_probabilities():
    p = ours([0.2, 0.3, 0.5]).requires_grad_()
    draw = D.OneHotCategoricalStraightThrough(p).rsample()
    assert sorted(draw.tolist()) == [0, 0, 1]
    (draw * ours([1.0, 2.0, 4.0])).sum().backward()
    weights = np.array([1, 2, 4]) - (np.array([0.2, 0.3, 0.5]) @ [1, 2, 4])  # through p / p.sum()
    np.testing.assert_allclose(p.grad.numpy(), weights, 1e-9)


def test_score_function_estimates_the_gradient():
    """REINFORCE: the mean of f(x) * d log p(x) is the gradient of E[f(x)]."""
    logits = ours([0.3, -0.5, 0.9]).requires_grad_()
    rewards = ours([1.0, -2.0, 3.0])
    distribution = D.Categorical(logits=logits)
    (wanted,) = rabbet.autograd.grad(
        (distribution.probs * rewards).sum(), logits, retain_graph=True
    )
    rabbet.manual_seed(0)
    x = distribution.sample((50_000,))
    surrogate = (distribution.log_prob(x) * rewards[x]).mean()
    (got,) = rabbet.autograd.grad(surrogate, logits)
    assert ((got - wanted).abs() < 0.03).all()


def test_entropies_of_exponential_families_are_those_of_their_closed_forms():
    for name in ("Normal", "Exponential", "Gamma", "Bernoulli", "ContinuousBernoulli"):
        distribution = CASES[name](D, ours)
        general = D.ExponentialFamily.entropy(distribution)
        np.testing.assert_allclose(
            general.detach().numpy(), distribution.entropy().numpy(), rtol=1e-5
        )


def test_entropy_of_a_normal_distribution_by_its_scale():
    scale = ours(2.0).requires_grad_()
    D.Normal(0.0, scale).entropy().backward()
    assert scale.grad == 0.5
    assert math.isclose(D.Normal(0.0, scale).entropy().item(), S.norm(0, 2).entropy())
