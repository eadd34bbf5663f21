"""The protocol of `__torch_function__`: types and modes that override the functions of rabbet.

A class with a class method `__torch_function__(cls, func, types, args=(), kwargs=None)` is asked instead of the function
whenever one of its objects is among the arguments. A `TorchFunctionMode` is asked for every function inside its `with`
block. The semantics are those of `torch.overrides` (https://pytorch.org/docs/stable/torch.overrides.html).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import Any

from . import _C
from ._C import Tensor, has_torch_function_variadic

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]


# ---- the protocol


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is active, or the type of one of the values overrides functions.

    Tensors and parameters override nothing; subclasses of Tensor do, unless their `__torch_function__` is
    `_disabled_torch_function_impl`.
    """
    return _C.has_torch_function(relevant_args)


def has_torch_function_unary(obj: Any) -> bool:
    """`has_torch_function((obj,))`."""
    return has_torch_function_variadic(obj)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Call the overrides of a function: the innermost mode, then each type's, subclasses before their bases.

    Args:
        public_api: the function that the overrides get as `func`.
        relevant_args: the values whose types are asked.
        args, kwargs: the arguments of the call.

    Raises:
        TypeError: if all overrides return NotImplemented.

    Example::

        def double(x):
            if has_torch_function_unary(x):
                return handle_torch_function(double, (x,), x)
            return x + x
    """
    return _C.call_override(public_api, tuple(relevant_args), args, kwargs)


def redispatch_function(
    func: Callable[..., Any],
    types: Iterable[type],
    args: Iterable[Any],
    kwargs: dict[str, Any] | None,
) -> Any:
    """Call a function past its own overrides, while those of the functions that it calls still apply.

    An override that calls `func` this way sees what a function in Python is made of. In the override of a mode, enter
    the mode again for the call: it is off there.

    Args:
        func, types, args, kwargs: the arguments of `__torch_function__`.

    Raises:
        TypeError: if `func` is not callable, or `kwargs` is neither a dict nor None.

    Example::

        class Logged(rabbet.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                print(func.__name__)
                return redispatch_function(func, types, args, kwargs)
    """
    return _C.redispatch_function(func, types, args, kwargs)


def wrap_torch_function(
    dispatcher: Callable[..., Iterable[Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a Python function call the overrides of those arguments that `dispatcher` returns.

    Example::

        @wrap_torch_function(lambda x: (x,))
        def double(x):
            return x + x
    """

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant_args = dispatcher(*args, **kwargs)
            if has_torch_function(relevant_args):
                return handle_torch_function(wrapped, relevant_args, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return decorate


def _no_implementation(function: Any, types: tuple[type, ...], mode: Any) -> str:
    """The text of the TypeError that is raised when every override returned NotImplemented."""
    text = (
        f"no implementation found for '{resolve_name(function) or _qualified_name(function)}' on types that "
        f"implement __torch_function__: {list(types)}"
    )
    return text if mode is None else f"{text} nor in mode {mode}"


def is_tensor_like(inp: Any) -> bool:
    """Whether a value is a tensor or has `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


# ---- switches


class _Disabled:
    """A `with` block in which overrides are not called, in this thread."""

    _what: int

    def __enter__(self) -> None:
        self._before = _C.set_overrides_disabled(max(self._what, _C.overrides_disabled()))

    def __exit__(self, *error: object) -> None:
        _C.set_overrides_disabled(self._before)


class DisableTorchFunctionSubclass(_Disabled):
    """A block in which `__torch_function__` of arguments is not called; modes still are."""

    _what = 1


class DisableTorchFunction(_Disabled):
    """A block in which neither `__torch_function__` of arguments nor that of modes is called."""

    _what = 2


# ---- modes


class TorchFunctionMode:
    """Override every function of rabbet inside a `with` block.

    A subclass defines `__torch_function__(self, func, types, args=(), kwargs=None)` as an ordinary method. While it runs
    the mode is off, so that it may call functions. Modes nest; the innermost one is asked first. They belong to the
    thread that enters them.

    Example::

        class Log(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                print(resolve_name(func))
                return func(*args, **(kwargs or {}))

        with Log():
            rabbet.ones(2) + 1
    """

    def __init__(self) -> None:
        pass

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define __torch_function__")

    def __enter__(self) -> Any:
        _C.push_function_mode(self)
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        _C.pop_function_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """The former spelling of the constructor."""
        warnings.warn(
            "`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`",
            stacklevel=2,
        )
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> Any:
    """The innermost mode of this thread; None if there is none."""
    modes = _C.function_modes()
    return modes[-1] if modes else None


def _get_current_function_mode_stack() -> list[Any]:
    """The modes of this thread, the innermost one last."""
    return _C.function_modes()


def _push_mode(mode: TorchFunctionMode) -> None:
    _C.push_function_mode(mode)


def _pop_mode() -> Any:
    return _C.pop_function_mode()


@contextlib.contextmanager
def _pop_mode_temporarily() -> Iterator[Any]:
    """A block in which the innermost mode is off."""
    mode = _C.pop_function_mode()
    try:
        yield mode
    finally:
        _C.push_function_mode(mode)


def enable_reentrant_dispatch() -> contextlib.AbstractContextManager[None]:
    """A block that makes dispatch modes callable again from inside of one. In rabbet they always are."""
    return contextlib.nullcontext()


# ---- which functions can be overridden


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """The functions whose results `Tensor.__torch_function__` does not convert to the subclass."""
    names = [name for name in ("_base", "grad", "_grad") if hasattr(Tensor, name)]
    return {getattr(Tensor, name).__get__ for name in names}


def _prefix() -> str:
    from ._as_torch.names import framework

    return framework()


def _qualified_name(f: Any) -> str:
    module, name = getattr(f, "__module__", None), getattr(f, "__name__", repr(f))
    return f"{module}.{name}" if module else name


def _namespaces() -> Iterator[tuple[str, Any]]:
    """The modules and classes that hold overridable functions, and their names."""
    import rabbet

    yield "", rabbet
    for name in ("nn.functional", "nn.init", "special", "linalg", "fft"):
        found: Any = rabbet
        try:
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):  # of a wheel that is not installed
            continue
        yield name, found
    yield "Tensor", Tensor


def _is_creation(f: Any) -> bool:
    """Whether an operator takes no tensors: only modes override it."""
    if not isinstance(f, _C.Op):
        return False
    return not any(
        "Tensor" in parameter["type"]
        for overload in f.overloads
        for parameter in _C.op_info(overload)["params"]
    )


# Methods of every object, which mean nothing of their own for tensors.
_OF_OBJECTS = {
    "__class__", "__delattr__", "__getattribute__", "__hash__", "__init__", "__iter__", "__new__", "__setattr__",
    "__sizeof__", "__str__", "__torch_function__", "as_subclass",
}  # fmt: skip


_MEMBER_TYPES = (_C.Op, _C.overridable, MethodDescriptorType, WrapperDescriptorType)


def _members_of_tensor() -> Iterator[tuple[str, Any]]:
    for name in dir(Tensor):
        value = inspect.getattr_static(Tensor, name)
        if name in _OF_OBJECTS:
            continue
        if isinstance(value, _C.overridable_attribute):
            yield f"{name}.__get__", value.__get__
        elif name in vars(Tensor) and isinstance(value, _MEMBER_TYPES):
            yield name, value


def _members(owner: Any) -> Iterator[tuple[str, Any]]:
    """The public functions of a namespace, and the members of Tensor."""
    if owner is Tensor:
        yield from _members_of_tensor()
        return
    for name in getattr(owner, "__all__", dir(owner)):
        value = vars(owner).get(name)
        if not name.startswith("_") and isinstance(value, (_C.Op, _C.overridable)):
            yield name, value


@functools.cache
def _overridable_functions() -> tuple[dict[Any, list[Callable[..., Any]]], dict[Any, str]]:
    functions: dict[Any, list[Callable[..., Any]]] = {}
    names: dict[Any, str] = {}
    for path, owner in _namespaces():
        for name, function in _members(owner):
            if _is_creation(function):
                continue
            if isinstance(owner, (ModuleType, type)):
                functions.setdefault(owner, []).append(function)
            names.setdefault(function, f"{path}.{name}" if path else name)
    return functions, names


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions that `__torch_function__` can override, by the module or class that holds them."""
    return {owner: list(functions) for owner, functions in _overridable_functions()[0].items()}


def get_ignored_functions() -> set[Callable[..., Any]]:
    """Public functions that arguments cannot override: creation of tensors, and settings. Modes override the former."""
    import rabbet

    overridable = _overridable_functions()[1]
    found = set()
    for name in dir(rabbet):
        value = vars(rabbet).get(name)
        if name.startswith("_") or isinstance(value, type) or not callable(value):
            continue
        if value not in overridable:
            found.add(value)
    return found


def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """A function of the same signature that returns -1 for each function that can be overridden."""
    return {f: _returning_minus_one(f) for f in _overridable_functions()[1]}


def _returning_minus_one(function: Any) -> Callable[..., Any]:
    def override(*args: Any, **kwargs: Any) -> int:
        return -1

    try:
        override.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    except (TypeError, ValueError):  # several overloads, or a slot of Tensor
        pass
    return override


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function is a method of Tensor, or the getter of one of its attributes."""
    if getattr(func, "__name__", "") == "__get__":
        return True
    name = getattr(func, "__name__", None)
    return name is not None and inspect.getattr_static(Tensor, name, None) is func


def resolve_name(f: Any) -> str | None:
    """The name of a function as a program writes it, such as 'torch.add'; None for functions that cannot be overridden."""
    try:
        name = _overridable_functions()[1].get(f)
    except TypeError:  # not hashable
        return None
    return None if name is None else f"{_prefix()}.{name}"
