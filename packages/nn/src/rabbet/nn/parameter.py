"""Tensors that a module owns: parameters, which an optimizer trains, and buffers, which it does not."""

from __future__ import annotations

from typing import Any

import rabbet
from rabbet import Tensor


class _OwnedTensor(Tensor):
    """What `Parameter` and `Buffer` share: copying and pickling keep the class."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        copied = Tensor._make_subclass(type(self), self.detach().clone(), self.requires_grad)
        copied.__dict__.update(self.__dict__)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (type(self), self.detach(), self.requires_grad, dict(self.__dict__))


def _rebuild(
    cls: type[Tensor], data: Tensor, requires_grad: bool, attributes: dict[str, Any]
) -> Any:
    owned = Tensor._make_subclass(cls, data, requires_grad)
    owned.__dict__.update(attributes)
    return owned


def _checked(data: Any, what: str) -> Tensor:
    if data is None:
        return rabbet.empty(0)
    if not isinstance(data, Tensor):
        raise TypeError(f"{what}: expected `data` to be a Tensor, got {type(data).__name__}")
    return data.detach()


class Parameter(_OwnedTensor):
    """A tensor that joins `Module.parameters()` when it is assigned to a module's attribute.

    Args:
        data: the values; the parameter shares their memory.
        requires_grad: whether gradients are wanted.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        return Tensor._make_subclass(cls, _checked(data, cls.__name__), requires_grad)


class Buffer(_OwnedTensor):
    """A tensor that joins `Module.buffers()` when it is assigned to a module's attribute.

    Args:
        data: the values; the buffer shares their memory.
        persistent: whether it is part of the module's `state_dict`.
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        values = _checked(data, cls.__name__)
        buffer = Tensor._make_subclass(cls, values, False)
        buffer.persistent = persistent
        return buffer
