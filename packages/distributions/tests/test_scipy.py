"""Densities, distribution functions, moments and draws against SciPy."""

import numpy as np
import pytest
import rabbet
import rabbet.distributions as D
import scipy.stats as S
from distribution_cases import CASES, COVARIANCE, FACTOR, P


def ours(x):
    return rabbet.tensor(x, dtype=rabbet.float64)


def low_rank():
    w = np.array([[1.0], [0.5], [-0.7]])
    return w @ w.T + np.diag([0.3, 0.9, 0.4])


# One SciPy distribution for each element of the batch.
REFERENCES = {
    "Laplace": [S.laplace(0.5, 1), S.laplace(-1, 2)],
    "Cauchy": [S.cauchy(0.5, 1), S.cauchy(-1, 2)],
    "Uniform": [S.uniform(-0.5, 1.5), S.uniform(1, 1.5)],
    "Exponential": [S.expon(scale=2), S.expon(scale=0.5)],
    "LogNormal": [S.lognorm(0.4, scale=np.exp(0.5)), S.lognorm(0.7, scale=np.exp(-1))],
    "HalfNormal": [S.halfnorm(scale=0.5), S.halfnorm(scale=2)],
    "HalfCauchy": [S.halfcauchy(scale=0.5), S.halfcauchy(scale=2)],
    "Gumbel": [S.gumbel_r(0.5, 1), S.gumbel_r(-1, 2)],
    "Weibull": [S.weibull_min(1.5, scale=0.5), S.weibull_min(2.5, scale=2)],
    "Pareto": [S.pareto(3.5, scale=0.5), S.pareto(2.5, scale=2)],
    "GeneralizedPareto": [S.genpareto(0.2, 0.5, 1.5), S.genpareto(-0.3, 1, 2.5)],
    "Gamma": [S.gamma(0.5), S.gamma(4, scale=0.5)],
    "Chi2": [S.chi2(1.5), S.chi2(4)],
    "InverseGamma": [S.invgamma(3.5), S.invgamma(4, scale=2)],
    "Beta": [S.beta(0.5, 1.5), S.beta(4, 2)],
    "StudentT": [S.t(3.5, 0.5, 1), S.t(7, -1, 2)],
    "FisherSnedecor": [S.f(3.5, 6.5), S.f(7, 9)],
    "VonMises": [S.vonmises(0.7, 0.5), S.vonmises(6, -1)],
    "Logistic": [S.logistic(0.5, 1), S.logistic(-1, 2)],
    "Bernoulli": [S.bernoulli(0.3), S.bernoulli(0.8)],
    "Geometric": [S.geom(0.3, -1), S.geom(0.8, -1)],
    "Binomial": [S.binom(7, 0.3), S.binom(7, 0.8)],
    "Binomial of many": [S.binom(200, 0.3), S.binom(50, 0.85)],
    "NegativeBinomial": [S.nbinom(3, 0.7), S.nbinom(4.5, 0.4)],
    "Poisson": [S.poisson(0.7), S.poisson(35)],
}
CIRCULAR = {"VonMises"}  # mean and variance are those of angles, the Bessel functions have 7 digits
MANY = {
    "Dirichlet": [S.dirichlet([0.5, 4, 1]), S.dirichlet([2, 3, 0.8])],
    "Multinomial": [S.multinomial(6, p) for p in P],
    "MultivariateNormal": S.multivariate_normal([0.5, -1, 2], COVARIANCE),
    "MultivariateNormal of a precision": S.multivariate_normal(
        [0.5, -1, 2], np.linalg.inv(COVARIANCE)
    ),
    "LowRankMultivariateNormal": S.multivariate_normal([0.5, -1, 2], low_rank()),
    "Wishart of a factor": S.wishart(5, np.array(FACTOR) @ np.array(FACTOR).T),
}  # fmt: skip


def drawn(distribution, count, seed=0):
    rabbet.manual_seed(seed)
    return distribution.sample((count,))


def close(got, want, rtol=1e-11):
    np.testing.assert_allclose(got.detach().numpy(), want, rtol, 1e-12)


@pytest.mark.parametrize("name", REFERENCES)
def test_densities(name):
    distribution, references = CASES[name](D, ours), REFERENCES[name]
    x = drawn(distribution, 20)
    density = [
        (r.logpmf if hasattr(r.dist, "pmf") else r.logpdf)(column)
        for r, column in zip(references, x.numpy().T, strict=True)
    ]
    tolerance = 1e-6 if name in CIRCULAR else 1e-10
    close(distribution.log_prob(x), np.array(density).T, tolerance)


@pytest.mark.parametrize("name", REFERENCES)
def test_distribution_functions(name):
    distribution, references = CASES[name](D, ours), REFERENCES[name]
    x = drawn(distribution, 20)
    p = np.random.default_rng(0).uniform(0.01, 0.99, (9, len(references)))
    for method, reference, values in (("cdf", "cdf", x.numpy()), ("icdf", "ppf", p)):
        try:
            got = getattr(distribution, method)(rabbet.from_numpy(values.copy()))
        except NotImplementedError:
            assert (name, method) in NO_FUNCTION
            continue
        assert (name, method) not in NO_FUNCTION
        want = [getattr(r, reference)(v) for r, v in zip(references, values.T, strict=True)]
        close(got, np.array(want).T, 1e-9)


