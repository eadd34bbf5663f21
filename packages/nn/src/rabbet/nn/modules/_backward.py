"""Full backward hooks: two identity functions on the tape, at a module's inputs and at its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rabbet import Tensor
from rabbet.autograd import Function


class AroundBackward:
    """One call of a module whose backward hooks are to run.

    The backward pass meets the outputs first: their gradients are kept (pre-hooks may replace them). When it
    has passed the module's inputs, the hooks see both.
    """

    def __init__(
        self, module: Any, pre_hooks: list[Callable[..., Any]], hooks: list[Callable[..., Any]]
    ) -> None:
        self.module = module
        self.pre_hooks = pre_hooks
        self.hooks = hooks
        self.input_places: list[int] = []
        self.input_count = 0
        self.watches_inputs = False
        self.output_places: list[int] = []
        self.output_count = 0
        self.grad_output: tuple[Tensor | None, ...] | None = None

    def watch_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return `args` with every tensor passed through the tape."""
        self.input_count = len(args)
        self.input_places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        tensors = [args[i] for i in self.input_places]
        if not self.hooks or not any(t.requires_grad for t in tensors):
            return args
        self.watches_inputs = True
        passed = _AtInputs.apply(self, *tensors)
        return _placed(args, self.input_places, passed)

    def watch_outputs(self, output: Any) -> Any:
        """Return `output` (a tensor, or a tuple with tensors) with every tensor passed through the tape."""
        single = not isinstance(output, tuple)
        outputs = (output,) if single else output
        self.output_count = len(outputs)
        self.output_places = [i for i, o in enumerate(outputs) if isinstance(o, Tensor)]
        tensors = [outputs[i] for i in self.output_places]
        if not any(t.requires_grad for t in tensors):
            return output
        passed = _placed(outputs, self.output_places, _AtOutputs.apply(self, *tensors))
        return passed[0] if single else passed

    def at_outputs(self, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        """The gradients of the outputs have come; returns what to pass on."""
        full = _placed((None,) * self.output_count, self.output_places, grads)
        for hook in self.pre_hooks:
            full = _replaced(full, hook(self.module, full), "full backward pre-hook")
        if not self.watches_inputs:
            # No input has a gradient: the module's backward has nothing to wait for.
            for hook in self.hooks:
                if hook(self.module, (None,) * self.input_count, full) is not None:
                    raise RuntimeError(
                        "full backward hook: a gradient was returned for a module whose inputs need none"
                    )
        self.grad_output = full
        return tuple(full[i] for i in self.output_places)

    def at_inputs(self, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        """The gradients of the inputs have come; returns what to pass on."""
        full = _placed((None,) * self.input_count, self.input_places, grads)
        if self.grad_output is not None:
            for hook in self.hooks:
                full = _replaced(
                    full, hook(self.module, full, self.grad_output), "full backward hook"
                )
        self.grad_output = None
        return tuple(full[i] for i in self.input_places)


class _AtInputs(Function):
    @staticmethod
    def forward(ctx: Any, around: AroundBackward, *tensors: Tensor) -> Any:
        ctx.around = around
        ctx.set_materialize_grads(False)
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return None, *ctx.around.at_inputs(grads)


class _AtOutputs(Function):
    @staticmethod
    def forward(ctx: Any, around: AroundBackward, *tensors: Tensor) -> Any:
        ctx.around = around
        ctx.set_materialize_grads(False)
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return None, *ctx.around.at_outputs(grads)


def _placed(full: tuple[Any, ...], places: list[int], values: Any) -> tuple[Any, ...]:
    items = list(full)
    for place, value in zip(places, values, strict=True):
        items[place] = value
    return tuple(items)


def _replaced(old: tuple[Any, ...], new: Any, what: str) -> tuple[Any, ...]:
    if new is None:
        return old
    new = new if isinstance(new, tuple) else (new,)
    if len(new) != len(old):
        raise RuntimeError(f"{what}: expected {len(old)} gradients, got {len(new)}")
    return new
