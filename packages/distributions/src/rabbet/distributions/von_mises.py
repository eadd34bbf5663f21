"""The von Mises distribution."""

import math
from typing import Any

import rabbet
from rabbet import Tensor

from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, shape_of

__all__ = ["VonMises"]

# Abramowitz and Stegun 9.8.1 to 9.8.4, in (x / 3.75) ** 2 below 3.75 and in 3.75 / x above.
_SMALL = (
    (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813),
    (0.5, 0.87890594, 0.51498869, 0.15084934, 0.02658733, 0.00301532, 0.00032411),
)
_LARGE = (
    (0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281, -0.02057706, 0.02635537, -0.01647633, 0.00392377),
    (0.39894228, -0.03988024, -0.00362018, 0.00163801, -0.01031555, 0.02282967, -0.02895312, 0.01787654, -0.00420059),
)  # fmt: skip


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    result = rabbet.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = coefficient + x * result
    return result


def _log_modified_bessel_fn(x: Tensor, order: int = 0) -> Tensor:
    """log(I_order(x)) for positive x and the orders 0 and 1."""
    is_small = x < 3.75
    low = rabbet.where(is_small, x, 1.0)
    small = _polynomial((low / 3.75).square(), _SMALL[order])
    if order == 1:
        small = low.abs() * small
    high = rabbet.where(is_small, 3.75, x)
    large = high - 0.5 * high.log() + _polynomial(3.75 / high, _LARGE[order]).log()
    return rabbet.where(is_small, small.log(), large)


class VonMises(Distribution):
    """Angles around `loc`: the density exp(concentration * cos(x - loc)), normalized."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        shape = shape_of((loc, concentration), self.loc)
        super().__init__(shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        log_prob = self.concentration * (value - self.loc).cos()
        return log_prob - math.log(2 * math.pi) - _log_modified_bessel_fn(self.concentration)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By Best and Fisher 1979, "Efficient simulation of the von Mises distribution"."""
        shape = self._extended_shape(sample_shape)
        with rabbet.no_grad():
            kappa = self.concentration.double().expand(shape)
            tau = 1 + (1 + 4 * kappa.square()).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
            r = (1 + rho.square()) / (2 * rho)
            r = rabbet.where(kappa < 1e-5, 1 / kappa + kappa, r)  # rho loses its digits
            cosine = rabbet.ones_like(r)
            done = r.isnan()
            while not done.all():
                u, v = rabbet.rand_like(r), 1 - rabbet.rand_like(r)
                z = (math.pi * u).cos()
                f = (1 + r * z) / (r + z)
                c = kappa * (r - f)
                fits = (c * (2 - c) > v) | ((c / v).log() + 1 - c >= 0)
                cosine = rabbet.where(~done & fits, f, cosine)
                done = done | fits
            angle = cosine.clamp(min=-1, max=1).acos() * (rabbet.rand_like(r) - 0.5).sign()
            wrapped = (angle + math.pi + self.loc.double()) % (2 * math.pi) - math.pi
            return wrapped.to(self.loc.dtype)

    @property
    def mean(self) -> Tensor:
        """The circular mean."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance."""
        k = self.concentration
        return 1 - (_log_modified_bessel_fn(k, 1) - _log_modified_bessel_fn(k)).exp()
