"""Edit a graph: add, replace and remove calls, eliminate dead nodes, and merge common subexpressions."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import _C
from .._C import Tensor
from ._fit import fit, other_sizes
from ._ir import (
    Buffer,
    Call,
    Gradient,
    GraphData,
    GraphError,
    If,
    Node,
    Object,
    Value,
    While,
    _Structured,
    map_values,
    values_in,
)
from ._meta import Unknown, concrete_shape, fill_arguments, infer, meta_tensor
from ._records import Record, UnknownOperator, record
from ._sizes import Size, Symbol, const
from ._text import type_text

# ---- adding


def hints_of(graph: GraphData) -> dict[str, int]:
    """The sizes at the capture."""
    return {symbol.name: symbol.hint for symbol in graph.symbols.values()}


def meta_of(graph: GraphData, value: Value) -> Tensor:
    """Return a meta tensor with the shape that the value had during capture."""
    shape = concrete_shape(value, hints_of(graph))
    if shape is None:
        raise GraphError(f"%{value.name}: its shape is not known")
    return meta_tensor(shape, value.dtype, value.strides)


def insert_call(
    graph: GraphData,
    op: str,
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
    outs: tuple[Value, ...],
    before: Node | None,
) -> Any:
    """`Graph.call`."""
    try:
        info = record(op)
    except UnknownOperator as error:
        raise GraphError(str(error)) from None
    at = len(graph.nodes) if before is None else _position(graph, before)
    given = fill_arguments(op, info, args, keywords)
    node = Node(op, given, outs=outs)
    known = {id(value) for value in graph.inputs}
    known |= {id(value) for n in graph.nodes[:at] for value in n.values()}
    for value in node.inputs():
        if id(value) not in known:
            raise GraphError(f"{op}: %{value.name} is not defined before the place of the call")
    if outs:
        _try(graph, node)
    else:
        add_results(graph, node, info)
    graph.nodes.insert(at, node)
    if outs:
        return outs[0] if len(outs) == 1 else outs
    made = [tuple(result) if isinstance(result, list) else result for result in node.results]
    return None if not made else made[0] if len(made) == 1 else tuple(made)


def _position(graph: GraphData, node: Node) -> int:
    for i, other in enumerate(graph.nodes):
        if other is node:
            return i
    raise GraphError(f"the node is not in the graph '{graph.name}': {node!r}")


def _try(graph: GraphData, node: Node, sizes: Mapping[str, int] | None = None) -> list[Any]:
    symbols = hints_of(graph) if sizes is None else sizes

    def tensor_of(value: Value) -> Tensor:
        shape = concrete_shape(value, symbols)
        if shape is None:
            raise Unknown(f"the shape of %{value.name} is not known")
        return meta_tensor(shape, value.dtype, value.strides if sizes is None else None)

    try:
        return infer(node, tensor_of, symbols)
    except Unknown as error:
        raise GraphError(f"{node.op}: its results follow from values: {error}") from None
    except GraphError:
        raise
    except Exception as error:
        raise GraphError(f"{node.op}: {error}") from error


def add_results(graph: GraphData, node: Node, info: Record) -> None:
    """Make the values of a node's results, as its record infers them."""
    made = _try(graph, node)
    others = [_try(graph, node, sizes) for sizes in _other_sizes(graph)]
    first = next(values_in(node.args), None)
    shares = first is not None and (info.is_view or info.may_be_view)
    device = first.device if first is not None else None

    def value(tensor: Tensor, variants: Sequence[Tensor]) -> Value:
        shape = _fitted_shape(graph, tensor, variants)
        return Value(
            graph._new_name(),
            tensor.dtype,
            shape,
            device if device is not None else _C.device("cpu"),
            first.buffer if shares and first is not None else Buffer("made"),
            node=node,
            hint=tuple(tensor.shape),
        )

    for i, result in enumerate(made):
        if isinstance(result, list):
            node.results.append(
                [value(t, [other[i][j] for other in others]) for j, t in enumerate(result)]
            )
        else:
            node.results.append(value(result, [other[i] for other in others]))


def _other_sizes(graph: GraphData) -> list[dict[str, int]]:
    if not graph.symbols:
        return []
    return [*other_sizes(graph.symbols), *other_sizes(graph.symbols, start=1)]


def _fitted_shape(
    graph: GraphData, tensor: Tensor, variants: Sequence[Tensor]
) -> list[Size | int | None]:
    points = [hints_of(graph), *_other_sizes(graph)]
    return [
        fit((n, *(int(t.shape[d]) for t in variants)), points) if variants else const(n)
        for d, n in enumerate(tensor.shape)
    ]


