"""Runs a graph by ordinary calls."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import rabbet

from .. import _C
from .._C import Tensor
from .._pytree import tree_flatten, tree_unflatten
from ._C import Program
from ._ir import Buffer, Call, GraphData, GraphError, If, Node, Object, Value, While, _Structured
from ._meta import as_results
from ._program import Lowered, gradients_of, last_uses, lowered
from ._records import record
from ._sizes import Constraint, Number, Size
from ._text import type_text


class InputError(GraphError):
    """Arguments for which the graph was not captured."""


# ---- arguments


def _name(value: Value) -> str:
    return f"'{value.label}'" if value.label is not None else f"%{value.name}"


def _flat_arguments(graph: GraphData, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The tensors for the inputs that callers pass; plain arguments must be those of the capture."""
    if graph.in_spec is None:
        if kwargs:
            raise TypeError(f"{graph.name}: expected no keyword arguments, got {', '.join(kwargs)}")
        return list(args)
    leaves, spec = tree_flatten((args, kwargs))
    if spec != graph.in_spec:
        raise InputError(
            f"{graph.name}: the graph was captured with arguments of the structure\n  {graph.in_spec}\ngot\n  {spec}"
        )
    tensors = []
    for i, leaf in enumerate(leaves):
        if i not in graph.static:
            tensors.append(leaf)
        elif type(leaf) is not type(graph.static[i]) or leaf != graph.static[i]:
            raise InputError(
                f"{graph.name}: plain arguments are part of the graph: expected {graph.static[i]!r} at place {i}, "
                f"got {leaf!r}; capture the program again"
            )
    return tensors


def _check_input(graph: GraphData, value: Value, tensor: Any, symbols: dict[str, int]) -> None:
    what = f"{graph.name}: {value.kind} {_name(value)}"
    if not isinstance(tensor, Tensor):
        raise InputError(f"{what}: expected a Tensor, got {type(tensor).__name__}")
    if tensor.dtype != value.dtype:
        raise InputError(f"{what}: expected dtype {value.dtype.name}, got {tensor.dtype.name}")
    if tensor.device.type != value.device.type:
        raise InputError(f"{what}: expected device {value.device}, got {tensor.device}")
    if tensor.ndim != value.ndim:
        raise InputError(
            f"{what}: expected {value.ndim} dimensions ({type_text(value)}), got shape {tuple(tensor.shape)}"
        )
    for d, (size, n) in enumerate(zip(value.shape, tensor.shape, strict=True)):
        if size is None:
            continue
        if size.op == "symbol" and size.args[0] not in symbols:
            symbols[size.args[0]] = n
        elif size.evaluate(symbols) != n:
            raise InputError(_size_message(graph, value, d, size, n, symbols))


def _size_message(
    graph: GraphData, value: Value, d: int, size: Size, n: int, symbols: Mapping[str, int]
) -> str:
    wanted = size.evaluate(symbols)
    text = (
        f"{graph.name}: {value.kind} {_name(value)}, dimension {d}: expected size {wanted}, got {n}"
    )
    if size.op != "symbol":
        return text
    origin = graph.symbols[size.args[0]].origin if size.args[0] in graph.symbols else None
    if origin is not None:
        text += f": it equals dimension {origin[1]} of {_name(origin[0])}"
    reason = next(
        (c.source for c in graph.constraints if c.left == Size("dim", value, d)),
        None,
    )
    return text + (f" because of {reason}" if reason else "")


def _check_strides(graph: GraphData, value: Value, tensor: Tensor) -> None:
    """Check the strides of inputs: they decide whether an operator returns a view or a copy."""
    if value.strides is None:
        if not tensor.is_contiguous():
            raise InputError(
                f"{graph.name}: {value.kind} {_name(value)}: expected a contiguous tensor, as at the capture, got strides "
                f"{tuple(tensor.stride())} for shape {tuple(tensor.shape)}; use .contiguous()"
            )
        return
    if _order(value.strides) != _order(tensor.stride()):
        raise InputError(
            f"{graph.name}: {value.kind} {_name(value)}: expected strides in the order of {value.strides}, as at the "
            f"capture, got {tuple(tensor.stride())}"
        )


