"""The checks of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import _C
from .._C import Tensor
from ._edit import hints_of, objects_in
from ._ir import Call, GraphData, GraphError, If, Node, Object, Value, While, _Structured, values_in
from ._meta import Unknown, concrete_shape, infer, meta_tensor
from ._records import Parameter, UnknownOperator, record
from ._sizes import Size
from ._text import argument_text, is_plain, type_text

_NUMBERS = (bool, int, float, complex, Size)
# What may stand for a parameter, by the first word of its type.
_TAKES: dict[str, tuple[type, ...]] = {
    "int": (int, Size),
    "dim": (int, Size),
    "newdim": (int, Size),
    "float": (int, float, Size),
    "bool": (bool, int),
    "str": (str,),
    "dtype": (_C.dtype,),
    "device": (_C.device,),
    "layout": (_C.layout,),
    "Scalar": _NUMBERS,
    "Generator": (Object,),
    "callable": (Object,),
}
_LISTS: dict[str, tuple[type, ...]] = {
    "dim[]": (int, Size),
    "perm": (int, Size),
    "size[]": (int, Size),
    "bsize[]": (int, Size),
    "int[]": (int, Size),
    "float[]": (int, float, Size),
    "bool[]": (bool, int),
    "str[]": (str,),
    "Scalar[]": _NUMBERS,
}


class _Checker:
    """Traverses a graph in program order and collects the errors."""

    def __init__(self, graph: GraphData, where: str = "") -> None:
        self.graph = graph
        self.where = where
        self.faults: list[str] = []
        self.defined: dict[int, Value] = {}
        self.names: dict[str, Value] = {}
        self.metas: dict[int, Tensor] = {}
        self.hints = hints_of(graph)

    def fault(self, text: str, node: Node | None = None) -> None:
        place = f"graph '{self.graph.name}'{self.where}"
        if node is not None:
            at = next((i for i, n in enumerate(self.graph.nodes) if n is node), -1)
            line = f" ({node.source})" if node.source else ""
            place += f", node {at} {node.op}{line}"
        self.faults.append(f"{place}: {text}")

    # ---- the parts

    def run(self) -> list[str]:
        for value in self.graph.inputs:
            self.define(value, None)
            self.metas[id(value)] = self.meta_of(value)
        self.check_symbols()
        for node in self.graph.nodes:
            self.check_node(node)
        self.check_outputs()
        self.check_bound()
        return self.faults

    def meta_of(self, value: Value) -> Tensor:
        shape = concrete_shape(value, self.known_symbols(value))
        return meta_tensor(shape or (0,) * value.ndim, value.dtype, value.strides)

    def known_symbols(self, value: Value) -> Mapping[str, int]:
        for size in value.shape:
            for leaf in size.leaves() if size is not None else ():
                if leaf.op == "symbol" and leaf.args[0] not in self.hints:
                    self.fault(f"%{value.name} has the size {size}, but no symbol {leaf.args[0]}")
                    self.hints[leaf.args[0]] = 2
        return self.hints

    def define(self, value: Value, node: Node | None) -> None:
        if id(value) in self.defined:
            return self.fault(f"%{value.name} is defined twice", node)
        if value.name in self.names:
            self.fault(f"two values have the name %{value.name}", node)
        if value.node is not node:
            self.fault(f"%{value.name} says that another node made it", node)
        self.defined[id(value)] = value
        self.names[value.name] = value

    def check_symbols(self) -> None:
        for s in self.graph.symbols.values():
            high = "inf" if s.high is None else s.high
            if s.hint < s.low or (s.high is not None and s.hint > s.high):
                self.fault(
                    f"symbol {s.name}: expected a size in [{s.low}, {high}] at the capture, got {s.hint}"
                )
            if s.origin is None:
                continue
            value, d = s.origin
            if not any(value is v for v in self.graph.inputs):
                self.fault(f"symbol {s.name}: %{value.name} is no input")
            elif not 0 <= d < value.ndim:
                self.fault(
                    f"symbol {s.name}: %{value.name} has {value.ndim} dimensions, got dimension {d}"
                )
        for constraint in self.graph.constraints:
            for leaf in [*constraint.left.leaves(), *constraint.right.leaves()]:
                if leaf.op == "symbol" and leaf.args[0] not in self.graph.symbols:
                    self.fault(f"the constraint {constraint} names no symbol: {leaf.args[0]}")

    def check_node(self, node: Node) -> None:
        before = len(self.faults)
        for value in node.inputs():
            if self.defined.get(id(value)) is value:
                continue
            made_later = any(v is value for v in self.graph.values())
            problem = (
                "is used before it is defined" if made_later else "is not defined in the graph"
            )
            self.fault(f"%{value.name} {problem}", node)
        for item in objects_in(node.args):
            if self.graph.objects and item.name not in self.graph.objects:
                self.fault(f"the graph holds no object '{item.name}'", node)
        if isinstance(node, _Structured):
            self.check_structured(node)
        else:
            self.check_call(node)
        for value in node.values():
            self.define(value, node)
            if id(value) not in self.metas:
                self.metas[id(value)] = self.meta_of(value)
        if len(self.faults) == before:
            self.check_buffers(node)

    # ---- calls of operators

    def check_call(self, node: Node) -> None:
        try:
            info = record(node.op)
        except UnknownOperator as error:
            return self.fault(str(error), node)
        start = len(self.faults)
        if len(node.args) != len(info.params):
            return self.fault(
                f"expected {len(info.params)} arguments for {info.schema}, got {len(node.args)}",
                node,
            )
        for param, arg in zip(info.params, node.args, strict=True):
            if (problem := self.argument_problem(param, arg)) is not None:
                self.fault(f"argument '{param.name}': {problem}", node)
        wanted = 0 if node.outs else len(info.rets)
        if len(node.results) != wanted:
            self.fault(f"expected {wanted} results, got {len(node.results)}", node)
        if node.outs and len(node.outs) != len(info.rets):
            self.fault(f"expected {len(info.rets)} values to write, got {len(node.outs)}", node)
        for result in node.results:
            if isinstance(result, list) != info.returns_list:
                kind = "a list of values" if info.returns_list else "a value"
                self.fault(f"expected {kind} as the result, got {result!r}", node)
        if len(self.faults) == start:
            self.check_inference(node)

    def argument_problem(self, param: Parameter, arg: Any) -> str | None:
        if arg is None:
            return (
                None
                if param.optional or param.type == "dim[]"
                else f"expected {param.type}, got None"
            )
        if param.type == "Tensor":
            fits = isinstance(arg, Value) or (isinstance(arg, _NUMBERS) and param.takes_number)
        elif param.type == "Tensor[]":
            fits = isinstance(arg, (list, tuple)) and all(
                isinstance(item, Value) or (item is None) for item in arg
            )
        elif param.type in _LISTS:
            fits = isinstance(arg, (list, tuple)) and all(
                isinstance(item, _LISTS[param.type]) for item in arg
            )
        else:
            fits = isinstance(arg, _TAKES.get(param.type, (object,)))
        if fits:
            return None
        shown = argument_text(arg) if is_plain(arg) else type(arg).__name__
        return f"expected {param.type}, got {shown}"

    def check_inference(self, node: Node) -> None:
        try:
            inferred = infer(node, lambda value: self.metas[id(value)], self.hints)
        except Unknown:
            return
        except Exception as error:
            return self.fault(f"refused for these arguments: {error}", node)
        for value in node.outs:
            shape = concrete_shape(value, self.hints)
            if shape is not None and tuple(self.metas[id(value)].shape) != shape:
                self.fault(
                    f"%{value.name}: expected shape {tuple(self.metas[id(value)].shape)} to write, got {type_text(value)}",
                    node,
                )
        for found, result in zip(inferred, node.results, strict=False):
            if not isinstance(result, list):
                self.compare(node, result, found)
                continue
            if len(result) != len(found):
                self.fault(f"expected {len(found)} values in the list, got {len(result)}", node)
            for value, tensor in zip(result, found, strict=False):
                self.compare(node, value, tensor)

    def compare(self, node: Node, value: Value, tensor: Tensor) -> None:
        self.metas[id(value)] = tensor
        shape = concrete_shape(value, self.known_symbols(value))
        if value.dtype != tensor.dtype:
            self.fault(
                f"%{value.name}: expected dtype {tensor.dtype.name}, got {value.dtype.name}", node
            )
        if value.ndim != tensor.ndim or (shape is not None and shape != tuple(tensor.shape)):
            self.fault(
                f"%{value.name}: expected shape {tuple(tensor.shape)}, got {type_text(value)}"
                + (f" = {shape}" if shape is not None and self.hints else ""),
                node,
            )

    def check_buffers(self, node: Node) -> None:
        given = {value.buffer for value in node.inputs()}
        memory = {self.metas[id(value)]._storage_id() for value in node.inputs()}
        for value in node.values():
            shares = value.buffer in given
            if isinstance(node, _Structured):
                if shares:
                    self.fault(
                        f"%{value.name} must have memory of its own, not that of an operand", node
                    )
                continue
            is_view = node.record.is_view or self.metas[id(value)]._storage_id() in memory
            if is_view and not shares and not node.record.may_be_view:
                self.fault(f"%{value.name} is a view, but shares no memory with an argument", node)
            if shares and not (is_view or node.record.may_be_view):
                self.fault(f"%{value.name} shares memory with an argument, but is no view", node)

    # ---- graphs inside of nodes

    def check_structured(self, node: _Structured) -> None:
        for role, inner in zip(node.roles, node.graphs, strict=True):
            checker = _Checker(inner, f", {role} of {node.kind} in '{self.graph.name}'{self.where}")
            self.faults += checker.run()
            if len(inner.inputs) != len(node.operands):
                self.fault(
                    f"the graph '{role}' takes {len(inner.inputs)} inputs, got {len(node.operands)} operands",
                    node,
                )
            for value, given in zip(node.operands, inner.inputs, strict=False):
                self.same_type(node, f"operand %{value.name} of '{role}'", given, value)
            memory = {value.buffer for value in inner.inputs}
            for value in values_in(inner.outputs):
                if value.buffer in memory:
                    self.fault(
                        f"the graph '{role}' returns %{value.name}, which shares memory with an input: return a clone",
                        node,
                    )
        results = node.values()
        if isinstance(node, If):
            self.check_predicate(node, "the condition", node.args[0] if node.args else None)
            for role, inner in zip(node.roles, node.graphs, strict=True):
                self.returns(node, role, inner, results)
        elif isinstance(node, Call):
            self.returns(node, "graph", node.graphs[0], results)
        elif isinstance(node, While):
            condition, body = node.graphs
            if len(condition.outputs) != 1:
                self.fault(
                    f"the condition must return one value, got {len(condition.outputs)}", node
                )
            else:
                self.check_predicate(node, "the condition's result", condition.outputs[0])
            if node.carried != len(results):
                self.fault(
                    f"expected {node.carried} results, one per carried operand, got {len(results)}",
                    node,
                )
            self.returns(node, "body", body, node.operands[: node.carried])
            for value, given in zip(results, node.operands, strict=False):
                self.same_type(node, f"result %{value.name}", given, value)

    def check_predicate(self, node: Node, what: str, value: Any) -> None:
        if not isinstance(value, Value):
            self.fault(f"{what}: expected a value, got {value!r}", node)
        elif concrete_shape(value, self.hints) not in ((), (1,), None):
            self.fault(f"{what}: expected one element, got {type_text(value)}", node)

    def returns(self, node: Node, role: str, inner: GraphData, results: list[Value]) -> None:
        if len(inner.outputs) != len(results):
            return self.fault(
                f"the graph '{role}' returns {len(inner.outputs)} values, expected {len(results)}",
                node,
            )
        for output, result in zip(inner.outputs, results, strict=True):
            if not isinstance(output, Value):
                self.fault(f"the graph '{role}' returns {output!r}, expected a value", node)
            else:
                self.same_type(node, f"what '{role}' returns for %{result.name}", result, output)

    def same_type(self, node: Node, what: str, expected: Value, found: Value) -> None:
        same_shape = expected.ndim == found.ndim and all(
            a is None or b is None or a == b or "symbol" in _kinds(a, b)
            for a, b in zip(expected.shape, found.shape, strict=True)
        )
        if expected.dtype != found.dtype or not same_shape:
            self.fault(f"{what}: expected {type_text(expected)}, got {type_text(found)}", node)

    # ---- the rest

    def check_outputs(self) -> None:
        gradients = [gradient.input for gradient in self.graph.gradients]
        for value in [*self.graph.results(), *gradients]:
            if self.defined.get(id(value)) is not value:
                self.fault(f"%{value.name} is returned, but not defined")
        for output in self.graph.outputs:
            if isinstance(output, (list, tuple)) or not is_plain(output):
                self.fault(f"an output must be a value, a size or plain data, got {output!r}")

    def check_bound(self) -> None:
        labels: set[str] = set()
        for value in self.graph.inputs:
            if value.kind == "input":
                continue
            if value.label is None:
                self.fault(f"the {value.kind} %{value.name} has no label")
                continue
            if value.label in labels:
                self.fault(f"two inputs have the label '{value.label}'")
            labels.add(value.label)
            tensor = self.graph.bound.get(value.label)
            if tensor is not None and (
                tensor.dtype != value.dtype
                or tuple(tensor.shape) != concrete_shape(value, self.hints)
            ):
                self.fault(
                    f"'{value.label}' is bound to {tensor.dtype.name}{list(tensor.shape)}, expected {type_text(value)}"
                )


def _kinds(*sizes: Size) -> Iterator[str]:
    for size in sizes:
        for leaf in size.leaves():
            yield leaf.op


def check(graph: GraphData) -> None:
    """`Graph.check`."""
    before = _C.set_overrides_disabled(2)
    try:
        faults = _Checker(graph).run()
    finally:
        _C.set_overrides_disabled(before)
    if faults:
        more = f" ({len(faults)} faults)" if len(faults) > 1 else ""
        raise GraphError(f"the graph is wrong{more}:\n  " + "\n  ".join(faults))
