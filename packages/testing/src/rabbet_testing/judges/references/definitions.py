"""How definitions are written down: functions by the names of their operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DEFINITIONS: dict[str, Callable[..., Any]] = {}
# Of these an argument is called by a word of Python: they take all arguments as one.
WHOLE: dict[str, Callable[[dict[str, Any]], Any]] = {}


def defines(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a definition of the results of operators."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        DEFINITIONS.update(dict.fromkeys(names, function))
        return function

    return add


class NoReference(Exception):
    """The reference has no such call; the message says why."""


class Unset(tuple[int, ...]):
    """A result of this shape whose elements may be anything."""


def axis_of(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, (list, tuple)) else dim
