"""The gamma distribution."""

from typing import Any

import rabbet
from rabbet import Tensor

from . import constraints
from ._incomplete_gamma import gammainc
from ._sampling import gamma_draws
from .exp_family import ExponentialFamily
from .utils import broadcast_all, shape_of

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """The density rate ** a * x ** (a - 1) * exp(-rate * x) / gamma(a), a = `concentration`."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        shape = shape_of((concentration, rate), self.rate)
        super().__init__(shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        value = gamma_draws(self.concentration.expand(shape)) / self.rate.expand(shape)
        return _kept_positive(value)

    def log_prob(self, value: Tensor) -> Tensor:
        value = rabbet.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        self._check(value)
        a, rate = self.concentration, self.rate
        return rabbet.xlogy(a, rate) + rabbet.xlogy(a - 1, value) - rate * value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        return gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return (x + 1).lgamma() + (x + 1) * (-y.reciprocal()).log()


def _kept_positive(value: Tensor) -> Tensor:
    """`value` raised to at least the smallest normal number: no zero, and the gradient as it was."""
    data = value.detach()
    return value + (data.clamp(min=rabbet.finfo(value.dtype).tiny) - data)
