"""`__torch_function__` from outside: no operator of rabbet calls it yet, so nothing is overridden."""

from collections.abc import Callable, Iterable
from typing import Any

from . import _C
from ._C import Tensor

__all__ = [
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
]


def _overrides(value: Any) -> bool:
    return not isinstance(value, Tensor) and hasattr(type(value), "__torch_function__")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the values has `__torch_function__` of its own."""
    return any(map(_overrides, relevant_args))


def has_torch_function_unary(value: Any) -> bool:
    """Whether a value has `__torch_function__` of its own."""
    return _overrides(value)


def has_torch_function_variadic(*values: Any) -> bool:
    """Whether one of the values has `__torch_function__` of its own."""
    return any(map(_overrides, values))


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Call the `__torch_function__` of each value that has one, subclasses first, until one answers.

    Raises:
        TypeError: if all return NotImplemented.
    """
    found: list[Any] = []
    for value in filter(_overrides, relevant_args):
        if type(value) not in map(type, found):
            place = next(
                (i for i, f in enumerate(found) if issubclass(type(value), type(f))), len(found)
            )
            found.insert(place, value)
    kinds = tuple(map(type, found))
    for value in found:
        answer = value.__torch_function__(public_api, kinds, args, kwargs)
        if answer is not NotImplemented:
            return answer
    raise TypeError(
        f"no implementation found for '{resolve_name(public_api)}' on types that implement "
        f"__torch_function__: {list(kinds)}"
    )


def is_tensor_like(inp: Any) -> bool:
    """Whether a value is a tensor or has `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function is a method of Tensor."""
    return func in vars(Tensor).values()


def resolve_name(f: Any) -> str | None:
    """The name of a function as a program writes it."""
    name = getattr(f, "__name__", None)
    if isinstance(f, _C.Op):
        return f"rabbet.{name}"
    module = getattr(f, "__module__", None)
    return name if module is None or name is None else f"{module}.{name}"
