"""The private names of `torch._jit_internal` that packages import, as eager mode has them."""

from ..jit import export, ignore, is_scripting, unused

__all__ = ["_overload", "_overload_method", "export", "ignore", "is_scripting", "unused"]


def _overload(function: object) -> object:
    """Mark a signature for the script compiler; eager code calls the function that follows."""
    return function


_overload_method = _overload
