"""Devices besides the CPU, with the names of torch.accelerator; every function also takes a device of any backend.

The current accelerator is the first backend besides `cpu` that was loaded. If none was, those that are installed are
tried in the order of their names. A device without an index is the current one of its backend: the first, until the
thread says otherwise by `set_device_index` or `device_index`.
"""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from . import _C
from ._accelerators import Device as _Device
from ._accelerators import accelerator_name as _name
from ._accelerators import chosen_device, count_devices
from ._graphs import Graph, MemPool, check_pool_id, use_mem_pool
from ._step_graphs import StepGraph as graphed
from ._streams import Stream

__all__ = [
    "Graph",
    "MemPool",
    "can_device_access_peer",
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "empty_host_cache",
    "get_device_capability",
    "get_device_properties",
    "get_memory_info",
    "graphed",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_per_process_memory_fraction",
    "set_stream",
    "synchronize",
    "use_mem_pool",
]


def current_accelerator(check_available: bool = False) -> _C.device | None:
    """The current accelerator without an index; None if no backend besides the CPU's loads.

    Args:
        check_available: give None, too, where it has no device.
    """
    name = _name()
    if name is None or (check_available and count_devices(name) == 0):
        return None
    return _C.device(name)


def is_available() -> bool:
    """Whether there is an accelerator with at least one device."""
    return current_accelerator(check_available=True) is not None


def device_count() -> int:
    """Number of devices of the current accelerator, 0 without one."""
    name = _name()
    return 0 if name is None else count_devices(name)


def current_device_index() -> int:
    """The index that a device without one has on this thread.

    Raises:
        DeviceError: without an accelerator.
    """
    return chosen_device("accelerator.current_device_index", None).index or 0


def set_device_index(device: _Device, /) -> None:
    """Make a device the current one of its backend on this thread; a negative index changes nothing.

    Raises:
        DeviceError: if there is no such device.
    """
    if device is None or (isinstance(device, int) and device < 0):
        return
    _C.set_current_device(chosen_device("accelerator.set_device_index", device))


@contextlib.contextmanager
def device_index(device: int | None, /) -> Iterator[None]:
    """Choose the current device for a while; None changes nothing."""
    if device is None:
        yield
        return
    before = current_device_index()
    set_device_index(device)
    try:
        yield
    finally:
        set_device_index(before)


def current_device_idx() -> int:
    """The older name of `current_device_index`."""
    return current_device_index()


def set_device_idx(device: _Device, /) -> None:
    """The older name of `set_device_index`."""
    set_device_index(device)


def get_device_capability(device: _Device = None, /) -> dict[str, Any]:
    """What a device supports: `supported_dtypes`, a set of dtypes."""
    chosen_device("accelerator.get_device_capability", device)
    return {"supported_dtypes": {getattr(_C, name) for name in _C.dtype_names()}}


def synchronize(device: _Device = None, /) -> None:
    """Wait until all work on a device is done, and raise what went wrong there.

    Args:
        device: of any backend, or an index of the current accelerator; None: its current device.

    Raises:
        DeviceError: if there is no such device.
    """
    _C.synchronize(chosen_device("accelerator.synchronize", device))


def current_stream(device: _Device = None, /) -> Stream:
    """The calling thread's stream of a device: the default one, if no other was set.

    Raises:
        DeviceError: if there is no such device.
    """
    return Stream._current(chosen_device("accelerator.current_stream", device))


def set_stream(stream: Stream) -> None:
    """Make `stream` the calling thread's of its device.

    Raises:
        TypeError: if it is no Stream.
    """
    if not isinstance(stream, Stream):
        raise TypeError(
            f"accelerator.set_stream: stream must be a Stream, not {type(stream).__name__}"
        )
    _C.stream_set(stream.device, stream.stream_id)


def empty_cache() -> None:
    """Give the segments that core's allocator keeps for reuse back to their backends, on all devices.

    A segment of which a part is in use stays, and so do those of pools and graphs that are alive.
    """
    _C.empty_cache()


