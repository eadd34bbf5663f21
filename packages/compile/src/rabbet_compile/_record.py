"""Records one call of a function: its operators as a graph, and what it read as guards."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import rabbet
import rabbet.graph
from rabbet import _C, Tensor, _dispatch, _torch_dispatch
from rabbet.graph import CaptureError, Node, Object
from rabbet.graph._capture import _drop_copies
from rabbet.graph._ir import Gradient, Value
from rabbet.graph._meta import as_results
from rabbet.graph._program import _has_history, _layer, _Lowering
from rabbet.graph._recorder import (
    Recorder,
    _grad_mode,
    _has_memory,
    grad_of,
    is_grad_enabled,
    key_of,
    layers_off,
    refuse_composites,
)
from rabbet.graph._records import record as record_of
from rabbet.utils import _python_dispatch

from . import _replay
from ._frames import Refused, do_not_watch
from ._guards import MISSING, Guard, Kind
from ._instructions import HANDLERS
from ._known import ATOMS, IMMUTABLE
from ._numbers import is_number
from ._settings import settings
from ._watch import Watch

__all__ = ["Recording", "record"]

do_not_watch(
    os.path.dirname(rabbet.graph.__file__) + os.sep,
    _torch_dispatch.__file__,  # it hands calls to the recorder
    _python_dispatch.__file__,
)

# Kinds of trees, as in csrc/replay/variant.h.
TENSOR, OBJECT, LIST, TUPLE, DICT, ARGUMENT, NUMBER = range(7)

MOST_SAVED = 1 << 18  # elements that a replay copies, so that errors find memory as it was


class NotReplayable(Exception):
    """Raised, with a reason, for a call that cannot be repeated without its Python code."""


class _Noting(Recorder):
    """Records operators, and lets the program go on where one cannot be recorded."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.reason: str | None = None
        self.seen: Any = None
        self.numbers: dict[Node, list[tuple[int, int]]] = {}
        self.inputs: dict[Value, Tensor] = {}
        self._offered: dict[int, list[Tensor]] = {}

    def fail(self, reason: str) -> None:
        """Note why the call cannot be recorded."""
        if self.reason is None:
            self.reason = reason

    def add_input(self, tensor: Tensor, kind: str, label: str | None) -> Value:
        value = super().add_input(tensor, kind, label)
        self.inputs[value] = tensor  # operators may return it as their result
        return value

    def offer(self, tensor: Tensor) -> None:
        """A tensor from outside that the program may use."""
        if self.reason is None and _has_memory(tensor):
            self._offered.setdefault(tensor._storage_id(), []).append(tensor)

    def value_of(self, tensor: Tensor) -> Value:
        refuse_composites(tensor)
        value = self.find(tensor)
        if value is not None:
            return value
        storage, key = tensor._storage_id(), key_of(tensor)
        offered = self._offered.get(storage, [])
        known = next((t for t in offered if key_of(t) == key), None)
        if known is None and storage not in self._storages and offered:
            known = offered[0]
        if known is not None:
            self.add_input(known, "buffer", f"state_{len(self.graph.inputs)}")
            return self.find(tensor) or self._view(tensor)
        if storage in self._storages:
            return self._view(tensor)
        raise CaptureError(
            "it uses a tensor that no guard can look at, such as a gradient that was there before"
        )

    def is_made(self, tensor: Tensor) -> bool:
        """Whether an operator of the call has made a tensor."""
        value = self.find(tensor)
        return value is not None and value.node is not None

    def made_of_data(self, tensor: Tensor) -> None:
        """A tensor that was made of Python's data: each run makes a new one."""
        if self.reason is not None or not isinstance(tensor, Tensor):
            return
        if tensor.requires_grad:
            return self.fail("it makes a tensor that requires grad")
        with layers_off():
            data = tensor.detach().clone()
        given = self.add_input(data, "constant", f"data_{len(self.graph.inputs)}")
        node = Node("clone", (given,), grad=False)
        node.results = [self._result(node, tensor)]
        self.graph.nodes.append(node)
        return None

    def __record_dispatch__(
        self, name: str, args: tuple[Any, ...], outs: tuple[Any, ...] | None
    ) -> tuple[Any, ...]:
        self.seen.pause()
        try:
            return super().__record_dispatch__(name, args, outs)
        finally:
            self.seen.resume()

    def _record(
        self, name: str, args: tuple[Any, ...], outs: tuple[Any, ...] | None
    ) -> tuple[Any, ...]:
        info, source = record_of(name), _C.source()
        node = None if self.reason else self._node(name, info, args, outs, source)
        try:
            returned = _C.call_record(name, args, outs)
        except BaseException:
            self.fail(f"{name} raised an error")
            raise
        results = () if outs is not None else as_results(info, returned)
        if node is not None and self.reason is None:
            self.graph.nodes.append(node)
            with self._noting(name, source):
                if outs is not None:
                    self._check_written(node, outs)
                else:
                    self._know_results(node, args, results)
        return tuple(tuple(r) if isinstance(r, list) else r for r in results)

    def _node(
        self,
        name: str,
        info: Any,
        args: tuple[Any, ...],
        outs: tuple[Any, ...] | None,
        source: str | None,
    ) -> Node | None:
        with self._noting(name, source):
            node = Node(
                name,
                [self.argument(name, arg) for arg in args],
                outs=[self.value_of(out) for out in outs or ()],
                grad=_grad_mode(),
                source=source,
            )
            if info.has_data_shape:
                raise CaptureError(f"the shape of the result of {name} depends on values")
            self.check_writes(node)
            self._follow_gradients(node, args)
            self._take_numbers(node)
            return node
        return None

    def _take_numbers(self, node: Node) -> None:
        """Mark the arguments that are numbers which change from call to call."""
        if self.seen.uses is None:
            return
        (name, places), self.seen.uses = self.seen.uses, None
        if node.op != name:
            raise CaptureError(
                f"a number that changes is given to {name}, which calls other operators"
            )
        found = {}
        for at, number in places.items():
            if at < 0:  # one of the two operands
                at = 1 if is_number(node.args[1]) else 0
            if not is_number(node.args[at]) or node.args[at] != number:
                raise CaptureError(
                    "a number that changes is given to an operator that takes it in another way"
                )
            found[at] = self.seen.numbers.give(number)
        self.numbers[node] = list(found.items())

    @contextlib.contextmanager
    def _noting(self, name: str, source: str | None) -> Any:
        try:
            yield
        except CaptureError as error:
            self.fail(f"{name} at {source}: {error}")

    def __read_dispatch__(self, tensor: Tensor, what: str) -> None:
        if what != "a formula's number":
            self.seen.refuse_at(f"{what} reads the values of a tensor")
            self.fail("it reads the values of a tensor")


