"""Memory of CUDA devices, from core's caching allocator; see docs/reference/memory.md."""

import contextlib
from collections.abc import Iterator
from typing import Any

from .. import _C, _device_sharing, _graphs, accelerator
from . import _devices

__all__ = [
    "CUDAPluggableAllocator", "MemPool", "caching_allocator_alloc", "caching_allocator_delete",
    "caching_allocator_disabled", "caching_allocator_enable", "change_current_allocator", "device_memory_used", "empty_cache",
    "get_allocator_backend", "get_per_process_memory_fraction", "host_memory_stats", "host_memory_stats_as_nested_dict",
    "ipc_collect", "list_gpu_processes", "max_memory_allocated", "max_memory_cached", "max_memory_reserved",
    "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved", "memory_snapshot", "memory_stats",
    "memory_stats_as_nested_dict", "memory_summary", "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_host_memory_stats", "reset_peak_memory_stats", "set_per_process_memory_fraction", "use_mem_pool",
]  # fmt: skip

_PARTS = ("current", "peak", "allocated", "freed")


def _device_if_any(function: str, device: Any) -> _C.device | None:
    """The device that is meant; None without the backend, where PyTorch's counters are 0 too."""
    return _devices.checked(function, device) if _devices.count() else None


# ---- counters


def memory_stats(device: Any = None) -> dict[str, int]:
    """Counters of a device's allocator, sorted by name; empty without a device.

    Beside those of `accelerator.memory_stats`: `active` and `active_bytes` are `allocation` and `allocated_bytes`, as
    blocks that streams still use are free at once, and `oversize_*` are 0.
    """
    place = _device_if_any("memory_stats", device)
    if place is None:
        return {}
    stats = _C.memory_stats(place)
    for name, source in (("active", "allocation"), ("active_bytes", "allocated_bytes")):
        for pool in ("all", "large_pool", "small_pool"):
            for part in _PARTS:
                stats[f"{name}.{pool}.{part}"] = stats[f"{source}.{pool}.{part}"]
    for part in _PARTS:
        stats[f"oversize_allocations.{part}"] = stats[f"oversize_segments.{part}"] = 0
    stats["max_split_size"] = -1
    return dict(sorted(stats.items()))


