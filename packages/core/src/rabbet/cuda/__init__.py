"""CUDA devices, as far as the backend for them is installed; without it every query says that there is none."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from .. import _C, _legacy, accelerator
from .._streams import Event, Stream
from . import _devices, random
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

__all__ = [
    "Event", "Stream", "amp", "current_device", "current_stream", "device", "device_count", "empty_cache",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state", "get_rng_state_all", "init", "initial_seed",
    "ipc_collect", "is_available", "is_bf16_supported", "is_current_stream_capturing", "is_initialized", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved",
    "memory_stats", "random", "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_rng_state",
    "set_rng_state_all", "stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether there is a CUDA device and a backend for it."""
    return device_count() > 0


def device_count() -> int:
    """Number of CUDA devices."""
    return _devices.count()


def is_initialized() -> bool:
    """Whether the backend is loaded and has a device."""
    return any(b["name"] == "cuda" and b["devices"] for b in _C.backends())


def init() -> None:
    """Load the backend.

    Raises:
        RuntimeError: if there is no CUDA device.
    """
    _devices.checked("init")


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device computes with bfloat16."""
    return is_available()


def is_current_stream_capturing() -> bool:
    """Whether work is recorded into a graph instead of run: graphs are captured elsewhere, by `accelerator.Graph`."""
    return False


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Major and minor number of what a device can do."""
    found = accelerator.get_device_properties(_devices.checked("get_device_capability", device))
    return int(found.major), int(found.minor)


def current_device() -> int:
    """Index of the device that calls without an index mean: the first."""
    return _devices.checked("current_device").index or 0


def set_device(device: Any) -> None:
    """Choose the device that calls without an index mean; only the first can be chosen yet.

    Raises:
        RuntimeError: if there is no CUDA device.
        NotImplementedError: for another than the first.
    """
    if _devices.checked("set_device", device).index:
        raise _C.NotImplementedForError(
            f"cuda.set_device: the current device is always the first, got {device!r}"
        )


@contextlib.contextmanager
def device(device: Any) -> Iterator[None]:
    """Choose the current device for a while; None or a negative index changes nothing."""
    if device is not None and not (isinstance(device, int) and device < 0):
        set_device(device)
    yield


def synchronize(device: Any = None) -> None:
    """Wait until the device has done what it was given."""
    accelerator.synchronize(_devices.checked("synchronize", device))


def current_stream(device: Any = None) -> Stream:
    """The stream that work of this thread goes to."""
    return accelerator.current_stream(_devices.checked("current_stream", device))


def stream(stream: Stream | None) -> contextlib.AbstractContextManager[Any]:
    """Send work to a stream for a while; None changes nothing."""
    return contextlib.nullcontext() if stream is None else stream


def get_device_properties(device: Any = None) -> SimpleNamespace:
    """What the backend says about a device."""
    return accelerator.get_device_properties(_devices.checked("get_device_properties", device))


def get_device_name(device: Any = None) -> str:
    """The name of a device."""
    return str(get_device_properties(device).name)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of a device."""
    return accelerator.get_memory_info(_devices.checked("mem_get_info", device))


def empty_cache() -> None:
    """Give cached memory back to the device; without a device there is none."""
    if is_initialized():
        accelerator.empty_cache()


def ipc_collect() -> None:
    """Free memory that other processes gave back: it is freed at once."""


def memory_stats(device: Any = None) -> dict[str, int]:
    """Counters of the device's allocator; empty without a device."""
    if not is_available():
        return {}
    return accelerator.memory_stats(_devices.checked("memory_stats", device))


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors on a device."""
    return accelerator.memory_allocated(device) if is_available() else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors used on a device."""
    return accelerator.max_memory_allocated(device) if is_available() else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes that the allocator holds of a device."""
    return accelerator.memory_reserved(device) if is_available() else 0


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the allocator held of a device."""
    return accelerator.max_memory_reserved(device) if is_available() else 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the peaks begin at the present values."""
    accelerator.reset_peak_memory_stats(_devices.checked("reset_peak_memory_stats", device))


def __getattr__(name: str) -> Any:
    import importlib

    if name in ("amp", "nvtx"):  # the first needs a wheel of its own
        return importlib.import_module(f"rabbet.cuda.{name}")
    if name in _legacy.NAMES:
        return _legacy.tensor_type(name, "cuda")
    raise AttributeError(f"module 'rabbet.cuda' has no attribute '{name}'", name=name)
