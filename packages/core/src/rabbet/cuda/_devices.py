"""Which CUDA devices there are."""

from typing import Any

from .. import _C
from .._accelerators import count_devices


def count() -> int:
    """Number of CUDA devices; 0 without the backend."""
    try:
        return count_devices("cuda")
    except _C.PluginError:
        return 0


def checked(function: str, device: Any = None) -> _C.device:
    """The CUDA device that is meant; None: the first.

    Raises:
        RuntimeError: if there is no CUDA device.
        ValueError: if another device is meant.
    """
    if count() == 0:
        raise _C.DeviceError(
            f"cuda.{function}: no CUDA device is available; it needs the wheel 'rabbet-backend-cuda'"
        )
    is_index = isinstance(device, int) and not isinstance(device, bool)
    asked = _C.device(f"cuda:{device if is_index else 0}" if device is None or is_index else device)
    if asked.type != "cuda":
        raise ValueError(f"cuda.{function}: expected a cuda device, got {asked}")
    return asked
