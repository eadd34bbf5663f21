"""The names of `torch._dynamo.eval_frame` that packages import."""

from . import OptimizedModule, disable, reset

__all__ = ["OptimizedModule", "disable", "is_dynamo_supported", "reset"]


def is_dynamo_supported() -> bool:
    """Whether programs are compiled: no."""
    return False
