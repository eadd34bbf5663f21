"""The graph: values in memory, and the calls that make, view and write them, in program order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .. import _C
from .._C import Tensor
from .._pytree import TreeSpec
from ._records import Record, record
from ._sizes import Constraint, Size, Symbol, const

INPUT_KINDS = ("input", "parameter", "buffer", "constant")


class GraphError(RuntimeError):
    """Raised for an invalid graph, and for an edit that would make a graph invalid."""


class Buffer:
    """The memory of one or several values. Values of one buffer may overlap; those of two never do.

    Attributes:
        kind: "input", "parameter", "buffer" or "constant" for memory from outside, "made" for a call's results.
    """

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"Buffer({self.kind})"


class Value:
    """A tensor of the graph: an input, or a result of a node.

    Attributes:
        name: unique in the graph; printed as %name.
        dtype, device: of the tensor.
        shape: for each dimension a Size, or None where only the run knows it.
        buffer: its memory, shared with the values that it views and that view it.
        node: the node that makes it; None for inputs.
        kind, label: of an input: one of INPUT_KINDS, and its path in the program ("x", "layer.weight").
        hint: the shape when the graph was captured; None where nobody knows.
        strides: of an input that is not row-major: its strides at the capture.
        transient: whether a buffer stays out of state dicts.
    """

    __slots__ = (
        "buffer",
        "device",
        "dtype",
        "hint",
        "kind",
        "label",
        "name",
        "node",
        "shape",
        "strides",
        "transient",
    )

    def __init__(
        self,
        name: str,
        dtype: _C.dtype,
        shape: Iterable[Size | int | None],
        device: _C.device,
        buffer: Buffer,
        *,
        node: Node | None = None,
        kind: str = "made",
        label: str | None = None,
        hint: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = tuple(const(n) if isinstance(n, int) else n for n in shape)
        self.device = device
        self.buffer = buffer
        self.node = node
        self.kind = kind
        self.label = label
        self.hint = hint
        self.strides = strides
        self.transient = False

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"%{self.name}"


class Object:
    """An argument that is neither a tensor nor plain data, such as a Generator; the graph holds it by name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Object) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"object({self.name!r})"


def values_in(arg: Any) -> Iterator[Value]:
    """The values in an argument or a list of results."""
    if isinstance(arg, Value):
        yield arg
    elif isinstance(arg, (list, tuple)):
        for item in arg:
            yield from values_in(item)
    elif isinstance(arg, Size):
        for leaf in arg.leaves():
            if leaf.op == "dim":
                yield leaf.args[0]


def map_values(arg: Any, change: Callable[[Value], Any]) -> Any:
    """Apply `change` to the values in an argument."""
    if isinstance(arg, Value):
        return change(arg)
    if isinstance(arg, (list, tuple)):
        return type(arg)(map_values(item, change) for item in arg)
    if isinstance(arg, Size):
        return arg.replace(
            lambda leaf: Size("dim", change(leaf.args[0]), leaf.args[1])
            if leaf.op == "dim"
            else leaf
        )
    return arg


class Gradient(NamedTuple):
    """What `.grad` of an input's tensor is after the call: a value, or None.

    `replaces` says that the program does not look at the gradient before; otherwise it must be None at the call.
    """

    input: Value
    value: Value | None
    replaces: bool


