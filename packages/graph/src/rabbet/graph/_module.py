"""Graphs as modules; this needs the wheel rabbet-nn."""

from __future__ import annotations

from typing import Any

import rabbet
from rabbet import nn

from .._C import Tensor
from ._graph import Graph
from ._ir import GraphError, Value
from ._run import run


class GraphModule(nn.Module):
    """A module that runs a graph, with the graph's parameters and buffers under their names.

    `state_dict()`, `load_state_dict()`, `parameters()` and optimizers work as for the captured module. Constants of the
    graph are buffers that state dicts leave out. What the capture fixed cannot change: dtypes, devices, and training or
    evaluation mode.

    Args:
        graph: its parameters, buffers and constants must be bound. It is not copied: edits take effect.

    Raises:
        GraphError: if one is not bound.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        if not isinstance(graph, Graph):
            raise TypeError(f"GraphModule: expected a Graph, got {type(graph).__name__}")
        self.graph = graph
        self._owners: list[tuple[Value, nn.Module, str]] = []
        for value in graph.inputs:
            if value.kind != "input":
                self._adopt(value)
        self.training = bool(graph.training)

    def _adopt(self, value: Value) -> None:
        label = str(value.label)
        if label not in self.graph.bound:
            raise GraphError(f"GraphModule: the {value.kind} '{label}' of the graph is not bound")
        tensor = self.graph.bound[label]
        *path, name = label.split(".")
        owner: nn.Module = self
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = owner._modules[part]
        if value.kind == "parameter":
            parameter = tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor)
            owner.register_parameter(name, parameter)
        elif value.kind == "buffer":
            owner.register_buffer(name, tensor, persistent=not value.transient)
        else:
            owner.register_buffer(name, tensor, persistent=False)
        self._owners.append((value, owner, name))

    def _bind(self) -> None:
        """Bind the module's current tensors to the graph."""
        for value, owner, name in self._owners:
            self.graph.bound[str(value.label)] = getattr(owner, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph on arguments like those of the captured call."""
        self._bind()
        return run(self.graph, args, kwargs)

    def train(self, mode: bool = True) -> GraphModule:
        """Accept the mode of the capture.

        Raises:
            NotImplementedError: for the other one, whose operators the graph does not have.
        """
        captured = self.graph.training
        if captured is not None and bool(mode) != captured:
            word = "training" if captured else "evaluation"
            raise rabbet.NotImplementedForError(
                f"GraphModule: the graph was captured in {word} mode, and has no operators of the other one: set the mode "
                "before the capture"
            )
        super().train(mode)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> GraphModule:
        for value, _, _ in self._owners:
            probe = rabbet.empty(0, dtype=value.dtype, device=value.device)
            changed: Tensor = fn(probe)
            if changed.dtype != value.dtype or changed.device.type != value.device.type:
                raise rabbet.NotImplementedForError(
                    f"GraphModule: '{value.label}' is {value.dtype.name} on {value.device.type} in the graph, which cannot "
                    f"become {changed.dtype.name} on {changed.device.type}: convert the module before the capture"
                )
        super()._apply(fn, recurse)
        return self

    def extra_repr(self) -> str:
        """The size of the graph."""
        return f"{len(self.graph.nodes)} nodes"
