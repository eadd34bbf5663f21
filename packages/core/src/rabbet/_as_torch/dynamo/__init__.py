"""`torch._dynamo` where nothing is compiled: the names that programs set or call around eager code."""

from types import SimpleNamespace
from typing import Any, TypeVar

from ...compiler import disable, is_compiling, reset

__all__ = [
    "OptimizedModule", "allow_in_graph", "config", "disable", "is_compiling", "mark_dynamic", "mark_static", "reset",
]  # fmt: skip

# Options of the compiler that programs set; nothing reads them until there is one.
config = SimpleNamespace()

_T = TypeVar("_T")


class OptimizedModule:
    """The class of compiled modules: no object is one."""


def allow_in_graph(fn: _T) -> _T:
    """Mark a function that a compiler leaves as it is; there is none."""
    return fn


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Tell a compiler that a dimension's size changes; there is none."""


def mark_static(t: Any, index: Any = None, **options: Any) -> None:
    """Tell a compiler that a dimension's size stays; there is none."""
