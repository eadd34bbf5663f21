"""The thread's autocast state, by device type."""

from typing import overload

import rabbet
from rabbet import PluginError, dtype

from . import _C

# Device types that have a meaning before their wheel is installed, and what they prefer.
_STANDARD = rabbet.float16
_KNOWN = {
    **dict.fromkeys(("cuda", "ipu", "mps", "mtia", "xpu"), _STANDARD),
    **dict.fromkeys(("cpu", "hpu", "maia", "xla"), rabbet.bfloat16),
}
_WITHOUT = {"meta"}  # holds no numbers

_backends: dict[str, int] = {}


def checked_device_type(device_type: object) -> str:
    """Give it back if it is a str; ValueError otherwise."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    return device_type


def backend_of(device_type: str) -> int | None:
    """The id of the backend, loaded by this; None if it is not installed or does not work."""
    known = _backends.get(device_type)
    if known is not None:
        return known
    if not device_type.isidentifier() or device_type in _WITHOUT:
        return None
    try:
        probe = rabbet.empty(0, device=device_type)
    except RuntimeError:  # no such backend, or no such device
        return None
    backend = _C.backend_id(probe)
    _C.set_default_dtype(backend, _KNOWN.get(device_type, _STANDARD))
    return _backends.setdefault(device_type, backend)


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` can be asked for a device type such as 'cpu'."""
    return checked_device_type(device_type) in _KNOWN or backend_of(device_type) is not None


def _checked(device_type: str, name: str) -> str:
    if not is_autocast_available(device_type):
        raise RuntimeError(f"{name}: unsupported autocast device_type '{device_type}'")
    return device_type


def _required(device_type: str, name: str) -> int:
    backend = backend_of(_checked(device_type, name))
    if backend is None:
        raise PluginError(f"{name}: there is no backend for device type '{device_type}'")
    return backend


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether the thread casts what runs on a device type; False while a backward pass runs.

    Raises:
        RuntimeError: if the device type is unknown.
    """
    backend = backend_of(_checked(device_type, "is_autocast_enabled"))
    return backend is not None and _C.is_enabled(backend)


@overload
def set_autocast_enabled(device_type: str, enabled: bool, /) -> None: ...
@overload
def set_autocast_enabled(enabled: bool, /) -> None: ...
def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None, /) -> None:
    """Switch autocast on or off for the thread, until it is set again; `autocast` restores what was.

    Args:
        device_type: what runs there is cast; 'cuda' if only `enabled` is given.

    Raises:
        RuntimeError: if the device type is unknown or its backend is not installed.
    """
    if enabled is None:
        device_type, enabled = "cuda", bool(device_type)
    backend = _required(checked_device_type(device_type), "set_autocast_enabled")
    _C.set_enabled(backend, bool(enabled))


def get_autocast_dtype(device_type: str) -> dtype:
    """The dtype that the thread's autocast uses there: at first bfloat16 on 'cpu', else float16.

    Raises:
        RuntimeError: if the device type is unknown.
    """
    backend = backend_of(_checked(device_type, "get_autocast_dtype"))
    return _KNOWN[device_type] if backend is None else _C.get_dtype(backend)


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    """Set the dtype that the thread's autocast uses on a device type.

    Raises:
        TypeError: if `dtype` is not a floating dtype.
        RuntimeError: if the device type is unknown or its backend is not installed.
    """
    if not isinstance(dtype, rabbet.dtype) or not dtype.is_floating_point:
        raise TypeError(f"set_autocast_dtype: expected a floating dtype, got {dtype!r}")
    _C.set_dtype(_required(device_type, "set_autocast_dtype"), dtype)


def is_autocast_cache_enabled() -> bool:
    """Whether the thread keeps casts of weights within a region."""
    return _C.is_cache_enabled()


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keep casts of weights within a region, or make them anew at each use."""
    _C.set_cache_enabled(bool(enabled))


def clear_autocast_cache() -> None:
    """Drop the casts of weights that the thread keeps."""
    _C.clear_cache()


def autocast_increment_nesting() -> int:
    """Enter a region; returns the number of regions that the thread is in."""
    return _C.enter()


def autocast_decrement_nesting() -> int:
    """Leave a region; returns the number of regions that the thread is in still."""
    return _C.leave()
