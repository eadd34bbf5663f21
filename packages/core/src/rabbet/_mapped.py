"""Methods that call a Python function for each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rabbet

from . import _functions
from ._C import Tensor


def _write(name: str, self: Tensor, others: dict[str, Any], function: Callable[..., Any]) -> Tensor:
    if not self.is_cpu:
        raise TypeError(f"{name} is only implemented on CPU tensors")
    if self.requires_grad:
        raise RuntimeError(
            f"Can't call {name}() on a tensor that requires grad. Use tensor.detach().{name}() instead."
        )
    for argument, other in others.items():
        if not isinstance(other, Tensor):
            raise TypeError(
                f"{name}(): argument '{argument}' must be Tensor, not {type(other).__name__}"
            )
        if other.dtype is not self.dtype or other.device != self.device:
            raise TypeError(
                f"{name}: expected {self.dtype} on {self.device} for '{argument}', "
                f"got {other.dtype} on {other.device}"
            )
    expanded = [other.expand(self.shape).flatten().tolist() for other in others.values()]
    made = [function(*xs) for xs in zip(self.flatten().tolist(), *expanded, strict=True)]
    with rabbet.no_grad():
        return self.copy_(_functions.tensor(made, dtype=self.dtype).reshape(self.shape))


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it; slow.

    Raises:
        TypeError: if the tensor is not on the CPU.
        RuntimeError: if it requires grad.
    """
    return _write("apply_", self, {}, callable)


def map_(self: Tensor, other: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace each element by `callable(element, other's element)`; slow.

    Args:
        other: of the same dtype and device, and a shape that broadcasts to the tensor's.

    Raises:
        TypeError: for another dtype or device, and off the CPU.
        RuntimeError: if the tensor requires grad.

    Example:
        >>> rabbet.tensor([1.0, 2.0]).map_(rabbet.tensor([3.0, 4.0]), lambda a, b: a + b)
        tensor([4., 6.])
    """
    return _write("map_", self, {"other": other}, callable)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replace each element by `callable(element, x's element, y's element)`; slow.

    Args:
        x, y: of the same dtype and device, and shapes that broadcast to the tensor's.

    Raises:
        TypeError: for another dtype or device, and off the CPU.
        RuntimeError: if the tensor requires grad.
    """
    return _write("map2_", self, {"x": x, "y": y}, callable)
