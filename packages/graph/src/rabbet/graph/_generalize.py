"""Puts expressions in place of the numbers of a captured graph that follow from dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._C import Tensor
from ._fit import exact, fit, matches, other_sizes
from ._ir import GraphData, Node, Value
from ._meta import Unknown, concrete_shape, infer, meta_tensor
from ._sizes import Number, Size, Symbol
from ._symbols import CaptureError

Hints = dict[str, tuple[int, ...]]


def _skeleton(arg: Any) -> Any:
    """Return an argument without its numbers."""
    if isinstance(arg, (list, tuple)):
        return tuple(_skeleton(item) for item in arg)
    if isinstance(arg, Value):
        return f"%{arg.name}"
    if type(arg) in (int, float, Size):
        return "number"
    return (type(arg).__name__, repr(arg))


def _node_structure(node: Node) -> Any:
    made = tuple((v.name, v.dtype.name, v.ndim) for v in node.values())
    args = tuple(_skeleton(arg) for arg in node.args)
    inner = tuple(structure(graph) for graph in node.graphs)
    return (node.op, args, tuple(v.name for v in node.outs), made, node.grad, inner)


def structure(graph: GraphData) -> Any:
    """The parts that graphs of one program at different sizes share: everything but the numbers."""
    return (
        tuple((v.name, v.kind, v.label, v.dtype.name, v.ndim) for v in graph.inputs),
        tuple(_node_structure(node) for node in graph.nodes),
        tuple(_skeleton(output) for output in graph.outputs),
    )


def _first_difference(a: GraphData, b: GraphData) -> str:
    for one, other in zip(a.nodes, b.nodes, strict=False):
        if _node_structure(one) != _node_structure(other):
            return f"{one.op} at {one.source} there, {other.op} at {other.source} here"
    if len(a.nodes) != len(b.nodes):
        longer = a if len(a.nodes) > len(b.nodes) else b
        node = longer.nodes[min(len(a.nodes), len(b.nodes))]
        return f"{node.op} at {node.source} for one of them only"
    return "other inputs or results"


def _hints(graph: GraphData) -> Hints:
    return {value.name: value.hint or () for value in graph.values()}


def _check_same(
    graph: GraphData, others: Sequence[GraphData], points: Sequence[Mapping[str, Number]]
) -> None:
    wanted = structure(graph)
    for other, point in zip(others, points, strict=True):
        if structure(other) != wanted:
            raise CaptureError(
                f"{graph.name}: the program runs other operators for the sizes {dict(point)} than for {dict(points[0])}: "
                f"{_first_difference(graph, other)}"
            )


class _Fitter:
    """Finds expressions for the numbers of one graph, out of the same graph at several sizes."""

    def __init__(
        self,
        graph: GraphData,
        graphs: Sequence[GraphData],
        points: Sequence[Mapping[str, Number]],
        candidates: Sequence[Size],
    ) -> None:
        self.graph = graph
        self.points = points
        self.hints = [_hints(g) for g in graphs]
        self.candidates = candidates
        self.before: list[Value] = list(graph.inputs)  # values that are there

    def number(self, numbers: Sequence[Number], near: Sequence[Value]) -> Size | None:
        """Find an expression: one that the program computed, the size of an existing value, or a formula."""
        plain = [s for s in self.candidates if not s.needs_run()]
        found = self.with_dims(numbers) or exact(numbers, self.points, plain)
        if found is not None:
            return found
        for value in [*near, *reversed(self.before)]:
            for d in range(value.ndim):
                if all(h[value.name][d] == n for h, n in zip(self.hints, numbers, strict=True)):
                    size = value.shape[d]
                    return Size("dim", value, d) if size is None or size.op == "const" else size
        return fit(numbers, self.points) if len(self.points) > 2 else None

    def with_dims(self, numbers: Sequence[Number]) -> Size | None:
        known = {value.name: value for value in self.before}
        for size in self.candidates:
            names = [leaf.args[0].name for leaf in size.leaves() if leaf.op == "dim"]
            if not names or any(name not in known for name in names):
                continue

            def shape_of(k: int) -> Callable[[Value], Any]:
                return lambda value: self.hints[k][value.name]

            found = [size.evaluate(p, shape_of(k)) for k, p in enumerate(self.points)]
            if found == list(numbers):
                return size.replace(
                    lambda leaf: Size("dim", known[leaf.args[0].name], leaf.args[1])
                    if leaf.op == "dim"
                    else leaf
                )
        return None

    def argument(self, node: Node, arg: Any, variants: Sequence[Any]) -> Any:
        if isinstance(arg, (list, tuple)):
            return [
                self.argument(node, item, items)
                for item, *items in zip(arg, *variants, strict=True)
            ]
        if type(arg) not in (int, float) or all(_same(arg, other) for other in variants):
            return arg
        found = self.number(variants, list(node.inputs()))
        if found is None:
            raise CaptureError(
                f"{node.op} at {node.source}: the number {arg} follows from the dynamic sizes in a way that the graph cannot "
                f"express (it is {', '.join(map(str, variants))} for {', '.join(str(dict(p)) for p in self.points)})"
            )
        return found

    def shape(self, value: Value) -> tuple[Size | None, ...]:
        """The shape of an input: constants and symbols."""
        numbers = zip(*(h[value.name] for h in self.hints), strict=True)
        return tuple(exact(n, self.points) for n in numbers)


class _Shapes:
    """Finds the shapes of values, and tries them at sizes at which the program did not run, by inference."""

    def __init__(
        self,
        graphs: Sequence[GraphData],
        points: Sequence[Mapping[str, Number]],
        symbols: Mapping[str, Symbol],
        multiples: bool,
    ) -> None:
        graph = graphs[0]
        self.fitter = _Fitter(graph, graphs, points, ())
        self.by_values = {value.name for value in graph.values() if None in value.shape}
        self.tried: list[Mapping[str, Number]] = []
        for start in (1, 2):
            self.tried += other_sizes(symbols, multiples, start)
        self.metas: list[dict[str, Tensor]] = [{} for _ in self.tried]
        for value in graph.inputs:
            value.shape = self.fitter.shape(value)
            for point, known in zip(self.tried, self.metas, strict=True):
                shape = concrete_shape(value, point)
                if shape is not None:
                    known[value.name] = meta_tensor(shape, value.dtype)

    def of_node(self, node: Node, variants: Sequence[Node]) -> None:
        """Set the shapes of a node's results."""
        for value in node.values():
            if value.name not in self.by_values:
                value.shape = self.fitter.shape(value)
        inferred = self.inferred(node, variants)
        for i, value in enumerate(node.values()):
            shape = list(value.shape)
            for d in range(value.ndim):
                numbers = [h[value.name][d] for h in self.fitter.hints]
                points = [*self.fitter.points]
                for k, results in inferred.items():
                    numbers.append(results[i].shape[d])
                    points.append(self.tried[k])
                size = shape[d]
                if size is not None:
                    shape[d] = size if matches(size, numbers, points) else None
                elif value.name not in self.by_values and len(inferred) >= 3:
                    shape[d] = fit(numbers, points)
            value.shape = tuple(shape)
            for k, results in inferred.items():
                self.metas[k][value.name] = results[i]

    def inferred(self, node: Node, variants: Sequence[Node]) -> dict[int, list[Tensor]]:
        """The results at each point that can be tried."""
        if node.graphs or node.outs:
            return {}
        try:
            args = [
                self.fitter.argument(node, arg, [v.args[k] for v in variants])
                for k, arg in enumerate(node.args)
            ]
        except CaptureError:
            return {}
        trial = Node(node.op, args)
        found: dict[int, list[Tensor]] = {}
        for k, (point, known) in enumerate(zip(self.tried, self.metas, strict=True)):
            try:
                results = infer(trial, lambda value, known=known: known[value.name], point)  # type: ignore[misc]
            except (Unknown, KeyError, RuntimeError, ValueError, IndexError, TypeError):
                continue
            flat = [t for r in results for t in (r if isinstance(r, list) else [r])]
            if len(flat) == len(node.values()):
                found[k] = flat
        return found


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))


