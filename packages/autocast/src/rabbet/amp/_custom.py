"""Autocast for the two halves of a `rabbet.autograd.Function`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rabbet import Tensor, dtype, float64

from ._state import checked_device_type, get_autocast_dtype, is_autocast_enabled
from .autocast_mode import autocast


def _cast(value: Any, device_type: str, to: dtype) -> Any:
    """Floating tensors of a device type, also in containers, in another dtype; float64 stays."""
    if isinstance(value, Tensor):
        casts = value.is_floating_point() and value.dtype != float64
        return value.to(to) if casts and value.device.type == device_type else value
    if isinstance(value, str | bytes) or hasattr(value, "__array__"):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, to): _cast(v, device_type, to) for k, v in value.items()}
    if isinstance(value, Iterable):
        items = (_cast(v, device_type, to) for v in value)
        return type(value)(items) if isinstance(value, list | tuple) else items
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: dtype | None = None
) -> Callable[..., Any]:
    """Decorate the `forward` of a `Function`, so that it knows the autocast state.

    Args:
        fwd: the function; without it a decorator is returned.
        device_type: 'cpu', 'cuda', ...
        cast_inputs: in a region, cast floating tensors among the arguments to this dtype and run
            `forward` without autocast. None: it runs with the state as it is.

    Raises:
        ValueError: if `device_type` is not a str.
    """
    checked_device_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        ctx, enabled = args[0], is_autocast_enabled(device_type)
        ctx._dtype = get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            given = _cast(args[1:], device_type, cast_inputs)
            return fwd(ctx, *given, **_cast(kwargs, device_type, cast_inputs))

    return wrapped


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate the `backward` of a `Function` whose `forward` has `custom_fwd`: it runs in the same state.

    Args:
        bwd: the function; without it a decorator is returned.
        device_type: 'cpu', 'cuda', ...

    Raises:
        ValueError: if `device_type` is not a str.
    """
    checked_device_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(*args, **kwargs)

    return wrapped
