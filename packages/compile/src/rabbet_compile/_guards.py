"""Guards: the reads of a recorded call, as tuples. csrc/replay/guards.cpp checks them before each replay."""

from __future__ import annotations

import enum
from typing import Any

from ._replay import MISSING

__all__ = ["MISSING", "Guard", "Kind", "describe"]

Guard = tuple[Any, ...]


class Kind(enum.IntEnum):
    """The first item of a guard. `Guards::Kind` in csrc/replay/guards.h describes the others."""

    ENTRY = 0
    LENGTH = 1
    ITEMS = 2
    PAIRS = 3
    SEQUENCE = 4
    CELL = 5
    CLASS = 6
    CLASS_OF = 7
    SLOT = 8
    FUNCTION = 9
    TENSOR = 10
    GRAD = 11
    CALL = 12
    THREAD = 13
    DICT_OF = 14


def describe(guard: Guard) -> str:
    """The text of a guard in reports."""
    kind, *parts = guard
    if kind == Kind.ENTRY:
        what = "is not there" if parts[2] is MISSING else f"is {_short(parts[2])}"
        return f"{_short(parts[1])} of a dict {what}"
    if kind == Kind.LENGTH:
        return f"a {type(parts[0]).__name__} has {parts[1]} items"
    if kind in (Kind.ITEMS, Kind.PAIRS, Kind.SEQUENCE):
        return f"the items of a {type(parts[0]).__name__} are the same"
    if kind == Kind.CELL:
        return f"a variable of an enclosing function is {_short(parts[1])}"
    if kind == Kind.CLASS:
        return f"the class {parts[0].__qualname__} has not changed"
    if kind == Kind.CLASS_OF:
        return f"an object is of the class {parts[1].__qualname__}"
    if kind == Kind.DICT_OF:
        return f"a {type(parts[0]).__name__} has the same __dict__"
    if kind == Kind.SLOT:
        return f"{getattr(parts[1], '__name__', parts[1])} of an object is {_short(parts[2])}"
    if kind == Kind.FUNCTION:
        return f"the function {parts[0].__qualname__} has the same code and defaults"
    if kind == Kind.TENSOR:
        return "a tensor has the same shape, dtype, strides, device and requires_grad"
    if kind == Kind.GRAD:
        return f"a tensor has {'a' if parts[1] else 'no'} gradient"
    if kind == Kind.CALL:
        return f"{getattr(parts[0], '__name__', parts[0])}{parts[1]!r} is {_short(parts[2])}"
    return "the modes of the thread are the same"


def _short(value: Any) -> str:
    if isinstance(value, (int, float, str, bool, type(None))):
        text = repr(value)
        return text if len(text) <= 40 else text[:37] + "..."
    return f"the same {type(value).__name__}"
