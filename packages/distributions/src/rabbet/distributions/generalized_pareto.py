"""The generalized Pareto distribution."""

import math
from typing import Any

import rabbet
from rabbet import Tensor

from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, shape_of

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Exceedances over `loc`: the survival function (1 + concentration * z) ** (-1 / concentration), z = (x - loc) / scale."""

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        given = (loc, scale, concentration)
        self.loc, self.scale, self.concentration = broadcast_all(*given)
        super().__init__(shape_of(given, self.loc), validate_args=validate_args)

    def _split(self) -> tuple[Tensor, Tensor]:
        """Where the concentration is about 0, and one that may be divided by."""
        is_zero = rabbet.isclose(self.concentration, rabbet.zeros_like(self.concentration))
        return is_zero, rabbet.where(is_zero, 1.0, self.concentration)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(rabbet.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        z = (value - self.loc) / self.scale
        is_zero, c = self._split()
        power = 1 / c + 1
        exponent = rabbet.where(power == 0, rabbet.zeros_like(z), power * (c * z).log1p())
        return -self.scale.log() - rabbet.where(is_zero, z, exponent)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log(1 - cdf(value))."""
        self._check(value)
        z = (value - self.loc) / self.scale
        is_zero, c = self._split()
        return rabbet.where(is_zero, -z, -(c * z).log1p() / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """log(cdf(value))."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        is_zero, c = self._split()
        survival = (-value).log1p()
        scaled = rabbet.where(is_zero, -survival, (-c * survival).expm1() / c)
        return self.loc + self.scale * scaled

    @property
    def mean(self) -> Tensor:
        exists = self.concentration < 1
        c = rabbet.where(exists, self.concentration, 0.5)
        return rabbet.where(exists, self.loc + self.scale / (1 - c), math.nan)

    @property
    def variance(self) -> Tensor:
        exists = self.concentration < 0.5
        c = rabbet.where(exists, self.concentration, 0.25)
        variance = self.scale.square() / ((1 - c).square() * (1 - 2 * c))
        return rabbet.where(exists, variance, math.nan)

    def entropy(self) -> Tensor:
        return (self.scale.log() + self.concentration + 1).expand(self._batch_shape)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        c = self.concentration
        upper = rabbet.where(c < 0, self.loc - self.scale / c, math.inf)
        return constraints.interval(self.loc, upper)
