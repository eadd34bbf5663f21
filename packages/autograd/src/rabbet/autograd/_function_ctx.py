"""What a Function's forward leaves for its derivatives."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NoReturn, Self

from rabbet import Tensor

from . import _C
from ._modes import no_grad
from .graph import active_hooks

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
    "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
    "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved "
    "tensors after calling backward."
)


def _contents(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return value.values()
    return value if type(value) in (list, tuple) else (value,)


def _in_container(f: Callable[[Any], Any], value: Any) -> Any:
    """`f` of each entry of a list, tuple or dict, of anything else itself."""
    if type(value) is dict:
        return {key: f(entry) for key, entry in value.items()}
    return type(value)(map(f, value)) if type(value) in (list, tuple) else f(value)


class _Output:
    """An output that the ctx keeps: without its history, which leads back to the ctx."""

    def __init__(self, value: Tensor, number: int) -> None:
        self.value, self.number = value, number

    def load(self) -> Tensor:
        return _C.saved_output(self.value, self.number)


class FunctionCtx:
    """What `forward` or `setup_context` leaves for `backward` and `jvp`."""

    # Defaults for all: a ctx has in its __dict__ what was set.
    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads = True
    _saved: tuple[Any, ...] | None = ()
    _versions: tuple[int, ...] | None = None  # of those saved, once the call is recorded
    _outputs: dict[int, int] | None = None  # which of those saved is which output
    _forward_saved: tuple[Tensor | None, ...] | None = None
    _unpack: Callable[[Any], Tensor] | None = None
    _clears_on_access = False
    _non_differentiable: tuple[Tensor, ...] = ()
    _dirty: tuple[Tensor, ...] = ()
    _kept: Mapping[str, Any] = MappingProxyType({})  # attributes with outputs in them, as _Output

    def __getattr__(self, name: str) -> Any:
        try:
            value = self._kept[name]
        except KeyError:
            if any(name in vars(cls) for cls in type(self).__mro__):
                return object.__getattribute__(self, name)  # the error of a property, once more
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            ) from None
        return _in_container(lambda o: o.load() if isinstance(o, _Output) else o, value)

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors; `saved_tensors` gives them back and checks that nobody wrote to them since."""
        for i, t in enumerate(tensors):
            if t is not None and not isinstance(t, Tensor):
                _refuse_saved("save_for_backward", i, t)
        self._saved = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors that `saved_tensors` gives in `jvp`."""
        for i, t in enumerate(tensors):
            if t is not None and not isinstance(t, Tensor):
                _refuse_saved("save_for_forward", i, t)
        self._forward_saved = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors given to save_for_backward, in `jvp` those given to save_for_forward."""
        if self._saved is None:
            raise RuntimeError(FREED)
        saved = self._loaded(self._saved)
        if self._clears_on_access:
            self._free()
        return saved

    def _loaded(self, saved: tuple[Any, ...]) -> tuple[Tensor | None, ...]:
        if self._unpack is not None:
            return tuple(None if t is None else self._unpack(t) for t in saved)
        if self._versions is None:
            return saved
        return _C.load_settled(saved, self._versions, self._outputs, type(self).__name__)

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say that these outputs carry no gradient."""
        _check_marked("mark_non_differentiable", tensors)
        self._non_differentiable = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say that `forward` wrote these inputs in place."""
        _check_marked("mark_dirty", tensors)
        self._dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether derivatives get zeros (True, the default) or None where there is no gradient or tangent."""
        self.materialize_grads = value

    # ---- for Function

    def _free(self) -> None:
        self._saved = None
        self._kept = {}

    def _kept_tensors(self) -> Iterator[tuple[str, Tensor | None]]:
        """What is kept, by name; None for a tensor that a saved-tensors hook packed."""
        for t in self._saved or ():
            if t is not None:
                yield "saved_tensors", None if self._unpack is not None else t
        own = {name: v for name, v in self.__dict__.items() if name not in _INTERNAL}
        for name, value in (*own.items(), *self._kept.items()):
            for entry in _contents(value):
                tensor = entry.value if isinstance(entry, _Output) else entry
                if isinstance(tensor, Tensor):
                    yield name, tensor

    def _for_jvp(self) -> Self:
        """A ctx whose `saved_tensors` are those for forward mode."""
        other = copy.copy(self)
        if self._forward_saved is not None:
            other.save_for_backward(*self._forward_saved)
        return other

    def _with(self, replaced: dict[int, Any]) -> Self:
        """A ctx that keeps other tensors, by the `id` of those they replace: the same at another level."""
        other = copy.copy(self)

        def at_level(value: Any) -> Any:
            return replaced.get(id(value), value) if isinstance(value, Tensor) else value

        other.save_for_backward(*map(at_level, self._saved or ()))
        for name, value in self.__dict__.items():
            if name in ("_dirty", "_non_differentiable", "_forward_saved"):
                other.__dict__[name] = None if value is None else tuple(map(at_level, value))
            elif not name.startswith("_"):
                other.__dict__[name] = _in_container(at_level, value)
        return other

    def _settle(self, outputs: list[Tensor]) -> None:
        """Prepare what was saved for waiting: the graph must not keep itself alive."""
        own = self.__dict__
        for name in ("_dirty", "_non_differentiable", "_forward_saved"):
            own.pop(name, None)
        if self._saved:
            self._saved, self._versions, self._outputs = _C.settle(self._saved, outputs)
            hooks = active_hooks()
            if hooks is not None:
                self._pack(*hooks)
        attributes = [n for n in own if n[0] != "_" and n != "needs_input_grad"]
        if attributes:
            self._settle_attributes(attributes, {id(o): i for i, o in enumerate(outputs)})

    def _pack(self, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> None:
        self._unpack = unpack
        with no_grad():
            self._saved = tuple(None if t is None else pack(t) for t in self._saved or ())

    def _settle_attributes(self, names: list[str], numbers: dict[int, int]) -> None:
        """Outputs among the attributes, and in lists, tuples and dicts there, lose their history."""

        def settle(value: Any) -> Any:
            at = numbers.get(id(value))
            return value if at is None else _Output(_C.alias(value), at)

        kept = {
            name: _in_container(settle, self.__dict__[name])
            for name in names
            if any(id(leaf) in numbers for leaf in _contents(self.__dict__[name]))
        }
        if kept:
            self._kept = kept
            for name in kept:
                del self.__dict__[name]


def _refuse_saved(what: str, i: int, value: object) -> NoReturn:
    raise TypeError(
        f"{what} can only save variables, but argument {i} is of type {type(value).__name__}"
    )


def _check_marked(what: str, tensors: tuple[Any, ...]) -> None:
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise RuntimeError(
                f"{what} can only accept variables, but argument {i} is of type {type(t).__name__}"
            )


_INTERNAL = frozenset(FunctionCtx.__annotations__)  # fields that are not the user's
