"""Variable: tensors under the name that they had beside their gradients."""

from typing import Any

from rabbet import Tensor

__all__ = ["Variable"]


class _VariableMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableMeta):
    """`Variable(tensor)` is a tensor that shares the memory, a leaf; every tensor is an instance."""

    def __new__(cls, data: Tensor, requires_grad: bool = False, volatile: Any = None) -> Tensor:  # type: ignore[misc]
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable: expected a tensor, got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)
