"""The private names of `torch._jit_internal` that packages import, as eager mode has them."""

from ..jit import _overload, _overload_method, export, ignore, is_scripting, unused

__all__ = ["_overload", "_overload_method", "export", "ignore", "is_scripting", "unused"]