def shapes_of(
    graphs: Sequence[GraphData],
    points: Sequence[Mapping[str, Number]],
    symbols: Mapping[str, Symbol],
    multiples: bool,
) -> dict[str, tuple[Size | None, ...]]:
    """The shapes of the values of a program's graph; a size that no simple expression gives is None.

    Args:
        multiples: whether `points` are multiples of the sizes at the capture.
    """
    first = graphs[0]
    _check_same(first, graphs, points)
    shapes = _Shapes(graphs, points, symbols, multiples)
    for i, node in enumerate(first.nodes):
        shapes.of_node(node, [g.nodes[i] for g in graphs])
        shapes.fitter.before += node.values()
    return {value.name: value.shape for value in first.values()}


def generalize(
    graph: GraphData,
    graphs: Sequence[GraphData],
    points: Sequence[Mapping[str, Number]],
    candidates: Sequence[Size],
) -> None:
    """Replace the numbers that differ between `graphs`, which are the same program at `points`.

    Raises:
        CaptureError: if the graphs differ otherwise, or no expression gives a number.
    """
    _check_same(graph, graphs, points)
    _generalize(_Fitter(graph, graphs, points, candidates), graph, graphs)
    fitter = _Fitter(graph, graphs, points, candidates)
    fitter.before = list(graph.values())
    for i, output in enumerate(graph.outputs):
        variants = [g.outputs[i] for g in graphs]
        if type(output) in (int, float) and not all(_same(output, v) for v in variants):
            found = fitter.number(variants, [])
            if found is None:
                raise CaptureError(
                    f"{graph.name}: the program returns the number {output}, which follows from dynamic sizes in a way that the "
                    "graph cannot express"
                )
            graph.outputs[i] = found


def _generalize(fitter: _Fitter, graph: GraphData, graphs: Sequence[GraphData]) -> None:
    for i, node in enumerate(graph.nodes):
        variants = [g.nodes[i] for g in graphs]
        node.args = tuple(
            fitter.argument(node, arg, [v.args[k] for v in variants])
            for k, arg in enumerate(node.args)
        )
        for k, inner in enumerate(node.graphs):
            same = [v.graphs[k] for v in variants]
            inside = _Fitter(inner, same, [{} for _ in same], ())
            for value in inner.values():
                value.shape = inside.shape(value)
            _generalize(inside, inner, same)
        fitter.before += node.values()
