"""The layers of a model with their outputs, parameters and memory."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from .._pytree import tensors_in

__all__ = ["LayerSummary", "Summary", "summary"]


@dataclass
class LayerSummary:
    """A module of a summary.

    Attributes:
        path: its name in the model; "" of the model itself.
        kind: the name of its class.
        depth: how deep it lies.
        output_shapes: the shapes of the tensors that it returned last; empty if it was not called.
        output_bytes: the bytes of these tensors.
        parameters, parameter_bytes: numbers and bytes of its own parameters, without those of submodules.
        trainable: how many of the parameters require gradients.
        buffer_bytes: bytes of its own buffers.
        calls: how often it was called.
    """

    path: str
    kind: str
    depth: int
    output_shapes: list[tuple[int, ...]]
    output_bytes: int
    parameters: int
    parameter_bytes: int
    trainable: int
    buffer_bytes: int
    calls: int


class Summary:
    """The result of `summary`; `print` it.

    Attributes:
        layers: the modules in the order of the model, the model itself first.
        parameters, trainable: numbers of all parameters, and of those that require gradients; shared ones count once.
        parameter_bytes, buffer_bytes: of all, shared ones once.
        input_bytes: bytes of the tensors of the input.
        output_bytes: bytes of the outputs of all modules without submodules, one call after another: about what a graph
            keeps for backward.
    """

    def __init__(self, layers: list[LayerSummary], input_bytes: int, output_bytes: int) -> None:
        self.layers = layers
        self.parameters = sum(layer.parameters for layer in layers)
        self.trainable = sum(layer.trainable for layer in layers)
        self.parameter_bytes = sum(layer.parameter_bytes for layer in layers)
        self.buffer_bytes = sum(layer.buffer_bytes for layer in layers)
        self.input_bytes = input_bytes
        self.output_bytes = output_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of input, parameters, buffers and outputs."""
        return self.input_bytes + self.parameter_bytes + self.buffer_bytes + self.output_bytes

    def __str__(self) -> str:
        rows = [("Layer", "Output", "Parameters", "Output bytes")]
        for layer in self.layers:
            name = layer.path.rpartition(".")[2]
            title = "  " * layer.depth + (f"{name}: {layer.kind}" if name else layer.kind)
            shapes = ", ".join(str(shape) for shape in layer.output_shapes) or "-"
            rows.append((title, shapes, f"{layer.parameters:,}", f"{layer.output_bytes:,}"))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = [
            "  ".join((row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2].rjust(widths[2]),
                       row[3].rjust(widths[3]))).rstrip()
            for row in rows
        ]  # fmt: skip
        lines.insert(1, "-" * max(map(len, lines)))
        fixed = self.parameters - self.trainable
        lines += [
            lines[1],
            f"{self.parameters:,} parameters, {self.trainable:,} trainable, {fixed:,} fixed",
            f"bytes: input {self.input_bytes:,}, parameters {self.parameter_bytes:,}, buffers {self.buffer_bytes:,}, "
            f"outputs {self.output_bytes:,}, in all {self.nbytes:,}",
        ]
        return "\n".join(lines)

    __repr__ = __str__


def _nbytes(tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _layers(model: Any, seen: set[int]) -> dict[int, LayerSummary]:
    layers = {}
    for path, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        buffers = [b for b in module.buffers(recurse=False) if id(b) not in seen]
        seen.update(map(id, [*own, *buffers]))
        layers[id(module)] = LayerSummary(
            path, type(module).__name__, path.count(".") + 1 if path else 0, [], 0,
            sum(p.numel() for p in own), _nbytes(own),
            sum(p.numel() for p in own if p.requires_grad), _nbytes(buffers), 0,
        )  # fmt: skip
    return layers


def summary(model: Any, input: Any = None, **kwargs: Any) -> Summary:
    """Run a model once and list its modules with their outputs, parameters and memory.

    The model runs without gradients, in the mode (training or not) that it is in.

    Args:
        model: a module.
        input: its argument; a tuple: its arguments.
        kwargs: arguments by name.

    Raises:
        TypeError: if `model` is not a module, or without an input.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        >>> print(memory.summary(net, rabbet.rand(8, 4)))
    """
    if not hasattr(model, "named_modules"):
        raise TypeError(f"memory.summary: expected a module, got {type(model).__name__}")
    if input is None and not kwargs:
        raise TypeError("memory.summary: the model runs once, so it needs an input")
    args = input if isinstance(input, tuple) else () if input is None else (input,)
    layers = _layers(model, set())
    leaves = {id(m) for m in model.modules() if next(iter(m.children()), None) is None}
    total = 0

    def note(module: Any, inputs: Any, output: Any) -> None:
        nonlocal total
        tensors, layer = tensors_in(output), layers[id(module)]
        layer.output_shapes = [tuple(t.shape) for t in tensors]
        layer.output_bytes = _nbytes(tensors)
        layer.calls += 1
        if id(module) in leaves:
            total += layer.output_bytes

    from .. import no_grad

    with contextlib.ExitStack() as stack:
        for module in model.modules():
            stack.callback(module.register_forward_hook(note).remove)
        with no_grad():
            model(*args, **kwargs)
    return Summary(list(layers.values()), _nbytes(tensors_in((args, kwargs))), total)
