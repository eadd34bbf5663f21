"""Variable: tensors under the name that they had beside their gradients."""

from collections.abc import Callable
from typing import Any

from rabbet import Tensor

from . import _C

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

    class _execution_engine:
        """The engine of backward passes."""

        @staticmethod
        def queue_callback(callback: Callable[[], Any]) -> None:
            """Call `callback()` when the outermost backward pass of this thread has ended.

            Those of several passes and hooks run in the order in which they were given, and none where the pass fails.

            Raises:
                StateError: unless a backward pass is running on this thread.
            """
            _C.at_end(callback)

        @staticmethod
        def run_backward(*args: Any, **kwargs: Any) -> None:
            """Run a backward pass by PyTorch's private interface.

            Raises:
                NotImplementedError: always; use `rabbet.autograd.backward`.
            """
            raise NotImplementedError(
                "Variable._execution_engine.run_backward: use torch.autograd.backward or grad"
            )