class Node:
    """A call of an operator.

    Attributes:
        op: the record's name.
        args: one for each parameter of the record: a Value, a number, a Size, a list of these, ...
        results: a Value for each result, or a list of Values.
        outs: the values that the call writes instead of making results; empty for other calls.
        grad: whether autograd records the call where a gradient is wanted: not in `no_grad` and in backward passes.
        source: the line of the program, "file.py:12 in name".
    """

    graphs: tuple[GraphData, ...] = ()

    def __init__(
        self,
        op: str,
        args: Iterable[Any],
        *,
        outs: Iterable[Value] = (),
        grad: bool = True,
        source: str | None = None,
    ) -> None:
        self.op = op
        self.args = tuple(args)
        self.results: list[Any] = []
        self.outs = tuple(outs)
        self.grad = grad
        self.source = source

    @property
    def record(self) -> Record:
        """The operator's record."""
        return record(self.op)

    def inputs(self) -> Iterator[Value]:
        """The values that it reads or writes."""
        yield from values_in(self.args)
        yield from self.outs

    def values(self) -> list[Value]:
        """The values that it makes."""
        return list(values_in(self.results))

    def writes(self) -> list[Value]:
        """The values in whose memory it writes."""
        mutated = [
            value
            for param, arg in zip(self.record.params, self.args, strict=False)
            if param.mutated
            for value in values_in(arg)
        ]
        return [*self.outs, *mutated]

    @property
    def has_effect(self) -> bool:
        """Whether it has effects beyond its results: writes, random numbers, ..."""
        return bool(self.outs) or self.record.has_effect

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers."""
        return self.record.is_random

    def __repr__(self) -> str:
        made = ", ".join(map(repr, self.values() or self.outs))
        return f"{made}{' = ' if made else ''}{self.op}({', '.join(map(repr, self.args))})"


class _Structured(Node):
    """A node that runs graphs. Its operands are the inputs of each graph; results never share their memory."""

    kind: str
    roles: tuple[str, ...]

    def __init__(self, graphs: Sequence[GraphData], args: Iterable[Any], **options: Any) -> None:
        super().__init__(self.kind, args, **options)
        if len(graphs) != len(self.roles):
            raise GraphError(
                f"{self.kind}: expected {len(self.roles)} graphs ({', '.join(self.roles)}), got {len(graphs)}"
            )
        self.graphs = tuple(graphs)

    @property
    def record(self) -> Record:
        raise GraphError(f"'{self.op}' is no operator: it has graphs in place of a record")

    @property
    def operands(self) -> list[Value]:
        """The values that the graphs get as their inputs."""
        return list(self.args)

    def writes(self) -> list[Value]:
        written: dict[Value, None] = {}
        for graph in self.graphs:
            buffers = {value.buffer for node in graph.nodes for value in node.writes()}
            for operand, given in zip(self.operands, graph.inputs, strict=False):
                if given.buffer in buffers:
                    written[operand] = None
        return list(written)

    @property
    def has_effect(self) -> bool:
        return bool(self.writes()) or self.is_random

    @property
    def is_random(self) -> bool:
        return any(node.is_random for graph in self.graphs for node in graph.nodes)


class If(_Structured):
    """Run one of two graphs, as the truth value of the first argument says; both have the same results."""

    kind = "if"
    roles = ("then", "else")

    @property
    def operands(self) -> list[Value]:
        return list(self.args[1:])


class While(_Structured):
    """Run the second graph as long as the first graph returns true.

    The first `carried` operands are replaced by the results of the second graph after each round, and are the node's
    results in the end. The others stay what they are.
    """

    kind = "while"
    roles = ("condition", "body")

    def __init__(
        self, graphs: Sequence[GraphData], args: Iterable[Any], carried: int, **options: Any
    ) -> None:
        super().__init__(graphs, args, **options)
        self.carried = carried


class Call(_Structured):
    """Run a graph."""

    kind = "call"
    roles = ("graph",)


class GraphData:
    """The data of a graph and queries on it. `Graph` adds the other operations."""

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.outputs: list[Any] = []
        self.symbols: dict[str, Symbol] = {}
        self.constraints: list[Constraint] = []
        self.bound: dict[str, Tensor] = {}
        self.objects: dict[str, Any] = {}
        self.in_spec: TreeSpec | None = None
        self.out_spec: TreeSpec | None = None
        self.static: dict[int, Any] = {}
        self.gradients: list[Gradient] = []
        self.training: bool | None = None
        self.opaque: str | None = None
        self.lowered: Any = None  # see _program.lowered
        self._names = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "lowered": None}  # programs are made anew

    # ---- looking

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.inputs)} inputs, {len(self.nodes)} nodes>"

    def values(self) -> Iterator[Value]:
        """All values: inputs, then results in program order."""
        yield from self.inputs
        for node in self.nodes:
            yield from node.values()

    def value(self, name: str) -> Value:
        """The value of this name, with or without its %.

        Raises:
            KeyError: if there is none.
        """
        for found in self.values():
            if found.name == name.removeprefix("%"):
                return found
        raise KeyError(f"the graph '{self.name}' has no value %{name.removeprefix('%')}")

    def users(self, value: Value) -> list[Node]:
        """The nodes that read or write a value, in program order."""
        return [node for node in self.nodes if any(v is value for v in node.inputs())]

    def is_returned(self, value: Value) -> bool:
        """Whether a value is an output, or becomes a gradient."""
        return any(v is value for v in self.results())

    def results(self) -> Iterator[Value]:
        """The values that the graph hands out: outputs and gradients."""
        yield from values_in(self.outputs)
        for gradient in self.gradients:
            if gradient.value is not None:
                yield gradient.value

    def written(self) -> set[Buffer]:
        """The memory that some node writes."""
        return {value.buffer for node in self.nodes for value in node.writes()}

    def constraints_at(self) -> dict[int, list[Constraint]]:
        """The constraints by the position of the node behind which they can be checked; -1: before all."""
        made = {id(v): i for i, node in enumerate(self.nodes) for v in node.values()}
        found: dict[int, list[Constraint]] = {}
        for constraint in self.constraints:
            at = max((made.get(id(v), -1) for v in constraint.made_values()), default=-1)
            found.setdefault(at, []).append(constraint)
        return found

    def user_inputs(self) -> list[Value]:
        """The inputs that a caller passes."""
        return [value for value in self.inputs if value.kind == "input"]

    def find(self, op: str) -> list[Node]:
        """The nodes that call an operator."""
        return [node for node in self.nodes if node.op == op]

    # ---- making

    def _new_name(self) -> str:
        taken = {value.name for value in self.values()} if not self._names else ()
        self._names = max([self._names, *(int(n) + 1 for n in taken if n.isdigit())])
        self._names += 1
        return str(self._names - 1)

    def add_input(
        self,
        dtype: _C.dtype,
        shape: Iterable[Size | int | None],
        *,
        device: Any = "cpu",
        kind: str = "input",
        label: str | None = None,
        name: str | None = None,
        buffer: Buffer | None = None,
        hint: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> Value:
        """Add an input; `kind` is one of "input", "parameter", "buffer" and "constant"."""
        if kind not in INPUT_KINDS:
            raise GraphError(
                f"add_input: kind must be one of {', '.join(INPUT_KINDS)}, got {kind!r}"
            )
        value = Value(
            name or self._new_name(),
            dtype,
            shape,
            _C.device(device) if isinstance(device, str) else device,
            buffer or Buffer(kind),
            kind=kind,
            label=label,
            hint=hint,
            strides=strides,
        )
        self.inputs.append(value)
        return value
