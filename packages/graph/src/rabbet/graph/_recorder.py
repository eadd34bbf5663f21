"""Runs operators and records them: the mode of `__torch_dispatch__` behind `capture`."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import rabbet

from .. import _C, _dispatch
from .._C import Tensor
from ..utils._python_dispatch import TorchDispatchMode
from ._graph import Graph
from ._ir import Buffer, Node, Object, Value
from ._meta import Unknown, as_results, infer, meta_tensor
from ._records import Record, record
from ._symbols import CaptureError, source_line
from ._text import is_plain

Key = tuple[Any, ...]

_here = threading.local()


def active() -> list[Recorder]:
    """The recorders of this thread's captures, the innermost one last."""
    if not hasattr(_here, "recorders"):
        _here.recorders = []
    found: list[Recorder] = _here.recorders
    return found


def key_of(tensor: Tensor) -> Key:
    """The identity of a tensor: its place in memory and its layout."""
    return (
        tensor._storage_id(),
        tensor.storage_offset(),
        tensor.dtype,
        tuple(tensor.shape),
        tuple(tensor.stride()),
    )


class Known(NamedTuple):
    """A tensor that has a value in the graph. It is kept alive so that its memory is not reused."""

    tensor: Tensor
    value: Value
    key: Key


class Watched(NamedTuple):
    """The state of an external tensor when the program first used it."""

    tensor: Tensor
    label: str
    storage: int
    shape: tuple[int, ...]
    grad: Tensor | None


def grad_of(tensor: Tensor) -> Tensor | None:
    """The gradient of a leaf."""
    return tensor.grad if tensor.requires_grad and tensor.is_leaf else None


class State(NamedTuple):
    """A tensor that the program may read and write although it is not an argument."""

    kind: str
    label: str
    tensor: Tensor
    transient: bool = False