def empty_host_cache() -> None:
    """Give free pinned memory back; `empty_cache` does so, too."""
    _C.empty_cache()


def memory_stats(device_index: _Device = None, /) -> dict[str, int]:
    """What core's allocator did for a device, with PyTorch's names, sorted.

    `segment` and `reserved_bytes` count what the backend gave. Segments are split into blocks: `allocation` counts
    those in use, `allocated_bytes` their bytes, `requested_bytes` what was asked for before rounding;
    `inactive_split` and `inactive_split_bytes` count free blocks of segments that are split. Each has `.current`,
    `.peak`, and `.allocated` and `.freed`, the sums of rises and falls, for `.all` blocks and for the `.small_pool`
    (blocks of up to 1 MiB) and the `.large_pool`.
    `num_device_alloc` and `num_device_free` are calls of the backend; `num_alloc_retries` counts allocations that
    succeeded or failed after the cache was given back, `num_ooms` those that failed.

    In host memory blocks of up to 4096 bytes come from lists of each thread and are not counted here;
    `python -m rabbet doctor` counts the tensors.

    Args:
        device_index: a device of any backend, or an index of the current accelerator; None: its current device.

    Raises:
        DeviceError: if there is no such device.
    """
    stats = _C.memory_stats(chosen_device("accelerator.memory_stats", device_index))
    return dict(sorted(stats.items()))


def _stat(function: str, device: _Device, key: str) -> int:
    return _C.memory_stats(chosen_device(f"accelerator.{function}", device))[key]


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """All segments of core's allocator with their blocks, in the form of torch.cuda.memory_snapshot.

    Beside PyTorch's keys a segment has its `backend` and the `kind` of its memory (device, pinned, managed).

    Args:
        mempool_id: only the segments of this pool, as `MemPool.id` and `Graph.pool()` give it.
        include_traces: taken for PyTorch's sake; there are no traces among segments.

    Raises:
        TypeError: if `mempool_id` is no pair of ints.
    """
    segments = _C.memory_snapshot()
    if mempool_id is None:
        return segments
    check_pool_id("memory_snapshot: mempool_id", mempool_id)
    return [s for s in segments if s["segment_pool_id"] == mempool_id]


def get_memory_info(device_index: _Device = None, /) -> tuple[int, int]:
    """Free and total bytes of a device, of all processes.

    Raises:
        NotImplementedError: if the backend does not tell.
    """
    return _C.memory_info(chosen_device("accelerator.get_memory_info", device_index))


def get_device_properties(device: _Device = None) -> SimpleNamespace:
    """What the backend says of a device, as attributes.

    Raises:
        NotImplementedError: if the backend tells nothing.
    """
    place = chosen_device("accelerator.get_device_properties", device)
    return SimpleNamespace(**_C.device_properties(place))


def can_device_access_peer(device: _Device, peer_device: _Device) -> bool:
    """Whether kernels on `device` can read and write memory of `peer_device`."""
    function = "accelerator.can_device_access_peer"
    return _C.can_access_peer(chosen_device(function, device), chosen_device(function, peer_device))


def set_per_process_memory_fraction(fraction: float, device: _Device = None) -> None:
    """Let allocations fail that would make this process hold more than a fraction of a device's memory.

    Raises:
        TypeError: if `fraction` is no number.
        ValueError: if it is not between 0 and 1.
        NotImplementedError: if the backend does not tell how much there is.
    """
    function = "accelerator.set_per_process_memory_fraction"
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise TypeError(f"{function}: fraction must be a number, not {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"{function}: fraction must lie between 0 and 1, got {fraction}")
    _C.limit_memory(chosen_device(function, device), fraction)


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
    _C.reset_peak_memory(chosen_device("accelerator.reset_peak_memory_stats", device_index))


def reset_accumulated_memory_stats(device_index: _Device = None, /) -> None:
    """Let a device's sums of rises and falls, and its counts of failures, begin at zero."""
    _C.reset_accumulated_memory(
        chosen_device("accelerator.reset_accumulated_memory_stats", device_index)
    )
