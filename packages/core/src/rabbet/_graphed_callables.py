"""Forward and backward of functions and modules as graphs, beside ordinary code; rabbet.cuda.make_graphed_callables."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import rabbet

from . import _C, _pytree
from ._graphs import Graph, GraphTensors
from ._streams import Stream


def _module_type() -> Any:
    """rabbet.nn.Module, which comes with a wheel of its own."""
    return importlib.import_module("rabbet.nn").Module


class _Part:
    """One callable with its graphs and the tensors that they read and write."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        module = _module_type()
        self.function = function
        self.inputs, self.tree = _pytree.tree_flatten(tuple(args))
        if not all(isinstance(x, _C.Tensor) for x in self.inputs):
            raise TypeError(
                "In the beta API, sample_args for each callable must contain only Tensors. Other types are not allowed."
            )
        self.parameters: list[_C.Tensor] = []
        if isinstance(function, module):
            hooks = ("_backward_hooks", "_forward_hooks", "_forward_pre_hooks")
            if any(getattr(function, name, None) for name in hooks):
                raise RuntimeError(
                    "Modules must not have hooks registered at the time they are passed. However, registering hooks "
                    "on modules after passing them through make_graphed_callables is allowed."
                )
            if any(b.requires_grad for b in function.buffers()):
                raise RuntimeError(
                    "In any ``Module`` passed to :func:`make_graphed_callables`, only parameters may be trainable. "
                    "All buffers must have ``requires_grad=False``."
                )
            self.parameters = [p for p in function.parameters() if p.requires_grad]
        self.surface = [*self.inputs, *self.parameters]
        self.differentiated = [t for t in self.surface if t.requires_grad]

    def run(self) -> tuple[list[Any], Any]:
        return _pytree.tree_flatten(self.function(*_pytree.tree_unflatten(self.inputs, self.tree)))

    def gradients(self, outputs: list[Any], grads: list[Any], allow_unused: bool) -> list[Any]:
        chosen = [(o, g) for o, g in zip(outputs, grads, strict=True) if g is not None]
        if not self.differentiated or not chosen:
            return []
        return list(
            rabbet.autograd.grad(
                [o for o, _ in chosen],
                self.differentiated,
                grad_outputs=[g for _, g in chosen],
                only_inputs=True,
                allow_unused=allow_unused,
            )
        )

    def warm_up(self, times: int, allow_unused: bool) -> None:
        for _ in range(times):
            outputs, _tree = self.run()
            zeros = [rabbet.zeros_like(o) if o.requires_grad else None for o in outputs]
            self.gradients(outputs, zeros, allow_unused)

    def capture_forward(self, graph: Graph) -> None:
        self.forward_graph = graph
        with graph:
            self.outputs, self.out_tree = self.run()

    def capture_backward(self, graph: Graph, allow_unused: bool) -> None:
        self.backward_graph = graph
        self.grad_outputs = [
            rabbet.empty_like(o) if o.requires_grad else None for o in self.outputs
        ]
        found: list[Any] = []
        if any(g is not None for g in self.grad_outputs) and self.differentiated:
            with graph:
                found = self.gradients(self.outputs, self.grad_outputs, allow_unused)
        given = iter(found)
        self.grad_inputs = [next(given, None) if t.requires_grad else None for t in self.surface]
        self.has_backward = bool(found)
        self.results = [o.detach() for o in self.outputs]
        fixed = [*self.inputs, *self.outputs, *self.grad_outputs, *self.grad_inputs]
        self.tensors = GraphTensors([t.detach() for t in fixed if t is not None])


def _graphed(part: _Part, device: _C.device) -> Callable[..., Any]:
    class Graphed(rabbet.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *surface: _C.Tensor) -> tuple[_C.Tensor, ...]:
            part.tensors.used_now(device)
            for slot, given in zip(part.inputs, surface, strict=False):
                if slot.data_ptr() != given.data_ptr():
                    slot.data.copy_(given.detach())
            part.forward_graph.replay()
            fixed = [r.detach() for r, o in zip(part.results, part.outputs, strict=True)]
            ctx.mark_non_differentiable(
                *(f for f, o in zip(fixed, part.outputs, strict=True) if not o.requires_grad)
            )
            return tuple(fixed)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            part.tensors.used_now(device)
            for slot, given in zip(part.grad_outputs, grads, strict=True):
                if slot is None:
                    continue
                if given is None:
                    slot.zero_()
                elif slot.data_ptr() != given.data_ptr():
                    slot.copy_(given)
            if part.has_backward:
                part.backward_graph.replay()
            return tuple(None if g is None else g.detach() for g in part.grad_inputs)

    def call(*args: Any) -> Any:
        given, tree = _pytree.tree_flatten(tuple(args))
        if tree != part.tree:
            raise TypeError("a graphed callable takes arguments as those that it was captured with")
        return _pytree.tree_unflatten(list(Graphed.apply(*given, *part.parameters)), part.out_tree)

    return call


def _replace_forward(module: Any, call: Callable[..., Any]) -> Any:
    """The module itself, whose calls in the mode of the capture launch the graphs."""
    captured_mode, plain = module.training, module.forward

    def forward(*args: Any) -> Any:
        return call(*args) if module.training == captured_mode else plain(*args)

    module.forward = forward
    return module


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int,
    allow_unused_input: bool,
    pool: tuple[int, int] | None,
    device: _C.device,
) -> Any:
    """See rabbet.cuda.make_graphed_callables; `device`: whose work is captured."""
    if rabbet.is_autocast_enabled(device.type) and rabbet.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`."
        )
    module = _module_type()
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    parts = [_Part(f, a) for f, a in zip(functions, samples, strict=True)]
    outside, stream = Stream._current(device), Stream(device)
    _C.synchronize(device)
    with stream:
        for part in parts:
            part.warm_up(num_warmup_iters, allow_unused_input)
        stream.synchronize()
        graphs = [Graph(pool=pool, device=device)]
        shared = graphs[0].pool()
        graphs += [Graph(pool=shared, device=device) for _ in range(2 * len(parts) - 1)]
        for part, graph in zip(parts, graphs, strict=False):
            part.capture_forward(graph)
        # Backward passes run in the opposite order, and so the memory of one serves the next.
        for part, graph in zip(reversed(parts), graphs[len(parts) :], strict=True):
            part.capture_backward(graph, allow_unused_input)
    outside.wait_stream(stream)
    made = [
        _replace_forward(f, _graphed(p, device)) if isinstance(f, module) else _graphed(p, device)
        for f, p in zip(functions, parts, strict=True)
    ]
    return made[0] if single else tuple(made)
