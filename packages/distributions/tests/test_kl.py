"""Divergences against Monte Carlo, and how they are found."""

import itertools
import warnings

import numpy as np
import pytest
import rabbet
import rabbet.distributions as D
from distribution_cases import COVARIANCE, FACTOR
from rabbet.distributions.kl import _KL_REGISTRY


def t(x):
    return rabbet.tensor(x, dtype=rabbet.float64)


P = {
    "Bernoulli": D.Bernoulli(t([0.3, 0.7])),
    "Beta": D.Beta(t([1.5, 4.0]), t([2.5, 2.0])),
    "Binomial": D.Binomial(7, t([0.3, 0.7])),
    "Categorical": D.Categorical(t([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]])),
    "Cauchy": D.Cauchy(t([0.5, -1.0]), t([1.0, 2.0])),
    "ContinuousBernoulli": D.ContinuousBernoulli(t([0.3, 0.8])),
    "Dirichlet": D.Dirichlet(t([[1.5, 4.0, 1.0], [2.0, 3.0, 2.8]])),
    "Exponential": D.Exponential(t([1.5, 2.5])),
    "Gamma": D.Gamma(t([2.5, 4.0]), t([1.0, 2.0])),
    "Geometric": D.Geometric(t([0.3, 0.7])),
    "Gumbel": D.Gumbel(t([0.5, -1.0]), t([1.0, 0.7])),
    "HalfNormal": D.HalfNormal(t([0.5, 2.0])),
    "Independent": D.Independent(D.Normal(t([[0.5, -1.0], [0.0, 1.0]]), t([1.0, 2.0])), 1),
    "Laplace": D.Laplace(t([0.5, -1.0]), t([1.0, 0.7])),
    "LowRankMultivariateNormal": D.LowRankMultivariateNormal(
        t([[0.5, -1.0, 2.0], [0.0, 0.0, 1.0]]), t([[1.0], [0.5], [-0.7]]), t([0.7, 0.9, 0.8])
    ),
    "MultivariateNormal": D.MultivariateNormal(t([[0.3, -0.5, 1.5], [0.0, 0.4, 1.0]]), t(COVARIANCE)),
    "Normal": D.Normal(t([0.5, -1.0]), t([1.0, 0.7])),
    "OneHotCategorical": D.OneHotCategorical(t([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]])),
    "Pareto": D.Pareto(t([0.5, 2.0]), t([4.5, 6.5])),
    "Poisson": D.Poisson(t([0.7, 5.0])),
    "TransformedDistribution": D.LogNormal(t([0.5, -1.0]), t([0.4, 0.7])),
    "Uniform": D.Uniform(t([0.2, 0.4]), t([0.6, 0.9])),
}  # fmt: skip
# Partners for which both divergences are finite.
Q = {
    **P,
    "Bernoulli": D.Bernoulli(t([0.5, 0.6])),
    "Beta": D.Beta(t([1.2, 2.0]), t([2.0, 1.5])),
    "Binomial": D.Binomial(7, t([0.4, 0.5])),
    "Categorical": D.Categorical(t([[0.4, 0.3, 0.3], [0.3, 0.4, 0.3]])),
    "Cauchy": D.Cauchy(t([0.0, -0.5]), t([2.0, 1.0])),
    "ContinuousBernoulli": D.ContinuousBernoulli(t([0.6, 0.4999])),
    "Dirichlet": D.Dirichlet(t([[2.0, 2.0, 2.0], [1.0, 1.5, 1.8]])),
    "Exponential": D.Exponential(t([1.0, 2.0])),
    "Gamma": D.Gamma(t([2.0, 3.0]), t([1.2, 1.5])),
    "Geometric": D.Geometric(t([0.4, 0.5])),
    "Gumbel": D.Gumbel(t([0.0, -0.5]), t([1.5, 1.2])),
    "HalfNormal": D.HalfNormal(t([1.0, 1.5])),
    "Independent": D.Independent(D.Normal(t([[0.0, -0.5], [0.5, 1.5]]), t([1.5, 1.0])), 1),
    "Laplace": D.Laplace(t([0.0, -0.5]), t([1.5, 1.2])),
    "Normal": D.Normal(t([0.0, -0.5]), t([1.5, 1.2])),
    "OneHotCategorical": D.OneHotCategorical(t([[0.4, 0.3, 0.3], [0.3, 0.4, 0.3]])),
    "MultivariateNormal": D.MultivariateNormal(t([0.0, -0.3, 1.2]), scale_tril=t(FACTOR)),
    "Pareto": D.Pareto(t([0.1, 0.3]), t([3.5, 2.5])),
    "Poisson": D.Poisson(t([1.0, 4.0])),
    "TransformedDistribution": D.LogNormal(t([0.0, -0.5]), t([0.6, 0.9])),
    "Uniform": D.Uniform(t([-0.1, 0.0]), t([1.0, 1.2])),
}  # fmt: skip
PAIRS = sorted(
    (p.__name__, q.__name__) for p, q in _KL_REGISTRY if p.__name__ in P and q.__name__ in Q
)
ELSEWHERE = {("ExponentialFamily", "ExponentialFamily")}