def _nested(stats: dict[str, int]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in stats.items():
        *path, last = name.split(".")
        at = tree
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return tree


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """`memory_stats` with a dict for each part of a name."""
    return _nested(memory_stats(device))


def _stat(device: Any, name: str) -> int:
    place = _device_if_any(name, device)
    return 0 if place is None else _C.memory_stats(place)[name]


def memory_allocated(device: Any = None) -> int:
    """Bytes in use by tensors on a device."""
    return _stat(device, "allocated_bytes.all.current")


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors used on a device since the start or `reset_peak_memory_stats`."""
    return _stat(device, "allocated_bytes.all.peak")


def memory_reserved(device: Any = None) -> int:
    """Bytes that the allocator holds of a device."""
    return _stat(device, "reserved_bytes.all.current")


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the allocator held of a device since the start or `reset_peak_memory_stats`."""
    return _stat(device, "reserved_bytes.all.peak")


def memory_cached(device: Any = None) -> int:
    """The older name of `memory_reserved`."""
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """The older name of `max_memory_reserved`."""
    return max_memory_reserved(device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the peaks begin at the present values."""
    _C.reset_peak_memory(_devices.checked("reset_peak_memory_stats", device))


def reset_max_memory_allocated(device: Any = None) -> None:
    """The older name of `reset_peak_memory_stats`, which resets all peaks."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Any = None) -> None:
    """The older name of `reset_peak_memory_stats`, which resets all peaks."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Reset the cumulative counters: bytes allocated and freed, failed allocations."""
    _C.reset_accumulated_memory(_devices.checked("reset_accumulated_memory_stats", device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of a device, of all processes."""
    return _C.memory_info(_devices.checked("mem_get_info", device))


def device_memory_used(device: Any = None) -> int:
    """Bytes of a device in use, by all processes."""
    free, total = mem_get_info(device)
    return total - free


# ---- pinned memory of the host


def host_memory_stats() -> dict[str, int]:
    """Counters of pinned memory for the current device, with PyTorch's names; empty without a device."""
    place = _device_if_any("host_memory_stats", None)
    if place is None:
        return {}
    stats = _C.memory_stats(place, "pinned")
    renamed = {
        "allocation": "allocations", "allocated_bytes": "allocated_bytes", "segment": "segment",
        "reserved_bytes": "reserved_bytes",
    }  # fmt: skip
    found = {
        f"{name}.{part}": stats[f"{source}.all.{part}"]
        for source, name in renamed.items()
        for part in _PARTS
    }
    found["num_host_alloc"], found["num_host_free"] = (
        stats["num_device_alloc"],
        stats["num_device_free"],
    )
    return dict(sorted(found.items()))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """`host_memory_stats` with a dict for each part of a name."""
    return _nested(host_memory_stats())


def reset_peak_host_memory_stats() -> None:
    """Let the peaks of pinned memory begin at the present values."""
    _C.reset_peak_memory(_devices.checked("reset_peak_host_memory_stats"), "pinned")


def reset_accumulated_host_memory_stats() -> None:
    """Reset the cumulative counters of pinned memory."""
    _C.reset_accumulated_memory(_devices.checked("reset_accumulated_host_memory_stats"), "pinned")


# ---- reports


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """The segments of all CUDA devices with their blocks; see `accelerator.memory_snapshot`."""
    found = accelerator.memory_snapshot(mempool_id, include_traces)
    return [s for s in found if s["backend"] == "cuda" and s["kind"] == "device"]


_ROWS = (
    ("Allocated memory", "allocated_bytes", True),
    ("Active memory", "active_bytes", True),
    ("Requested memory", "requested_bytes", True),
    ("GPU reserved memory", "reserved_bytes", True),
    ("Non-releasable memory", "inactive_split_bytes", True),
    ("Allocations", "allocation", False),
    ("Active allocs", "active", False),
    ("GPU reserved segments", "segment", False),
    ("Non-releasable allocs", "inactive_split", False),
)


def _size_text(nbytes: int) -> str:
    units = ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB")
    unit = 0
    while nbytes >= 768 * 1024 and unit + 1 < len(units):
        nbytes //= 1024
        unit += 1
    return f"{nbytes:6d} {units[unit]}"


def _count_text(n: int) -> str:
    units = ("   ", "K  ", "M  ", "B  ")
    unit = 0
    while n >= 750_000 and unit + 1 < len(units):
        n //= 1000
        unit += 1
    return f"{n:7d} {units[unit]}"


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The counters of a device's allocator as a table.

    Args:
        abbreviated: leave out the rows of the small and the large pool.
    """
    place = _devices.checked("memory_summary", device)
    stats = memory_stats(place)
    width = 75
    rule, thin = "=" * width, "-" * width
    lines = [
        f"|{rule}|",
        f"|{' Rabbet CUDA memory summary, device ID ' + str(place.index):<{width}}|",
        f"|{thin}|",
        f"|{'  CUDA OOMs: ' + str(stats['num_ooms']):<37}|{'  cudaMalloc retries: ' + str(stats['num_alloc_retries']):<37}|",
        f"|{rule}|",
        "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |",
    ]
    for title, name, is_size in _ROWS:
        text = _size_text if is_size else _count_text
        pools = [(title, "all")]
        if not abbreviated:
            pools += [
                ("      from large pool", "large_pool"),
                ("      from small pool", "small_pool"),
            ]
        lines.append(f"|{thin}|")
        for label, pool in pools:
            cells = [text(stats[f"{name}.{pool}.{part}"]) for part in _PARTS]
            lines.append(f"| {label:<22}|" + "|".join(f" {cell:<11}" for cell in cells) + "|")
    lines.append(f"|{rule}|")
    return "\n".join(lines) + "\n"


def list_gpu_processes(device: Any = None) -> str:
    """Processes that use a device and their memory, as NVML tells; needs the package `nvidia-ml-py`."""
    from . import _nvml

    try:
        return _nvml.processes(_devices.checked("list_gpu_processes", device))
    except ModuleNotFoundError:
        return "pynvml module not found, please install nvidia-ml-py"


# ---- the cache


def empty_cache() -> None:
    """Give cached memory back to the device; without a device there is none."""
    if any(b["name"] == "cuda" and b["devices"] for b in _C.backends()):
        _device_sharing.collect()
        _C.empty_cache()


def ipc_collect() -> None:
    """Free the memory of sent tensors that other processes have dropped, which otherwise happens as the next is sent."""
    _device_sharing.collect()


_fractions: dict[int, float] = {}


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let allocations fail that would make this process hold more than a fraction of a device's memory.

    Raises:
        TypeError: if `fraction` is no float.
        ValueError: if it is not between 0 and 1.
    """
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    place = _devices.checked("set_per_process_memory_fraction", device)
    _C.limit_memory(place, fraction)
    _fractions[place.index or 0] = fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The fraction of a device's memory that this process may hold; 1.0 if none was set."""
    place = _devices.checked("get_per_process_memory_fraction", device)
    return _fractions.get(place.index or 0, 1.0)


_taken: dict[int, _C.Tensor] = {}


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """Address of `size` bytes from the allocator, for another library; see `caching_allocator_delete`.

    Args:
        stream: that uses the memory, a Stream or its address; None: the device's current one.
    """
    from .streams import ExternalStream, Stream, current_stream
    from .streams import stream as on_stream

    place = _devices.checked("caching_allocator_alloc", device)
    if stream is None:
        chosen: Stream = current_stream(place)
    elif isinstance(stream, Stream):
        chosen = stream
    elif isinstance(stream, int) and not isinstance(stream, bool):
        chosen = ExternalStream(stream, place)
    else:
        raise TypeError(
            "Invalid type for stream argument, must be `torch.cuda.Stream` or `int` representing a pointer to a "
            "existing stream"
        )
    with on_stream(chosen):
        memory = _C.op("empty")((max(int(size), 1),), dtype=_C.uint8, device=place)
    address = int(memory.data_ptr())
    _taken[address] = memory
    return address


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free what `caching_allocator_alloc` gave.

    Raises:
        ValueError: if it gave no such address.
    """
    if _taken.pop(mem_ptr, None) is None:
        raise ValueError(
            f"caching_allocator_delete: {mem_ptr:#x} was not allocated, or is free already"
        )


def caching_allocator_enable(value: bool = True) -> None:
    """The cache cannot be switched off: False is refused."""
    if not value:
        raise _C.NotImplementedForError(
            "caching_allocator_enable: core's allocator always caches; empty_cache() gives memory back"
        )


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """The cache cannot be switched off: refused."""
    caching_allocator_enable(False)
    yield


def get_allocator_backend() -> str:
    """The name of the allocator: "native", core's own."""
    return "native"


class CUDAPluggableAllocator:
    """Refused: a backend's allocator is its own (`rabbet/abi.h`)."""

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        raise _C.NotImplementedForError(
            "CUDAPluggableAllocator: memory comes from the backend; write a backend to take it from elsewhere"
        )


def change_current_allocator(allocator: Any) -> None:
    """Refused: a backend's allocator is its own."""
    raise _C.NotImplementedForError(
        "change_current_allocator: memory comes from the backend; write a backend to take it from elsewhere"
    )


class MemPool(_graphs.MemPool):
    """A private pool of device memory; see `accelerator.MemPool`."""

    __slots__ = ()

    def use_count(self) -> int:
        """How many things refer to it: this object and those that allocate in it."""
        return int(self._pool.use_count)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Its segments with their blocks."""
        return memory_snapshot(self.id, include_traces)

    def __repr__(self) -> str:
        return f"rabbet.cuda.MemPool(id={self.id})"


@contextlib.contextmanager
def use_mem_pool(pool: _graphs.MemPool, device: Any = None) -> Iterator[None]:
    """What the calling thread allocates on the device inside comes from `pool`."""
    with _graphs.use_mem_pool(pool, _devices.checked("use_mem_pool", device)):
        yield
