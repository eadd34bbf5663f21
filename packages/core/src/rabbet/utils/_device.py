"""Where tensors are made that name no device, under the names of `torch.utils._device`."""

from collections.abc import Callable
from typing import Any, TypeVar

from .. import _C
from ._contextlib import context_decorator

__all__ = ["DeviceContext", "device_decorator", "set_device"]

_F = TypeVar("_F", bound=Callable[..., Any])


class DeviceContext:
    """A block in which tensors that name no device are made on `device`; `with device` is the same."""

    def __init__(self, device: Any) -> None:
        self.device = _C.device(device)

    def __enter__(self) -> "DeviceContext":
        self.device.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.device.__exit__(*error)


def device_decorator(device: Any, func: _F) -> _F:
    """A function in whose calls tensors that name no device are made on `device`."""
    decorated: _F = context_decorator(lambda: device, func)
    return decorated


def set_device(device: Any) -> Callable[[_F], _F]:
    """A decorator: device_decorator() for `device`."""
    chosen = _C.device(device)
    return lambda func: device_decorator(chosen, func)


def __getattr__(name: str) -> Any:
    if name == "CURRENT_DEVICE":
        return _C.chosen_device()
    from .._as_torch.names import missing_attribute

    raise missing_attribute("utils._device", name)
