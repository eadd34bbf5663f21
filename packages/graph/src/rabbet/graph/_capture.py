"""Captures programs as graphs."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import rabbet

from .. import _C
from .._C import Tensor
from .._pytree import tree_flatten, tree_unflatten
from ..utils._pytree import keystr, tree_flatten_with_path
from ._fit import OTHERS, other_sizes
from ._generalize import generalize, shapes_of, structure
from ._graph import Graph
from ._host_state import changed, host_state
from ._ir import Gradient, Node, Value
from ._recorder import (
    Recorder,
    State,
    Watched,
    active,
    grad_of,
    layers_off,
    refuse_composites,
    state_of,
)
from ._sizes import Constraint, Dim, Number, Size, Symbol, symbol
from ._symbols import (
    CaptureError,
    SizeMode,
    SymbolicNumber,
    SymbolicShape,
    UnknownSize,
    expressions_of,
)
from ._text import is_plain

# ---- arguments


def _labels(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """A name for each leaf of the arguments, "x" or "batch['ids']"."""
    names = _positional_names(fn, len(args))
    labels = []
    for path, _ in tree_flatten_with_path((args, kwargs))[0]:
        first = path[1]
        head = names[first.idx] if path[0].idx == 0 else str(first.key)
        labels.append(head + keystr(path[2:]))
    return labels


def _positional_names(fn: Callable[..., Any], count: int) -> list[str]:
    names: list[str] = []
    with contextlib.suppress(TypeError, ValueError):
        target = fn.forward if hasattr(fn, "forward") and hasattr(fn, "parameters") else fn
        for p in inspect.signature(target).parameters.values():
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                names.append(p.name)
            elif p.kind is p.VAR_POSITIONAL:
                names += [f"{p.name}_{i}" for i in range(count - len(names))]
    return names + [f"arg_{i}" for i in range(len(names), count)]


def _dynamic_dims(
    fn: Callable[..., Any], dynamic: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[int, dict[int, Any]]:
    """The entries of `dynamic` by leaf of the arguments, then by dimension."""
    leaves = tree_flatten((args, kwargs))[0]
    if dynamic is True:
        dynamic = tree_unflatten(
            [
                dict.fromkeys((d for d in range(t.ndim) if t.shape[d] > 1), True)
                if isinstance(t, Tensor)
                else None
                for t in leaves
            ],
            tree_flatten((args, kwargs))[1],
        )
        given_args, given_kwargs = dynamic
    elif isinstance(dynamic, Mapping):
        names = _positional_names(fn, len(args))[: len(args)]
        unknown = set(dynamic) - set(names) - set(kwargs)
        if unknown:
            raise ValueError(
                f"capture: dynamic names {', '.join(map(repr, sorted(unknown)))}, but the arguments are "
                f"{', '.join([*names, *kwargs])}"
            )
        given_args = tuple(dynamic.get(name) for name in names[: len(args)])
        given_kwargs = {name: dynamic.get(name) for name in kwargs}
    elif isinstance(dynamic, (list, tuple)):
        if len(dynamic) > len(args):
            raise ValueError(
                f"capture: dynamic has {len(dynamic)} entries for {len(args)} arguments"
            )
        given_args = (*dynamic, *(None,) * (len(args) - len(dynamic)))
        given_kwargs = dict.fromkeys(kwargs)
    else:
        raise TypeError(
            f"capture: dynamic must be True, a dict or a sequence, got {type(dynamic).__name__}"
        )
    found: list[Any] = []
    for arg, spec in [
        *zip(args, given_args, strict=True),
        *((kwargs[name], given_kwargs[name]) for name in kwargs),
    ]:
        _match(arg, spec, found)
    return {
        i: _dims_of(leaves[i], spec) for i, spec in enumerate(found) if spec not in (None, {}, ())
    }


def _match(arg: Any, spec: Any, found: list[Any]) -> None:
    """Append the entry of `spec` for each leaf of an argument."""
    leaves = tree_flatten(arg)[0]
    if isinstance(arg, Tensor) or spec is None:
        found += [spec] * len(leaves)
    elif isinstance(arg, Mapping) and isinstance(spec, Mapping):
        for key, item in arg.items():
            _match(item, spec.get(key), found)
    elif (
        isinstance(arg, (list, tuple)) and isinstance(spec, (list, tuple)) and len(arg) == len(spec)
    ):
        for item, of_item in zip(arg, spec, strict=True):
            _match(item, of_item, found)
    else:
        raise TypeError(
            f"capture: dynamic says {spec!r} of an argument of type {type(arg).__name__}"
        )


def _dims_of(tensor: Any, spec: Any) -> dict[int, Any]:
    if isinstance(spec, (list, tuple)):
        spec = dict(enumerate(spec))
    if not isinstance(tensor, Tensor) or not isinstance(spec, Mapping):
        raise TypeError(
            f"capture: expected a dict from dimensions to Dim for a Tensor, got {spec!r} for {type(tensor).__name__}"
        )
    dims = {}
    for d, dim in spec.items():
        if not isinstance(d, int) or not -tensor.ndim <= d < tensor.ndim:
            raise ValueError(
                f"capture: dynamic names dimension {d!r} of a tensor of {tensor.ndim} dimensions"
            )
        if dim is None or dim is False:
            continue
        if not (dim is True or isinstance(dim, (str, Dim))):
            raise TypeError(
                f"capture: expected a Dim, a name or True for dimension {d}, got {dim!r}"
            )
        dims[d % tensor.ndim] = dim
    return dims


# ---- symbols


class _Symbols:
    """The symbols of a capture, each with its leaf and dimension."""

    def __init__(
        self, dims: dict[int, dict[int, Any]], leaves: Sequence[Any], labels: list[str]
    ) -> None:
        self.all: dict[str, Symbol] = {}
        self.at: dict[tuple[int, int], str] = {}
        self.automatic: set[str] = set()
        self.merged: dict[tuple[int, int], str | None] = {}  # places whose symbol is another's now
        named: dict[Any, str] = {}
        for i, of_leaf in dims.items():
            for d, dim in sorted(of_leaf.items()):
                size = int(leaves[i].shape[d])
                self._add(i, d, dim, size, f"{labels[i]}, dimension {d}", named)

    def _add(self, i: int, d: int, dim: Any, size: int, where: str, named: dict[Any, str]) -> None:
        key = dim.__name__ if isinstance(dim, Dim) else dim
        name = named.get(key) if dim is not True else None
        if name is None:
            name = key if isinstance(key, str) and key.isidentifier() else f"s{len(self.all)}"
            if name in self.all:
                name = f"{name}_{len(self.all)}"
            low, high = (dim.min, dim.max) if isinstance(dim, Dim) else (2, None)
            if size < max(low, 2) or (high is not None and size > high):
                raise ValueError(
                    f"capture: {where}: the size {size} is not in [{max(low, 2)}, {'inf' if high is None else high}]; a "
                    "dynamic size must be at least 2 at the capture, since sizes 0 and 1 broadcast"
                )
            self.all[name] = Symbol(name, size, low, high)
            if dim is True:
                self.automatic.add(name)
            else:
                named[key] = name
        elif self.all[name].hint != size:
            raise ValueError(
                f"capture: {where}: '{name}' has the size {self.all[name].hint} elsewhere, got {size}"
            )
        self.at[i, d] = name

    def merge_equal(self, source: str | None) -> bool:
        """Unify automatic symbols of equal size; returns whether there were any."""
        by_size: dict[int, str] = {}
        changed = False
        for name in list(self.all):
            first = by_size.setdefault(self.all[name].hint, name)
            if first == name or name not in self.automatic:
                continue
            for place, n in self.at.items():
                if n == name:
                    self.at[place] = first
                    self.merged[place] = source
            del self.all[name]
            changed = True
        return changed

    def equalities(self, values: Mapping[int, Value]) -> list[Constraint]:
        """The sizes that the program requires to be equal although the caller did not declare them so."""
        return [
            Constraint(Size("dim", values[i], d), "==", symbol(self.at[i, d]), source)
            for (i, d), source in self.merged.items()
        ]


def _resized(leaves: Sequence[Any], symbols: _Symbols, sizes: Mapping[str, int]) -> list[Any]:
    """Copies of the arguments in which dynamic dimensions have other sizes; elements repeat."""
    made: dict[int, Any] = {}

    def resized(i: int, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) in made:
            return made[id(leaf)]
        with layers_off():
            tensor = leaf.detach()
            for d in range(leaf.ndim):
                name = symbols.at.get((i, d))
                if name is not None and sizes[name] != leaf.shape[d]:
                    at = rabbet.arange(sizes[name], device=leaf.device) % leaf.shape[d]
                    tensor = tensor.index_select(d, at)
            copy = tensor.clone()
        copy.requires_grad = leaf.requires_grad
        made[id(leaf)] = copy
        return copy

    return [resized(i, leaf) for i, leaf in enumerate(leaves)]


# ---- the capture


class _Program:
    """The subject of a capture: a function, its arguments, and the state that it may use."""

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], state: Any
    ) -> None:
        self.fn = fn
        self.leaves, self.spec = tree_flatten((args, kwargs))
        self.labels = _labels(fn, args, kwargs)
        owners: list[Any] = (
            [fn.__self__] if inspect.ismethod(fn) and _is_module(fn.__self__) else []
        )
        owners += [fn] if _is_module(fn) else []
        self.own = state_of(owners)  # of the module: inputs, used or not, as in its state dict
        self.training = owners[0].training if owners else None
        self.owners = [*owners, *(state if isinstance(state, (list, tuple)) else [state])]
        self.state = state_of(self.owners)
        self.name = getattr(fn, "__name__", type(fn).__name__)

    def run(
        self,
        leaves: Sequence[Any],
        *,
        undo: bool = False,
        sizes: Callable[[Recorder, Tensor], Any] | None = None,
        symbols: _Symbols | None = None,
        shapes: Mapping[str, Any] | None = None,
    ) -> tuple[Recorder, SizeMode]:
        """Run the program once and record it."""
        recorder = Recorder(self.name, self.state, undo=undo, shapes=shapes)
        graph = recorder.graph
        for i, (leaf, label) in enumerate(zip(leaves, self.labels, strict=True)):
            if not isinstance(leaf, Tensor):
                graph.static[i] = leaf
                continue
            refuse_composites(leaf)
            value = recorder.add_input(leaf, "input", label)
            if symbols is not None:
                _name_sizes(graph, value, i, symbols)
        for entry in self.own:
            if recorder.find(entry.tensor) is None:
                recorder.add_state(entry)
        graph.training = self.training
        args, kwargs = tree_unflatten(list(leaves), self.spec)
        mode = SizeMode(
            lambda tensor: (sizes or _sizes_of)(active()[-1], tensor),
            lambda tensor: active()[-1].fresh(tensor),
        )
        watched = _Watch(recorder, self.state, self.owners)
        try:
            with recorder.recording(), mode:
                result = self.fn(*args, **kwargs)
        finally:
            if undo:
                recorder.take_back()
        _finish(recorder, result, mode)
        watched.check(undo)
        return recorder, mode


def _is_module(value: Any) -> bool:
    return hasattr(value, "named_parameters") and hasattr(value, "forward")


def _name_sizes(graph: Graph, value: Value, i: int, symbols: _Symbols) -> None:
    sizes = list(value.shape)
    for d in range(value.ndim):
        name = symbols.at.get((i, d))
        if name is None:
            continue
        sizes[d] = symbol(name)
        known = symbols.all[name]
        if name not in graph.symbols:
            graph.symbols[name] = Symbol(name, known.hint, known.low, known.high, (value, d))
    value.shape = tuple(sizes)


def _sizes_of(recorder: Recorder, tensor: Tensor) -> Any:
    """Return None: without dynamic sizes, the program sees the shapes as they are."""
    value = recorder.find(tensor)
    why = None if value is None else recorder.unknown_sizes(value)
    if value is None or why is None:
        return None
    return SymbolicShape(
        UnknownSize(why) if size is None else n
        for size, n in zip(value.shape, value.hint or (), strict=True)
    )


class _Watch:
    """Finds effects of a program that no operator shows."""

    def __init__(self, recorder: Recorder, state: Sequence[State], owners: Sequence[Any]) -> None:
        self.recorder = recorder
        self.owners = owners
        self.host_state = host_state(owners)
        for entry in state:
            recorder.watch(entry.tensor, entry.label)
        self.seed = _C.default_generator("cpu").initial_seed()

    def check(self, undo: bool) -> None:
        graph = self.recorder.graph
        if _C.default_generator("cpu").initial_seed() != self.seed:
            raise CaptureError(
                f"{graph.name}: the program seeds the random number generator, which a graph would not repeat: seed before "
                "the call"
            )
        if where := changed(self.host_state, host_state(self.owners)):
            raise CaptureError(
                f"{graph.name}: the program changes {where}, which a graph would not repeat: keep numbers that change in "
                "tensors (optimizers do with capturable=True), and let an optimizer take a step before the capture"
            )
        for seen in self.recorder.watched.values():
            tensor = seen.tensor
            if tensor._storage_id() != seen.storage or tuple(tensor.shape) != seen.shape:
                raise CaptureError(
                    f"{graph.name}: the program gives '{seen.label}' other memory or another shape (set_, resize_ or .data=), "
                    "which a graph would not repeat"
                )
            now = grad_of(tensor)
            if now is not seen.grad:
                self._note_gradient(seen, now)
                if undo:
                    tensor.grad = seen.grad

    def _note_gradient(self, seen: Watched, now: Tensor | None) -> None:
        before = seen.grad
        if before is not None and self.recorder.find(before) is not None:
            raise CaptureError(
                f"{self.recorder.graph.name}: the program uses the gradient that '{seen.label}' had before and replaces it, "
                "which a graph would not repeat: set .grad to None before the capture"
            )
        value = None if now is None else self.recorder.value_of(now)
        gradient = Gradient(self.recorder.value_of(seen.tensor), value, before is not None)
        self.recorder.graph.gradients.append(gradient)


def _finish(recorder: Recorder, result: Any, mode: SizeMode) -> None:
    """Set the outputs of the graph."""
    graph = recorder.graph
    leaves, graph.out_spec = tree_flatten(result)
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            value = recorder.value_of(leaf)
            recorder.note_returned(leaf, value)
            graph.outputs.append(value)
        elif isinstance(leaf, SymbolicNumber):
            mode.crossed[leaf.expression] = None
            graph.outputs.append(leaf.expression)
        elif isinstance(leaf, UnknownSize):
            leaf._refuse()
        elif is_plain(leaf):
            graph.outputs.append(leaf)
        else:
            raise CaptureError(
                f"{graph.name}: the program returns an object of type {type(leaf).__name__}; a graph returns tensors, numbers, "
                "strings and None in lists, tuples and dicts"
            )


def capture(
    fn: Callable[..., Any], *args: Any, dynamic: Any = None, state: Any = (), **kwargs: Any
) -> Graph:
    """Run a program and record its operators as a graph.

    The operators run, and what they do to arguments, parameters and random numbers stays done. What the program reads
    of tensors (item(), bool(), NumPy) a graph cannot repeat: it is refused with operator and line.

    Args:
        fn: a function or module, called with `args` and `kwargs`. Tensors in containers are inputs of the graph; plain
            arguments become part of it.
        dynamic: the sizes that may differ from call to call: a dict from names of arguments (or a sequence) to
            `{dimension: Dim("n", min=2, max=64)}`; a name or True in place of a Dim takes every size from 2 on.
            True for all: every size of every argument. The program then runs at other sizes, too, on copies of its
            arguments; writes to its state are taken back.
        state: what the program writes besides its arguments: modules, optimizers, tensors. That of a module `fn` is
            known.

    Raises:
        CaptureError: if the program does what a graph cannot repeat.
    """
    return captured(fn, args, kwargs, dynamic, state)


def captured(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic: Any = None,
    state: Any = (),
    undo: bool = False,
) -> Graph:
    """`capture`; `undo` takes back what the program does to its arguments, its state and random numbers."""
    if not callable(fn):
        raise TypeError(f"capture: expected a function or module, got {type(fn).__name__}")
    if active():
        raise CaptureError("capture: a capture is in progress already")
    program = _Program(fn, args, kwargs, state)
    if dynamic is None or dynamic is False:
        recorder = _captured_once(program, undo)
    else:
        dims = _dynamic_dims(fn, dynamic, args, kwargs)
        symbols = _Symbols(dims, program.leaves, program.labels)
        recorder = _captured_dynamically(program, symbols, undo)
    graph = recorder.graph
    graph.in_spec = program.spec
    _drop_copies(graph, recorder.copies)
    _drop_unused_data(graph)
    return graph


def _drop_copies(graph: Graph, copies: Sequence[Node]) -> None:
    """Drop copies of values that nothing else uses."""
    values = Counter(value.buffer for value in graph.values())
    for node in copies:
        source = node.args[0]
        alone = values[source.buffer] == 1 and graph.users(source) == [node]
        if alone and not graph.is_returned(source):
            graph.replace(node, source)


def _drop_unused_data(graph: Graph) -> None:
    """Drop constants that nothing uses."""
    used = {value for node in graph.nodes for value in node.inputs()}
    graph.inputs = [
        value
        for value in graph.inputs
        if value.kind != "constant" or value in used or graph.is_returned(value)
    ]
    labels = {value.label for value in graph.inputs}
    graph.bound = {label: tensor for label, tensor in graph.bound.items() if label in labels}


# ---- dynamic sizes


def _captured_once(program: _Program, undo: bool) -> Recorder:
    with _keeping_random_state() if undo else contextlib.nullcontext():
        return program.run(program.leaves, undo=undo)[0]


def _captured_dynamically(program: _Program, symbols: _Symbols, undo: bool) -> Recorder:
    if not symbols.all:
        return _captured_once(program, undo)
    points, graphs, multiples = _captures(program, symbols)
    shapes = shapes_of(graphs, points, symbols.all, multiples)

    guards: list[Constraint] = []

    def sizes(recorder: Recorder, tensor: Tensor) -> Any:
        value = recorder.find(tensor)
        if value is None or (unknown := _sizes_of(recorder, tensor)) is not None:
            return None if value is None else unknown
        return SymbolicShape(
            n if size.op == "const" else SymbolicNumber(size, n, guards.append)
            for size, n in zip(expressions_of(value), tensor.shape, strict=True)
        )

    with _keeping_random_state() if undo else contextlib.nullcontext():
        recorder, mode = program.run(
            program.leaves, undo=undo, sizes=sizes, symbols=symbols, shapes=shapes
        )
    graph = recorder.graph
    inputs = iter(graph.user_inputs())
    values = {i: next(inputs) for i, leaf in enumerate(program.leaves) if isinstance(leaf, Tensor)}
    graph.constraints = _distinct([*symbols.equalities(values), *guards])
    _refuse_inner_sizes(graph)
    kept = [k for k, point in enumerate(points) if _holds(graph.constraints, point)]
    generalize(graph, [graphs[k] for k in kept], [points[k] for k in kept], list(mode.crossed))
    return recorder


def _refuse_inner_sizes(graph: Graph) -> None:
    """Refuse constraints on sizes that exist only inside a branch or a loop."""
    known = set(graph.values())
    for constraint in graph.constraints:
        for leaf in [*constraint.left.leaves(), *constraint.right.leaves()]:
            if leaf.op == "dim" and leaf.args[0] not in known:
                raise CaptureError(
                    f"{graph.name}: a branch or loop compares a size that it makes itself, at {constraint.source}: a graph "
                    "cannot check it"
                )


def _guards_of(program: _Program, symbols: _Symbols) -> list[Constraint]:
    """The comparisons of sizes that a program makes at the sizes of its arguments.

    Raises:
        CaptureError: if it needs a fixed number, with the line.
    """
    guards: list[Constraint] = []

    def sizes(recorder: Recorder, tensor: Tensor) -> Any:
        value = recorder.find(tensor)
        if value is None:
            return None
        return SymbolicShape(
            n if size.op == "const" else SymbolicNumber(size, n, guards.append)
            for size, n in zip(expressions_of(value), tensor.shape, strict=True)
        )

    base = {s.name: s.hint for s in symbols.all.values()}
    leaves = _resized(program.leaves, symbols, base)
    with _keeping_random_state():
        program.run(leaves, undo=True, sizes=sizes, symbols=symbols)
    return guards


def _points(
    symbols: _Symbols, multiples: bool, guards: Sequence[Constraint]
) -> list[dict[str, int]]:
    """Find other sizes at which all comparisons have the same results."""
    found: list[dict[str, int]] = []
    for start in range(40):
        for point in other_sizes(symbols.all, multiples, start):
            if point not in found and _holds(guards, point):
                found.append(point)
        if len(found) >= OTHERS:
            break
    return found[:OTHERS]


def _holds(constraints: Sequence[Constraint], point: Mapping[str, Number]) -> bool:
    """Whether the constraints on the inputs' sizes hold at a point."""
    for constraint in constraints:
        leaves = [*constraint.left.leaves(), *constraint.right.leaves()]
        if all(leaf.op == "symbol" for leaf in leaves) and not constraint.holds(point):
            return False
    return True


