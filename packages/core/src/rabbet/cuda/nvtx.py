"""Ranges and marks for NVIDIA's profilers. They reach them where libnvToolsExt is there; else only the nesting is counted."""

import contextlib
import ctypes
import functools
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_thread = threading.local()


@functools.cache
def _library() -> Any:
    for name in ("libnvToolsExt.so.1", "libnvToolsExt.so"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _tell(function: str, msg: str) -> None:
    if library := _library():
        getattr(library, function)(ctypes.c_char_p(str(msg).encode()))


def range_push(msg: str) -> int:
    """Begin a range of the thread; the number of ranges around it."""
    depth = getattr(_thread, "depth", 0)
    _thread.depth = depth + 1
    _tell("nvtxRangePushA", msg)
    return depth


def range_pop() -> int:
    """End the innermost range of the thread; the number of ranges around it, -1 if there was none."""
    depth = getattr(_thread, "depth", 0) - 1
    _thread.depth = max(depth, 0)
    if depth >= 0 and (library := _library()):
        library.nvtxRangePop()
    return depth


def range_start(msg: str) -> int:
    """Begin a range that another thread may end; its number for `range_end`."""
    library = _library()
    if library is None:
        return 0
    library.nvtxRangeStartA.restype = ctypes.c_uint64
    return int(library.nvtxRangeStartA(ctypes.c_char_p(str(msg).encode())))


def range_end(range_id: int) -> None:
    """End a range of `range_start`."""
    if library := _library():
        library.nvtxRangeEnd(ctypes.c_uint64(range_id))


def mark(msg: str) -> None:
    """Mark a moment."""
    _tell("nvtxMarkA", msg)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range around the body; `msg.format(*args, **kwargs)` is its text."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
