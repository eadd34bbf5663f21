"""Distributions as functions of a framework's `distributions` and a maker of float64 tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

P = [[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]]
COVARIANCE = [[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 1.5]]
FACTOR = [[1.2, 0.0, 0.0], [0.4, 0.9, 0.0], [-0.3, 0.2, 1.1]]

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "Normal": lambda D, t: D.Normal(t([0.5, -1.0]), t([[1.0], [2.5]])),
    "Normal of numbers": lambda D, t: D.Normal(0.5, 2.0),
    "Laplace": lambda D, t: D.Laplace(t([0.5, -1.0]), t([1.0, 2.0])),
    "Cauchy": lambda D, t: D.Cauchy(t([0.5, -1.0]), t([1.0, 2.0])),
    "Uniform": lambda D, t: D.Uniform(t([-0.5, 1.0]), t([1.0, 2.5])),
    "Exponential": lambda D, t: D.Exponential(t([0.5, 2.0])),
    "LogNormal": lambda D, t: D.LogNormal(t([0.5, -1.0]), t([0.4, 0.7])),
    "HalfNormal": lambda D, t: D.HalfNormal(t([0.5, 2.0])),
    "HalfCauchy": lambda D, t: D.HalfCauchy(t([0.5, 2.0])),
    "Gumbel": lambda D, t: D.Gumbel(t([0.5, -1.0]), t([1.0, 2.0])),
    "Weibull": lambda D, t: D.Weibull(t([0.5, 2.0]), t([1.5, 2.5])),
    "Pareto": lambda D, t: D.Pareto(t([0.5, 2.0]), t([3.5, 2.5])),
    "Kumaraswamy": lambda D, t: D.Kumaraswamy(t([0.5, 2.0]), t([1.5, 2.5])),
    "GeneralizedPareto": lambda D, t: D.GeneralizedPareto(
        t([0.5, 1.0]), t([1.5, 2.5]), t([0.2, -0.3])
    ),
    "Bernoulli": lambda D, t: D.Bernoulli(t([0.3, 0.8])),
    "Bernoulli of logits": lambda D, t: D.Bernoulli(logits=t([0.3, -1.8])),
    "Geometric": lambda D, t: D.Geometric(t([0.3, 0.8])),
    "Geometric of logits": lambda D, t: D.Geometric(logits=t([0.3, -0.8])),
    "Binomial": lambda D, t: D.Binomial(7, t([0.3, 0.8])),
    "Binomial of logits": lambda D, t: D.Binomial(7, logits=t([0.3, -0.8])),
    "Binomial of many": lambda D, t: D.Binomial(t([200.0, 50.0]), t([0.3, 0.85])),
    "NegativeBinomial": lambda D, t: D.NegativeBinomial(t([3.0, 4.5]), t([0.3, 0.6])),
    "NegativeBinomial of logits": lambda D, t: D.NegativeBinomial(3, logits=t([0.3, -0.6])),
    "Poisson": lambda D, t: D.Poisson(t([0.7, 35.0])),
    "Categorical": lambda D, t: D.Categorical(t(P)),
    "Categorical of logits": lambda D, t: D.Categorical(logits=t([0.3, -0.6, 1.0])),
    "OneHotCategorical": lambda D, t: D.OneHotCategorical(t(P)),
    "OneHotCategoricalStraightThrough": lambda D, t: D.OneHotCategoricalStraightThrough(t(P)),
    "Multinomial": lambda D, t: D.Multinomial(6, t(P)),
    "Multinomial of logits": lambda D, t: D.Multinomial(6, logits=t([0.3, -0.6, 1.0])),
    "Gamma": lambda D, t: D.Gamma(t([0.5, 4.0]), t([1.0, 2.0])),
    "Chi2": lambda D, t: D.Chi2(t([1.5, 4.0])),
    "InverseGamma": lambda D, t: D.InverseGamma(t([3.5, 4.0]), t([1.0, 2.0])),
    "Beta": lambda D, t: D.Beta(t([0.5, 4.0]), t([1.5, 2.0])),
    "Dirichlet": lambda D, t: D.Dirichlet(t([[0.5, 4.0, 1.0], [2.0, 3.0, 0.8]])),
    "StudentT": lambda D, t: D.StudentT(t([3.5, 7.0]), t([0.5, -1.0]), t([1.0, 2.0])),
    "FisherSnedecor": lambda D, t: D.FisherSnedecor(t([3.5, 7.0]), t([6.5, 9.0])),
    "VonMises": lambda D, t: D.VonMises(t([0.5, -1.0]), t([0.7, 6.0])),
    "ContinuousBernoulli": lambda D, t: D.ContinuousBernoulli(t([0.4999, 0.8])),
    "ContinuousBernoulli of logits": lambda D, t: D.ContinuousBernoulli(logits=t([0.3, -0.8])),
    "RelaxedBernoulli": lambda D, t: D.RelaxedBernoulli(t(0.7), t([0.3, 0.8])),
    "RelaxedOneHotCategorical": lambda D, t: D.RelaxedOneHotCategorical(t(0.7), t(P)),
    "LogisticNormal": lambda D, t: D.LogisticNormal(t([0.5, -1.0]), t([1.0, 0.5])),
    "MultivariateNormal": lambda D, t: D.MultivariateNormal(t([0.5, -1.0, 2.0]), t(COVARIANCE)),
    "MultivariateNormal of a precision": lambda D, t: D.MultivariateNormal(
        t([0.5, -1.0, 2.0]), precision_matrix=t(COVARIANCE)
    ),
    "MultivariateNormal of a factor": lambda D, t: D.MultivariateNormal(
        t([[0.5, -1.0, 2.0], [0.0, 0.0, 1.0]]), scale_tril=t(FACTOR)
    ),
    "LowRankMultivariateNormal": lambda D, t: D.LowRankMultivariateNormal(
        t([0.5, -1.0, 2.0]), t([[1.0], [0.5], [-0.7]]), t([0.3, 0.9, 0.4])
    ),
    "MixtureSameFamily": lambda D, t: D.MixtureSameFamily(
        D.Categorical(t([0.3, 0.7])), D.Normal(t([0.5, -1.0]), t([1.0, 0.5]))
    ),
    "MixtureSameFamily of vectors": lambda D, t: D.MixtureSameFamily(
        D.Categorical(t(P)),
        D.Independent(D.Normal(t([[[0.5, -1.0]] * 3] * 2), t([[1.0, 2.0]] * 3)), 1),
    ),
    "LKJCholesky": lambda D, t: D.LKJCholesky(3, t([1.5, 0.8])),
    "Wishart": lambda D, t: D.Wishart(t([4.5, 7.0]), t(COVARIANCE)),
    "Wishart of a precision": lambda D, t: D.Wishart(t(4.5), precision_matrix=t(COVARIANCE)),
    "Wishart of a factor": lambda D, t: D.Wishart(5, scale_tril=t(FACTOR)),
    "Independent": lambda D, t: D.Independent(D.Normal(t([[0.5, -1.0]]), t([1.0, 2.0])), 1),
    "TransformedDistribution": lambda D, t: D.TransformedDistribution(
        D.Normal(t([0.5, -1.0]), t([1.0, 0.5])), [D.SigmoidTransform(), D.AffineTransform(1.0, -2.0)]
    ),
    "Logistic": lambda D, t: D.TransformedDistribution(
        D.Uniform(t([0.0, 0.0]), t([1.0, 1.0])),
        [D.SigmoidTransform().inv, D.AffineTransform(t([0.5, -1.0]), t([1.0, 2.0]))],
    ),
}  # fmt: skip
