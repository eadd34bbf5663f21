"""Student's t-distribution."""

import math
from typing import Any

import rabbet
from rabbet import Tensor

from . import constraints
from .chi2 import Chi2
from .distribution import Distribution
from .utils import _standard_normal, broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """loc + scale * z / sqrt(c / df) of standard normal z and chi-squared c."""

    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._chi2 = self._chi2.expand(batch_shape)
        return new

    @property
    def mean(self) -> Tensor:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.scale.square() * self.df / (self.df - 2)
        variance = rabbet.where(self.df > 2, finite, math.inf)
        return rabbet.where(self.df <= 1, math.nan, variance)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        z = _standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        root = (self._chi2.rsample(sample_shape) / self.df).rsqrt()
        return self.loc + self.scale * z * root

    def _log_normalization(self) -> Tensor:
        half = 0.5 * self.df
        gammas = half.lgamma() - (half + 0.5).lgamma()
        return self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + gammas

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        y = (value - self.loc) / self.scale
        return -0.5 * (self.df + 1) * (y.square() / self.df).log1p() - self._log_normalization()

    def entropy(self) -> Tensor:
        half = 0.5 * (self.df + 1)
        return half * (half.digamma() - (0.5 * self.df).digamma()) + self._log_normalization()
