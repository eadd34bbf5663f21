"""The multinomial distribution."""

from typing import Any

import rabbet
from rabbet import Size, Tensor

from . import constraints
from .binomial import Binomial
from .categorical import Categorical
from .one_hot_categorical import _OfCategorical, one_hot

__all__ = ["Multinomial"]


class Multinomial(_OfCategorical):
    """How often each class comes among `total_count` draws."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    total_count: int

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.total_count = self.total_count
        new._categorical = self._categorical.expand(batch_shape)
        new._binomial = Binomial(self.total_count, probs=new.probs, validate_args=False)
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self._categorical.sample(Size((self.total_count,)) + Size(sample_shape))
        counts = self.probs.new_zeros(self._extended_shape(sample_shape))
        for one in drawn:
            counts += one_hot(one, counts)
        return counts

    def entropy(self) -> Tensor:
        n = rabbet.tensor(float(self.total_count), dtype=self.probs.dtype)
        one = self._categorical.entropy()
        values = self._binomial.enumerate_support(expand=False)[1:]
        weights = self._binomial.log_prob(values).exp()
        return n * one - (n + 1).lgamma() + (weights * (values + 1).lgamma()).sum((0, -1))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        logits, value = rabbet.broadcast_tensors(self.logits, value)
        impossible = (value == 0) & (logits == -float("inf"))
        powers = (logits.masked_fill(impossible, 0) * value).sum(-1)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + powers
