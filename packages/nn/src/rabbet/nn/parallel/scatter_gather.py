"""Inputs split among devices, and outputs joined, inside of containers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import rabbet
from rabbet import Tensor
from rabbet.utils._pytree import is_namedtuple

__all__ = ["gather", "is_namedtuple", "scatter", "scatter_kwargs"]

_is_namedtuple = is_namedtuple


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """One copy of the containers in `inputs` for each device, with its chunk of every tensor along `dim`."""
    if isinstance(inputs, Tensor):
        chunks = inputs.chunk(len(target_gpus), dim)
        return tuple(chunk.to(device) for chunk, device in zip(chunks, target_gpus, strict=False))
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields"):
        return [type(inputs)(*parts) for parts in _scattered(inputs, target_gpus, dim)]
    if isinstance(inputs, tuple) and inputs:
        return _scattered(inputs, target_gpus, dim)
    if isinstance(inputs, list) and inputs:
        return [list(parts) for parts in _scattered(inputs, target_gpus, dim)]
    if isinstance(inputs, dict) and inputs:
        values = _scattered(inputs.values(), target_gpus, dim)
        return [type(inputs)(zip(inputs, parts, strict=True)) for parts in values]
    return [inputs for _ in target_gpus]


def _scattered(values: Any, devices: Sequence[Any], dim: int) -> list[tuple[Any, ...]]:
    return list(zip(*(scatter(value, devices, dim) for value in values), strict=False))


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """The outputs of all devices joined along `dim`; numbers as a vector, with a warning.

    Raises:
        ValueError: for dicts with different keys.
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        parts = [part.to(target_device) for part in outputs]
        if all(part.ndim == 0 for part in parts) and dim == 0:
            warnings.warn(
                "Was asked to gather along dimension 0, but all input tensors were scalars; "
                "will instead unsqueeze and return a vector.",
                stacklevel=2,
            )
            parts = [part.reshape(1) for part in parts]
        return rabbet.cat(parts, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(first) != len(other) for other in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)(
            (key, gather([part[key] for part in outputs], target_device, dim)) for key in first
        )
    joined = [gather(list(parts), target_device, dim) for parts in zip(*outputs, strict=True)]
    return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """`scatter` of positional and keyword arguments, with empty ones where one of both is shorter."""
    by_position = list(scatter(inputs, target_gpus, dim)) if inputs else []
    by_name = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    count = max(len(by_position), len(by_name))
    by_position += [()] * (count - len(by_position))
    by_name += [{} for _ in range(count - len(by_name))]
    return tuple(by_position), tuple(by_name)
