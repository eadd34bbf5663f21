"""The private names of `torch._utils` that packages import."""

from collections.abc import Sequence

import rabbet

from .._C import Tensor
from ..utils.data._utils.errors import ExceptionWrapper

__all__ = [
    "ExceptionWrapper",
    "_flatten_dense_tensors",
    "_unflatten_dense_tensors",
]


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of the tensors in one vector."""
    return rabbet.cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of a flat vector with the shapes of `tensors`, one after the other."""
    views, start = [], 0
    for t in tensors:
        views.append(flat.narrow(0, start, t.numel()).view(t.shape))
        start += t.numel()
    return tuple(views)
