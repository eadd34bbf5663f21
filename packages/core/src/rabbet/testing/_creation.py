"""make_tensor(): a tensor of random elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rabbet

from .. import _C
from .._C import Tensor
from .._functions import iinfo

__all__ = ["make_tensor"]


def _bounds(dtype: _C.dtype, low: float | None, high: float | None) -> tuple[float, float]:
    """The range to draw from: by default all small numbers of the dtype."""
    if dtype is _C.bool:
        least, most, small, large = 0.0, 2.0, 0.0, 2.0
    elif dtype.is_floating_point or dtype.is_complex:
        least, most, small, large = float("-inf"), float("inf"), -9.0, 9.0
    else:
        info = iinfo(dtype)
        least, most = float(info.min), float(info.max) + 1
        small, large = (0.0 if info.min == 0 else -9.0), 10.0
    low = small if low is None else low
    high = large if high is None else high
    if low != low or high != high:
        raise ValueError(f"`low` and `high` cannot be NaN, but got low={low} and high={high}")
    if low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    if high <= least or low >= most:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only supports "
            f"[{least}, {most})"
        )
    return max(low, least), min(high, most)


def _drawn(shape: tuple[int, ...], dtype: _C.dtype, low: float, high: float) -> Tensor:
    if dtype.is_complex:
        part = _C.float64 if dtype is _C.complex128 else _C.float32
        real, imag = (_drawn(shape, part, low, high) for _ in range(2))
        return rabbet.complex(real, imag).to(dtype)
    if dtype.is_floating_point:
        wide = _C.float64 if dtype is _C.float64 else _C.float32
        made = rabbet.rand(shape, dtype=wide) * (high - low) + low
        return made.clamp(max=high).to(dtype)
    lowest, highest = -int(-low // 1), -int(-high // 1)
    return rabbet.randint(lowest, highest, shape, dtype=_C.int64).to(dtype)


def make_tensor(
    *shape: Any,
    dtype: _C.dtype,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: _C.memory_format | None = None,
) -> Tensor:
    """A tensor of random elements from [low, high).

    Args:
        shape: sizes, one by one or as one sequence.
        low, high: by default -9 to 9 (integers 10), from 0 for unsigned dtypes, 0 and 1 for bool.
        noncontiguous: every second element of a larger tensor.
        exclude_zero: put the smallest positive number (1 for integers) where zeros are.

    Raises:
        ValueError: if the range is empty or outside of the dtype's.
    """
    if len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise ValueError(
            f"The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got {noncontiguous=} "
            f"and {memory_format=}"
        )
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(
            f"`requires_grad` must be False for boolean and integral dtypes, but got {requires_grad=}"
        )
    made = _drawn(shape, dtype, *_bounds(dtype, low, high))
    if noncontiguous and made.numel() > 1:
        made = _spread(made)
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        limits = _C.float_limits(dtype)
        made.masked_fill_(made == 0, limits[3] if limits else 1)
    made = made.to(device)
    if requires_grad:
        made.requires_grad = True
    return made


def _spread(tensor: Tensor) -> Tensor:
    """The same elements as every second one of a larger tensor."""
    wide = rabbet.stack([tensor, tensor], -1).flatten(-2)
    return wide[..., ::2]
