"""The recorded graph: node objects, hooks on gradients and on what is saved for backward."""

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Self

import rabbet
from rabbet import _C as core
from rabbet import Tensor

from . import _C
from ._roots import GradientEdge
from ._tape_reports import MemoryReport, draw, memory_report

__all__ = [
    "GradientEdge",
    "MemoryReport",
    "Node",
    "allow_mutation_on_saved_tensors",
    "call_mode",
    "disable_saved_tensors_hooks",
    "draw",
    "get_gradient_edge",
    "increment_version",
    "keep_lines",
    "memory_report",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]

Node = _C.Node
RemovableHandle = _C.RemovableHandle


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Return the edge of a tensor that requires grad; a leaf gives its AccumulateGrad."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"get_gradient_edge: expected a Tensor, got {type(tensor).__name__}")
    node, output = _C.gradient_edge(tensor)
    if node is None:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients"
        )
    return GradientEdge(node, output)


class _Refusal(threading.local):
    """Why new saved-tensors hooks are refused on the thread; None: they are not."""

    def __init__(self) -> None:
        self.message: str | None = None


_refusal = _Refusal()
active_hooks = _C.saved_hooks  # the innermost (pack_hook, unpack_hook) of the thread, or None


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
        if _refusal.message is not None:
            raise RuntimeError(_refusal.message)
        _C.push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc: object) -> None:
        _C.pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Context manager: tensors saved inside wait for backward in host memory.

    Args:
        pin_memory: in pinned memory, where the loaded backends have it; copies back do not wait then.
        device_type: whose pinned memory.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        present = {backend["name"] for backend in core.backends() if backend["devices"]}
        pins = pin_memory and device_type in present

        def pack(tensor: Tensor) -> tuple[rabbet.device, Tensor]:
            if not pins:
                return tensor.device, tensor.cpu()
            packed = rabbet.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            return tensor.device, packed.copy_(tensor)

        super().__init__(pack, lambda packed: packed[1].to(packed[0], non_blocking=pins))


