"""`compile`: functions and modules whose calls are replayed, or run in a region."""

import sys
from collections.abc import Callable
from typing import Any

from rabbet._settings import warn_once

from ._region import in_region
from ._replaying import replayed
from ._settings import mode as _environment

__all__ = ["compile"]


def compile(
    model: Any,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """Return `model`, a function or a module, so that its calls are replayed or run in a region. See `rabbet.compile`.

    Any Python may run, and sizes may change: `fullgraph`, `dynamic` and `mode` are accepted and change nothing.
    `options={"replay": False}` runs all calls in regions. `backend="eager"` gives `model` back. Other backends than
    "inductor", which is this one, do not exist, which a warning says once.

    Raises:
        TypeError: if `model` cannot be called.
        ValueError: if `RABBET_COMPILE` is none of "on", "regions", "off" and "check".
    """
    if not callable(model):
        raise TypeError(f"compile: expected a module or a function, got {type(model).__name__}")
    chosen = _environment()
    if chosen == "off" or backend == "eager":
        return model
    if backend != "inductor":
        name = backend if isinstance(backend, str) else getattr(backend, "__name__", repr(backend))
        warn_once(
            f"compile: there is no backend {name!r}: the program runs in regions", stacklevel=4
        )
    wrap = replayed if chosen == "on" and (options or {}).get("replay", True) else in_region
    nn = sys.modules.get("rabbet.nn")
    if nn is not None and isinstance(model, nn.Module):
        from ._module import OptimizedModule

        return OptimizedModule(model, wrap)
    return wrap(model)
