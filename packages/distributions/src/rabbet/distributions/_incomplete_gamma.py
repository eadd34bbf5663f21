"""The regularized incomplete gamma function P(a, x), its derivatives by both arguments, and that of its quantiles by a.

The derivative of the quantiles is computed in float64: up to a = 400 from the power series of P for x <= a + 1 and from Legendre's
continued fraction of 1 - P above, beyond a = 400 from the expansion of the quantile in the normal quantile z (Goldberg and Levine
1946). The numbers of terms give 13 digits up to a = 400 and 8 digits beyond.
"""

from typing import Any

import rabbet
from rabbet import Tensor
from rabbet.autograd import Function
from rabbet.autograd.function import once_differentiable

_SERIES_TERMS = 180
_FRACTION_TERMS = 120
_LARGE = 400.0


def quantile_slope(a: Tensor, log_x: Tensor) -> Tensor:
    """d log(x) / da at constant P(a, x): minus the derivative of P by a over the density, over x."""
    x = log_x.exp()
    is_large = a > _LARGE
    small = rabbet.where(is_large, 1.0, a)
    is_left = x <= small + 1
    slope = rabbet.where(
        is_left,
        _slope_left(small, rabbet.where(is_left, log_x, 0.0)),
        _slope_right(small, rabbet.where(is_left | is_large, small + 2, x)),
    )
    big = rabbet.where(is_large, a, _LARGE)
    return rabbet.where(is_large, _slope_large(big, rabbet.where(is_large, x, _LARGE)), slope)


def _scaled_density(a: Tensor, log_x: Tensor) -> Tensor:
    """x times the density of Gamma(a, 1)."""
    return (a * log_x - log_x.exp() - a.lgamma()).exp()


def _slope_left(a: Tensor, log_x: Tensor) -> Tensor:
    """From P over `_scaled_density`, the sum of x^n / (a * ... * (a + n)): each term times its logarithmic derivative."""
    x = log_x.exp()
    term, psi = 1 / a, (a + 1).digamma()
    slope = term * (psi - log_x)
    for n in range(1, _SERIES_TERMS):
        term = term * x / (a + n)
        psi = psi + 1 / (a + n)
        slope = slope + rabbet.where(term == 0, 0.0, term * (psi - log_x))
    return slope


def _fraction(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """`_scaled_density` over 1 - P, from the end of the continued fraction, and its derivative by a."""
    value = x + (2 * _FRACTION_TERMS + 1) - a
    slope = -rabbet.ones_like(x)
    for n in range(_FRACTION_TERMS, 0, -1):
        numerator = n * (n - a)
        slope = -1 + (n + numerator * slope / value) / value
        value = x + (2 * n - 1) - a - numerator / value
    return value, slope


def _slope_right(a: Tensor, x: Tensor) -> Tensor:
    value, slope = _fraction(a, x)
    return (x.log() - a.digamma() - slope / value) / value


def _normal_quantile(a: Tensor, x: Tensor) -> Tensor:
    """z, by iteration of the expansion x = a + sqrt(a) z + ..."""
    root = a.sqrt()
    first = ((x - a) / root).clamp(min=-12, max=12)
    z = first
    for _ in range(8):
        quartic = (3 * z**4 + 7 * z * z - 16) / (810 * root)
        cubic = (z**3 - 7 * z) / 36
        z = (first - ((z * z - 1) / 3 + (cubic - quartic) / root) / root).clamp(min=-12, max=12)
    return z


def _slope_large(a: Tensor, x: Tensor) -> Tensor:
    z, root = _normal_quantile(a, x), a.sqrt()
    slope = 1 + z / (2 * root) - (z**3 - 7 * z) / (72 * a * root)
    return (slope + (3 * z**4 + 7 * z * z - 16) / (810 * a * a)) / x


class _GammaInc(Function):
    """P(a, x), differentiable once by both."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(a, x)
        return rabbet.igamma(a, x.clamp(min=0))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, x = (t.double() for t in ctx.saved_tensors)
        density = _scaled_density(a, x.log())
        by_a = -density * quantile_slope(a, x.log())
        return tuple((grad * g).to(grad.dtype) for g in (by_a, density / x))  # type: ignore[return-value]


def gammainc(a: Tensor, x: Tensor) -> Tensor:
    """P(a, x) of tensors that broadcast."""
    return _GammaInc.apply(*rabbet.broadcast_tensors(a, x))
