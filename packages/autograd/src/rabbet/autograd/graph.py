"""The recorded graph: node objects, hooks on what is saved for backward."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from rabbet import Tensor

from . import _C

Node = _C.Node
RemovableHandle = _C.RemovableHandle


class GradientEdge(NamedTuple):
    """Where the gradient of a tensor flows: a node and the number of its output."""

    node: Node
    output_nr: int


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Return the edge of a tensor that requires grad; a leaf gives its AccumulateGrad."""
    node, output = _C.gradient_edge(tensor)
    if node is None:
        raise RuntimeError("get_gradient_edge: the tensor does not require grad")
    return GradientEdge(node, output)


class _Hooks(threading.local):
    """The thread's saved-tensors hooks, innermost last, and why new ones are refused."""

    def __init__(self) -> None:
        self.stack: list[tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = []
        self.refused: str | None = None


_hooks = _Hooks()


class saved_tensors_hooks:
    """Context manager: what is recorded inside keeps `pack_hook(tensor)` instead of the tensor.

    Args:
        pack_hook: takes a tensor that a derivative needs, returns any object. It must not change
            the tensor.
        unpack_hook: takes that object, returns a Tensor of the same values, shape and dtype.
            Backward calls it, and may do so several times.

    Both run without recording; the innermost pair counts. An exception in either reaches the
    caller of the operator or of backward.
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        for name, hook in (("pack_hook", pack_hook), ("unpack_hook", unpack_hook)):
            if not callable(hook):
                raise TypeError(
                    f"saved_tensors_hooks: {name} must be callable, got {type(hook).__name__}"
                )
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        if _hooks.refused is not None:
            raise RuntimeError(_hooks.refused)
        _C.push_saved_hooks(self.pack_hook, self.unpack_hook)
        _hooks.stack.append((self.pack_hook, self.unpack_hook))

    def __exit__(self, *exc: object) -> None:
        _hooks.stack.pop()
        _C.pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Context manager: tensors saved inside wait for backward in host memory.

    Args:
        pin_memory: accepted for PyTorch's sake; copies are not made from pinned memory.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(
            lambda tensor: (tensor.device, tensor.cpu()), lambda packed: packed[1].to(packed[0])
        )


class disable_saved_tensors_hooks:
    """Context manager: using saved-tensors hooks inside raises RuntimeError with `error_message`."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message

    def __enter__(self) -> None:
        if _hooks.stack:
            raise RuntimeError(self.error_message)
        self._before = _hooks.refused
        _hooks.refused = self.error_message

    def __exit__(self, *exc: object) -> None:
        _hooks.refused = self._before


def active_hooks() -> tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]] | None:
    """The innermost (pack_hook, unpack_hook) of the thread, or None."""
    return _hooks.stack[-1] if _hooks.stack else None
