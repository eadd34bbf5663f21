"""Functions whose work on a device is captured once for each kind of arguments and launched again as a whole."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

from . import _C, _pytree
from ._accelerators import Device, chosen_device
from ._graphs import Graph, GraphTensors
from ._streams import Stream


class _Captured:
    """One captured graph with the tensors that it reads and writes."""

    def __init__(self, graph: Graph, slots: list[_C.Tensor], leaves: list[Any], tree: Any) -> None:
        self.graph, self.slots, self.leaves, self.tree = graph, slots, leaves, tree
        self.tensors = GraphTensors([*slots, *(x for x in leaves if isinstance(x, _C.Tensor))])


class StepGraph:
    """A function that launches its work as graphs of a device.

    The first `warmup` calls with arguments of a kind run `fn` as ever. The next one records it, and from then on a call
    copies the tensors among its arguments to the places that the graph reads, launches the graph on the current stream,
    and returns the tensors that the graph writes. So each call does what one call of `fn` does, once; Python in `fn`
    runs at the first `warmup + 1` calls of a kind only.

    - A kind: shapes, strides, dtypes and devices of tensors, and the values of all other arguments, which must be
      hashable; whether gradients are recorded, and autocast. A new kind is a new graph, with a memory pool of its own.
    - Arguments are copied: what `fn` writes to them in place is not seen by the caller once it is captured.
    - Results lie where the graph writes them: the next call overwrites them. `clone=True` returns copies.
    - What `fn` reads elsewhere (parameters, state of optimizers) is read where it was at the capture: change such
      tensors in place. Optimizers need `capturable=True`, so that their count of steps is on the device.
    - Random operators draw at each call what calls of `fn` would draw.
    - Refused with the operator and the line of the program: values on the host (`item`, printing, copies to and from
      the CPU), waiting for the device. Tensors elsewhere than on the device cannot be arguments.

    Args:
        fn: takes and returns nested lists, tuples and dicts of tensors and other values.
        warmup: calls of a kind that run before one is recorded; at least 1: first calls compile kernels, and
            optimizers make their state.
        pool: id of the pool of a graph or MemPool that all graphs of this function take memory from; results of one
            are then valid until another one is launched.
        clone: return copies of what the graph writes.
        device: of a backend that captures, or an index of the current accelerator; None: its current device.

    Raises:
        ValueError: for `warmup` below 1.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        warmup: int = 1,
        pool: tuple[int, int] | None = None,
        clone: bool = False,
        device: Device = None,
    ) -> None:
        if not callable(fn):
            raise TypeError(f"graph: expected a function, got {type(fn).__name__}")
        if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 1:
            raise ValueError(f"graph: warmup must be an int of at least 1, got {warmup!r}")
        self.fn = fn
        self._warmup, self._pool, self._clone, self._device = warmup, pool, clone, device
        self._calls: dict[Any, int] = {}
        self._captured: dict[Any, _Captured] = {}
        self._stream: Stream | None = None
        functools.update_wrapper(self, fn, updated=())

    @property
    def graphs(self) -> int:
        """How many kinds of arguments were captured."""
        return len(self._captured)

    def reset(self) -> None:
        """Drop all graphs; calls begin with warm-up again."""
        self._captured.clear()
        self._calls.clear()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        device = chosen_device("graph", self._device)
        leaves, tree = _pytree.tree_flatten((args, kwargs))
        kind = (device, _modes(device.type), tree, *(_kind(leaf, device) for leaf in leaves))
        try:
            captured = self._captured.get(kind)
        except TypeError:
            raise TypeError(
                f"graph: {self._name()} takes tensors and hashable values only, which its graphs are told apart by"
            ) from None
        fresh = captured is None
        if captured is None:
            seen = self._calls.get(kind, 0)
            if seen < self._warmup:
                self._calls[kind] = seen + 1
                with warnings.catch_warnings():
                    # Optimizers warn where nothing will capture their steps.
                    warnings.filterwarnings(
                        "ignore", ".*step.. is running without .* graph capture"
                    )
                    return self.fn(*args, **kwargs)
            captured = self._capture(device, leaves, tree)
            self._captured[kind] = captured
        captured.tensors.used_now(device)
        if not fresh:
            _fill(captured.slots, leaves)
        captured.graph.replay()
        if not self._clone:
            return _pytree.tree_unflatten(captured.leaves, captured.tree)
        copies = [x.clone() if isinstance(x, _C.Tensor) else x for x in captured.leaves]
        return _pytree.tree_unflatten(copies, captured.tree)

    def _name(self) -> str:
        return getattr(self.fn, "__qualname__", type(self.fn).__name__)

    def _capture(self, device: _C.device, leaves: list[Any], tree: Any) -> _Captured:
        slots = [x.detach().clone() for x in leaves if isinstance(x, _C.Tensor)]
        places = iter(slots)
        given = [next(places) if isinstance(x, _C.Tensor) else x for x in leaves]
        args, kwargs = _pytree.tree_unflatten(given, tree)
        outside = Stream._current(device)
        if self._stream is None or self._stream.device != device:
            self._stream = Stream(device)
        self._stream.wait_stream(outside)
        graph = Graph(pool=self._pool, device=device)
        with self._stream, graph:
            result = self.fn(*args, **kwargs)
            found, shape = _pytree.tree_flatten(result)
        outside.wait_stream(self._stream)
        found = [x.detach() if isinstance(x, _C.Tensor) else x for x in found]
        for x in found:
            if isinstance(x, _C.Tensor) and x.device != device:
                raise _C.StateError(
                    f"graph: {self._name()} returns a tensor on {x.device}, whose value a launch cannot set"
                )
        return _Captured(graph, slots, found, shape)

    def __repr__(self) -> str:
        return f"<graph of {self._name()}: {self.graphs} captured>"


def _modes(device_type: str) -> tuple[Any, ...]:
    import rabbet

    grad = getattr(rabbet, "is_grad_enabled", None)
    autocast = getattr(rabbet, "is_autocast_enabled", None)
    cast = bool(autocast and autocast(device_type))
    dtype = rabbet.get_autocast_dtype(device_type) if cast else None
    return bool(grad and grad()), cast, dtype


def _kind(leaf: Any, device: _C.device) -> Any:
    if not isinstance(leaf, _C.Tensor):
        return type(leaf), leaf
    if leaf.device != device:
        raise ValueError(
            f"graph: a tensor of shape {tuple(leaf.shape)} among the arguments is on {leaf.device}, the graph on {device}; "
            "move it there, or give a number"
        )
    if leaf.requires_grad:
        raise ValueError(
            f"graph: a tensor of shape {tuple(leaf.shape)} among the arguments requires grad, which cannot pass through a "
            "whole step; detach it, or use make_graphed_callables"
        )
    return "tensor", tuple(leaf.shape), leaf.stride(), leaf.dtype


def _fill(slots: list[_C.Tensor], leaves: list[Any]) -> None:
    tensors = (x for x in leaves if isinstance(x, _C.Tensor))
    for slot, x in zip(slots, tensors, strict=True):
        if slot.data_ptr() != x.data_ptr():
            slot.copy_(x)
