"""The steps of `DataParallel` as functions: run modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..modules.module import Module

__all__ = ["data_parallel", "parallel_apply", "replicate"]


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
