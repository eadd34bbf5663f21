"""Definitions of creation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .definitions import DEFINITIONS, Array, Unset, defines


@defines("empty")
def _empty(size: Any) -> Any:
    return (Unset(size),)


@defines("new_empty")
def _new_empty(input: Array, size: Any) -> Any:
    return (Unset(size),)


@defines("empty_like")
def _empty_like(input: Array) -> Any:
    return (Unset(input.shape),)


def _ends(dtype: Any, start: Any, end: Any) -> tuple[Any, Any]:
    """The ends of a range, without fractions where it has integers."""
    return (int(start), int(end)) if np.dtype(dtype or float).kind in "iu" else (start, end)


_CREATED: dict[str, Callable[..., Any]] = {
    "full": lambda size, fill_value, dtype: np.full(size, fill_value, dtype),
    "zeros": lambda size, dtype: np.zeros(size, dtype),
    "ones": lambda size, dtype: np.ones(size, dtype),
    "eye": lambda n, m, dtype: np.eye(n, m, dtype=dtype),
    "linspace": lambda start, end, steps, dtype: np.linspace(*_ends(dtype, start, end), steps).astype(dtype),
    "logspace": lambda start, end, steps, base, dtype: np.logspace(*_ends(dtype, start, end), steps, base=base).astype(dtype),
    "zeros_like": lambda input, dtype: np.zeros(input.shape, dtype or input.dtype),
    "ones_like": lambda input, dtype: np.ones(input.shape, dtype or input.dtype),
    "full_like": lambda input, fill_value, dtype: np.full(input.shape, fill_value, dtype or input.dtype),
}  # fmt: skip
DEFINITIONS.update(_CREATED)


@defines("arange")
def _arange(start: Any, end: Any, step: Any, dtype: str | None) -> Any:
    made = np.arange(0, start, step) if end is None else np.arange(start, end, step)
    return made if dtype is None else made.astype(dtype)