class Recorder(TorchDispatchMode):
    """Records the calls inside a `with` block in a graph.

    Args:
        name: the graph's name.
        state: parameters, buffers and other tensors that are inputs by name as soon as the program uses them.
        undo: whether writes to memory from outside are taken back by `take_back`.
        outer: the recorder of the graph around this one: its values become inputs where the program uses them.
        shapes: the shapes of values by name, where they are known from other captures.
    """

    def __init__(
        self,
        name: str,
        state: Iterable[State] = (),
        *,
        undo: bool = False,
        outer: Recorder | None = None,
        shapes: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.graph = Graph(name)
        self.copies: list[Node] = []
        self.outer = outer
        self._shapes = shapes or {}
        self.outer_values: list[tuple[Value, Value]] = []  # (of the outer graph, the input here)
        self._state = {
            entry.tensor._storage_id(): entry for entry in state if _has_memory(entry.tensor)
        }
        self.watched: dict[int, Watched] = {}
        self._objects: dict[int, Known] = {}
        self._keys: dict[Key, Known] = {}
        self._storages: dict[int, list[Known]] = {}
        self._undo: list[tuple[Tensor, Tensor]] | None = [] if undo else None
        self._by_values: dict[Value, str] = {}  # values whose shape depends on values, and why
        self._differentiable: set[Value] = set()
        self._names = 0

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls of a block."""
        active().append(self)
        try:
            with self:
                yield
        finally:
            active().pop()

    # ---- values

    def next_name(self) -> str:
        """A name for a value."""
        self._names += 1
        return str(self._names - 1)

    def know(self, tensor: Tensor, value: Value) -> None:
        """Remember which value a tensor is."""
        known = Known(tensor, value, key_of(tensor))
        self._objects[id(tensor)] = known
        self._keys.setdefault(known.key, known)
        self._storages.setdefault(known.key[0], []).append(known)

    def find(self, tensor: Tensor) -> Value | None:
        """The value of a tensor; None if the graph has none for it."""
        key = key_of(tensor)
        known = self._objects.get(id(tensor))
        if known is None or known.key != key:
            known = self._keys.get(key)
        return None if known is None else known.value

    def add_input(self, tensor: Tensor, kind: str, label: str | None) -> Value:
        """Make an external tensor an input of the graph."""
        same_memory = self._storages.get(tensor._storage_id(), ())
        value = self.graph.add_input(
            tensor.dtype,
            tensor.shape,
            device=tensor.device,
            kind=kind,
            label=label,
            name=self.next_name(),
            buffer=same_memory[0].value.buffer if same_memory else None,
            hint=tuple(tensor.shape),
            strides=None if tensor.is_contiguous() else tuple(tensor.stride()),
        )
        if kind != "input" and label is not None:
            self.graph.bound[label] = tensor
        if tensor.requires_grad:
            self._differentiable.add(value)
        self.know(tensor, value)
        self.watch(tensor, label or f"%{value.name}")
        return value

    def add_state(self, entry: State) -> None:
        """Make a tensor of the program's state an input of the graph."""
        self.add_input(entry.tensor, entry.kind, entry.label).transient = entry.transient

    def watch(self, tensor: Tensor, label: str) -> None:
        """Save the state of an external tensor before the program changes it."""
        storage, shape = tensor._storage_id(), tuple(tensor.shape)
        self.watched.setdefault(id(tensor), Watched(tensor, label, storage, shape, grad_of(tensor)))

    def value_of(self, tensor: Tensor) -> Value:
        """Return the value of a tensor. A tensor that is new to the graph becomes an input or a view."""
        refuse_composites(tensor)
        value = self.find(tensor)
        if value is not None:
            return value
        storage = tensor._storage_id()
        if storage not in self._storages:
            if (inherited := self._of_outer(tensor)) is not None:
                return inherited
            entry = self._state.get(storage)
            if entry is None:
                label = f"constant_{sum(v.kind == 'constant' for v in self.graph.inputs)}"
                return self.add_input(tensor, "constant", label)
            self.add_state(entry)
            if (value := self.find(tensor)) is not None:
                return value
        return self._view(tensor)

    def _of_outer(self, tensor: Tensor) -> Value | None:
        if self.outer is None:
            return None
        given = self.outer.value_of(tensor)
        value = self.add_input(tensor, "input", None)
        self.outer_values.append((given, value))
        return value

    def _view(self, tensor: Tensor) -> Value:
        """Return the value of a tensor that shares memory with others although no recorded operator created the view."""
        for known in self._storages[tensor._storage_id()]:
            if known.value.dtype == tensor.dtype:
                break
        else:
            raise CaptureError(
                f"at {source_line()} a tensor of {tensor.dtype.name} shares memory with values of other dtypes, by a view that "
                "no operator made"
            )
        size, stride = list(tensor.shape), list(tensor.stride())
        node = Node(
            "as_strided",
            (known.value, size, stride, int(tensor.storage_offset())),
            source=_C.source(),
        )
        value = self._result(node, tensor, known.value.buffer)
        node.results = [value]
        self.graph.nodes.append(node)
        return value

    def _result(self, node: Node, tensor: Tensor, buffer: Buffer | None = None) -> Value:
        if buffer is None:
            same_memory = self._storages.get(tensor._storage_id(), ())
            buffer = same_memory[0].value.buffer if same_memory else Buffer("made")
        name = self.next_name()
        value = Value(
            name,
            tensor.dtype,
            self._shapes.get(name, tensor.shape),
            tensor.device,
            buffer,
            node=node,
            hint=tuple(tensor.shape),
        )
        self.know(tensor, value)
        return value

    # ---- arguments

    def argument(self, name: str, arg: Any) -> Any:
        """Convert an argument of a call to the form that the graph stores."""
        if isinstance(arg, Tensor):
            return self.value_of(arg)
        if isinstance(arg, (list, tuple)):
            return [self.argument(name, item) for item in arg]
        if is_plain(arg):
            return arg
        if isinstance(arg, _C.Generator) or callable(arg):
            return self._object(arg)
        raise CaptureError(
            f"{name} at {source_line()}: a graph cannot hold an argument of type {type(arg).__name__}"
        )

    def root(self) -> Recorder:
        """The outermost recorder."""
        found = self
        while found.outer is not None:
            found = found.outer
        return found

    def tensor_of(self, value: Value) -> Tensor:
        """The tensor of a value."""
        return next(known.tensor for known in self._objects.values() if known.value is value)

    def record_results(self, node: Node, results: Sequence[Tensor]) -> list[Tensor]:
        """Record a node that has run."""
        node.grad = _grad_mode()
        node.results = [self._result(node, tensor) for tensor in results]
        self.graph.nodes.append(node)
        return list(results)

    def _object(self, item: Any) -> Object:
        objects = self.root().graph.objects
        name = next((name for name, known in objects.items() if known is item), None)
        if name is None:
            name = f"{type(item).__name__.lower()}_{len(objects)}"
            objects[name] = item
        self.graph.objects[name] = item
        return Object(name)

    # ---- calls

    def __record_dispatch__(
        self, name: str, args: tuple[Any, ...], outs: tuple[Any, ...] | None
    ) -> tuple[Any, ...]:
        before = _C.set_overrides_disabled(2)
        was_off = _dispatch.set_disabled(True)  # recorders around this one do not see the call
        try:
            return self._record(name, args, outs)
        finally:
            _dispatch.set_disabled(was_off)
            _C.set_overrides_disabled(before)

    def _record(
        self, name: str, args: tuple[Any, ...], outs: tuple[Any, ...] | None
    ) -> tuple[Any, ...]:
        info = record(name)
        node = Node(
            name,
            [self.argument(name, arg) for arg in args],
            outs=[self.value_of(out) for out in outs or ()],
            grad=_grad_mode(),
            source=_C.source(),
        )
        self.check_writes(node)
        self._check_sizes(node, info)
        self._follow_gradients(node, args)
        self._save(info, args, outs)
        returned = _C.call_record(name, args, outs)
        self.graph.nodes.append(node)
        if outs is not None:
            self._check_written(node, outs)
            return ()
        results = as_results(info, returned)
        self._know_results(node, args, results)
        self._follow_shapes(node, info)
        return tuple(tuple(r) if isinstance(r, list) else r for r in results)

    def _know_results(self, node: Node, args: Sequence[Any], results: Sequence[Any]) -> None:
        """Make values of the results of a call."""
        for result in results:
            if isinstance(result, list):
                node.results.append([self._result(node, tensor) for tensor in result])
            else:
                node.results.append(self._result(node, result))
        self._note_copy(node, args, results)
        if node.grad and any(value in self._differentiable for value in node.inputs()):
            self._differentiable.update(node.values())

    def _note_copy(self, node: Node, args: Sequence[Any], results: Sequence[Any]) -> None:
        """Note a copy that autograd makes of a gradient because the recorder holds the gradient, too."""
        if node.op != "contiguous_clone" or node.grad:
            return
        if node.args[0].buffer.kind == "made" and args[0].stride() == results[0].stride():
            self.copies.append(node)

    def check_writes(self, node: Node) -> None:
        """Refuse writes to memory that the graph does not know."""
        for value in node.writes():
            if value.buffer.kind == "constant":
                raise CaptureError(
                    f"{node.op} at {node.source} writes to a tensor that is neither an argument nor state of the captured "
                    "program: pass it as an argument, or name its owner in state="
                )

    def _check_written(self, node: Node, outs: Sequence[Tensor]) -> None:
        for value, out in zip(node.outs, outs, strict=True):
            if value.hint != tuple(out.shape):
                raise CaptureError(
                    f"{node.op} at {node.source} resizes a tensor from {value.hint} to {tuple(out.shape)}, which a graph does "
                    "not repeat: give out= a tensor of the result's shape"
                )

    def _follow_gradients(self, node: Node, args: Sequence[Any]) -> None:
        """Note a tensor that requires grad although no recorded call produced its gradient: an autograd.Function did."""
        for tensor in _tensors(args):
            if not tensor.requires_grad:
                continue
            value = self.value_of(tensor)
            if node.grad and value not in self._differentiable:
                if value.node is not None and not tensor.is_leaf and self.graph.opaque is None:
                    self.graph.opaque = value.node.source
                self._differentiable.add(value)
        if node.grad:
            for out in node.outs:
                if any(value in self._differentiable for value in node.inputs()):
                    self._differentiable.add(out)

    def note_returned(self, tensor: Tensor, value: Value) -> None:
        """The same for the values that the program returns."""
        recorded = value in self._differentiable or value.node is None or tensor.is_leaf
        if tensor.requires_grad and not recorded and self.graph.opaque is None:
            self.graph.opaque = value.node.source if value.node is not None else None

    # ---- writes that are taken back

    def _save(self, info: Record, args: tuple[Any, ...], outs: tuple[Any, ...] | None) -> None:
        """Save the external memory that a call overwrites, for this recorder and the enclosing ones."""
        written = list(outs or ())
        for param, arg in zip(info.params, args, strict=True):
            if param.mutated:
                written += _tensors((arg,))
        self._save_tensors(written)

    def save_written(self, node: Node, operands: Sequence[Tensor]) -> None:
        """Save the external memory that a structured node overwrites."""
        written = node.writes()
        self._save_tensors([t for v, t in zip(node.args, operands, strict=True) if v in written])

    def _save_tensors(self, written: Sequence[Tensor]) -> None:
        recorder: Recorder | None = self
        while recorder is not None and written:
            if recorder._undo is not None:
                for tensor in written:
                    value = recorder.find(tensor) if recorder is not self else self.value_of(tensor)
                    if value is None or value.buffer.kind != "made":
                        recorder._undo.append((tensor, _C.call_record("clone", (tensor,))))
                return
            recorder = recorder.outer

    def take_back(self) -> None:
        """Undo the writes to memory from outside."""
        before = _C.set_overrides_disabled(2)
        try:
            with _layers_off():
                for tensor, saved in reversed(self._undo or ()):
                    tensor.detach().copy_(saved)
        finally:
            _C.set_overrides_disabled(before)
        if self._undo is not None:
            self._undo.clear()

    # ---- sizes that depend on values

    def _follow_shapes(self, node: Node, info: Record) -> None:
        if info.has_data_shape:
            for value in node.values():
                value.shape = (None,) * value.ndim
                self._by_values[value] = f"{node.op} at {node.source} made it"
            return
        origins = [value for value in node.inputs() if value in self._by_values]
        if not origins:
            return
        changing = self._changing(node, origins)
        for i, value in enumerate(node.values()):
            sizes = tuple(None if d in changing[i] else size for d, size in enumerate(value.shape))
            if None in sizes:
                value.shape = sizes
                self._by_values[value] = self._by_values[origins[0]]

    def _changing(self, node: Node, origins: list[Value]) -> list[set[int]]:
        """For each result the dimensions whose size follows from sizes that depend on values."""

        def shapes(step: int) -> list[tuple[int, ...]]:
            def tensor_of(value: Value) -> Tensor:
                hint = value.hint or ()
                sizes = [
                    n + step if s is None else n for s, n in zip(value.shape, hint, strict=True)
                ]
                return meta_tensor(sizes, value.dtype)

            made = infer(node, tensor_of, {})
            return [tuple(t.shape) for t in _tensors(made)]

        try:
            found = [shapes(step) for step in (0, 1, 3)]
            return [
                {d for d, sizes in enumerate(zip(*variants, strict=True)) if len(set(sizes)) > 1}
                for variants in zip(*found, strict=True)
            ]
        except (Unknown, RuntimeError, ValueError, IndexError, TypeError):
            hints = {
                (value.hint or ())[d]
                for value in origins
                for d, size in enumerate(value.shape)
                if size is None
            }
            return [
                {d for d, n in enumerate(value.hint or ()) if n in hints} for value in node.values()
            ]

    def _check_sizes(self, node: Node, info: Record) -> None:
        """Refuse a data-dependent size as an argument, because the next run may have another one."""
        if not self._by_values:
            return
        origins = [value for value in node.inputs() if value in self._by_values]
        if node.grad and not origins:
            return
        hints = {
            (value.hint or ())[d]: why
            for value, why in self._by_values.items()
            for d, size in enumerate(value.shape)
            if size is None and (value.hint or ())[d] > 1
        }
        for param, arg in zip(info.params, node.args, strict=True):
            if param.type not in ("size[]", "bsize[]") or not isinstance(arg, list):
                continue
            for n in arg:
                if n in hints:
                    raise CaptureError(
                        f"{node.op} at {node.source}: the size {n} depends on values ({hints[n]}), and a graph would freeze it"
                    )

    def unknown_sizes(self, value: Value) -> str | None:
        """Why the sizes of a value depend on values; None where they do not."""
        return self._by_values.get(value)

    # ---- reads

    def __read_dispatch__(self, tensor: Tensor, what: str) -> None:
        if what == "a formula's number":  # computed from numbers, not from tensors of the program
            return
        source = source_line()
        before = _C.set_overrides_disabled(2)
        try:
            known = self._objects.get(id(tensor))
            value = self.find(tensor)
        finally:
            _C.set_overrides_disabled(before)
        made = ""
        if value is not None and value.node is not None:
            made = f", a result of {value.node.op} at {value.node.source}"
        elif value is not None and value.label is not None:
            made = f", '{value.label}'"
        del known
        raise CaptureError(
            f"{what} at {source} reads the values of a tensor{made}: a graph would freeze them; for branches on values use "
            "rabbet.graph.cond or while_loop"
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError("calls come to __record_dispatch__")

    def fresh(self, tensor: Tensor) -> None:
        """Record a tensor that was created from Python data. Each run creates a new one."""
        before = _C.set_overrides_disabled(2)
        try:
            if not _has_memory(tensor) or self.find(tensor) is not None:
                return
            if tensor._storage_id() in self._storages:
                return
            with _layers_off():
                data = tensor.detach().clone()
            node = Node("clone", (self.value_of(data),), source=_C.source())
            node.results = [self._result(node, tensor)]
            self.graph.nodes.append(node)
        finally:
            _C.set_overrides_disabled(before)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _has_memory(tensor: Tensor) -> bool:
    return _C.composite_layer(tensor) is None and tensor.device.type != "meta"


def refuse_composites(tensor: Tensor) -> None:
    """Refuse composite tensors of other layers, and wrappers of `__torch_dispatch__`."""
    layer = _C.composite_layer(tensor)
    if layer is not None:
        raise CaptureError(
            f"at {source_line()} the program uses a tensor of the layer '{layer}', made of parts: graphs hold tensors with "
            "memory only"
        )


def _grad_mode() -> bool:
    """Whether autograd is on at the call site."""
    return bool(_dispatch.call_outside(is_grad_enabled))


def is_grad_enabled() -> bool:
    """Whether autograd records; True where it is not loaded."""
    if "rabbet.autograd" not in sys.modules:
        return True
    return rabbet.is_grad_enabled()


@contextlib.contextmanager
def _layers_off() -> Iterator[None]:
    """Hide the calls of a block from all recorders and from autograd."""
    disabled = _dispatch.set_disabled(True)
    has_autograd = "rabbet.autograd" in sys.modules
    grad = has_autograd and rabbet.is_grad_enabled()
    if grad:
        rabbet.set_grad_enabled(False)
    try:
        yield
    finally:
        if grad:
            rabbet.set_grad_enabled(True)
        _dispatch.set_disabled(disabled)


layers_off = _layers_off


def state_of(owners: Iterable[Any]) -> list[State]:
    """The tensors of modules, optimizers and containers, with names."""
    found: list[State] = []
    seen: set[int] = set()

    def add(kind: str, label: str, tensor: Any, transient: bool = False) -> None:
        if (
            isinstance(tensor, Tensor)
            and id(tensor) not in seen
            and _C.composite_layer(tensor) is None
        ):
            seen.add(id(tensor))
            found.append(State(kind, label, tensor, transient))

    for i, owner in enumerate(owners):
        prefix = "" if i == 0 else f"state_{i}."
        _collect(owner, prefix, add)
    return found


def _transient_names(module: Any) -> set[str]:
    """Names of the buffers that a module's state dict leaves out."""
    return {
        f"{path}.{name}" if path else name
        for path, part in module.named_modules()
        for name in getattr(part, "_non_persistent_buffers_set", ())
    }


def _collect(owner: Any, prefix: str, add: Any) -> None:
    if isinstance(owner, Tensor):
        add("buffer", f"{prefix}tensor", owner)
    elif hasattr(owner, "named_parameters"):
        for name, tensor in owner.named_parameters():
            add("parameter", prefix + name, tensor)
        transient = _transient_names(owner)
        for name, tensor in owner.named_buffers():
            add("buffer", prefix + name, tensor, name in transient)
    elif hasattr(owner, "param_groups"):
        for i, group in enumerate(owner.param_groups):
            _collect(group, f"{prefix}group_{i}.", add)
        for i, entry in enumerate(owner.state.values()):
            _collect(entry, f"{prefix}slot_{i}.", add)
    elif isinstance(owner, Mapping):
        for name, item in owner.items():
            _collect(item, f"{prefix}{name}.", add) if not isinstance(item, Tensor) else add(
                "buffer", f"{prefix}{name}", item
            )
    elif isinstance(owner, (list, tuple)):
        for i, item in enumerate(owner):
            _collect(item, f"{prefix}{i}.", add) if not isinstance(item, Tensor) else add(
                "buffer", f"{prefix}{i}", item
            )
