"""Layers that change shapes only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rabbet import Tensor

from .. import functional as F
from .module import Module


class Flatten(Module):
    """Join the dimensions from `start_dim` to `end_dim` into one; by default all but the batch."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split dimension `dim` into `unflattened_size`."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError(f"Unflatten: expected dim to be an int, got {type(dim).__name__}")
        if not isinstance(unflattened_size, (tuple, list)) or not all(
            isinstance(size, int) for size in unflattened_size
        ):
            raise TypeError(
                f"unflattened_size must be a tuple of ints, but found {unflattened_size!r}"
            )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class _Pad(Module):
    dims: int
    mode: str

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        widths = (padding,) * (2 * self.dims) if isinstance(padding, int) else tuple(padding)
        if len(widths) != 2 * self.dims:
            raise ValueError(
                f"{type(self).__name__}: expected an int or {2 * self.dims} ints, got {widths}"
            )
        self.padding = widths

    def _fill(self) -> dict[str, Any]:
        return {}

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode, **self._fill())

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_Pad):
    """`value` around the last dimension."""

    dims, mode = 1, "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def _fill(self) -> dict[str, Any]:
        return {"value": self.value}

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad2d(ConstantPad1d):
    """`value` around the last two dimensions."""

    dims = 2


class ZeroPad2d(ConstantPad2d):
    """Zeros around the last two dimensions."""

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ReflectionPad1d(_Pad):
    """The last dimension mirrored at its ends."""

    dims, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """The last two dimensions mirrored at their ends."""

    dims, mode = 2, "reflect"


class ReplicationPad1d(_Pad):
    """The ends of the last dimension repeated."""

    dims, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The edges of the last two dimensions repeated."""

    dims, mode = 2, "replicate"
