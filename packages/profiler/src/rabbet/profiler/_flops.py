"""Floating-point operations of calls, from the shapes of their arguments and results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rabbet.utils.flop_counter import count_operations

_ELEMENTWISE = {"add", "mul"}  # those that PyTorch counts


class _Shaped(NamedTuple):
    """The attributes of a tensor that the formulas read."""

    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)


def _shaped(value: Any) -> Any:
    if isinstance(value, tuple):
        return _Shaped(value[1])
    return [_shaped(v) for v in value] if isinstance(value, list) else value


def flops_of(record: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Operations of one call of a record; 0 where none are counted.

    Args:
        inputs, outputs: values as the recorder keeps them: tensors as (dtype, sizes).
    """
    if not outputs:
        return 0
    if record in _ELEMENTWISE:
        return math.prod(outputs[0][1])
    return int(count_operations(record, _shaped(list(inputs)), _shaped(list(outputs))))
