"""Lowers graphs to programs, which run without Python between their calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import _C
from . import _C as _native
from ._C import Program
from ._ir import GraphData, Node, Object, Value, _Structured
from ._records import record
from ._sizes import Size

MOST = 16  # programs that a graph keeps, by the sizes of its symbols


class _NotLowered(Exception):
    """Raised for what only the executor in Python runs."""


def last_uses(graph: GraphData) -> dict[int, list[Value]]:
    """For each node, the values that are not used after it."""
    kept = set(graph.results())
    last: dict[Value, int] = {}
    for i, node in enumerate(graph.nodes):
        for value in [*node.values(), *node.inputs()]:
            last[value] = i
    for i, constraints in graph.constraints_at().items():
        for value in (v for c in constraints for v in c.made_values()):
            last[value] = max(last.get(value, i), i)
    found: dict[int, list[Value]] = {}
    for value, i in last.items():
        if value not in kept and value.kind == "made":
            found.setdefault(i, []).append(value)
    return found


class _Lowering:
    """Lower the nodes of a graph for certain sizes."""

    def __init__(self, graph: GraphData, symbols: Mapping[str, int], with_grad: bool) -> None:
        self.graph = graph
        self.autograd = _layer("autograd") if with_grad else 0
        self.symbols = symbols
        self.slots = {value: i for i, value in enumerate(graph.values())}
        self.tensor = _C.tensor(0.0)  # stands for the tensors of a run

    def program(self) -> Program:
        graph = self.graph
        if any(at >= 0 for at in graph.constraints_at()):
            raise _NotLowered  # they look at the shapes of results
        made = Program(len(graph.inputs), len(self.slots))
        last = last_uses(graph)
        for i, node in enumerate(graph.nodes):
            self.add(made, node, [self.slots[value] for value in last.get(i, ())])
        outputs = [*tensors_of(graph.outputs), *gradients_of(graph)]
        made.finish([self.slots[value] for value in outputs])
        return made

    def add(self, program: Program, node: Node, last: Sequence[int]) -> None:
        if isinstance(node, _Structured):
            raise _NotLowered
        places: list[tuple[int, int, int]] = []
        args = tuple(self.argument(arg, i, places) for i, arg in enumerate(node.args))
        returns_list = record(node.op).returns_list
        program.add(
            node.op,
            args,
            places,
            [self.slots[out] for out in node.outs],
            [] if node.outs else [self.slots[value] for value in node.values()],
            returns_list,
            last,
            self.excluded(node),
            self.numbers(node),
        )

    def numbers(self, node: Node) -> list[tuple[int, int]]:
        """The arguments that each run gives anew, with their numbers among those of the run."""
        return []

    def excluded(self, node: Node) -> int:
        """The layers that are off during a call."""
        return 0 if node.grad else self.autograd

    def argument(self, arg: Any, i: int, places: list[tuple[int, int, int]]) -> Any:
        if isinstance(arg, (list, tuple)):
            return [self.item(item, i, j, places) for j, item in enumerate(arg)]
        if isinstance(arg, Object):
            try:
                return self.graph.objects[arg.name]
            except KeyError:
                raise _NotLowered from None
        return self.item(arg, i, -1, places)

    def item(self, item: Any, i: int, j: int, places: list[tuple[int, int, int]]) -> Any:
        if isinstance(item, Value):
            places.append((i, j, self.slots[item]))
            return self.tensor
        if not isinstance(item, Size):
            return item
        if item.needs_run():
            raise _NotLowered
        return item.evaluate(self.symbols)


def tensors_of(outputs: Sequence[Any]) -> list[Value]:
    """The outputs that are tensors.

    Raises:
        _NotLowered: if one is a size that only the run knows.
    """
    for output in outputs:
        if isinstance(output, Size) and output.needs_run():
            raise _NotLowered
    return [output for output in outputs if isinstance(output, Value)]


def gradients_of(graph: GraphData) -> list[Value]:
    """The values that become gradients."""
    return [g.value for g in graph.gradients if g.value is not None]


def _layer(name: str) -> int:
    """The bit of a layer in the masks of threads."""
    return next((1 << layer["bit"] for layer in _C.layers() if layer["name"] == name), 0)


def _has_history(graph: GraphData) -> bool:
    """Whether autograd may record the graph's results, or what it writes to its inputs."""
    if graph.opaque is not None:
        return True
    carried = set(graph.inputs)
    outside = {value.buffer for value in graph.inputs}
    for node in graph.nodes:
        if not node.grad or not any(value in carried for value in node.inputs()):
            continue
        if isinstance(node, _Structured):
            return True
        if record(node.op).detached:
            continue
        if any(value.buffer in outside for value in node.writes()):
            return True
        carried.update(node.values(), node.outs)
    return any(value.node is not None and value in carried for value in graph.results())