# ---- arguments


class _Arguments:
    """The structure of a call's arguments: tensors in order, and everything else."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.tensors: list[Tensor] = []
        self.containers: list[Any] = [args, kwargs]
        self.objects: list[Any] = []
        self.tree = (TUPLE, [self._tree(args), self._tree(kwargs)])

    def _tree(self, item: Any) -> tuple[Any, ...]:
        kind = type(item)
        if isinstance(item, Tensor):
            self.tensors.append(item)
            return TENSOR, len(self.tensors) - 1
        if kind in (list, tuple):
            self.containers.append(item)
            return (LIST if kind is list else TUPLE), [self._tree(part) for part in item]
        if kind is dict:
            self.containers.append(item)
            return DICT, [self._tree(part) for part in item.values()], tuple(item)
        self.objects.append(item)
        return OBJECT, item


# ---- the recording


class Recording(NamedTuple):
    """What a recorded call gave.

    Attributes:
        result: what the function returned.
        spec: the description of a variant, for `_replay.Variants.add`; None if the call cannot be replayed.
        reason: why it cannot be; None if it can.
        guards: what was read.
        operators: the number of operators that were called.
        varying: places of numbers that the call has changed.
    """

    result: Any
    spec: tuple[Any, ...] | None
    reason: str | None
    guards: list[Guard]
    operators: int
    varying: dict[Any, Any]


def record(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    varying: Mapping[Any, Any] = MappingProxyType({}),
) -> Recording:
    """Call `fn` once and record it. Effects, results and errors are those of an ordinary call.

    Args:
        varying: places of numbers that differ from call to call; their dicts by place.
    """
    recorder = _Noting(getattr(fn, "__name__", type(fn).__name__))
    watch = Watch(recorder.offer, HANDLERS, varying)
    watch.on_data, watch.is_made = recorder.made_of_data, recorder.is_made
    watch.on_gradient = lambda tensor: recorder.watch(tensor, "")
    recorder.seen = watch
    arguments = _Arguments(args, kwargs)
    try:
        context = _context()
        _take_arguments(recorder, watch, arguments)
        for item in (fn, getattr(fn, "__func__", None), getattr(fn, "__self__", None)):
            watch.know(item)
        watch.type_of(fn)
    except (NotReplayable, CaptureError, Refused) as error:
        return Recording(fn(*args, **kwargs), None, str(error), [], 0, {})
    seed = _C.default_generator("cpu").initial_seed()
    with recorder.recording():
        watch.start()
        try:
            result = fn(*args, **kwargs)
        finally:
            watch.stop()
    reason = watch.refused or recorder.reason
    if reason is None and _C.default_generator("cpu").initial_seed() != seed:
        reason = "it seeds the random number generator"
    if reason is None and _has_changed(context):
        reason = "it leaves a mode of the thread changed"
    guards = [*context, *watch.guards.values()]
    count = len(recorder.graph.nodes)
    if reason is not None:
        return Recording(result, None, reason, guards, count, {})
    try:
        spec = _Finished(recorder, watch, arguments).spec(result, guards)
    except (NotReplayable, CaptureError, Refused) as error:
        return Recording(result, None, str(error), guards, count, {})
    except Exception as error:  # the call has been made: it must not fail now
        return Recording(result, None, f"an error in rabbet_compile: {error!r}", guards, count, {})
    return Recording(result, spec, None, guards, count, _changed_numbers(watch))


def _changed_numbers(watch: Any) -> dict[Any, Any]:
    """The places of numbers that a call has read and changed, which the next call would find changed."""
    return {
        place: held
        for place, (held, _, before, now) in watch.writes.items()
        if place in watch.guards
        and is_number(before)
        and type(now) is type(before)
        and before != now
    }


def _context() -> list[Guard]:
    """Guards of what operators and library code look at in the thread and in the process."""
    if _C.transform_depth():
        raise NotReplayable("it is called inside of a function transform")
    if _C.function_modes() or _dispatch.modes():
        raise NotReplayable("it is called in a mode of __torch_function__ or __torch_dispatch__")
    asked: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (_C.get_default_dtype, ()),
        (_C.chosen_device, ()),
        (_C.overrides_disabled, ()),
    ]
    if "rabbet.autograd" in sys.modules:
        autograd = sys.modules["rabbet.autograd"]._C
        if not _replay.has_tables():
            raise NotReplayable("rabbet-autograd or rabbet-graph is too old")
        if autograd.saved_hooks() is not None:
            raise NotReplayable("it is called under hooks of saved tensors")
        asked += [
            (autograd.is_grad_enabled, ()),
            (autograd.is_inference_mode, ()),
            (autograd.saved_hooks, ()),
        ]
    if "rabbet.amp" in sys.modules:
        asked += [(rabbet.is_autocast_enabled, ("cpu",)), (rabbet.get_autocast_dtype, ("cpu",))]
    guards: list[Guard] = [(Kind.THREAD,), (Kind.CALL, _C.function_modes, (), ())]
    return guards + [(Kind.CALL, ask, given, ask(*given)) for ask, given in asked]


def _has_changed(context: list[Guard]) -> bool:
    """Whether the call has left a mode of the thread or the process changed."""
    return any(not _replay.same(ask(*given), value) for _, ask, given, value in context[2:])


def _take_arguments(recorder: _Noting, watch: Any, arguments: _Arguments) -> None:
    for item in (*arguments.containers, *arguments.tensors):
        watch.argument(item)
    for item in arguments.objects:
        watch.know(item)
    storages: dict[int, Tensor] = {}
    for i, tensor in enumerate(arguments.tensors):
        refuse_composites(tensor)
        if getattr(tensor, "__dict__", None):
            raise NotReplayable("an argument is a tensor with attributes of its own")
        if tensor.device.type == "meta":
            raise NotReplayable("an argument has no memory")
        if storages.setdefault(tensor._storage_id(), tensor) is not tensor and tensor.numel():
            raise NotReplayable("two arguments share memory")
        if not any(tensor is known for known in arguments.tensors[:i]):
            recorder.add_input(tensor, "input", f"argument_{i}")


class _Finished:
    """Makes a variant of what was recorded."""

    def __init__(self, recorder: _Noting, watch: Any, arguments: _Arguments) -> None:
        self.recorder, self.watch, self.arguments = recorder, watch, arguments
        self.graph = recorder.graph
        self.outputs: dict[int, tuple[Tensor, int]] = {}  # by the id of the tensor
        self.values: list[Value] = []
        self.containers: set[int] = {id(item) for item in arguments.containers}

    def spec(self, result: Any, guards: list[Guard]) -> tuple[Any, ...]:
        """The description of the variant; adds guards that follow from its effects.

        Raises:
            NotReplayable: if it has an effect or a result that cannot be repeated.
        """
        outputs = self.tree(result)
        effects = [effect for write in self.watch.writes.items() if (effect := self.effect(*write))]
        gradients = self.gradients(guards)
        graph = self.graph
        graph.outputs = list(self.values)
        _drop_copies(graph, self.recorder.copies)
        with_grad = self.with_grad()
        program = _Replayed(graph, with_grad, self.recorder.numbers).program_of(graph.outputs)
        tensors = self.arguments.tensors
        inputs = [self.tensor_of(value) for value in graph.inputs]
        written = {value.buffer for node in graph.nodes for value in node.writes()}
        writes_inputs = any(value.buffer in written for value in graph.inputs)
        repeatable, saved = self.repeatable()
        if len({value.buffer for value in graph.inputs}) < len(graph.inputs) and writes_inputs:
            raise NotReplayable("it writes to tensors, of which some share memory")
        same_as = [next(j for j, u in enumerate(tensors) if u is t) for t in tensors]
        return (
            self.arguments.tree,
            guards,
            tensors,
            same_as,
            inputs[len(set(same_as)) :],
            program,
            outputs,
            effects,
            gradients,
            len(graph.outputs),
            repeatable,
            self.has_large_values(),
            writes_inputs,
            self.generator(),
            list(self.watch.tensors.values()),
            self.watch.numbers.steps,
            self.watch.numbers.given,
            saved,
        )

    def tensor_of(self, value: Value) -> Tensor:
        """The tensor of an input."""
        return self.recorder.inputs[value]

    # ---- results

    def tree(self, item: Any) -> tuple[Any, ...]:
        """The structure of a result."""
        kind = type(item)
        if item in self.watch.numbers:
            return NUMBER, self.watch.numbers.at(item)
        if isinstance(item, Tensor):
            return self.output(item)
        if kind in IMMUTABLE:
            return OBJECT, item
        if id(item) in self.containers:
            raise NotReplayable(
                "it returns or keeps a container that is among its arguments, or twice"
            )
        if self.watch.is_known(item):
            return OBJECT, item
        if kind in (list, tuple):
            self.containers.add(id(item))
            return (LIST if kind is list else TUPLE), [self.tree(part) for part in item]
        if kind is dict:
            self.containers.add(id(item))
            if not all(type(key) in ATOMS for key in item):
                raise NotReplayable(
                    "it returns a dict with keys that are neither numbers nor strings"
                )
            return DICT, [self.tree(part) for part in item.values()], tuple(item)
        raise NotReplayable(f"it returns or keeps a new {kind.__name__}")

    def output(self, tensor: Tensor) -> tuple[Any, ...]:
        """A tensor among the results."""
        for i, argument in enumerate(self.arguments.tensors):
            if argument is tensor:
                return ARGUMENT, i
        if id(tensor) in self.watch.tensors:
            return OBJECT, tensor
        if type(tensor) is not Tensor or getattr(tensor, "__dict__", None):
            raise NotReplayable(f"it returns or keeps a new {type(tensor).__name__}")
        if id(tensor) not in self.outputs:
            value = self.recorder.value_of(tensor)
            self.recorder.note_returned(tensor, value)
            if value in self.values or value.node is None:
                raise NotReplayable(
                    "two of its results are the same memory, or that of an argument"
                )
            self.outputs[id(tensor)] = tensor, len(self.values)
            self.values.append(value)
        return TENSOR, self.outputs[id(tensor)][1]

    # ---- effects

    def effect(self, place: Any, write: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """A write to a dict that was there before the call; None: it changed nothing."""
        if place[0] == "grad":
            return None
        held, key, before, now = write
        if before is MISSING and now is MISSING:
            return None
        if place in self.watch.guards and (
            before is now or (type(before) in ATOMS and _replay.same(before, now))
        ):
            return None
        return held, key, (MISSING if now is MISSING else self.tree(now))

    def gradients(self, guards: list[Guard]) -> list[tuple[int, int]]:
        """The gradients that the call sets: (position of the input, output or -1)."""
        found: list[tuple[int, int]] = []
        for seen in list(self.recorder.watched.values()):
            tensor, now = seen.tensor, grad_of(seen.tensor)
            if tensor._storage_id() != seen.storage or tuple(tensor.shape) != seen.shape:
                raise NotReplayable("it gives a tensor other memory or another shape")
            sets = ("grad", id(tensor)) in self.watch.writes
            if now is seen.grad and not (sets and now is None):
                continue
            if any(tensor is argument for argument in self.arguments.tensors):
                raise NotReplayable("it sets the gradient of an argument")
            if not sets:
                if seen.grad is not None:
                    raise NotReplayable("it adds to a gradient that was there before")
                guards.append((Kind.GRAD, tensor, False))
            found.append((self.position(tensor), self.gradient(tensor, now)))
        return found

    def gradient(self, tensor: Tensor, now: Tensor | None) -> int:
        """The output that becomes a gradient; -1: none."""
        if now is None:
            self.graph.gradients.append(Gradient(self.recorder.value_of(tensor), None, True))
            return -1
        if now.requires_grad:
            raise NotReplayable("it makes a gradient that requires grad")
        kind, at, *_ = self.output(now)
        if kind != TENSOR:
            raise NotReplayable("it makes an older tensor a gradient")
        self.graph.gradients.append(Gradient(self.recorder.value_of(tensor), self.values[at], True))
        return int(at)

    def position(self, tensor: Tensor) -> int:
        """The place of a state tensor behind the arguments."""
        value = self.recorder.value_of(tensor)
        states = [v for v in self.graph.inputs if v.kind != "input"]
        return len(self.arguments.tensors) + states.index(value)

    # ---- the program

    def with_grad(self) -> bool:
        """Whether autograd has to record the run.

        Raises:
            NotReplayable: if a graph cannot say how gradients flow.
        """
        graph = self.graph
        wants = is_grad_enabled() and any(self.tensor_of(v).requires_grad for v in graph.inputs)
        if self.watch.backward and any(
            t.requires_grad and not t.is_leaf for t in map(self.tensor_of, graph.inputs)
        ):
            raise NotReplayable("it runs backward through calls that were made before")
        if self.watch.backward and any(_replay.has_hooks(self.tensor_of(v)) for v in graph.inputs):
            raise NotReplayable("it runs backward through a tensor with hooks")
        if not wants or not _has_history(graph):
            return False
        if graph.opaque is not None:
            raise NotReplayable(f"gradients flow through the autograd.Function at {graph.opaque}")
        return True

    def repeatable(self) -> tuple[int, list[int]]:
        """The step before which an error lets the function be run once more, and the inputs to be put back for that.

        Raises:
            NotReplayable: if an operator that looks at values comes behind a write that cannot be taken back.
        """
        nodes = self.graph.nodes
        first = len(nodes)  # the first write
        last: int | None = None  # the last operator that looks at values behind one
        written: dict[Any, None] = {}
        early: dict[Any, None] = {}  # what is written before that
        drawn = False  # numbers of a generator that the program names
        for i, node in enumerate(nodes):
            if (written or drawn) and _C.op_info(node.op)["checks_data"]:
                last, early = i, dict(written)
                if drawn:
                    raise NotReplayable(
                        f"{node.op}, which may raise an error, comes behind random numbers of a generator"
                    )
            found = [value.buffer for value in node.writes() if value.buffer.kind != "made"]
            written.update(dict.fromkeys(found))
            drawn = drawn or any(isinstance(arg, Object) for arg in node.args)
            if (found or drawn) and first == len(nodes):
                first = i
        if last is None:
            return first, []
        places = [i for i, value in enumerate(self.graph.inputs) if value.buffer in early]
        sizes = [self.graph.inputs[i].hint for i in places]
        small = sum(rabbet.Size(size or ()).numel() for size in sizes) <= MOST_SAVED
        dense = all(self.graph.inputs[i].strides is None for i in places)
        on_cpu = all(self.graph.inputs[i].device.type == "cpu" for i in places)
        if not (small and dense and on_cpu):
            raise NotReplayable(
                f"{nodes[last].op}, which may raise an error, comes behind a write to memory from outside"
            )
        return last + 1, places

    def generator(self) -> Any:
        """The generator whose state is kept where an operator may raise an error behind random ones."""
        drawn = False
        for node in self.graph.nodes:
            if drawn and _C.op_info(node.op)["checks_data"]:
                return _C.default_generator("cpu")
            drawn = drawn or node.is_random
        return None

    def has_large_values(self) -> bool:
        """Whether there is something to fuse."""
        least = settings()["least_bytes"]
        return any(
            rabbet.Size(value.hint or ()).numel() * value.dtype.itemsize >= least
            for node in self.graph.nodes
            for value in node.values()
        )


class _Replayed(_Lowering):
    """Lowers a recorded call: its autocast and its backward passes are part of the graph."""

    def __init__(
        self, graph: Any, with_grad: bool, numbers: Mapping[Node, list[tuple[int, int]]]
    ) -> None:
        super().__init__(graph, {}, True)
        self.of_nodes = numbers
        self.always = _layer("autocast") | (0 if with_grad else self.autograd)

    def excluded(self, node: Node) -> int:
        return super().excluded(node) | self.always

    def numbers(self, node: Node) -> list[tuple[int, int]]:
        return self.of_nodes.get(node, [])

    def program_of(self, outputs: Sequence[Value]) -> Any:
        """The program."""
        self.graph.gradients, kept = [], self.graph.gradients
        try:
            return self.program()
        finally:
            self.graph.gradients = kept
