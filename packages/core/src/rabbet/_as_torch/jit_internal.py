"""The private names of `torch._jit_internal` that packages import, as eager mode has them."""

from typing import TypeVar

from ..jit import _overload, _overload_method, export, ignore, is_scripting, unused

__all__ = [
    "_copy_to_script_wrapper", "_overload", "_overload_method", "export", "ignore", "is_scripting", "unused",
]  # fmt: skip

_T = TypeVar("_T")


def _copy_to_script_wrapper(fn: _T) -> _T:
    """Mark a method that a scripted module keeps; there are none."""
    return fn
