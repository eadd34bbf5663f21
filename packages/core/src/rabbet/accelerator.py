"""Devices besides the CPU, with the names of torch.accelerator; every function also takes a device of any backend.

The current accelerator is the first backend besides `cpu` that was loaded. If none was, those that are installed are
tried in the order of their names. A device without an index is the first of its backend.
"""

from . import _C, _plugins

__all__ = [
    "current_accelerator",
    "current_device_index",
    "device_count",
    "empty_cache",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "synchronize",
]

_Device = _C.device | str | int | None
_NOT_ACCELERATORS = ("meta", "cpu")


def _name() -> str | None:
    for backend in _C.backends():
        if backend["name"] not in _NOT_ACCELERATORS:
            return str(backend["name"])
    installed = {
        name
        for plugin in _plugins.plugins().values()
        if plugin.kind == "backend"
        for name in plugin.provides
    }
    for name in sorted(installed.difference(_NOT_ACCELERATORS)):
        try:
            _plugins.require_backend(name)
        except _C.PluginError:  # the doctor says why
            continue
        return name
    return None


def _count(name: str) -> int:
    return next(int(b["devices"]) for b in _C.backends() if b["name"] == name)


def _device(function: str, device: _Device) -> _C.device:
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        name = _name()
        if name is None:
            raise _C.DeviceError(
                f"accelerator.{function}: no accelerator is available; give a device, such as 'cpu'"
            )
        if device is not None and device < 0:
            raise _C.DeviceError(
                f"accelerator.{function}: expected the index of a device, from 0 on, got {device}"
            )
        device = f"{name}:{device or 0}"
    elif not isinstance(device, (str, _C.device)):
        raise TypeError(
            f"accelerator.{function}: expected a device, its name or an index, got {type(device).__name__}"
        )
    asked = _C.device(device) if isinstance(device, str) else device
    count, index = _count(asked.type), asked.index or 0
    if asked.type != "meta" and index >= count:
        raise _C.DeviceError(
            f"accelerator.{function}: there is no device {asked.type}:{index}, '{asked.type}' has {count}"
        )
    return asked


def current_accelerator(check_available: bool = False) -> _C.device | None:
    """The current accelerator without an index; None if no backend besides the CPU's loads.

    Args:
        check_available: give None, too, where it has no device.
    """
    name = _name()
    if name is None or (check_available and _count(name) == 0):
        return None
    return _C.device(name)


def is_available() -> bool:
    """Whether there is an accelerator with at least one device."""
    return current_accelerator(check_available=True) is not None


def device_count() -> int:
    """Number of devices of the current accelerator, 0 without one."""
    name = _name()
    return 0 if name is None else _count(name)


def current_device_index() -> int:
    """The index that a device without one has: 0.

    Raises:
        DeviceError: without an accelerator.
    """
    return _device("current_device_index", None).index or 0


def synchronize(device: _Device = None, /) -> None:
    """Wait until all work on a device is done, and raise what went wrong there.

    Args:
        device: of any backend, or an index of the current accelerator; None: its first device.

    Raises:
        DeviceError: if there is no such device.
    """
    _C.synchronize(_device("synchronize", device))


def empty_cache() -> None:
    """Give the blocks that core's allocator keeps for reuse back to their backends, on all devices."""
    _C.empty_cache()


def memory_stats(device_index: _Device = None, /) -> dict[str, int]:
    """What core's allocator did for a device, with PyTorch's names, sorted.

    `allocation` counts blocks in use and `allocated_bytes` their bytes, rounded up to the sizes that are kept for
    reuse; `segment` and `reserved_bytes` count blocks that the backend gave, in use or kept. Each has
    `.all.current`, `.all.peak`, and `.all.allocated` and `.all.freed`, the sums of rises and falls.
    `num_device_alloc` and `num_device_free` are calls of the backend; `num_alloc_retries` counts allocations that
    succeeded or failed after the cache was given back, `num_ooms` those that failed.

    In host memory blocks of up to 4096 bytes come from lists of each thread and are not counted here;
    `python -m rabbet doctor` counts the tensors.

    Args:
        device_index: a device of any backend, or an index of the current accelerator; None: its first device.

    Raises:
        DeviceError: if there is no such device.
    """
    return _C.memory_stats(_device("memory_stats", device_index))


def _stat(function: str, device: _Device, key: str) -> int:
    return _C.memory_stats(_device(function, device))[key]


def memory_allocated(device_index: _Device = None, /) -> int:
    """Bytes of a device in use by tensors and kernels, see `memory_stats`."""
    return _stat("memory_allocated", device_index, "allocated_bytes.all.current")


def max_memory_allocated(device_index: _Device = None, /) -> int:
    """The most bytes in use since the start or `reset_peak_memory_stats`."""
    return _stat("max_memory_allocated", device_index, "allocated_bytes.all.peak")


def memory_reserved(device_index: _Device = None, /) -> int:
    """Bytes of a device that its backend gave: those in use and those kept for reuse."""
    return _stat("memory_reserved", device_index, "reserved_bytes.all.current")


def max_memory_reserved(device_index: _Device = None, /) -> int:
    """The most bytes that the backend had given since the start or `reset_peak_memory_stats`."""
    return _stat("max_memory_reserved", device_index, "reserved_bytes.all.peak")


def reset_peak_memory_stats(device_index: _Device = None, /) -> None:
    """Let the peaks of a device begin at what is in use now."""
    _C.reset_peak_memory(_device("reset_peak_memory_stats", device_index))


def reset_accumulated_memory_stats(device_index: _Device = None, /) -> None:
    """Let a device's sums of rises and falls, and its counts of failures, begin at zero."""
    _C.reset_accumulated_memory(_device("reset_accumulated_memory_stats", device_index))