class Lowered:
    """What runs of a graph need to know about it.

    Attributes:
        written: the memory that some node writes.
        constraints: the constraints by the position of the node behind which they can be checked.
        has_history: whether autograd may record results or writes.
        gradients: for each entry of the graph's `gradients`, the position of its input.
        devices: the types of devices.
        accepted: the sizes of the symbols for inputs that passed the checks, by what these look at.
    """

    def __init__(self, graph: GraphData, state: tuple[Any, ...]) -> None:
        self.state = state
        self.written = graph.written()
        self.constraints = graph.constraints_at()
        self.has_history = _has_history(graph)
        places = {value: i for i, value in enumerate(graph.inputs)}
        self.gradients = [places[gradient.input] for gradient in graph.gradients]
        self.devices = sorted({value.device.type for value in graph.values()})
        self.accepted: dict[tuple[Any, ...], dict[str, int]] = {}
        self._programs: dict[tuple[int, ...], Program | None] = {}

    def accept(self, key: tuple[Any, ...] | None, symbols: dict[str, int]) -> None:
        """Note inputs that passed the checks."""
        if key is None:
            return
        if len(self.accepted) == MOST:
            del self.accepted[next(iter(self.accepted))]
        self.accepted[key] = symbols

    def key_of(self, tensors: list[Any]) -> tuple[Any, ...] | None:
        """What the checks look at; None if one is no tensor."""
        signature = _native.signature(tensors)
        if signature is None or not self.written:
            return None if signature is None else (signature,)
        first: dict[int, int] = {}
        return signature, *(first.setdefault(t._storage_id(), i) for i, t in enumerate(tensors))

    def program(
        self, graph: GraphData, symbols: Mapping[str, int], with_grad: bool
    ) -> Program | None:
        """The program for these sizes; None where only the executor in Python can run the graph.

        With `with_grad` autograd is switched off for the nodes that it did not record at the capture.
        """
        key = (with_grad, *symbols.values())
        if key not in self._programs:
            if len(self._programs) == MOST:
                del self._programs[next(iter(self._programs))]
            try:
                self._programs[key] = _Lowering(graph, symbols, with_grad).program()
            except _NotLowered:
                self._programs[key] = None
        return self._programs[key]


def lowered(graph: GraphData) -> Lowered:
    """What runs of the graph need; kept until an edit changes the graph."""
    state = _state_of(graph)
    if graph.lowered is None or graph.lowered.state != state:
        graph.lowered = Lowered(graph, state)
    found: Lowered = graph.lowered
    return found


def _state_of(graph: GraphData) -> tuple[Any, ...]:
    """What a program is made of; equal for a graph that nobody has edited."""
    nodes = graph.nodes
    return (
        list(nodes),
        [node.op for node in nodes],
        [node.args for node in nodes],
        [node.outs for node in nodes],
        [list(node.results) for node in nodes],
        [(v, v.dtype, v.shape, v.strides, v.buffer) for v in graph.inputs],
        dict(graph.symbols),
        list(graph.outputs),
        list(graph.gradients),
        list(graph.constraints),
        dict(graph.objects),
    )
