"""The steps of `DataParallel` as functions: split inputs, run modules, join outputs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import rabbet
from rabbet import Tensor

from ..modules.module import Module

__all__ = ["data_parallel", "gather", "parallel_apply", "replicate", "scatter"]


def one_device(name: str, devices: Any) -> None:
    """Refuse several devices by the name of the caller."""
    if devices is not None and len(devices) > 1:
        raise NotImplementedError(
            f"{name}: several devices are not supported, got device_ids={list(devices)}"
        )


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Call `module` with `inputs`, a tuple or one argument, on one device.

    Raises:
        NotImplementedError: for several devices.
    """
    one_device("data_parallel", device_ids)
    args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return module(*args, **(module_kwargs or {}))


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """The module itself, for the one device.

    Raises:
        NotImplementedError: for several devices.
    """
    one_device("replicate", devices)
    return [network for _ in devices]


def parallel_apply(
    modules: Sequence[Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Call each module with its inputs, one after the other.

    Raises:
        AssertionError: if there are not as many inputs, keyword arguments and devices as modules.
    """
    for what, given in (("inputs", inputs), ("kwargs_tup", kwargs_tup), ("devices", devices)):
        if given is not None and len(given) != len(modules):
            raise AssertionError(
                f"The number of modules {len(modules)} is not equal to the number of {what} {len(given)}"
            )
    return [
        module(*(args if isinstance(args, (list, tuple)) else (args,)), **kwargs)
        for module, args, kwargs in zip(
            modules, inputs, kwargs_tup or [{}] * len(modules), strict=True
        )
    ]


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