NO_FUNCTION = {
    *((n, "cdf") for n in ("Beta", "StudentT", "FisherSnedecor", "VonMises")),
    *((n, "icdf") for n in ("Gamma", "Chi2", "InverseGamma", "Beta", "StudentT", "FisherSnedecor", "VonMises")),
    *((n, m) for n in REFERENCES if "pmf" in dir(REFERENCES[n][0].dist) for m in ("cdf", "icdf")),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(REFERENCES) - CIRCULAR - {"Logistic"}))
def test_moments_and_entropy(name):
    distribution, references = CASES[name](D, ours), REFERENCES[name]
    if name not in ("Cauchy", "HalfCauchy"):
        close(distribution.mean, [r.mean() for r in references], 1e-9)
        close(distribution.variance, [r.var() for r in references], 1e-9)
        close(distribution.stddev, [r.std() for r in references], 1e-9)
    try:
        entropy = distribution.entropy()
    except NotImplementedError:
        assert name in ("FisherSnedecor", "NegativeBinomial", "Poisson", "Binomial of many")
        return
    close(entropy, [r.entropy() for r in references], 1e-8)
    close(distribution.perplexity(), np.exp([r.entropy() for r in references]), 1e-8)


def test_moments_of_a_cauchy_distribution():
    assert D.Cauchy(0.0, 1.0).mean.isnan() and D.Cauchy(0.0, 1.0).variance.isinf()
    assert D.HalfCauchy(1.0).mean.isinf() and D.HalfCauchy(1.0).variance.isinf()


@pytest.mark.parametrize("name", REFERENCES)
def test_draws(name):
    """Kolmogorov and Smirnov where the distribution is continuous, else the chi-squared test."""
    distribution, references = CASES[name](D, ours), REFERENCES[name]
    for r, column in zip(references, drawn(distribution, 20_000).numpy().T, strict=True):
        if not hasattr(r.dist, "pmf"):
            if name in CIRCULAR:  # SciPy's angles lie around loc
                assert (abs(column) <= np.pi).all()
                loc = r.args[1]
                column = (column - loc + np.pi) % (2 * np.pi) - np.pi + loc
            assert S.kstest(column, r.cdf).pvalue > 1e-3
            continue
        edges = np.unique(np.r_[-0.5, r.ppf(np.linspace(0.05, 0.95, 10)) + 0.5, np.inf])
        counts = np.histogram(column, edges)[0]
        expected = len(column) * np.diff(r.cdf(edges))
        counts, expected = counts[expected > 0], expected[expected > 0]
        assert counts.sum() == len(column) and len(counts) > 1
        assert S.chisquare(counts, expected).pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.0, 1e-3, 3.0, 9.99, 10.0, 12.3, 1e3, 1e6])
def test_poisson_numbers_of_all_sizes(rate):
    x = drawn(D.Poisson(ours([rate])), 40_000).numpy()
    assert (x >= 0).all() and (x == np.floor(x)).all()
    error = np.sqrt(max(rate, 1e-12) / len(x))
    assert abs(x.mean() - rate) < 4 * error
    assert abs(x.var() - rate) < 0.05 * rate + 1e-3


@pytest.mark.parametrize("n", [0, 1, 15, 40, 1000, 100_000])
@pytest.mark.parametrize("p", [0.0, 0.01, 0.3, 0.5, 0.97, 1.0])
def test_binomial_numbers_of_all_sizes(n, p):
    x = drawn(D.Binomial(n, ours([p])), 20_000).numpy()
    assert ((x >= 0) & (x <= n) & (x == np.floor(x))).all()
    spread = np.sqrt(n * p * (1 - p))
    assert abs(x.mean() - n * p) <= 4 * spread / np.sqrt(len(x))
    assert abs(x.std() - spread) <= 0.04 * spread