def _order(strides: Sequence[int]) -> list[int]:
    return sorted(range(len(strides)), key=lambda d: (-strides[d], d))


def _describe_symbols(graph: GraphData, sizes: Sequence[Size], symbols: Mapping[str, int]) -> str:
    parts = {}
    for size in sizes:
        for leaf in size.leaves():
            s = graph.symbols.get(leaf.args[0]) if leaf.op == "symbol" else None
            if s is not None and s.origin is not None:
                place = f"dimension {s.origin[1]} of input {_name(s.origin[0])}"
                parts[s.name] = f"{s.name} is {place}, which is {symbols[s.name]}"
    return "; ".join(parts.values())


def _check_sizes(
    graph: GraphData, known: Lowered, symbols: Mapping[str, int], env: Mapping[Value, Tensor]
) -> None:
    for s in graph.symbols.values():
        n = symbols.get(s.name)
        if n is None or (s.low <= n and (s.high is None or n <= s.high)):
            continue
        place = "" if s.origin is None else f"input {_name(s.origin[0])}, dimension {s.origin[1]}: "
        high = "inf" if s.high is None else s.high
        raise InputError(f"{graph.name}: {place}expected a size in [{s.low}, {high}], got {n}")
    for c in known.constraints.get(-1, ()):
        _check_constraint(graph, c, symbols, env)


def _check_constraint(
    graph: GraphData, c: Constraint, symbols: Mapping[str, int], env: Mapping[Value, Tensor]
) -> None:
    if c.holds(symbols, lambda value: env[value].shape):
        return
    line = f", on which {c.source} relies" if c.source else ""
    described = [_describe_symbols(graph, (c.left, c.right), symbols)]
    described += [
        f"%{value.name}, a result of {value.node.op if value.node else ''}, has the shape {tuple(env[value].shape)}"
        for value in dict.fromkeys(c.made_values())
    ]
    raise InputError(
        f"{graph.name}: the sizes break the constraint {c}{line}: {'; '.join(filter(None, described))}"
    )


def _check_memory(graph: GraphData, written: set[Buffer], env: Mapping[Value, Tensor]) -> None:
    """Check that inputs whose memory the graph writes overlap as they did during capture."""
    owners: dict[int, Value] = {}
    first: dict[Buffer, Value] = {}
    for value in graph.inputs:
        storage = env[value]._storage_id()
        other = owners.setdefault(storage, value)
        both = {other.buffer, value.buffer}
        if len(both) == 2 and written & both and env[value].numel():
            raise InputError(
                f"{graph.name}: {_name(other)} and {_name(value)} share memory, which the graph writes; they did not at the "
                "capture"
            )
        other = first.setdefault(value.buffer, value)
        if value.buffer in written and env[other]._storage_id() != storage:
            raise InputError(
                f"{graph.name}: {_name(value)} and {_name(other)} shared memory at the capture, and the graph writes it; now "
                "they do not"
            )


def bind(graph: GraphData, tensors: Mapping[str, Tensor]) -> None:
    """`Graph.bind`."""
    labels = {value.label: value for value in graph.inputs if value.kind != "input"}
    for label, tensor in tensors.items():
        value = labels.get(label)
        if value is None:
            known = ", ".join(repr(name) for name in labels) or "none"
            raise GraphError(f"bind: the graph '{graph.name}' has no '{label}' (it has: {known})")
        _check_input(graph, value, tensor, {})
        graph.bound[label] = tensor


# ---- the run