# ---- replacing


def _same_type(old: Value, new: Value) -> bool:
    return old.dtype == new.dtype and old.ndim == new.ndim and old.shape == new.shape


def replace_uses(graph: GraphData, old: Value, new: Value, after: Node | None = None) -> int:
    """`Graph.replace_uses`."""
    if not _same_type(old, new):
        raise GraphError(
            f"replace_uses: %{old.name} is {type_text(old)}, but %{new.name} is {type_text(new)}"
        )
    start = 0 if after is None else _position(graph, after) + 1
    count = 0

    def change(value: Value) -> Value:
        nonlocal count
        if value is not old:
            return value
        count += 1
        return new

    for node in graph.nodes[start:]:
        node.args = tuple(map_values(arg, change) for arg in node.args)
        node.outs = tuple(change(out) for out in node.outs)
    graph.outputs = [map_values(output, change) for output in graph.outputs]
    graph.gradients = [
        g if g.value is None else g._replace(value=change(g.value)) for g in graph.gradients
    ]
    return count


def replace_node(graph: GraphData, node: Node, results: Sequence[Value]) -> None:
    """`Graph.replace`."""
    old = node.values()
    if len(old) != len(results):
        raise GraphError(
            f"replace: {node.op} has {len(old)} results, got {len(results)} values for them"
        )
    for value, new in zip(old, results, strict=True):
        replace_uses(graph, value, new, after=node)
    erase(graph, node)


def erase(graph: GraphData, node: Node) -> None:
    """`Graph.erase`."""
    at = _position(graph, node)
    for value in node.values():
        users = graph.users(value)
        if users:
            raise GraphError(f"erase: %{value.name} of {node.op} is used by {users[0]!r}")
        if graph.is_returned(value):
            raise GraphError(f"erase: %{value.name} of {node.op} is returned by the graph")
    del graph.nodes[at]


# ---- dead and doubled nodes


def eliminate_dead(graph: GraphData) -> int:
    """`Graph.eliminate_dead`: a backward pass that tracks the memory that later nodes read."""
    live: set[Any] = set(graph.results())
    live |= {value for constraint in graph.constraints for value in constraint.made_values()}
    read = {value.buffer for value in live}
    read |= {value.buffer for value in graph.inputs}  # their memory outlives the graph
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        needed = node.is_random or any(value in live for value in node.values())
        needed = needed or any(value.buffer in read for value in node.writes())
        needed = needed or _effect_unknown(node)
        if not needed:
            continue
        kept.append(node)
        for value in node.inputs():
            live.add(value)
            read.add(value.buffer)
    count = len(graph.nodes) - len(kept)
    graph.nodes[:] = reversed(kept)
    for node in graph.nodes:
        for inner in node.graphs:
            count += eliminate_dead(inner)
    return count


def _effect_unknown(node: Node) -> bool:
    """Whether a node may have an effect that its record does not describe, because it has neither results nor writes."""
    return not isinstance(node, _Structured) and not node.results and not node.writes()


def merge_common(graph: GraphData) -> int:
    """`Graph.merge_common`: memory that is written anywhere takes no part."""
    written = graph.written()
    shared = {value.buffer for value in graph.results()}
    seen: dict[Any, Node] = {}
    count = 0
    for node in list(graph.nodes):
        if not _can_merge(node, written):
            continue
        key = (node.op, node.grad, tuple(_key(arg) for arg in node.args))
        first = seen.setdefault(key, node)
        if first is node:
            continue
        makes = not node.record.is_view
        if makes and any(v.buffer in shared for v in [*node.values(), *first.values()]):
            continue  # the caller gets two tensors, which it may write
        buffers = dict(
            zip((v.buffer for v in node.values()), (v.buffer for v in first.values()), strict=True)
        )
        for old, new in zip(node.values(), first.values(), strict=True):
            replace_uses(graph, old, new, after=node)
        for value in graph.values():
            value.buffer = buffers.get(value.buffer, value.buffer)
        erase(graph, node)
        count += 1
    for node in graph.nodes:
        for inner in node.graphs:
            count += merge_common(inner)
    return count


def _can_merge(node: Node, written: set[Buffer]) -> bool:
    if isinstance(node, _Structured) or node.has_effect:
        return False
    if "empty" in node.op:  # memory without values
        return False
    return not any(value.buffer in written for value in [*node.inputs(), *node.values()])


def _key(arg: Any) -> Any:
    """Return a dict key for an argument that distinguishes 1, 1.0 and True, and 0.0 and -0.0."""
    if isinstance(arg, (list, tuple)):
        return tuple(_key(item) for item in arg)
    if isinstance(arg, Value):
        return ("value", id(arg))
    return (type(arg).__name__, repr(arg))


