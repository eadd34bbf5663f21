"""Regions: as a block, and around a function."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from rabbet import compiler

from . import _C

__all__ = ["in_region", "region"]


@contextlib.contextmanager
def region() -> Iterator[None]:
    """Defer elementwise calls of the calling thread inside the block, as `compile` does inside a function.

    Regions nest. What is deferred runs at the end of the outermost one at the latest.

    Example:
        >>> with region():
        ...     y = (x * 1.5 + 0.25).sigmoid()
    """
    before = _C.enter()
    try:
        yield
    finally:
        if not before:
            _C.leave()


def in_region(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` with its calls in a region."""
    enter, leave = _C.enter, _C.leave

    @functools.wraps(fn)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if compiler._stance == "force_eager":
            return fn(*args, **kwargs)
        before = enter()
        try:
            return fn(*args, **kwargs)
        finally:
            if not before:
                leave()

    return compiled
