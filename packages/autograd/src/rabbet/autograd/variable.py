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

    class _execution_engine:
        """The engine of backward passes."""

        @staticmethod
        def queue_callback(callback: Any) -> None:
            """Call something at the end of the backward pass that runs.

            Raises:
                NotImplementedError: always; rabbet's engine takes no callbacks yet.
            """
            raise NotImplementedError(
                "Variable._execution_engine.queue_callback: the engine takes no callbacks yet; "
                "use Tensor.register_post_accumulate_grad_hook"
            )

        @staticmethod
        def run_backward(*args: Any, **kwargs: Any) -> None:
            """Run a backward pass by PyTorch's private interface.

            Raises:
                NotImplementedError: always; use `rabbet.autograd.backward`.
            """
            raise NotImplementedError(
                "Variable._execution_engine.run_backward: use torch.autograd.backward or grad"
            )
