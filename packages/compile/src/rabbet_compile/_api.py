"""`compile`: functions and modules whose calls run in a region."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rabbet import compiler
from rabbet._settings import warn_once

from . import _C
from ._settings import mode as _environment

__all__ = ["compile", "region"]


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


def compile(
    model: Any,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """`model`, a function or a module, so that its calls run in a region. See `rabbet.compile`.

    Any Python may run in a region, sizes may change, and nothing is traced: `fullgraph`, `dynamic`, `mode` and
    `options` are accepted and change nothing. `backend="eager"` gives `model` back. Other backends than "inductor",
    which is this one, are not there: that is said once.

    Raises:
        TypeError: if `model` cannot be called.
        ValueError: if `RABBET_COMPILE` has a value that is none of "on", "off" and "check".
    """
    if not callable(model):
        raise TypeError(f"compile: expected a module or a function, got {type(model).__name__}")
    if _environment() == "off" or backend == "eager":
        return model
    if backend != "inductor":
        name = backend if isinstance(backend, str) else getattr(backend, "__name__", repr(backend))
        warn_once(
            f"compile: there is no backend {name!r}: the program runs in regions", stacklevel=4
        )
    nn = sys.modules.get("rabbet.nn")
    if nn is not None and isinstance(model, nn.Module):
        from ._module import OptimizedModule

        return OptimizedModule(model)
    return in_region(model)