class _Runner:
    """One run of a graph. It frees each value after its last use."""

    def __init__(self, graph: GraphData, with_grad: bool) -> None:
        self.graph = graph
        self.with_grad = with_grad
        self.env: dict[Value, Tensor] = {}
        self.symbols: dict[str, int] = {}

    def shape_of(self, value: Value) -> Any:
        return self.env[value].shape

    def number(self, size: Size) -> Number:
        return size.evaluate(self.symbols, self.shape_of)

    def argument(self, arg: Any) -> Any:
        if isinstance(arg, Value):
            return self.env[arg]
        if isinstance(arg, (list, tuple)):
            return [self.argument(item) for item in arg]
        if isinstance(arg, Size):
            return self.number(arg)
        if isinstance(arg, Object):
            try:
                return self.graph.objects[arg.name]
            except KeyError:
                raise GraphError(
                    f"{self.graph.name}: nothing is given for the object '{arg.name}'"
                ) from None
        return arg

    def run(self) -> list[Any]:
        last = last_uses(self.graph)
        required = self.graph.constraints_at()
        for i, node in enumerate(self.graph.nodes):
            try:
                self.node(node)
            except Exception as error:
                _note(error, self.graph, i, node)
                raise
            for constraint in required.get(i, ()):
                _check_constraint(self.graph, constraint, self.symbols, self.env)
            for value in last.get(i, ()):
                self.env.pop(value, None)
        return [self.argument(output) for output in self.graph.outputs]

    def node(self, node: Node) -> None:
        with rabbet.no_grad() if self.with_grad and not node.grad else contextlib.nullcontext():
            if isinstance(node, _Structured):
                results = self.structured(node)
            else:
                args = tuple(self.argument(arg) for arg in node.args)
                outs = tuple(self.env[out] for out in node.outs) or None
                returned = _C.call_record(node.op, args, outs)
                results = [] if outs else as_results(record(node.op), returned)
        for result, found in zip(node.results, results, strict=True):
            if not isinstance(result, list):
                self.env[result] = found
                continue
            if len(result) != len(found):
                raise GraphError(
                    f"{node.op}: expected {len(result)} tensors, as at the capture, got {len(found)}"
                )
            self.env.update(zip(result, found, strict=True))

    def structured(self, node: _Structured) -> list[Any]:
        operands = [self.env[value] for value in node.operands]
        if isinstance(node, If):
            graph = node.graphs[0 if bool(self.env[node.args[0]]) else 1]
            return self.inner(graph, operands)
        if isinstance(node, While):
            return self.rounds(node, operands[: node.carried], operands[node.carried :])
        assert isinstance(node, Call)
        return self.inner(node.graphs[0], operands)

    def rounds(self, node: While, state: list[Any], fixed: list[Any]) -> list[Any]:
        condition, body = node.graphs
        count = 0
        while bool(self.inner(condition, [*state, *fixed])[0]):
            state = self.inner(body, [*state, *fixed])
            count += 1
        return state if count else [tensor.clone() for tensor in state]

    def inner(self, graph: GraphData, operands: Sequence[Tensor]) -> list[Any]:
        runner = _Runner(graph, self.with_grad)
        runner.env = dict(zip(graph.inputs, operands, strict=True))
        return runner.run()


def _note(error: Exception, graph: GraphData, i: int, node: Node) -> None:
    line = f" at {node.source}" if node.source else ""
    error.add_note(f"in node {i}, {node.op}, of the graph '{graph.name}'{line}")


def _has_autograd() -> bool:
    return "rabbet.autograd" in sys.modules


@contextlib.contextmanager
def _layers_off(kinds: Sequence[str], no_grad: bool) -> Iterator[None]:
    """Turn autocast off for devices, whose casts of the capture are nodes of the graph, and autograd as asked."""
    for kind in kinds:
        rabbet.set_autocast_enabled(kind, False)
    try:
        with rabbet.no_grad() if no_grad else contextlib.nullcontext():
            yield
    finally:
        for kind in kinds:
            rabbet.set_autocast_enabled(kind, True)


def _autocast_on(known: Lowered) -> list[str]:
    """The devices of the graph for which autocast is on."""
    if "rabbet.amp" not in sys.modules:
        return []
    return [kind for kind in known.devices if rabbet.is_autocast_enabled(kind)]


def _wants_grad(graph: GraphData, known: Lowered, tensors: Sequence[Tensor]) -> bool:
    if not known.has_history or not rabbet.is_grad_enabled():
        return False
    if not any(t.requires_grad for t in tensors):
        return False
    if graph.opaque is not None:
        raise GraphError(
            f"{graph.name}: the gradient of the autograd.Function at {graph.opaque} is not part of the graph: run it under "
            "no_grad()"
        )
    return True