class disable_saved_tensors_hooks:
    """Context manager: using saved-tensors hooks inside raises RuntimeError with `error_message`."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message

    def __enter__(self) -> None:
        if active_hooks() is not None:
            raise RuntimeError(self.error_message)
        self._before = _refusal.message
        _refusal.message = self.error_message

    def __exit__(self, *exc: object) -> None:
        _refusal.message = self._before


class call_mode:
    """Context manager: `function` stands around each operator call of the thread.

    It runs below autograd and all transforms: it sees what the device is asked for, also by backward, as
    plain tensors. Operators that it calls are not recorded, and it does not see them.

    Args:
        function: called as `function(op, args, targets, run)`: the operator's name, its arguments, the
            tensors that an in-place or out= call writes (else None), and what runs the call and returns its
            results, a tuple. It returns None, or tensors that stand for the results.
    """

    def __init__(
        self,
        function: Callable[
            [str, tuple[Any, ...], tuple[Tensor, ...] | None, Callable[[], tuple[Any, ...]]],
            tuple[Tensor, ...] | None,
        ],
    ) -> None:
        if not callable(function):
            raise TypeError(f"call_mode: function must be callable, got {type(function).__name__}")
        self._function = function

    def __enter__(self) -> Self:
        _C.push_call_mode(self._function)
        return self

    def __exit__(self, *exc: object) -> None:
        _C.pop_call_mode()


_line_keepers = 0
_line_lock = threading.Lock()


class keep_lines:
    """Context manager: nodes that any thread records meanwhile remember the line that made them."""

    def _count(self, by: int) -> None:
        global _line_keepers
        with _line_lock:
            _line_keepers += by
            _C.keep_sources(_line_keepers > 0)

    def __enter__(self) -> None:
        self._count(1)

    def __exit__(self, *exc: object) -> None:
        self._count(-1)


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a write to the tensors' memory that was made behind the back of autograd."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        if not isinstance(t, Tensor):
            raise TypeError(f"increment_version: expected Tensors, got {type(t).__name__}")
        if t.is_inference():
            raise RuntimeError("increment_version: inference tensors do not track versions")
        _C.bump_version(t)


# ---- hooks on several tensors


class _Handles:
    """Removes several hooks; also as a context manager."""

    def __init__(self, handles: Iterable[Any]) -> None:
        self._handles = tuple(handles)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class _AllGradients:
    """Collects the gradients of several tensors in each backward run."""

    def __init__(
        self, tensors: Sequence[Tensor], function: Callable[[list[Tensor | None]], None]
    ) -> None:
        self._nodes = [get_gradient_edge(t).node for t in tensors]
        self._function = function
        self._lock = threading.Lock()
        self._gradients: dict[int, list[Tensor | None]] = {}  # by run
        self._missing: dict[int, int] = {}

    def hook(self, at: int) -> Callable[[Tensor], None]:
        def take(grad: Tensor) -> None:
            run = _C.current_run()
            with self._lock:
                if run not in self._missing:
                    self._missing[run] = sum(_C.run_reaches(self._nodes))
                    self._gradients[run] = [None] * len(self._nodes)
                self._gradients[run][at] = grad
                self._missing[run] -= 1
                if self._missing[run]:
                    return
                del self._missing[run]
                gradients = self._gradients.pop(run)
            self._function(gradients)

        return take


def register_multi_grad_hook(
    tensors: Sequence[Tensor],
    fn: Callable[[Sequence[Tensor | None]], None] | Callable[[Tensor], None],
    *,
    mode: Literal["all", "any"] = "all",
) -> _Handles:
    """Call `fn` once in each backward run that computes gradients of `tensors`.

    Args:
        mode: 'all' waits for all gradients that the run computes and calls `fn(gradients)`, None for a tensor
            that the run does not reach; 'any' calls `fn(gradient)` with the first one.

    Returns:
        A handle; its `remove()` takes the hook away.
    """
    supported = ("all", "any")
    if mode not in supported:
        raise ValueError(f"Expects mode to be one of {supported} but got {mode}")
    if not callable(fn):
        raise TypeError(f"register_multi_grad_hook: fn must be callable, got {type(fn).__name__}")
    if mode == "all":
        every = _AllGradients(tensors, fn)  # type: ignore[arg-type]
        return _Handles(t.register_hook(every.hook(i)) for i, t in enumerate(tensors))
    lock = threading.Lock()
    last = [0]  # the run in which `fn` was called

    def first(grad: Tensor) -> None:
        with lock:
            run = _C.current_run()
            if run <= last[0]:
                return
            last[0] = run
        fn(grad)  # type: ignore[arg-type]

    return _Handles([t.register_hook(first) for t in tensors])


# ---- writing what was saved


class _Saved:
    """In the place of a saved tensor while it may be written."""

    __slots__ = ("__weakref__", "copy")

    def __init__(self) -> None:
        self.copy: Tensor | None = None


class allow_mutation_on_saved_tensors:
    """Context manager: tensors that were saved inside may be written in place before backward.

    What is about to be written is copied first. Backward has to run inside, too. As a context it gives itself;
    `clear()` forgets what was saved.
    """

    def __init__(self) -> None:
        self._originals: weakref.WeakKeyDictionary[_Saved, Tensor] = weakref.WeakKeyDictionary()
        self._by_storage: defaultdict[int, weakref.WeakSet[_Saved]] = defaultdict(weakref.WeakSet)
        self._is_open = False
        self._contexts = (
            call_mode(self._copy_before_write),
            saved_tensors_hooks(self._pack, self._unpack),
        )

    def clear(self) -> None:
        """Forget all that was saved."""
        self._originals.clear()
        self._by_storage.clear()

    def _pack(self, tensor: Tensor) -> _Saved:
        saved = _Saved()
        self._originals[saved] = tensor
        self._by_storage[tensor.untyped_storage().data_ptr()].add(saved)
        return saved

    def _unpack(self, saved: _Saved) -> Tensor:
        if not self._is_open:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context "
                "in which the graph was originally recorded."
            )
        if saved.copy is not None:
            return saved.copy
        return self._originals[saved]

    def _copy_before_write(
        self, op: str, args: tuple[Any, ...], targets: tuple[Tensor, ...] | None, run: Any
    ) -> None:
        for target in targets or ():
            for saved in self._by_storage.pop(target.untyped_storage().data_ptr(), ()):
                if saved in self._originals:
                    saved.copy = self._originals.pop(saved).clone()

    def __enter__(self) -> Self:
        if self._is_open:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        for context in self._contexts:
            context.__enter__()
        self._is_open = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_open = False
        for context in reversed(self._contexts):
            context.__exit__(*exc)
        self.clear()
