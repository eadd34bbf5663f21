"""The region in which operators choose their precision."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import rabbet
from rabbet import dtype as Dtype

from . import _C
from ._state import (
    backend_of,
    checked_device_type,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_cache_enabled,
)

F = TypeVar("F", bound=Callable[..., Any])

_SUPPORTED = (rabbet.bfloat16, rabbet.float16)


class autocast:
    """Run operators in the dtype that suits them. Context manager and decorator.

    Inside, matrix products, convolutions, attention and recurrent layers get their float32, float16 and
    bfloat16 tensors in `dtype`; operators that need range or precision (exp, log, pow, sums, softmax,
    norms, losses) get float32; those that join tensors (cat, stack) get the widest of their dtypes; all
    others take what comes. The field `autocast` of an operator's record says which it is. float64, integer
    and complex tensors, tensors on other devices, calls in place and calls with `out=` are left alone. An
    operator that has no kernel for `dtype` runs in the dtype that its tensors came in.

    A cast of a float32 leaf that requires grad is made once per outermost region and used again, until the
    leaf is written or the region ends. Gradients have the dtype of the leaf.

    Regions nest, `enabled=False` runs operators as outside. The state is the thread's own. A backward pass
    runs without autocast: its operators have the dtypes of those in the forward pass.

    Args:
        device_type: 'cpu', 'cuda', ...: tensors elsewhere are not touched.
        dtype: bfloat16 or float16; None is what `get_autocast_dtype(device_type)` gives.
        enabled: whether to cast at all.
        cache_enabled: whether casts of weights are kept; None leaves that as it is.

    Raises:
        ValueError: if `device_type` is not a str.
        RuntimeError: if it names no device type.

    With another dtype, or for 'cuda' without its backend, a warning says so and nothing is cast.
    """

    def __init__(
        self,
        device_type: str,
        dtype: Dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.device = checked_device_type(device_type)
        if not is_autocast_available(device_type):
            raise RuntimeError(
                f"User specified an unsupported autocast device_type '{device_type}'"
            )
        if dtype is not None and not isinstance(dtype, rabbet.dtype):
            raise TypeError(f"autocast: expected a dtype or None for dtype, got {dtype!r}")
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._backend = backend_of(device_type)
        self._enabled = bool(enabled) and self._is_usable()
        self._cache_enabled = (
            is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        )
        self._before: list[tuple[bool, Dtype | None, bool]] = []

    def _is_usable(self) -> bool:
        name = self.device.upper()
        if self._backend is None:
            warnings.warn(f"{name} is not available. Disabling autocast.", stacklevel=3)
            return False
        if self.fast_dtype not in _SUPPORTED:
            warnings.warn(
                f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{name} Autocast only supports dtypes of {', '.join(map(str, _SUPPORTED))} currently.",
                stacklevel=3,
            )
            return False
        return True

    def __enter__(self) -> autocast:
        b, cached = self._backend, _C.is_cache_enabled()
        if b is None:
            self._before.append((False, None, cached))
        else:
            self._before.append((_C.is_enabled(b), _C.get_dtype(b), cached))
            _C.set_enabled(b, self._enabled)
            _C.set_dtype(b, self.fast_dtype)
        _C.enter()
        _C.set_cache_enabled(self._cache_enabled)
        return self

    def __exit__(self, *exc: object) -> None:
        enabled, dtype, cached = self._before.pop()
        if _C.leave() == 0:
            _C.clear_cache()
        if self._backend is not None:
            _C.set_enabled(self._backend, enabled)
            _C.set_dtype(self._backend, dtype)  # type: ignore[arg-type]
        _C.set_cache_enabled(cached)

    def _fresh(self) -> autocast:
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, _before=[])
        return copy

    def __call__(self, func: F) -> F:
        """Wrap a function so that it runs in a region of this kind."""
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. Did you mean to "
                "use autocast as a context manager: `with autocast(device_type=...):`?"
            )

        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._fresh():
                return func(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


def _cast(value: Any, device_type: str, dtype: Dtype) -> Any:
    """The floating tensors on a kind of device, in containers too, cast to `dtype`; float64 stays."""
    if isinstance(value, rabbet.Tensor):
        fits = (
            value.is_floating_point()
            and value.device.type == device_type
            and value.dtype is not rabbet.float64
        )
        return value.to(dtype) if fits else value
    if isinstance(value, dict):
        return {
            _cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        parts = [_cast(v, device_type, dtype) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
