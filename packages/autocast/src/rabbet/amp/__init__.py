"""Mixed precision: `autocast` runs operators in the dtype that suits them, `GradScaler` scales the loss."""

from typing import Any

from rabbet._plugins import require_layer

require_layer("autocast")

from ._custom import custom_bwd, custom_fwd  # noqa: E402  (the binding needs the plugin)
from ._state import (  # noqa: E402
    autocast_decrement_nesting,
    autocast_increment_nesting,
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_cache_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)
from .autocast_mode import autocast  # noqa: E402
from .grad_scaler import GradScaler  # noqa: E402


def rabbet_conformance_params(level: str) -> dict[str, Any]:
    """How the conformance kit switches the layer on, and what that may change."""
    if level != "layer":
        return {}
    return {"enter": lambda: autocast("cpu"), "changes": "dtype", "dtype": "float32"}


__all__ = [
    "GradScaler",
    "autocast",
    "autocast_decrement_nesting",
    "autocast_increment_nesting",
    "clear_autocast_cache",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_dtype",
    "is_autocast_available",
    "is_autocast_cache_enabled",
    "is_autocast_enabled",
    "set_autocast_cache_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
]
