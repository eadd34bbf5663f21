"""The categorical distribution."""

from typing import Any

import rabbet
from rabbet import Size, Tensor

from . import constraints
from ._probs_or_logits import ProbsOrLogits

__all__ = ["Categorical"]


class Categorical(ProbsOrLogits):
    """Class numbers 0 ... K - 1, with `probs` or `logits` along the last dimension."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _is_binary = False

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        batch_shape = self._keep_one(probs, logits)
        self._num_events = self._param.shape[-1]
        super().__init__(batch_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._num_events = self._num_events
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    def _moment(self, value: float) -> Tensor:
        return rabbet.full(
            self._extended_shape(), value, dtype=self.probs.dtype, device=self.probs.device
        )

    @property
    def mean(self) -> Tensor:
        return self._moment(float("nan"))

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self._moment(float("nan"))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = Size(sample_shape)
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = rabbet.multinomial(rows, shape.numel(), True).mT
        return drawn.reshape(self._extended_shape(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        index = value.long().unsqueeze(-1)
        shape = rabbet.broadcast_shapes(index.shape[:-1], self.logits.shape[:-1])
        logits = self.logits.expand(shape + (self._num_events,))
        return logits.gather(-1, index.expand(shape + (1,))).squeeze(-1)

    def entropy(self) -> Tensor:
        lowest = rabbet.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=lowest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = rabbet.arange(self._num_events, dtype=rabbet.long, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + self._batch_shape) if expand else values
