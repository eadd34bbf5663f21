"""How optimizers of packages sort their tensors before they work on lists of them."""

from collections.abc import Sequence
from typing import Any

from .. import _C
from .._C import Tensor

__all__ = ["_group_tensors_by_device_and_dtype"]

_Lists = list[list[Tensor | None]]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> dict[tuple[_C.device, _C.dtype], tuple[_Lists, list[int]]]:
    """Columns of lists of equal length, by the device and dtype of the first list's tensors, with their places.

    Raises:
        RuntimeError: if the lists differ in length.
    """
    if len({len(column) for column in tensorlistlist}) > 1:
        raise RuntimeError(
            f"_group_tensors_by_device_and_dtype: lists differ in length: {[len(c) for c in tensorlistlist]}"
        )
    groups: dict[Any, tuple[_Lists, list[int]]] = {}
    for i, first in enumerate(tensorlistlist[0] if tensorlistlist else ()):
        if first is None:
            raise RuntimeError(
                f"_group_tensors_by_device_and_dtype: tensor {i} of the first list is None"
            )
        key = (first.device, first.dtype)
        columns, places = groups.setdefault(key, ([[] for _ in tensorlistlist], []))
        for column, given in zip(columns, tensorlistlist, strict=True):
            column.append(given[i])
        if with_indices:
            places.append(i)
    return groups
