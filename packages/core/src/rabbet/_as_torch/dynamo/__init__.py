"""`torch._dynamo` where nothing is compiled: the names that programs set or call around eager code."""

from types import SimpleNamespace
from typing import Any, TypeVar

from ...compiler import disable, is_compiling, reset

__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "is_compiling", "mark_dynamic",
    "mark_static", "mark_static_address", "maybe_mark_dynamic", "reset",
]  # fmt: skip

# Options of the compiler that programs set; nothing reads them until there is one.
config = SimpleNamespace()

_T = TypeVar("_T")


class OptimizedModule:
    """The class of compiled modules: no object is one."""


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