def _distinct(constraints: list[Constraint]) -> list[Constraint]:
    found: dict[str, Constraint] = {}
    for constraint in constraints:
        if constraint.left.op == constraint.right.op == "const":
            continue
        if constraint.left == constraint.right:
            continue
        found.setdefault(str(constraint), constraint)
    return list(found.values())


def _captures(
    program: _Program, symbols: _Symbols
) -> tuple[list[Mapping[str, Number]], list[Graph], bool]:
    """Graphs of the program at the sizes of its arguments and at other sizes, and whether those are multiples."""
    base = {s.name: s.hint for s in symbols.all.values()}
    first = _capture_at(program, symbols, base)
    errors: list[tuple[Exception, Mapping[str, int]]] = []
    guards: list[Constraint] = []
    while True:
        for multiples in (False, True):
            others = _points(symbols, multiples, guards)
            try:
                graphs = [_capture_at(program, symbols, point) for point in others]
            except CaptureError:
                raise
            except Exception as error:
                errors.append((error, others[0] if others else {}))
                continue
            if any(structure(graph) != structure(first) for graph in graphs) and not guards:
                guards = _guards_of(program, symbols)
                if guards:
                    break  # again, at sizes for which the program takes the same path
            base = {s.name: s.hint for s in symbols.all.values()}
            return [base, *others], [first, *graphs], multiples
        else:
            if not symbols.merge_equal(_line_of(errors[0][0])):
                break
    first_error, point = errors[0]
    sizes = ", ".join(f"{name} = {n}" for name, n in point.items())
    hint = "; sizes that must be equal need the same Dim" if len(symbols.at) > 1 else ""
    raise CaptureError(
        f"{program.name}: the program does not accept other sizes than those of its arguments ({sizes}): at "
        f"{_line_of(first_error)}: {first_error}{hint}"
    ) from first_error


def _line_of(error: BaseException) -> str:
    """The line of the program at which an exception was raised."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        name = frame.f_globals.get("__name__", "")
        if name != "rabbet" and not name.startswith("rabbet."):
            return f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
    return "an unknown line"


def _capture_at(program: _Program, symbols: _Symbols, sizes: Mapping[str, int]) -> Graph:
    """The graph of a run at other sizes, whose effects are taken back."""
    with _keeping_random_state():
        leaves = _resized(program.leaves, symbols, sizes)
        return program.run(leaves, undo=True)[0].graph


@contextlib.contextmanager
def _keeping_random_state() -> Iterator[None]:
    generator = _C.default_generator("cpu")
    state = generator.get_state()
    try:
        yield
    finally:
        generator.set_state(state)