@pytest.mark.parametrize("shape", [0.01, 0.3, 0.999, 1.0, 2.5, 50.0, 5000.0])
def test_gamma_numbers_of_all_shapes(shape):
    x = drawn(D.Gamma(ours([shape]), ours([1.0])), 20_000).numpy()[:, 0]
    assert (x > 0).all()
    assert S.kstest(x, S.gamma(shape).cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", MANY)
def test_densities_of_vectors(name):
    distribution, reference = CASES[name](D, ours), MANY[name]
    x = drawn(distribution, 10)
    if isinstance(reference, list):
        rows = zip(reference, np.moveaxis(x.numpy(), 1, 0), strict=True)
        log = "logpmf" if name == "Multinomial" else "logpdf"
        want = np.array([[getattr(r, log)(v) for v in values] for r, values in rows]).T
        entropy = [r.entropy() for r in reference]
    elif name.startswith("Wishart"):
        want = [reference.logpdf(v) for v in x.numpy()]
        entropy = reference.entropy()
    else:
        want, entropy = reference.logpdf(x.numpy()), reference.entropy()
    close(distribution.log_prob(x), want, 1e-9)
    close(distribution.entropy(), entropy, 1e-9)


VECTORS = [
    "Dirichlet", "Multinomial", "MultivariateNormal", "MultivariateNormal of a precision",
    "MultivariateNormal of a factor", "LowRankMultivariateNormal", "MixtureSameFamily",
    "MixtureSameFamily of vectors", "Wishart of a factor", "OneHotCategorical", "Independent",
]  # fmt: skip


@pytest.mark.parametrize("name", VECTORS)
def test_draws_of_vectors_have_their_moments(name):
    distribution = CASES[name](D, ours)
    x = drawn(distribution, 40_000)
    error = distribution.stddev / 200
    assert ((x.mean(0) - distribution.mean).abs() < 4.5 * error).all()
    assert ((x.var(0) - distribution.variance).abs() < 0.06 * distribution.variance).all()


def test_draws_of_categories_have_their_frequencies():
    x = drawn(D.Categorical(ours(P)), 30_000).numpy()
    for column, p in zip(x.T, P, strict=True):
        counts = np.bincount(column, minlength=3)
        assert S.chisquare(counts, len(column) * np.array(p)).pvalue > 1e-3


def test_covariances_of_draws():
    for name in ("MultivariateNormal", "LowRankMultivariateNormal"):
        distribution = CASES[name](D, ours)
        want = distribution.covariance_matrix.numpy()
        np.testing.assert_allclose(np.cov(drawn(distribution, 40_000).numpy().T), want, atol=0.05)


def test_draws_of_correlations():
    """Of the LKJ distribution with dimension d each correlation is 2 * beta - 1 (their article, page 1993)."""
    factor = drawn(D.LKJCholesky(4, ours(1.5)), 20_000)
    correlations = (factor @ factor.mT).numpy()
    np.testing.assert_allclose(np.diagonal(correlations, axis1=1, axis2=2), 1, atol=1e-12)
    alpha = 1.5 + (4 - 2) / 2
    for i, j in ((1, 0), (3, 1), (3, 2)):
        assert S.kstest((correlations[:, i, j] + 1) / 2, S.beta(alpha, alpha).cdf).pvalue > 1e-3


def test_relaxed_draws_choose_as_their_distribution():
    p = ours([0.2, 0.3, 0.5])
    chosen = drawn(D.RelaxedOneHotCategorical(ours(0.3), p), 30_000).argmax(-1).numpy()
    assert S.chisquare(np.bincount(chosen), 30_000 * p.numpy()).pvalue > 1e-3
    ones = (drawn(D.RelaxedBernoulli(ours(0.3), ours(0.7)), 30_000) > 0.5).sum().item()
    assert S.binomtest(ones, 30_000, 0.7).pvalue > 1e-3


@pytest.mark.parametrize(
    "name",
    ["RelaxedBernoulli", "ContinuousBernoulli", "Kumaraswamy", "Logistic", "MixtureSameFamily", "VonMises"],
)  # fmt: skip
def test_densities_integrate_to_one(name):
    distribution = CASES[name](D, ours)
    unit = name not in ("Logistic", "MixtureSameFamily", "VonMises")
    edge = np.pi if name == "VonMises" else 40.0
    x = np.linspace(1e-5, 1 - 1e-5, 200_001) if unit else np.linspace(-edge, edge, 200_001)
    t = np.sin(np.pi * (x - 0.5)) / 2 + 0.5 if unit else x  # dense at the edges of (0, 1)
    shape = (-1,) + (1,) * len(distribution.batch_shape)
    density = distribution.log_prob(rabbet.from_numpy(t.reshape(shape))).exp().numpy()
    np.testing.assert_allclose(np.trapezoid(density, t, axis=0), 1, rtol=2e-4)


def test_a_generalized_pareto_distribution_of_concentration_0_is_exponential():
    one, other = D.GeneralizedPareto(ours([0.5]), ours([2.0]), 0.0), S.expon(0.5, 2)
    x = np.array([0.7, 1.5, 9.0])
    close(one.log_prob(rabbet.from_numpy(x)), other.logpdf(x))
    close(one.cdf(rabbet.from_numpy(x)), other.cdf(x))
    close(one.icdf(rabbet.from_numpy(other.cdf(x))), x)
    close(one.entropy(), [other.entropy()])
    assert D.GeneralizedPareto(0.0, 1.0, 1.5).mean.isnan()


def test_default_dtype_and_shapes_of_draws():
    for name, make in CASES.items():
        distribution = make(D, lambda x: rabbet.tensor(x, dtype=rabbet.float32))
        x = drawn(distribution, 2)
        assert x.shape == (2, *distribution.batch_shape, *distribution.event_shape), name
        assert x.dtype == (rabbet.int64 if name.startswith("Categorical") else rabbet.float32)
        assert not x.requires_grad


def test_a_seed_repeats_its_draws():
    for make in CASES.values():
        distribution = make(D, ours)
        assert rabbet.equal(drawn(distribution, 3, 5), drawn(distribution, 3, 5))
