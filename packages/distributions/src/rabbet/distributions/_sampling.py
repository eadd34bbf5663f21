"""Gamma numbers and points of the simplex, all elements at a time."""

from typing import Any

import rabbet
from rabbet import Tensor
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