# ---- order


def dependencies(graph: GraphData) -> list[set[int]]:
    """For each node, the positions of the nodes that must run before it: producers of its inputs, and memory conflicts."""
    made: dict[int, int] = {}
    for i, node in enumerate(graph.nodes):
        for value in node.values():
            made[id(value)] = i
    last_write: dict[Buffer, int] = {}
    reads: dict[Buffer, list[int]] = {}
    last_random = -1
    found: list[set[int]] = []
    for i, node in enumerate(graph.nodes):
        needs = {made[id(v)] for v in node.inputs() if id(v) in made and made[id(v)] != i}
        writes = {value.buffer for value in node.writes()}
        for value in node.inputs():
            if value.buffer in last_write:
                needs.add(last_write[value.buffer])
        for buffer in writes:
            needs.update(reads.get(buffer, ()))
            last_write[buffer] = i
            reads[buffer] = []
        for value in node.inputs():
            if value.buffer not in writes:
                reads.setdefault(value.buffer, []).append(i)
        if node.is_random or _effect_unknown(node):
            if last_random >= 0:
                needs.add(last_random)
            last_random = i
        needs.discard(i)
        found.append(needs)
    return found


def topological_order(graph: GraphData) -> list[Node]:
    """`Graph.topological_order`."""
    needs = dependencies(graph)
    users: list[list[int]] = [[] for _ in needs]
    missing = [len(n) for n in needs]
    for i, wanted in enumerate(needs):
        for j in wanted:
            users[j].append(i)
    ready = [i for i, n in enumerate(missing) if n == 0]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(graph.nodes[i])
        for j in users[i]:
            missing[j] -= 1
            if missing[j] == 0:
                heapq.heappush(ready, j)
    if len(order) < len(graph.nodes):
        stuck = [graph.nodes[i] for i, n in enumerate(missing) if n > 0]
        names = ", ".join(f"%{v.name} = {node.op}" for node in stuck for v in node.values()[:1])
        raise GraphError(f"the graph '{graph.name}' has a cycle: {names} need each other")
    return order


# ---- copies


def copy_graph(graph: GraphData) -> Any:
    """`Graph.copy`."""
    made = type(graph)(graph.name)
    values: dict[Value, Value] = {}
    buffers: dict[Buffer, Buffer] = {}

    def copied(value: Value, node: Node | None) -> Value:
        buffer = buffers.setdefault(value.buffer, Buffer(value.buffer.kind))
        new = Value(
            value.name, value.dtype, value.shape, value.device, buffer,
            node=node, kind=value.kind, label=value.label, hint=value.hint, strides=value.strides,
        )  # fmt: skip
        new.transient = value.transient
        values[value] = new
        return new

    def mapped(arg: Any) -> Any:
        return map_values(arg, lambda value: values[value])

    made.inputs = [copied(value, None) for value in graph.inputs]
    for node in graph.nodes:
        new = _copied_node(node, [mapped(arg) for arg in node.args])
        new.outs = tuple(values[out] for out in node.outs)
        new.results = [
            [copied(v, new) for v in result] if isinstance(result, list) else copied(result, new)
            for result in node.results
        ]
        made.nodes.append(new)
    made.outputs = [mapped(output) for output in graph.outputs]
    made.gradients = [
        Gradient(values[g.input], g.value and values[g.value], g.replaces) for g in graph.gradients
    ]
    for s in graph.symbols.values():
        origin = None if s.origin is None else (values[s.origin[0]], s.origin[1])
        made.symbols[s.name] = Symbol(s.name, s.hint, s.low, s.high, origin)
    made.constraints = [
        c._replace(left=mapped(c.left), right=mapped(c.right)) for c in graph.constraints
    ]
    made.bound, made.objects = dict(graph.bound), dict(graph.objects)
    made.in_spec, made.out_spec, made.static = graph.in_spec, graph.out_spec, dict(graph.static)
    made.opaque, made.training = graph.opaque, graph.training
    return made


def _copied_node(node: Node, args: list[Any]) -> Node:
    graphs = [copy_graph(inner) for inner in node.graphs]
    if isinstance(node, While):
        return While(graphs, args, node.carried, grad=node.grad, source=node.source)
    if isinstance(node, (If, Call)):
        return type(node)(graphs, args, grad=node.grad, source=node.source)
    return Node(node.op, args, grad=node.grad, source=node.source)


def objects_in(args: Iterable[Any]) -> Iterable[Object]:
    """The objects among arguments."""
    for arg in args:
        if isinstance(arg, Object):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from objects_in(arg)
