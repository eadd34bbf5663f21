"""The report that an OutOfMemoryError carries as a note."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from ._snapshot import holders_of, snapshot

__all__ = ["add_report", "report_out_of_memory"]

_LARGEST = 5
_thread = threading.local()
_is_wanted = True


def report_out_of_memory(is_wanted: bool = True) -> None:
    """Whether an OutOfMemoryError gets a note with the largest live tensors and what keeps them alive; it does by default.

    To make the report takes some tenths of a second, which matters to programs that catch many of these errors, such as a
    search for the largest batch that fits.

    Raises:
        TypeError: if `is_wanted` is not a bool.
    """
    global _is_wanted
    if not isinstance(is_wanted, bool):
        raise TypeError(f"report_out_of_memory: expected a bool, got {type(is_wanted).__name__}")
    _is_wanted = is_wanted


def _report() -> str:
    found = snapshot()
    largest = found.storages[:_LARGEST]
    if not largest:
        return ""
    lines = [f"The largest of {len(found.storages)} live storages with {found.nbytes:,} bytes:"]
    for storage, paths in zip(largest, holders_of(largest, 2), strict=True):
        lines.append(f"  {str(storage).strip()}")
        lines += [f"      kept by {path}" for path in paths]
    if all(storage.line is None for storage in largest):
        lines.append(
            "(run the program inside of rabbet.memory.record() to see the lines that made them)"
        )
    return "\n".join(lines)


def add_report(error: Any) -> None:
    """Note what lies in memory. A failure of the report must not hide the error itself."""
    if not _is_wanted or getattr(_thread, "is_reporting", False):
        return
    _thread.is_reporting = True
    try:
        with contextlib.suppress(Exception):
            text = _report()
            if text:
                error.add_note(text)
    finally:
        _thread.is_reporting = False
