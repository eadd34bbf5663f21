"""Errors of missing memory get a note that says what lies in memory."""

from typing import Any

from . import _C


def _init(self: Any, *args: Any) -> None:
    from .memory import _out_of_memory

    _out_of_memory.add_report(self)


def install() -> None:
    """Let each OutOfMemoryError make its report."""
    _C.OutOfMemoryError.__init__ = _init  # type: ignore[method-assign]
