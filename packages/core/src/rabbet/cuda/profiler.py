"""Where NVIDIA's profilers begin and end to record, if they were started with that asked for."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

from . import _devices

__all__ = ["profile", "start", "stop"]


def _call(function: str) -> None:
    _devices.checked(f"profiler.{function}")
    library = ctypes.CDLL(os.environ.get("RABBET_CUDA_DRIVER", "libcuda.so.1"))
    call = getattr(library, function, None)
    if call is None:
        raise RuntimeError(f"cuda.profiler: the driver has no {function}")
    status = call()
    if status:
        raise RuntimeError(f"cuda.profiler: {function} failed with code {status}")


def start() -> None:
    """Let a profiler that waits for it begin to record."""
    _call("cuProfilerStart")


def stop() -> None:
    """Let a profiler end to record."""
    _call("cuProfilerStop")


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Let a profiler record the body."""
    start()
    try:
        yield
    finally:
        stop()
