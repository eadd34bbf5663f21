"""Follows numbers that differ from call to call, such as counts of steps, through Python code.

The identity of its object tells where a number goes, so each followed number gets a new object. Arithmetic becomes a list
of steps that a replay repeats, and a comparison becomes a guard. Any other use ends the recording.
"""

from __future__ import annotations

import enum
import math
import types
from typing import Any

from ._replay import unique_number

__all__ = ["PURE", "Numbers", "Step", "is_number"]


class Step(enum.IntEnum):
    """The first item of a step. `Numbers::Kind` in csrc/replay/numbers.h describes the others."""

    ENTRY = 0
    FIXED = 1
    BINARY = 2
    UNARY = 3
    CALL = 4
    COMPARE = 5
    TRUTH = 6


# Functions whose result depends only on the values of their arguments.
PURE: frozenset[Any] = frozenset({float, int, abs, min, max, round, pow}) | {
    item for item in vars(math).values() if isinstance(item, types.BuiltinFunctionType)
}


def is_number(value: Any) -> bool:
    """Whether an object is a number that can be followed."""
    return type(value) in (int, float)


class Numbers:
    """The numbers of one recording.

    Attributes:
        steps: the steps by which a replay computes them.
        given: the steps whose results are arguments of operators.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[Any, ...]] = []
        self.given: list[int] = []
        self._at: dict[int, int] = {}  # the step of each followed object, by its id
        self._kept: list[Any] = []
        self._originals: dict[int, Any] = {}

    def __contains__(self, value: Any) -> bool:
        return bool(self._at) and id(value) in self._at

    def __bool__(self) -> bool:
        return bool(self._at)

    def at(self, value: Any) -> int:
        """The index of the step that computes a number. A number that is not followed gets a step of kind FIXED."""
        found = self._at.get(id(value))
        if found is None:
            self.steps.append((Step.FIXED, value))
            found = len(self.steps) - 1
        return found

    def follow(self, value: Any, *step: Any) -> Any:
        """Add a step that computes `value`; returns a new object of this value, which is followed."""
        made = unique_number(value)
        self.steps.append(step)
        self._at[id(made)] = len(self.steps) - 1
        self._kept.append(made)
        self._originals[id(made)] = value
        return made

    def original(self, value: Any) -> Any:
        """The object that a followed number has replaced; other objects are returned as they are."""
        return self._originals.get(id(value), value)

    def are_compared(self, container: Any, key: Any) -> bool:
        """Whether looking for a key in a container compares followed numbers."""
        if not self._at:
            return False
        return id(key) in self._at or (
            isinstance(container, dict) and any(id(k) in self._at for k in container)
        )

    def expect(self, *step: Any) -> None:
        """Add a step that compares numbers; a replay must find the same outcome."""
        self.steps.append(step)

    def give(self, value: Any) -> int:
        """The index in `given` of a number that an operator gets."""
        at = self.at(value)
        if at not in self.given:
            self.given.append(at)
        return self.given.index(at)

    def are_in(self, item: Any, depth: int = 4) -> bool:
        """Whether an object is a followed number, or a container with one."""
        if not self._at:
            return False
        if id(item) in self._at:
            return True
        if isinstance(item, slice):
            item = (item.start, item.stop, item.step)
        if not isinstance(item, (list, tuple, set, frozenset, dict)):
            return False
        if not depth:
            return bool(item)  # perhaps
        parts = [*item, *item.values()] if isinstance(item, dict) else item
        return any(self.are_in(part, depth - 1) for part in parts)
