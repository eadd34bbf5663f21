"""Kullback-Leibler divergences, by the types of both distributions.

Most are -entropy(p) - E_p[log q(x)], where the mean of log q needs few moments of p: they stand in tables.
"""

import math
import warnings
from collections.abc import Callable
from functools import total_ordering
from typing import Any, TypeVar

import rabbet
from rabbet import Tensor

from ._linalg import log_determinant, solve_lower
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .laplace import Laplace
from .lowrank_multivariate_normal import LowRankMultivariateNormal, identity_of
from .multivariate_normal import MultivariateNormal
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import _sum_rightmost, euler_constant

__all__ = ["register_kl", "kl_divergence"]

_F = TypeVar("_F", bound=Callable[..., Tensor])
_KL_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}
_KL_MEMOIZE: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: Any, type_q: Any) -> Callable[[_F], _F]:
    """Decorator: the divergence of distributions of these types and, if nothing fits better, of their subclasses.

    Raises:
        TypeError: if one is no class. As in PyTorch a class need not derive from Distribution.
    """
    for name, given in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(given, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {given}")

    def add(function: _F) -> _F:
        _KL_REGISTRY[type_p, type_q] = function
        _KL_MEMOIZE.clear()
        return function

    return add


@total_ordering
class _Match:
    """Types in the order of how special they are."""

    def __init__(self, first: type, second: type) -> None:
        self.types = (first, second)

    def __eq__(self, other: Any) -> bool:
        return bool(self.types == other.types)

    def __le__(self, other: Any) -> bool:
        for mine, its in zip(self.types, other.types, strict=True):
            if not issubclass(mine, its):
                return False
            if mine is not its:
                break
        return True


def _dispatch_kl(type_p: type, type_q: type) -> Callable[[Any, Any], Tensor]:
    """The best function for two types."""
    matches = [
        pair for pair in _KL_REGISTRY if issubclass(type_p, pair[0]) and issubclass(type_q, pair[1])
    ]
    if not matches:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type_p.__name__} and q type {type_q.__name__}"
        )
    left = min(_Match(*pair) for pair in matches).types
    second, first = min(_Match(q, p) for p, q in matches).types
    right = (first, second)
    if _KL_REGISTRY[left] is not _KL_REGISTRY[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({left[0].__name__}, {right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[left]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean of log(p(x) / q(x)) over x of p, for each element of the batch.

    Raises:
        NotImplementedError: if no function is registered for the types.
    """
    types = (type(p), type(q))
    if types not in _KL_MEMOIZE:
        _KL_MEMOIZE[types] = _dispatch_kl(*types)
    return _KL_MEMOIZE[types](p, q)


# ---- means of log q(x) from moments of p


def _log_normal_density(p: Any, q: Normal) -> Tensor:
    square = p.variance + (p.mean - q.loc).square()
    return -0.5 * square / q.variance - q.scale.log() - 0.5 * math.log(2 * math.pi)


def _log_exponential_density(p: Any, q: Exponential) -> Tensor:
    return q.rate.log() - q.rate * p.mean


def _log_gamma_density(p: Any, q: Gamma) -> Tensor:
    a = q.concentration
    return a * q.rate.log() - a.lgamma() + (a - 1) * _mean_log(p) - q.rate * p.mean


def _log_gumbel_density(p: Any, q: Gumbel) -> Tensor:
    y = (q.loc - p.mean) / q.scale
    return y - q.scale.log() - (q.loc / q.scale).exp() * _mean_exp(p, -q.scale.reciprocal())


def _log_continuous_bernoulli_density(p: Any, q: ContinuousBernoulli) -> Tensor:
    return p.mean * q.logits + rabbet.logsigmoid(-q.logits) + q._cont_bern_log_norm()


def _log_uniform_density(p: Any, q: Uniform) -> Tensor:
    return -(q.high - q.low).log()


def _log_pareto_density(p: Any, q: Pareto) -> Tensor:
    return q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_log(p)


def _log_beta_density(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    other = Uniform(1 - p.high, 1 - p.low, validate_args=False)
    powers = (a - 1) * _mean_log(p) + (b - 1) * _mean_log(other)
    return powers + (a + b).lgamma() - a.lgamma() - b.lgamma()


def _log_laplace_density(p: Any, q: Laplace) -> Tensor:
    return -(2 * q.scale).log() - _mean_distance(p, q.loc) / q.scale


def _mean_log(p: Any) -> Tensor:
    """E[log(x)]."""
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Exponential):
        return -euler_constant - p.rate.log()
    if isinstance(p, Gamma):
        return p.concentration.digamma() - p.rate.log()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    ends = rabbet.xlogy(p.high, p.high) - rabbet.xlogy(p.low, p.low)
    return ends / (p.high - p.low) - 1


def _mean_exp(p: Any, t: Tensor) -> Tensor:
    """E[exp(t * x)] for negative t."""
    if isinstance(p, Exponential):
        return p.rate / (p.rate - t)
    if isinstance(p, Gamma):
        return (1 - t / p.rate) ** -p.concentration
    if isinstance(p, Gumbel):
        return (t * p.loc + (1 - t * p.scale).lgamma()).exp()
    if isinstance(p, Normal):
        return (t * p.loc + 0.5 * (t * p.scale).square()).exp()
    return ((t * p.high).exp() - (t * p.low).exp()) / (t * (p.high - p.low))


def _mean_distance(p: Any, point: Tensor) -> Tensor:
    """E[abs(x - point)]."""
    d = (p.loc - point).abs()
    if isinstance(p, Laplace):
        return d + p.scale * (-d / p.scale).exp()
    z = d / p.scale
    tail = math.sqrt(2 / math.pi) * (-0.5 * z.square()).exp()
    return p.scale * tail + d * (z / math.sqrt(2)).erf()


def _below(bound: Any) -> Callable[[Any, Any], Tensor]:
    """Where p has values below what q allows."""
    return lambda p, q: p.low < bound(q)


def _outside_unit(p: Uniform, q: Any) -> Tensor:
    return (p.low < 0) | (p.high > 1)


def _not_unit(p: Any, q: Uniform) -> Tensor:
    return (q.low > 0) | (q.high < 1)


def _wider(p: Uniform, q: Uniform) -> Tensor:
    return (q.low > p.low) | (q.high < p.high)


def _register(types_p: str, type_q: type, log_density: Any, impossible: Any = None) -> None:
    """-entropy(p) - E_p[log q(x)] for each type of p; infinite where q excludes values of p."""

    def divergence(p: Any, q: Any) -> Tensor:
        result = -p.entropy() - log_density(p, q)
        return result if impossible is None else result.masked_fill(impossible(p, q), math.inf)

    for name in types_p.split():
        register_kl(globals()[name], type_q)(divergence)


_NORMAL_OF = "Beta ContinuousBernoulli Exponential Gamma Gumbel Laplace Normal Pareto Uniform"
_register(_NORMAL_OF, Normal, _log_normal_density)
_register(
    "Beta ContinuousBernoulli Exponential Gamma Pareto", Exponential, _log_exponential_density
)
_register("Uniform", Exponential, _log_exponential_density, _below(lambda q: 0))
_register("Beta Exponential Gamma Pareto", Gamma, _log_gamma_density)
_register("Uniform", Gamma, _log_gamma_density, _below(lambda q: 0))
_register("Exponential Gamma Gumbel Normal Uniform", Gumbel, _log_gumbel_density)
_register("Beta ContinuousBernoulli", ContinuousBernoulli, _log_continuous_bernoulli_density)
_register("Uniform", ContinuousBernoulli, _log_continuous_bernoulli_density, _outside_unit)
_register("Beta ContinuousBernoulli", Uniform, _log_uniform_density, _not_unit)
_register("Uniform", Uniform, _log_uniform_density, _wider)
_register("Uniform", Pareto, _log_pareto_density, _below(lambda q: q.scale))
_register("Uniform", Beta, _log_beta_density, _outside_unit)
_register("Laplace Normal", Laplace, _log_laplace_density)

# q excludes values that p has.
_INFINITE = {
    "Beta": "Pareto",
    "ContinuousBernoulli": "Pareto",
    "Exponential": "Beta ContinuousBernoulli Pareto Uniform",
    "Gamma": "Beta ContinuousBernoulli Pareto Uniform",
    "Gumbel": "Beta ContinuousBernoulli Exponential Gamma Pareto Uniform",
    "Laplace": "Beta ContinuousBernoulli Exponential Gamma Pareto Uniform",
    "Normal": "Beta ContinuousBernoulli Exponential Gamma Pareto Uniform",
    "Pareto": "Beta ContinuousBernoulli Uniform",
    "Poisson": "Bernoulli Binomial",
}


def _kl_infinite(p: Any, q: Any) -> Tensor:
    shape = rabbet.broadcast_shapes(p.batch_shape, q.batch_shape)
    return p.mean.new_full(shape, math.inf)


for _p, _names in _INFINITE.items():
    for _q in _names.split():
        register_kl(globals()[_p], globals()[_q])(_kl_infinite)


# ---- closed forms of one family


@register_kl(Bernoulli, Bernoulli)
def _kl_bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    def term(weight: Tensor, other: Tensor, sign: int) -> Tensor:
        value = weight * (rabbet.logsigmoid(sign * p.logits) - rabbet.logsigmoid(sign * q.logits))
        value = rabbet.where(other == 0, math.inf, value)
        return rabbet.where(weight == 0, 0.0, value)

    return term(p.probs, q.probs, 1) + term(1 - p.probs, 1 - q.probs, -1)


@register_kl(Binomial, Binomial)
def _kl_binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    one = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return rabbet.where(p.total_count > q.total_count, math.inf, p.total_count * one)


@register_kl(Categorical, Categorical)
def _kl_categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = rabbet.where((q.probs == 0).expand_as(terms), math.inf, terms)
    return rabbet.where((p.probs == 0).expand_as(terms), 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _kl_one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _kl_categorical(p._categorical, q._categorical)


@register_kl(Dirichlet, Dirichlet)
def _kl_dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    log_betas = total.lgamma() - b.sum(-1).lgamma() + (b.lgamma() - a.lgamma()).sum(-1)
    means = a.digamma() - total.digamma().unsqueeze(-1)
    return log_betas + ((a - b) * means).sum(-1)


@register_kl(Beta, Beta)
def _kl_beta(p: Beta, q: Beta) -> Tensor:
    return _kl_dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Geometric, Geometric)
def _kl_geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _kl_poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Bernoulli, Poisson)
def _kl_bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Cauchy, Cauchy)
def _kl_cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    top = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return top.log() - (4 * p.scale * q.scale).log()


@register_kl(Pareto, Pareto)
def _kl_pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    value = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return rabbet.where(p.scale < q.scale, math.inf, value)


@register_kl(HalfNormal, HalfNormal)
def _kl_half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_exponential_family(p: Any, q: Any) -> Tensor:
    """The Bregman divergence of the log normalizers, with the gradient from autograd."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot "
            "be computed using Bregman divergences"
        )
    p_natural = [x.detach().requires_grad_() for x in p._natural_params]
    q_natural = q._natural_params
    with rabbet.enable_grad():
        log_normalizer = p._log_normalizer(*p_natural)
        slopes = rabbet.autograd.grad(log_normalizer.sum(), p_natural, create_graph=True)
        result = q._log_normalizer(*q_natural) - log_normalizer
        for a, b, slope in zip(p_natural, q_natural, slopes, strict=True):
            term = (b - a) * slope
            result = result - _sum_rightmost(term, term.ndim - len(q.batch_shape))
    return result


@register_kl(TransformedDistribution, TransformedDistribution)
def _kl_transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _kl_independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# ---- multivariate normal distributions


def _half_log_determinant(p: Any) -> Tensor:
    if isinstance(p, MultivariateNormal):
        return log_determinant(p._unbroadcasted_scale_tril)
    return 0.5 * p._log_determinant()


def _covariance_root(p: Any) -> Tensor:
    """A matrix A with A @ A.mT the covariance."""
    if isinstance(p, MultivariateNormal):
        return p._unbroadcasted_scale_tril
    shape = p._batch_shape + p._event_shape
    diagonal = identity_of(p.cov_diag.sqrt())
    return rabbet.cat([p.cov_factor, diagonal.expand(shape + shape[-1:])], -1)


def _whitened_square(q: Any, columns: Tensor) -> Tensor:
    """The sum of a.mT @ precision @ a over the columns a."""
    if isinstance(q, MultivariateNormal):
        return solve_lower(q._unbroadcasted_scale_tril, columns).square().sum((-2, -1))
    scaled = columns / q._unbroadcasted_cov_diag.unsqueeze(-1)
    projected = solve_lower(q._capacitance_tril, q._unbroadcasted_cov_factor.mT @ scaled)
    return (columns * scaled).sum((-2, -1)) - projected.square().sum((-2, -1))


def _kl_multivariate_normal(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        kinds = {isinstance(d, MultivariateNormal) for d in (p, q)}
        name = "Multivariate" if kinds == {True} else "(Low Rank) Multivariate"
        raise ValueError(
            f"KL-divergence between two {name} Normals with different event shapes cannot be computed"
        )
    spread = _whitened_square(q, _covariance_root(p))
    distance = _whitened_square(q, (q.loc - p.loc).unsqueeze(-1))
    log_ratio = _half_log_determinant(q) - _half_log_determinant(p)
    return log_ratio + 0.5 * (spread + distance - p.event_shape[0])


for _p_type in (MultivariateNormal, LowRankMultivariateNormal):
    for _q_type in (MultivariateNormal, LowRankMultivariateNormal):
        register_kl(_p_type, _q_type)(_kl_multivariate_normal)
