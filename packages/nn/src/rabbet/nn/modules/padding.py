"""Padding layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rabbet import Tensor

from .. import functional as F
from .module import Module


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


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def _fill(self) -> dict[str, Any]:
        return {"value": self.value}

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """`value` around the last dimension."""

    dims = 1


class ConstantPad2d(_ConstantPad):
    """`value` around the last two dimensions."""

    dims = 2


class ConstantPad3d(_ConstantPad):
    """`value` around the last three dimensions."""

    dims = 3


class ZeroPad1d(ConstantPad1d):
    """Zeros around the last dimension."""

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Zeros around the last two dimensions."""

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Zeros around the last three dimensions."""

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ReflectionPad(_Pad):
    mode = "reflect"


class ReflectionPad1d(_ReflectionPad):
    """Mirror the last dimension at the ends, which are not repeated."""

    dims = 1


class ReflectionPad2d(_ReflectionPad):
    """Mirror the last two dimensions at the ends, which are not repeated."""

    dims = 2


class ReflectionPad3d(_ReflectionPad):
    """Mirror the last three dimensions at the ends, which are not repeated."""

    dims = 3


class _ReplicationPad(_Pad):
    mode = "replicate"


class ReplicationPad1d(_ReplicationPad):
    """Repeat the ends of the last dimension."""

    dims = 1


class ReplicationPad2d(_ReplicationPad):
    """Repeat the ends of the last two dimensions."""

    dims = 2


class ReplicationPad3d(_ReplicationPad):
    """Repeat the ends of the last three dimensions."""

    dims = 3


class _CircularPad(_Pad):
    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        least = self.dims + 1
        if input.ndim not in (least, least + 1):
            raise ValueError(f"expected {least}D or {least + 1}D input (got {input.ndim}D input)")
        return super().forward(input)


class CircularPad1d(_CircularPad):
    """Continue the last dimension as a ring."""

    dims = 1


class CircularPad2d(_CircularPad):
    """Continue the last two dimensions as a ring."""

    dims = 2


class CircularPad3d(_CircularPad):
    """Continue the last three dimensions as a ring."""

    dims = 3
