"""The Laplace distribution."""

import math
from typing import Any

import rabbet
from rabbet import Tensor

from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, shape_of

__all__ = ["Laplace"]


class Laplace(Distribution):
    """The density exp(-abs(x - loc) / scale) / (2 * scale)."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(shape_of((loc, scale), self.loc), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.square()

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        options: dict[str, Any] = {"dtype": self.loc.dtype, "device": self.loc.device}
        sign = 2 * rabbet.randint(0, 2, shape, **options) - 1
        return self.loc + self.scale * sign * rabbet.empty(shape, **options).exponential_()

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        d = value - self.loc
        return 0.5 - 0.5 * d.sign() * (-d.abs() / self.scale).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        p = value - 0.5
        return self.loc - self.scale * p.sign() * (-2 * p.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()
