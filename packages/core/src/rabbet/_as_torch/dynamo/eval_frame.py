"""The names of `torch._dynamo.eval_frame` that packages import."""

from . import OptimizedModule, disable, reset

__all__ = ["OptimizedModule", "disable", "reset"]