def test_all_pairs_are_tested():
    assert {(p.__name__, q.__name__) for p, q in _KL_REGISTRY} == {*PAIRS} | ELSEWHERE


@pytest.mark.parametrize("a,b", PAIRS)
def test_divergences_are_means(a, b):
    p, q = P[a], Q[b]
    rabbet.manual_seed(0)
    x = p.sample((60_000,))
    got = D.kl_divergence(p, q)
    assert got.shape == p.batch_shape
    if got.isinf().any():  # where q excludes values of p; a Poisson number above 7 is rare
        assert got.isinf().all()
        assert not q.support.check(x).all() or (a, b) == ("Poisson", "Binomial")
        return
    ratio = p.log_prob(x) - q.log_prob(x)
    error = ratio.std(0) / len(x) ** 0.5
    assert ((ratio.mean(0) - got).abs() < 4.5 * error + 1e-9).all(), (got, ratio.mean(0))


@pytest.mark.parametrize("name", P)
def test_the_divergence_from_itself_is_zero(name):
    np.testing.assert_allclose(D.kl_divergence(P[name], P[name]).numpy(), 0, atol=1e-12)


def test_exponential_families_have_a_general_formula():
    from rabbet.distributions.kl import _kl_exponential_family

    for name in ("Normal", "Exponential", "Gamma", "Beta", "Dirichlet", "Bernoulli", "Poisson"):
        got = _kl_exponential_family(P[name], Q[name]).detach().numpy()
        np.testing.assert_allclose(got, D.kl_divergence(P[name], Q[name]).numpy(), 1e-9)
    with pytest.raises(NotImplementedError, match="between different exponential families"):
        D.kl_divergence(P["Poisson"], P["Normal"])


def test_divergences_have_gradients():
    for a, b in itertools.product(("Normal", "Gamma", "Beta"), ("Normal", "Gamma")):
        if (a, b) not in PAIRS or (a, b) == ("Normal", "Gamma"):
            continue
        kinds = getattr(D, a), getattr(D, b)

        def divergence(w, x, y, z, kinds=kinds):
            return D.kl_divergence(kinds[0](w, x), kinds[1](y, z))

        values = tuple(t([v]).requires_grad_() for v in (0.7, 1.3, 1.1, 2.0))
        assert rabbet.autograd.gradcheck(divergence, values)


def test_a_value_that_q_excludes_makes_it_infinite():
    assert D.kl_divergence(D.Bernoulli(t(0.5)), D.Bernoulli(t(0.0))).isinf()
    assert D.kl_divergence(D.Bernoulli(t(0.0)), D.Bernoulli(t(0.5))) > 0.69
    one, other = t([0.5, 0.5]), t([1.0, 0.0])
    assert D.kl_divergence(D.Categorical(one), D.Categorical(other)).isinf()
    assert D.kl_divergence(D.Uniform(0.0, 2.0), D.Uniform(0.0, 1.0)).isinf()
    assert D.kl_divergence(D.Pareto(1.0, 1.0), D.Pareto(2.0, 1.0)).isinf()
    assert D.kl_divergence(D.Uniform(-1.0, 1.0), D.Exponential(1.0)).isinf()


def test_functions_are_found_by_type():
    class Mine(D.Normal):
        pass

    class Yours(D.Normal):
        pass

    assert D.kl_divergence(Mine(0.0, 1.0), Yours(0.0, 1.0)) == 0
    added = [(Mine, D.Normal), (D.Normal, Yours)]
    try:

        @D.register_kl(Mine, D.Normal)
        def left(p, q):
            return t(1.0)

        @D.register_kl(D.Normal, Yours)
        def right(p, q):
            return t(2.0)

        assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)) == 1
        assert D.kl_divergence(D.Normal(0.0, 1.0), Yours(0.0, 1.0)) == 2
        assert D.kl_divergence(Yours(0.0, 1.0), D.Normal(0.0, 1.0)) == 0
        with pytest.warns(RuntimeWarning, match=r"Ambiguous kl_divergence\(Mine, Yours\)"):
            D.kl_divergence(Mine(0.0, 1.0), Yours(0.0, 1.0))
    finally:
        for pair in added:
            _KL_REGISTRY.pop(pair, None)
        D.kl._KL_MEMOIZE.clear()


def test_what_cannot_be_computed_says_so():
    with pytest.raises(NotImplementedError, match=r"No KL\(p \|\| q\) is implemented for p type"):
        D.kl_divergence(P["Normal"], P["Categorical"])
    with pytest.raises(NotImplementedError, match=r"q\.total_count > p\.total_count"):
        D.kl_divergence(D.Binomial(3, t(0.5)), D.Binomial(4, t(0.5)))
    with pytest.raises(ValueError, match="different event shapes"):
        one = D.MultivariateNormal(t([0.0]), t([[1.0]]))
        D.kl_divergence(one, P["MultivariateNormal"])
    with pytest.raises(NotImplementedError):
        D.kl_divergence(D.LogNormal(0.0, 1.0), D.TransformedDistribution(D.Normal(0.0, 1.0), []))
    with pytest.raises(TypeError, match="Expected type_q to be a Distribution subclass but got"):
        D.register_kl(D.Normal, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        D.kl_divergence(P["Normal"], Q["Normal"])
