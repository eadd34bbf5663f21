"""Numbers that differ from call to call, such as counts of steps: followed through the Python code that computes with them.

A number is followed by the identity of its object, so each one gets an object of its own. What Python computes of numbers
becomes a list of steps that a replay repeats. Comparisons become guards. Any other use ends the recording.
"""

from __future__ import annotations

import enum
import math
import types
from typing import Any

from ._replay import unique_number

__all__ = ["PURE", "Numbers", "Step", "is_number"]


class Step(enum.IntEnum):
    """The first item of a step; the others are described at `Numbers::Kind` in csrc/replay/numbers.h."""

    ENTRY = 0
    FIXED = 1
    BINARY = 2
    UNARY = 3
    CALL = 4
    COMPARE = 5
    TRUTH = 6


# Functions whose result depends on the values of numbers only.
PURE: frozenset[Any] = frozenset({float, int, abs, min, max, round, pow}) | {
    item for item in vars(math).values() if isinstance(item, types.BuiltinFunctionType)
}


def is_number(value: Any) -> bool:
    """Whether an object is a number that can be followed."""
    return type(value) in (int, float)


class Numbers:
    """The numbers of one recording.

    Attributes:
        steps: how a replay computes them.
        given: those that operators get.
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
        """The step of a number; one that is not followed is fixed."""
        found = self._at.get(id(value))
        if found is None:
            self.steps.append((Step.FIXED, value))
            found = len(self.steps) - 1
        return found

    def follow(self, value: Any, *step: Any) -> Any:
        """An object of its own for a number, which `step` computes."""
        made = unique_number(value)
        self.steps.append(step)
        self._at[id(made)] = len(self.steps) - 1
        self._kept.append(made)
        self._originals[id(made)] = value
        return made

    def original(self, value: Any) -> Any:
        """The object in whose place a followed number is; other objects as they are."""
        return self._originals.get(id(value), value)

    def are_compared(self, container: Any, key: Any) -> bool:
        """Whether looking for a key in a container compares followed numbers."""
        if not self._at:
            return False
        return id(key) in self._at or (
            isinstance(container, dict) and any(id(k) in self._at for k in container)
        )

    def expect(self, *step: Any) -> None:
        """Note a comparison with its outcome."""
        self.steps.append(step)

    def give(self, value: Any) -> int:
        """The place of a number among those that operators get."""
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
