"""Graphs as text (the grammar is in docs/tutorial/graphs.md); `_parse` reads it back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from .. import _C
from ._ir import GraphData, GraphError, Node, Object, Value, While, _Structured
from ._sizes import Constraint, Size

_PLAIN = (type(None), bool, int, float, complex, str, _C.dtype, _C.device, _C.layout)


def is_plain(value: Any) -> bool:
    """Whether text can hold a value as an argument."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return isinstance(value, (*_PLAIN, Value, Size, Object))


def quoted(text: str) -> str:
    """A string in double quotes."""
    return json.dumps(text)


def argument_text(arg: Any) -> str:
    """An argument as text.

    Raises:
        GraphError: if there is no text for it.
    """
    if isinstance(arg, Value):
        return f"%{arg.name}"
    if isinstance(arg, (list, tuple)):
        return f"[{', '.join(map(argument_text, arg))}]"
    if isinstance(arg, Size):
        return f"{{{arg}}}"
    if isinstance(arg, str):
        return quoted(arg)
    if isinstance(arg, _C.dtype):
        return str(arg.name)
    if isinstance(arg, _C.device):
        return f"device({quoted(str(arg))})"
    if isinstance(arg, _C.layout):
        return f"layout({quoted(str(arg).rpartition('.')[2])})"
    if isinstance(arg, Object):
        return f"object({quoted(arg.name)})"
    if isinstance(arg, complex):
        return f"complex({float(arg.real)!r}, {float(arg.imag)!r})"
    if isinstance(arg, _PLAIN):
        return repr(arg)
    raise GraphError(f"an argument of type {type(arg).__name__} has no text")


def type_text(value: Value) -> str:
    """dtype, shape and device of a value."""
    sizes = []
    for d, size in enumerate(value.shape):
        if size is None:
            sizes.append(f"?{value.hint[d]}" if value.hint else "?")
        else:
            sizes.append(str(size))
    place = "" if value.device.type == "cpu" else f" on {quoted(str(value.device))}"
    return f"{value.dtype.name}[{', '.join(sizes)}]{place}"


class _Writer:
    """Writes a graph line by line, and tracks the first value of each buffer."""

    def __init__(self) -> None:
        self.first: dict[Any, Value] = {}

    def declared(self, value: Value) -> str:
        """Format the definition of a value: its name, its type, and the value whose memory it shares."""
        first = self.first.setdefault(value.buffer, value)
        shared = "" if first is value else f" of %{first.name}"
        return f"%{value.name}: {type_text(value)}{shared}"

    def results(self, node: Node) -> str:
        if node.outs:
            return f"write {', '.join(f'%{out.name}' for out in node.outs)} = "
        if not node.results:
            return ""
        made = [
            f"[{', '.join(map(self.declared, result))}]"
            if isinstance(result, list)
            else self.declared(result)
            for result in node.results
        ]
        return f"{made[0] if len(made) == 1 else '(' + ', '.join(made) + ')'} = "

    def node(self, node: Node, indent: str) -> Iterator[str]:
        head = f"{indent}{self.results(node)}{node.op}"
        if isinstance(node, While):
            head += f" {node.carried}"
        head += f"({', '.join(map(argument_text, node.args))})"
        tail = "" if node.grad else " nograd"
        if node.source:
            tail += f" @ {quoted(node.source)}"
        if not isinstance(node, _Structured):
            yield head + tail
            return
        yield f"{head}{tail} {{"
        for role, graph in zip(node.roles, node.graphs, strict=True):
            yield from _Writer().graph(graph, indent + "  ", role)
        yield f"{indent}}}"

    def constraints(self, constraints: Iterable[Constraint], indent: str) -> Iterator[str]:
        for constraint in constraints:
            source = "" if constraint.source is None else f" @ {quoted(constraint.source)}"
            yield f"{indent}require {constraint}{source}"

    def graph(self, graph: GraphData, indent: str = "", role: str | None = None) -> Iterator[str]:
        inner = indent + "  "
        yield f"{indent}{role or 'graph'} {quoted(graph.name)} {{"
        for value in graph.inputs:
            line = f"{inner}{value.kind} {self.declared(value)}"
            if value.label is not None:
                line += f" {quoted(value.label)}"
            if value.transient:
                line += " transient"
            if value.strides is not None:
                line += f" strides [{', '.join(map(str, value.strides))}]"
            yield line
        for symbol in graph.symbols.values():
            high = "inf" if symbol.high is None else symbol.high
            line = f"{inner}symbol {symbol.name} = {symbol.hint} in [{symbol.low}, {high}]"
            if symbol.origin is not None:
                line += f" is dim(%{symbol.origin[0].name}, {symbol.origin[1]})"
            yield line
        required = graph.constraints_at()
        yield from self.constraints(required.get(-1, ()), inner)
        if graph.training is not None:
            yield f"{inner}training {graph.training}"
        if graph.opaque is not None:
            yield f"{inner}opaque @ {quoted(graph.opaque)}"
        for i, node in enumerate(graph.nodes):
            yield from self.node(node, inner)
            yield from self.constraints(required.get(i, ()), inner)
        for g in graph.gradients:
            replaces = " replaces" if g.replaces else ""
            yield f"{inner}gradient %{g.input.name} = {argument_text(g.value)}{replaces}"
        yield f"{inner}return {', '.join(map(argument_text, graph.outputs))}".rstrip()
        yield f"{indent}}}"


def graph_text(graph: GraphData) -> str:
    """The whole graph, which `parse` reads back."""
    return "\n".join(_Writer().graph(graph)) + "\n"


def node_text(node: Node) -> str:
    """One node, for messages."""
    return "\n".join(_Writer().node(node, ""))
