"""`torch._dynamo` where nothing is compiled: the names that programs set or call around eager code."""

from types import SimpleNamespace

from ..compiler import disable, is_compiling, reset

__all__ = ["config", "disable", "is_compiling", "reset"]

# Options of the compiler that programs set; nothing reads them until there is one.
config = SimpleNamespace()
