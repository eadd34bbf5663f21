"""The private names of `torch._C` that packages import. What is not here is missing, as for any module."""

from typing import Any

from .._C import Generator, Size, device, dtype, layout, memory_format
from . import c_nn as _nn

__all__ = ["Generator", "Size", "_nn", "device", "dtype", "layout", "memory_format"]


def _log_api_usage_once(event: str) -> None:
    """Take a name for usage statistics, which rabbet does not keep."""


def _get_tracing_state() -> Any:
    """The state of jit.trace: None, as nothing is ever traced."""
    return None


def _is_tracing() -> bool:
    """Whether jit.trace runs."""
    return False
