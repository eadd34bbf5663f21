"""The CPU as a device among others."""

import contextlib
from typing import Any

from . import _C

__all__ = ["current_device", "current_stream", "device_count", "is_available", "is_initialized", "set_device", "stream", "synchronize"]  # fmt: skip


def is_available() -> bool:
    """Whether there is a CPU: yes."""
    return True


is_initialized = is_available


def device_count() -> int:
    """Number of CPU devices: one."""
    return 1


def current_device() -> str:
    """The name of the CPU."""
    return "cpu"


def set_device(device: Any) -> None:
    """Choose among CPU devices: there is one."""
    if _C.device(device).type != "cpu":
        raise ValueError(f"cpu.set_device: expected the CPU, got {device!r}")


def synchronize(device: Any = None) -> None:
    """Wait for work on the CPU: calls return when it is done."""


def current_stream(device: Any = None) -> None:
    """The CPU has no streams."""


def stream(stream: Any) -> contextlib.AbstractContextManager[None]:
    """A context that does nothing, as the CPU has no streams."""
    return contextlib.nullcontext()
