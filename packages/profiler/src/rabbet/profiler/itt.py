"""Ranges for Intel's VTune, which rabbet does not have."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def is_available() -> bool:
    """Whether ranges reach VTune: never."""
    return False


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"profiler.itt.{name}: ITT functions not installed. Are you sure you have a ITT build? "
        "rabbet has none; profiler.record_function names ranges for rabbet's profiler"
    )


def range_push(msg: str) -> int:
    """Begin a range.

    Raises:
        RuntimeError: always.
    """
    _refuse("range_push")


def range_pop() -> int:
    """End a range.

    Raises:
        RuntimeError: always.
    """
    _refuse("range_pop")


def mark(msg: str) -> None:
    """Mark a moment.

    Raises:
        RuntimeError: always.
    """
    _refuse("mark")


@contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:
    """A range around the body.

    Raises:
        RuntimeError: always.
    """
    range_push(msg.format(*args, **kwargs))
    yield
