"""Lets Python functions and members of Tensor call `__torch_function__` (see rabbet.overrides), and knows the tensors of
`__torch_dispatch__`."""

from collections.abc import Iterable
from types import FunctionType, MethodDescriptorType
from typing import Any

from . import _C


def functions(scope: dict[str, Any], names: Iterable[str]) -> None:
    """Make the Python functions of these names in a module's namespace call the overrides of their arguments."""
    for name in names:
        if isinstance(scope.get(name), FunctionType):
            scope[name].__module__ = scope["__name__"]  # where pickle finds the wrapped function
            scope[name] = _C.overridable(scope[name])


def member(name: str, value: Any) -> Any:
    """A member of Tensor that calls the overrides of the tensor's type before `value`."""
    if name == "__setstate__" or isinstance(value, (_C.overridable, _C.overridable_attribute)):
        return value
    if isinstance(value, (FunctionType, MethodDescriptorType)):
        return _C.overridable(value)
    kind = type(value)
    is_data_descriptor = hasattr(kind, "__get__") and hasattr(kind, "__set__")
    return _C.overridable_attribute(value) if is_data_descriptor else value


def dispatches(tensor: _C.Tensor) -> bool:
    """Whether the class of a tensor defines `__torch_dispatch__`."""
    return type(tensor).__torch_dispatch__ is not _C._disabled_torch_dispatch_impl


def is_wrapper(tensor: _C.Tensor) -> bool:
    """Whether a tensor was made by `_make_wrapper_subclass`: it has a shape, and only its class provides values."""
    if not dispatches(tensor):
        return False
    from . import _dispatch

    return _dispatch.is_wrapper(tensor)
