"""The names of `torch._dynamo.utils` that packages import."""

from typing import Any

__all__ = ["is_compile_supported"]


def is_compile_supported(device_type: Any) -> bool:
    """Whether programs are compiled on a type of device: on none."""
    return False