def _inputs(graph: GraphData, given: Sequence[Any]) -> list[Any]:
    """The tensors of all inputs: those of the caller, and those that are bound."""
    wanted = graph.user_inputs()
    if len(given) != len(wanted):
        names = ", ".join(_name(value) for value in wanted)
        raise InputError(
            f"{graph.name}: expected {len(wanted)} tensors ({names}), got {len(given)}"
        )
    callers = iter(given)
    tensors = []
    for value in graph.inputs:
        if value.kind == "input":
            tensors.append(next(callers))
        elif value.label in graph.bound:
            tensors.append(graph.bound[value.label])
        else:
            raise GraphError(
                f"{graph.name}: the {value.kind} {_name(value)} is not bound to a tensor: see Graph.bind"
            )
    return tensors


def _checked(graph: GraphData, known: Lowered, tensors: list[Any]) -> dict[str, int]:
    """Check the inputs of a run, and give the sizes of the symbols."""
    key = known.key_of(tensors)
    if key is not None and key in known.accepted:
        return known.accepted[key]
    symbols: dict[str, int] = {}
    for value, tensor in zip(graph.inputs, tensors, strict=True):
        _check_input(graph, value, tensor, symbols)
        _check_strides(graph, value, tensor)
    env = dict(zip(graph.inputs, tensors, strict=True))
    _check_sizes(graph, known, symbols, env)
    _check_memory(graph, known.written, env)
    known.accept(key, symbols)
    return symbols


def run(graph: GraphData, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a graph on arguments like those of the captured call.

    Its operators are called one after the other, as eager code calls them; a value goes after its last use. Results
    have the bits of the eager program.

    Raises:
        InputError: if the arguments differ from those of the capture in what the graph relies on.
    """
    known = lowered(graph)
    tensors = _inputs(graph, _flat_arguments(graph, args, kwargs))
    symbols = _checked(graph, known, tensors)
    for gradient, at in zip(graph.gradients, known.gradients, strict=True):
        if not gradient.replaces and tensors[at].grad is not None:
            raise InputError(
                f"{graph.name}: {_name(gradient.input)} has a gradient already, which it had not at the capture: set .grad to "
                "None"
            )
    with_grad = _wants_grad(graph, known, tensors)
    program = known.program(graph, symbols, with_grad)
    quiet = not with_grad and _has_autograd() and rabbet.is_grad_enabled()
    with _layers_off(_autocast_on(known), quiet):
        if program is None:
            outputs, made = _run_in_python(graph, tensors, symbols, with_grad)
        else:
            outputs, made = _run_program(graph, program, tensors, symbols)
    gradients = iter(made)
    for gradient, at in zip(graph.gradients, known.gradients, strict=True):
        tensors[at].grad = None if gradient.value is None else next(gradients)
    if graph.out_spec is not None:
        return tree_unflatten(outputs, graph.out_spec)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _run_in_python(
    graph: GraphData, tensors: Sequence[Tensor], symbols: dict[str, int], with_grad: bool
) -> tuple[list[Any], list[Tensor]]:
    """The outputs of the graph, and its gradients."""
    runner = _Runner(graph, with_grad)
    runner.env = dict(zip(graph.inputs, tensors, strict=True))
    runner.symbols = symbols
    outputs = runner.run()
    return outputs, [runner.env[value] for value in gradients_of(graph)]


def _run_program(
    graph: GraphData, program: Program, tensors: list[Tensor], symbols: Mapping[str, int]
) -> tuple[list[Any], list[Tensor]]:
    """The same by a program."""
    try:
        results = iter(program.run(tensors))
    except Exception as error:
        if program.failed >= 0:
            _note(error, graph, program.failed, graph.nodes[program.failed])
        raise
    outputs = [
        next(results)
        if isinstance(output, Value)
        else output.evaluate(symbols)
        if isinstance(output, Size)
        else output
        for output in graph.outputs
    ]
    return outputs, list(results)
