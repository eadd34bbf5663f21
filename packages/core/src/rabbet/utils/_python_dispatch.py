"""Modes of `__torch_dispatch__`, and what tensor subclasses made of other tensors need.

The semantics are those of `torch.utils._python_dispatch`. A class with a class method
`__torch_dispatch__(cls, func, types, args=(), kwargs=None)` gets the calls on its tensors below autograd; a
`TorchDispatchMode` gets every call inside its `with` block.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .. import _C
from .._C import Tensor
from .._torch_dispatch import layer as _dispatch  # registered when it is imported

__all__ = [
    "BaseTorchDispatchMode",
    "TorchDispatchMode",
    "get_alias_info",
    "is_in_torch_dispatch_mode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing",
    "transform_subclass",
]


# ---- modes


class TorchDispatchMode:
    """Handle every call of an operator inside a `with` block, below autograd and the transforms.

    A subclass defines `__torch_dispatch__(self, func, types, args=(), kwargs=None)` as an ordinary method. `func` is an
    overload, such as `torch.ops.aten.add.Tensor`; `types` are the classes among the arguments that define
    `__torch_dispatch__`. While the method runs the mode is off, so that it may call operators. Modes nest, the innermost
    one is asked first; the next one sees the calls that it makes. They belong to the thread that enters them.

    Example::

        class Log(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                print(func)
                return func(*args, **(kwargs or {}))

        with Log():
            rabbet.ones(2) + 1  # prints aten.ones.default and aten.add.Tensor
    """

    def __init__(self, _dispatch_key: Any = None) -> None:
        if _dispatch_key is not None:
            raise _C.NotImplementedForError(
                "TorchDispatchMode: rabbet has no dispatch keys for modes; leave _dispatch_key out"
            )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define __torch_dispatch__")

    def __enter__(self) -> Any:
        _push_mode(self)
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        _pop_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """The former spelling of the constructor."""
        warnings.warn(
            "`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`",
            stacklevel=2,
        )
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether the mode is one of the framework's own: no."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Whether the mode stays out of what a compiler does: no, rabbet has none that asks."""
        return False


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _push_mode(mode: Any) -> None:
    """Make a mode the innermost one of this thread."""
    if not callable(getattr(mode, "__torch_dispatch__", None)):
        raise TypeError(f"expected a TorchDispatchMode, got {type(mode).__name__}")
    _dispatch.push_mode(mode)


def _pop_mode(k: Any = None) -> Any:
    """Take the innermost mode of this thread off and return it.

    Raises:
        RuntimeError: if there is none.
    """
    return _dispatch.pop_mode()


def _get_current_dispatch_mode() -> Any:
    """The innermost mode of this thread; None if there is none."""
    modes = _dispatch.modes()
    return modes[-1] if modes else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    """The modes of this thread, the innermost one last."""
    return _dispatch.modes()


def _len_torch_dispatch_stack() -> int:
    """How many modes are active in this thread."""
    return len(_dispatch.modes())


def _get_dispatch_stack_at(level: int) -> Any:
    """The mode at a level, 0 for the outermost one.

    Raises:
        IndexError: if there are fewer modes.
    """
    return _dispatch.modes()[level]


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether a mode is active in this thread."""
    return bool(_dispatch.modes())


def is_in_any_mode_without_ignore_compile_internals() -> bool:
    """Whether a mode is active that a compiler would have to respect."""
    return any(not mode.ignore_compile_internals() for mode in _dispatch.modes())


def any_torch_dispatch_mode_on_stack(*, include_infra_modes: bool = True) -> bool:
    """Whether a mode is active in this thread."""
    return is_in_torch_dispatch_mode()


@contextlib.contextmanager
def _pop_mode_temporarily(k: Any = None) -> Iterator[Any]:
    """A block in which the innermost mode is off."""
    mode = _pop_mode(k)
    try:
        yield mode
    finally:
        _push_mode(mode)


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """A block in which no mode of this thread is active."""
    modes = [_pop_mode() for _ in _dispatch.modes()]
    try:
        yield modes
    finally:
        for mode in reversed(modes):
            _push_mode(mode)


# ---- tensors made of other tensors


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether a tensor's class says by `__tensor_flatten__` and `__tensor_unflatten__` what it is made of.

    `__tensor_flatten__(self)` returns the names of the attributes that are tensors, and a context of other values;
    `__tensor_unflatten__(inner_tensors, context, outer_size, outer_stride)`, a static method, makes the tensor again.
    """
    return isinstance(t, Tensor) and is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """The same for a class."""
    return (
        issubclass(t, Tensor)
        and t is not Tensor
        and hasattr(t, "__tensor_flatten__")
        and hasattr(t, "__tensor_unflatten__")
    )


def transform_subclass(
    t: Any,
    callback: Callable[[str, Tensor], Tensor],
    outer_size: Any = None,
    outer_stride: Any = None,
) -> Any:
    """A tensor of the same class, made of other tensors.

    Args:
        t: of a class with `__tensor_flatten__`.
        callback: the new inner tensor, by the attribute's name and the old one.
        outer_size, outer_stride: of the result; those of `t` if left out.

    Raises:
        RuntimeError: if the result has another size or other strides.
    """
    size = outer_size if outer_size is not None else t.size()
    stride = outer_stride if outer_stride is not None else t.stride()
    names, context = t.__tensor_flatten__()
    parts = {name: callback(name, getattr(t, name)) for name in names}
    made = type(t).__tensor_unflatten__(parts, context, size, stride)
    if tuple(made.shape) != tuple(size) or tuple(made.stride()) != tuple(stride):
        raise RuntimeError(
            f"transform_subclass: {type(t).__name__}.__tensor_unflatten__ made a tensor of size {tuple(made.shape)} and "
            f"stride {tuple(made.stride())}, not {tuple(size)} and {tuple(stride)}"
        )
    return made


class AliasInfo(NamedTuple):
    """Which memory an argument or a result shares."""

    alias_set: set[str]
    is_write: bool
    name: str | None


class SchemaInfo(NamedTuple):
    """What a schema says of shared memory."""

    args: list[AliasInfo]
    outs: list[AliasInfo]
    is_inplace_view_op: bool


def get_alias_info(func: Any) -> SchemaInfo:
    """Which arguments of an overload are written, and which results share memory with one."""

    def info_of(argument: Any) -> AliasInfo:
        alias = argument.alias_info
        found = set() if alias is None else set(alias.before_set)
        return AliasInfo(found, argument.is_write, argument.name or None)

    schema = func._schema
    return SchemaInfo(
        [info_of(a) for a in schema.arguments], [info_of(r) for r in schema.returns], False
    )


def return_and_correct_aliasing(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any
) -> Any:
    """The result of a handler, with the identity that the operator's schema asks for.

    An operator that writes an argument (in place, or `out=`) returns that argument. Views keep the result of the handler:
    in rabbet a wrapper has no storage that views could share.
    """
    info = get_alias_info(func)
    written = [i for i, argument in enumerate(info.args) if argument.is_write]
    if not written or not info.outs:
        return out
    keywords = kwargs or {}
    if func.writes_out:
        return keywords["out"]
    return args[0] if len(info.outs) == 1 else out
