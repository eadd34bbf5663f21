"""Which sizes of an exported program may change."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from .. import _C
from ..graph import Dim as _GraphDim

__all__ = ["AdditionalInputs", "Dim", "ShapesCollection", "dims"]


class _DimHint(enum.Enum):
    AUTO = "AUTO"
    DYNAMIC = "DYNAMIC"
    STATIC = "STATIC"


class Dim(_GraphDim):
    """A dimension whose size may change, from `min` to `max`; the same name says that sizes are equal.

    `Dim.DYNAMIC` is a size of its own, `Dim.AUTO` is dynamic where the program allows it, `Dim.STATIC` never changes.
    Sizes computed from others (`2 * dim`) are not supported: leave such a dimension to `Dim.AUTO`.
    """

    AUTO = _DimHint.AUTO
    DYNAMIC = _DimHint.DYNAMIC
    STATIC = _DimHint.STATIC

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        super().__init__(name, min=1 if min is None else min, max=max)

    def _derived(self, *args: Any) -> Any:
        raise _C.NotImplementedForError(
            f"Dim: rabbet does not support sizes computed from '{self.__name__}'; use Dim.AUTO for that dimension"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _derived


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several `Dim`s with one range."""
    return tuple(Dim(name, min=min, max=max) for name in names)


def _refuse(name: str) -> Any:
    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise _C.NotImplementedForError(
            f"export.{name}: rabbet does not support it; give dynamic_shapes as a dict or a sequence"
        )

    return __new__


class ShapesCollection:
    """Not implemented: dynamic shapes by tensor."""

    __new__ = _refuse("ShapesCollection")


class AdditionalInputs:
    """Not implemented: dynamic shapes out of several calls."""

    __new__ = _refuse("AdditionalInputs")


def as_dynamic(shapes: Any, auto: bool) -> Any:
    """`dynamic_shapes` of export as `dynamic` of capture.

    Args:
        auto: whether `Dim.AUTO` is dynamic.
    """
    if shapes is None or shapes is Dim.STATIC or isinstance(shapes, int):
        return None
    if shapes is Dim.DYNAMIC:
        return True
    if shapes is Dim.AUTO:
        return True if auto else None
    if isinstance(shapes, Mapping):
        return {key: as_dynamic(value, auto) for key, value in shapes.items()}
    if isinstance(shapes, (list, tuple)):
        return [as_dynamic(value, auto) for value in shapes]
    return shapes


def has_auto(shapes: Any) -> bool:
    """Whether `Dim.AUTO` occurs."""
    if isinstance(shapes, Mapping):
        return any(map(has_auto, shapes.values()))
    if isinstance(shapes, (list, tuple)):
        return any(map(has_auto, shapes))
    return shapes is Dim.AUTO
