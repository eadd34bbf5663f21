"""Batches in memory that an accelerator copies from quickly."""

from collections.abc import Mapping, Sequence
from typing import Any

from .collate import _rebuilt_mapping, _rebuilt_sequence


def pin_memory(data: Any, device: Any = None) -> Any:
    """Return `data` with its tensors, and what has a method `pin_memory`, in pinned memory.

    Args:
        data: tensors in mappings, named tuples, tuples and sequences; other objects stay as they are.
        device: has no effect: memory is pinned for the current accelerator.
    """
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, Mapping):
        return _rebuilt_mapping(data, {key: pin_memory(data[key], device) for key in data})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        pinned = [pin_memory(item, device) for item in data]
        return type(data)(*pinned) if hasattr(data, "_fields") else _rebuilt_sequence(data, pinned)
    return data
