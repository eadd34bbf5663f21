"""`torch._dynamo`: the names that programs set or call. Nothing is traced, in regions of `rabbet.compile` neither."""

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from ...compiler import disable, is_compiling, reset

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "explain", "graph_break",
    "is_compiling", "mark_dynamic", "mark_static", "mark_static_address", "maybe_mark_dynamic", "reset",
]  # fmt: skip

# Options of the compiler that programs set; nothing reads them until there is one.
config = SimpleNamespace()

_T = TypeVar("_T")


class _OptimizedModules(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return bool(getattr(type(instance), "_is_optimized_module", False))


class OptimizedModule(metaclass=_OptimizedModules):
    """The class of compiled modules: `isinstance` holds for what `rabbet.compile` makes of a module."""


def graph_break(msg: str = "") -> None:
    """Nothing: there is no graph to break."""


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Explain how a region runs a call of `f`; the same as `rabbet_compile.explain`.

    Raises:
        ImportError: without the wheel rabbet-compile.
    """
    explained = importlib.import_module("rabbet_compile").explain(f)
    return explained(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else explained


def allow_in_graph(fn: _T) -> _T:
    """Mark a function that a compiler leaves as it is; there is none."""
    return fn


assume_constant_result = allow_in_graph


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Tell a compiler that a tensor's memory stays; there is none."""


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Tell a compiler that a dimension's size may change; there is none."""


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Tell a compiler that a dimension's size changes; there is none."""


def mark_static(t: Any, index: Any = None, **options: Any) -> None:
    """Tell a compiler that a dimension's size stays; there is none."""
