"""Which CUDA devices there are, and which one is meant."""

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
    """The CUDA device that is meant, with its index; None: the current one.

    Raises:
        RuntimeError: if there is no CUDA device, or not this one.
        ValueError: if another kind of device is meant.
    """
    found = count()
    if found == 0:
        raise _C.DeviceError(
            f"cuda.{function}: no CUDA device is available; it needs the wheel 'rabbet-backend-cuda'"
        )
    if device is None:
        return _C.device("cuda", _C.current_device("cuda"))
    if isinstance(device, int) and not isinstance(device, bool):
        if device < 0:
            raise _C.DeviceError(f"cuda.{function}: invalid device index {device}")
        asked = _C.device("cuda", device)
    else:
        asked = _C.device(device)
    if asked.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {asked}")
    index = _C.current_device("cuda") if asked.index is None else asked.index
    if index >= found:
        raise _C.DeviceError(
            f"cuda.{function}: invalid device ordinal {index}: there are {found} devices"
        )
    return _C.device("cuda", index)


def index_or_none(device: Any) -> int:
    """The index of a device to be made current; -1 for one that changes nothing (None, a negative index)."""
    if device is None:
        return -1
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    asked = _C.device(device)
    if asked.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {asked}")
    return -1 if asked.index is None else asked.index


class device:
    """Choose the current device for a while; None or a negative index changes nothing.

    Args:
        device: a device or an index.
    """

    def __init__(self, device: Any) -> None:
        self.idx = index_or_none(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            before = _C.current_device("cuda")
            _C.set_current_device(checked("device", self.idx))
            self.prev_idx = before

    def __exit__(self, *_: Any) -> None:
        if self.idx >= 0:
            _C.set_current_device(_C.device("cuda", self.prev_idx))


class device_of(device):
    """Choose the device of a tensor or storage for a while; those elsewhere change nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)
