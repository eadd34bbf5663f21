"""Random numbers that no operator draws: gamma, Poisson and binomial, all elements at a time."""

import math
from typing import Any

import rabbet
from rabbet import Size, Tensor
from rabbet.autograd import Function
from rabbet.autograd.function import once_differentiable

from ._incomplete_gamma import quantile_slope


class _StandardLogGamma(Function):
    """Logarithms of draws of Gamma(alpha, 1), differentiable by alpha at the same quantile."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor) -> Tensor:
        log_x = _log_gamma_draws(alpha.double())
        ctx.save_for_backward(alpha, log_x)
        return log_x.to(alpha.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        alpha, log_x = ctx.saved_tensors
        return grad * quantile_slope(alpha.double(), log_x).to(grad.dtype)


def log_gamma_draws(alpha: Tensor) -> Tensor:
    """log(x) for x of Gamma(alpha, 1): no underflow for small alpha."""
    return _StandardLogGamma.apply(alpha)


def gamma_draws(alpha: Tensor) -> Tensor:
    """Numbers of Gamma(alpha, 1), of at least the smallest normal number."""
    return log_gamma_draws(alpha).exp().clamp(min=rabbet.finfo(alpha.dtype).tiny)


def dirichlet_draws(alpha: Tensor) -> Tensor:
    """Points of the simplex: gamma numbers over their sum."""
    return log_gamma_draws(alpha).softmax(-1)


def _log_gamma_draws(alpha: Tensor) -> Tensor:
    """Marsaglia and Tsang 2000, "A simple method for generating gamma variables"; below 1 by the next larger shape."""
    boosted = alpha < 1
    d = rabbet.where(boosted, alpha + 1, alpha) - 1 / 3
    c = 1 / (9 * d).sqrt()
    accepted = ~(d > 0) | d.isinf()  # what no shape has
    cube = rabbet.ones_like(d)
    while not accepted.all():
        z = rabbet.randn_like(d)
        v = (1 + c * z) ** 3
        log_u = rabbet.rand_like(d).log()
        fits = (v > 0) & (log_u < 0.5 * z * z + d * (1 - v + v.clamp(min=1e-300).log()))
        cube = rabbet.where(~accepted & fits, v, cube)
        accepted = accepted | fits
    boost = (-rabbet.rand_like(d)).log1p() / alpha
    return (d * cube).log() + rabbet.where(boosted, boost, 0.0)


def _by_inversion(probability: Tensor, ratio: Any, steps: Tensor) -> Tensor:
    """Counts below `steps` of which 0 has `probability`, and k + 1 has ratio(k) times that of k."""
    u = rabbet.rand_like(probability)
    count = rabbet.zeros_like(probability)
    k = 0
    above = u > probability
    while above.any():
        count = count + above.type_as(count)
        u = u - probability
        probability = probability * ratio(k)
        k += 1
        above = above & (u > probability) & (k < steps)
    return count


def poisson_draws(rate: Tensor) -> Tensor:
    """Numbers of Poisson(rate): below 10 by inversion, else Hoermann's PTRS (1993)."""
    wide = rate.detach().double()
    small = wide < 10
    low = rabbet.where(small, wide, 0.0)
    endless = rabbet.full_like(low, 1000.0)
    few = _by_inversion((-low).exp(), lambda k: low / (k + 1), endless)
    mu = rabbet.where(small, 10.0, wide)
    b = 0.931 + 2.53 * mu.sqrt()
    a = -0.059 + 0.02483 * b
    log_alpha = (1.1239 + 1.1328 / (b - 3.4)).log()
    log_mu = mu.log()

    def log_weight(k: Tensor) -> Tensor:
        return k * log_mu - mu - (k + 1).lgamma()

    many = _transformed_rejection(
        a,
        b,
        mu + 0.43,
        0.9277 - 3.6224 / (b - 2),
        log_alpha,
        log_weight,
        rabbet.full_like(mu, math.inf),
        small,
    )
    return rabbet.where(small, few, many).to(rate.dtype)


def binomial_draws(count: Tensor, probs: Tensor) -> Tensor:
    """Numbers of Binomial(count, probs): of small means by inversion, else Hoermann's BTRS (1993)."""
    count, probs = rabbet.broadcast_tensors(count.detach(), probs.detach())
    n, p = count.double(), probs.double()
    flipped = p > 0.5
    p = rabbet.where(flipped, 1 - p, p)
    small = n * p < 10
    low, odds = rabbet.where(small, n, 0.0), p / (1 - p)
    few = _by_inversion((low * (-p).log1p()).exp(), lambda k: odds * (low - k) / (k + 1), low)
    n_many, p_many = rabbet.where(small, 40.0, n), rabbet.where(small, 0.5, p)
    spread = (n_many * p_many * (1 - p_many)).sqrt()
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p_many
    log_alpha = ((2.83 + 5.1 / b) * spread).log()
    log_odds = p_many.log() - (-p_many).log1p()
    mode = ((n_many + 1) * p_many).floor()

    def log_ways(k: Tensor) -> Tensor:
        return -(k + 1).lgamma() - (n_many - k + 1).clamp(min=1).lgamma()

    def log_weight(k: Tensor) -> Tensor:
        return log_ways(k) - log_ways(mode) + (k - mode) * log_odds

    many = _transformed_rejection(
        a, b, n_many * p_many + 0.5, 0.92 - 4.2 / b, log_alpha, log_weight, n_many, small
    )
    result = rabbet.where(small, few, many)
    return rabbet.where(flipped, n - result, result).to(count.dtype)


def _transformed_rejection(
    a: Tensor,
    b: Tensor,
    centre: Tensor,
    squeeze: Tensor,
    log_alpha: Tensor,
    log_weight: Any,
    highest: Tensor,
    done: Tensor,
) -> Tensor:
    """Hoermann's transformed rejection with squeeze; `log_alpha` belongs to the scale of the weights."""
    result = a - a  # NaN of rates that are not finite
    done = done | result.isnan()
    while not done.all():
        u, v = rabbet.rand_like(a) - 0.5, 1 - rabbet.rand_like(a)
        us = 0.5 - u.abs()
        k = ((2 * a / us + b) * u + centre).floor()
        possible = (k >= 0) & (k <= highest)
        k = k.clamp(min=0)
        inside = (us >= 0.07) & (v <= squeeze)
        level = v.log() + log_alpha - (a / (us * us) + b).log()
        fits = possible & (inside | (level <= log_weight(k)))
        result = rabbet.where(~done & fits, k, result)
        done = done | fits
    return result


def simplex_uniform(shape: Size, like: Tensor) -> Tensor:
    """Exponential numbers of a shape, as their quotients are uniform on the simplex."""
    return rabbet.empty(shape, dtype=like.dtype, device=like.device).exponential_()
