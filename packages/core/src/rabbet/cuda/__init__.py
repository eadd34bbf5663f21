"""CUDA devices, with the names of torch.cuda; without the backend or a device every query says that there is none."""

import importlib
from types import SimpleNamespace
from typing import Any

from .. import _C, _legacy, accelerator, storage
from . import _devices, _refused, graphs, memory, random, streams
from ._devices import device, device_of
from .graphs import (
    CUDAGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from .memory import (
    CUDAPluggableAllocator,
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    change_current_allocator,
    device_memory_used,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    ipc_collect,
    list_gpu_processes,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
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
from .streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

__all__ = [
    "AcceleratorError", "CUDAGraph", "CUDAPluggableAllocator", "CudaError", "DeferredCudaCallError", "Event",
    "ExternalStream", "MemPool", "OutOfMemoryError", "Stream", "StreamContext", "amp", "caching_allocator_alloc",
    "caching_allocator_delete", "caching_allocator_disabled", "caching_allocator_enable", "can_device_access_peer",
    "change_current_allocator", "check_error", "clock_rate", "comm", "cudaStatus", "cudart", "current_blas_handle",
    "current_device", "current_solver_handle", "current_stream", "default_generators", "default_stream", "device",
    "device_count", "device_memory_used", "device_of", "empty_cache", "get_allocator_backend", "get_arch_list",
    "get_device_capability", "get_device_name", "get_device_properties", "get_gencode_flags",
    "get_per_process_memory_fraction", "get_rng_state", "get_rng_state_all", "get_stream_from_external",
    "get_sync_debug_mode", "graph", "graph_pool_handle", "graphs", "has_half", "has_magma", "host_memory_stats",
    "host_memory_stats_as_nested_dict", "init", "initial_seed", "ipc_collect", "is_available", "is_bf16_supported",
    "is_current_stream_capturing", "is_initialized", "is_tf32_supported", "list_gpu_processes",
    "make_graphed_callables", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_cached",
    "max_memory_reserved", "mem_get_info", "memory", "memory_allocated", "memory_cached", "memory_reserved",
    "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict", "memory_summary", "memory_usage", "nvtx",
    "power_draw", "profiler", "random", "reset_accumulated_host_memory_stats", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_host_memory_stats",
    "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_per_process_memory_fraction", "set_rng_state",
    "set_rng_state_all", "set_stream", "set_sync_debug_mode", "stream", "streams", "synchronize", "temperature",
    "use_mem_pool", "utilization",
]  # fmt: skip

has_half = True
has_magma = False
OutOfMemoryError = _C.OutOfMemoryError
AcceleratorError = _C.DeviceError


class DeferredCudaCallError(Exception):
    """A call that was put off until the first use of a device failed: none is put off here."""


class cudaStatus:
    """Codes of the CUDA runtime that programs compare with."""

    SUCCESS: int = 0
    ERROR_NOT_READY: int = 34


class CudaError(RuntimeError):
    """A code of the CUDA runtime that is an error."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a call of the CUDA runtime failed ({code})")
        self.code = code


def check_error(res: int) -> None:
    """Raise CudaError unless the code is that of success."""
    if res != cudaStatus.SUCCESS:
        raise CudaError(res)


# ---- which devices there are


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


def current_device() -> int:
    """Index of the device that this thread's calls without an index mean."""
    return _devices.checked("current_device").index or 0


def set_device(device: Any) -> None:
    """Choose the device that this thread's calls without an index mean; a negative index changes nothing.

    Raises:
        RuntimeError: if there is no such CUDA device.
    """
    index = _devices.index_or_none(device)
    if index >= 0:
        _C.set_current_device(_devices.checked("set_device", index))


def synchronize(device: Any = None) -> None:
    """Wait until the device has done what it was given."""
    _C.synchronize(_devices.checked("synchronize", device))


# ---- what they are


def get_device_properties(device: Any = None) -> SimpleNamespace:
    """What the backend says about a device."""
    return accelerator.get_device_properties(_devices.checked("get_device_properties", device))


def get_device_name(device: Any = None) -> str:
    """The name of a device."""
    return str(get_device_properties(device).name)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Major and minor number of what a device can do."""
    found = get_device_properties(device)
    return int(found.major), int(found.minor)


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether kernels on `device` can read and write memory of `peer_device`."""
    function = "can_device_access_peer"
    place, peer = _devices.checked(function, device), _devices.checked(function, peer_device)
    if place.index == peer.index:
        raise AssertionError("cannot check a device's access to itself")
    return _C.can_access_peer(place, peer)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device computes with bfloat16; `including_emulation`: as every device does by float32."""
    if not is_available():
        return False
    return including_emulation or get_device_capability() >= (8, 0)


def is_tf32_supported() -> bool:
    """Whether the device has matrix products with inputs rounded to TF32."""
    return is_available() and get_device_capability() >= (8, 0)


def get_arch_list() -> list[str]:
    """The architectures that kernels are for: those of the devices here, as kernels are compiled when they are used."""
    found = {get_device_capability(i) for i in range(device_count())}
    return [f"sm_{major}{minor}" for major, minor in sorted(found)]


def get_gencode_flags() -> str:
    """Options of nvcc for the architectures of `get_arch_list`."""
    numbers = [arch.removeprefix("sm_") for arch in get_arch_list()]
    return " ".join(f"-gencode compute=compute_{n},code=sm_{n}" for n in numbers)


# ---- what NVML says; needs the package nvidia-ml-py


def _ask(function: str, device: Any, call: str, *args: Any) -> Any:
    from . import _nvml

    return _nvml.ask(_devices.checked(function, device), call, *args)


def utilization(device: Any = None) -> int:
    """Percent of the last sample period in which kernels ran."""
    return int(_ask("utilization", device, "nvmlDeviceGetUtilizationRates").gpu)


def memory_usage(device: Any = None) -> int:
    """Percent of the last sample period in which memory was read or written."""
    return int(_ask("memory_usage", device, "nvmlDeviceGetUtilizationRates").memory)


def temperature(device: Any = None) -> int:
    """Temperature of the chip in degrees Celsius."""
    return int(_ask("temperature", device, "nvmlDeviceGetTemperature", 0))


def power_draw(device: Any = None) -> int:
    """Power in milliwatts."""
    return int(_ask("power_draw", device, "nvmlDeviceGetPowerUsage"))


def clock_rate(device: Any = None) -> int:
    """Clock of the multiprocessors in MHz."""
    return int(_ask("clock_rate", device, "nvmlDeviceGetClockInfo", 1))


# ---- calls that wait

_SYNC_MODES = {"default": 0, "warn": 1, "error": 2}


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What happens where the host waits for a device: at copies between them (`item`, printing), in kernels that need
    a number on the host (`nonzero`, indices that are masks), and at `Stream.synchronize`; not at `synchronize`.

    Args:
        debug_mode: "default" or 0: nothing; "warn" or 1: a warning; "error" or 2: an error. Each names the line.

    Raises:
        RuntimeError: for another mode.
    """
    if isinstance(debug_mode, str):
        if debug_mode not in _SYNC_MODES:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, got {debug_mode}"
            )
        debug_mode = _SYNC_MODES[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError("invalid value of debug_mode, expected 0, 1, or 2")
    _C.set_setting("sync_debug_mode", int(debug_mode))


def get_sync_debug_mode() -> int:
    """0 (nothing), 1 (warn) or 2 (error)."""
    return _C.setting("sync_debug_mode", 0)


# ---- what is not there

_HANDLES = "the libraries of the CUDA backend are its own"
cudart = _refused.refuse("cudart", "the backend uses the driver, not the CUDA runtime")
current_blas_handle = _refused.refuse("current_blas_handle", _HANDLES)
current_solver_handle = _refused.refuse("current_solver_handle", _HANDLES)

_MODULES = ("amp", "comm", "nvtx", "profiler")


def __getattr__(name: str) -> Any:
    if name in _MODULES:  # `amp` needs a wheel of its own
        return importlib.import_module(f"rabbet.cuda.{name}")
    if name in _refused.NAMES:
        return _refused.make(name)
    if name == "_initialized":  # packages ask before they read the state of random numbers
        return is_initialized()
    if name == "GreenContext":
        return _refused.make("green_contexts").GreenContext
    if name == "default_generators":
        return tuple(_C.default_generator(f"cuda:{i}") for i in range(device_count()))
    if name in _legacy.NAMES:
        return _legacy.tensor_type(name, "cuda")
    if name in storage.DTYPES_OF_CLASSES:
        return storage.storage_type(name, "cuda")
    raise AttributeError(f"module 'rabbet.cuda' has no attribute '{name}'", name=name)


def __dir__() -> list[str]:
    lazy = (*_MODULES, *_refused.NAMES, *_legacy.NAMES, *storage.DTYPES_OF_CLASSES)
    return sorted({*globals(), *lazy, "GreenContext", "default_generators"})
