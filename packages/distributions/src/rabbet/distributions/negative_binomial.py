"""The negative binomial distribution."""

from typing import Any

import rabbet
from rabbet import Tensor

from . import constraints
from ._probs_or_logits import ProbsOrLogits
from ._sampling import gamma_draws
from .utils import broadcast_all

__all__ = ["NegativeBinomial"]


class NegativeBinomial(ProbsOrLogits):
    """The number of successes of probability `probs` before `total_count` failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._keep_one(probs, logits)
        self.total_count, value = broadcast_all(total_count, self._param)
        self.total_count = self.total_count.type_as(value)
        setattr(self, "logits" if probs is None else "probs", value)
        super().__init__(value.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with rabbet.no_grad():
            shape = self._extended_shape(sample_shape)
            gamma = gamma_draws(self.total_count.expand(shape))
            return rabbet.poisson(gamma * self.logits.exp())

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        n = self.total_count
        powers = n * rabbet.logsigmoid(-self.logits) + value * rabbet.logsigmoid(self.logits)
        ways = (n + value).lgamma() - (1 + value).lgamma() - n.lgamma()
        return powers + ways.masked_fill(n + value == 0, 0.0)
