"""The F-distribution."""

from typing import Any

import rabbet
from rabbet import Tensor

from . import constraints
from .distribution import Distribution
from .gamma import Gamma, _kept_positive
from .utils import broadcast_all, shape_of

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The quotient of two chi-squared numbers, each over its degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        super().__init__(shape_of((df1, df2), self.df1), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._gamma1 = self._gamma1.expand(batch_shape)
        new._gamma2 = self._gamma2.expand(batch_shape)
        return new

    @property
    def mean(self) -> Tensor:
        df2 = rabbet.where(self.df2 <= 2, float("nan"), self.df2)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return rabbet.where(self.df1 <= 2, float("nan"), mode)

    @property
    def variance(self) -> Tensor:
        df2 = rabbet.where(self.df2 <= 4, float("nan"), self.df2)
        top = 2 * df2.square() * (self.df1 + df2 - 2)
        return top / (self.df1 * (df2 - 2).square() * (df2 - 4))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        x1 = self._gamma1.rsample(sample_shape).view(shape)
        x2 = self._gamma2.rsample(sample_shape).view(shape)
        return _kept_positive(x1 / x2)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        a, b = self.df1 * 0.5, self.df2 * 0.5
        quotient = self.df1 / self.df2
        log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
        powers = (a - 1) * value.log() - (a + b) * (quotient * value).log1p()
        return a * quotient.log() + powers - log_beta
