"""What distributions share that take either `probs` or `logits`."""

from numbers import Number
from typing import Any

from rabbet import Size, Tensor

from .distribution import Distribution
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits


class ProbsOrLogits(Distribution):
    """Keeps the one that is given; the other is computed when it is first read."""

    _is_binary = True

    def _keep_one(self, probs: Any, logits: Any) -> Size:
        """Set `probs` or `logits`; returns the shape of the batch, of binary ones."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        name, given = ("logits", logits) if probs is None else ("probs", probs)
        if self._is_binary:
            (value,) = broadcast_all(given)
            setattr(self, name, value)
            return Size() if isinstance(given, Number) else value.shape
        if given.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        normalized = (
            given - given.logsumexp(-1, keepdim=True)
            if probs is None
            else given / given.sum(-1, keepdim=True)
        )
        setattr(self, name, normalized)
        return given.shape[:-1]

    @lazy_property
    def logits(self) -> Any:
        """Log odds, or normalized logarithms of probabilities of several classes."""
        return probs_to_logits(self.probs, is_binary=self._is_binary)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=self._is_binary)

    @property
    def _param(self) -> Tensor:
        """The one that was given."""
        return getattr(self, "probs" if "probs" in self.__dict__ else "logits")

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.shape

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._param.new(*args, **kwargs)
