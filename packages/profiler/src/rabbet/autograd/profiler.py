"""`profile` without steps, `record_function`, and ranges for NVIDIA's profilers; `rabbet.profiler.profile` has more."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from rabbet import _C as core
from rabbet.profiler import _C
from rabbet.profiler._event_list import EventList
from rabbet.profiler._events import FunctionEvent, FunctionEventAvg, Kernel
from rabbet.profiler._names import key_of_record
from rabbet.profiler._one_recording import profile
from rabbet.profiler._record_function import record_function
from rabbet.profiler._session import running
from rabbet.profiler._step_tracker import KinetoStepTracker

__all__ = [
    "EnforceUnique",
    "EventList",
    "FunctionEvent",
    "FunctionEventAvg",
    "Kernel",
    "KinetoStepTracker",
    "emit_itt",
    "emit_nvtx",
    "load_nvprof",
    "parse_nvprof_trace",
    "profile",
    "record_function",
]


class emit_nvtx:
    """Context manager: give each call and each `record_function` a range in NVIDIA's profilers, on all threads.

    Args:
        enabled: False: do nothing.
        record_shapes: put the shapes of tensors into the names of ranges.

    Raises:
        RuntimeError: on entering, if there is no libnvToolsExt, or another `emit_nvtx` is active.
    """

    _active = False

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled
        self.entered = False
        self.record_shapes = record_shapes

    def __enter__(self) -> Self:
        if self.entered:
            raise RuntimeError("NVTX annotation context manager is not reentrant")
        if not self.enabled:
            return self
        if emit_nvtx._active:
            raise RuntimeError(
                "autograd.profiler.emit_nvtx: expected no other emit_nvtx to be active"
            )
        names = {record: key_of_record(record) for record in core.record_names()}
        if not _C.start_nvtx(names, self.record_shapes):
            raise RuntimeError(
                "autograd.profiler.emit_nvtx: NVTX functions not installed: there is no libnvToolsExt.so.1, which comes "
                "with CUDA; rabbet.profiler.profile needs none"
            )
        self.entered = emit_nvtx._active = True
        return self

    def __exit__(self, *error: object) -> None:
        if self.entered and emit_nvtx._active:
            _C.stop_nvtx()
            emit_nvtx._active = False


class emit_itt:
    """Context manager: give each call a range in Intel's VTune.

    Args:
        enabled: False: do nothing.
        record_shapes: put shapes into the names of ranges.

    Raises:
        RuntimeError: on entering, as rabbet has no ITT.
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled
        self.entered = False
        self.record_shapes = record_shapes

    def __enter__(self) -> Self:
        if self.entered:
            raise RuntimeError("ITT annotation context manager is not reentrant")
        if self.enabled:
            raise RuntimeError(
                "autograd.profiler.emit_itt: ITT functions not installed: rabbet has none; use rabbet.profiler.profile"
            )
        self.entered = True
        return self

    def __exit__(self, *error: object) -> None: ...


def load_nvprof(path: str) -> NoReturn:
    """Read a file of NVIDIA's nvprof.

    Raises:
        NotImplementedError: always: NVIDIA has replaced nvprof by Nsight Systems.
    """
    parse_nvprof_trace(path)


def parse_nvprof_trace(path: str) -> NoReturn:
    """Read a file of NVIDIA's nvprof.

    Raises:
        NotImplementedError: always: NVIDIA has replaced nvprof by Nsight Systems.
    """
    raise NotImplementedError(
        f"autograd.profiler.parse_nvprof_trace: {path!r} cannot be read: rabbet does not read files of nvprof"
    )


class EnforceUnique:
    """Raises when it sees a key twice."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    def see(self, *key: Any) -> None:
        """Note a key.

        Raises:
            RuntimeError: if it was noted before.
        """
        if key in self.seen:
            raise RuntimeError("duplicate key: " + str(key))
        self.seen.add(key)


def _profiler_enabled() -> bool:
    """Whether a profiler runs."""
    return running() is not None


def _disable_profiler() -> EventList:
    """End the running recording, regardless of how it was started, and return its events.

    Raises:
        RuntimeError: if none runs.
    """
    session = running()
    if session is None:
        raise RuntimeError("Can't disable the profiler when it's not running")
    return session.stop().events()


def __getattr__(name: str) -> Any:
    if name == "_is_profiler_enabled":
        return _profiler_enabled()
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)
