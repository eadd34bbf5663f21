"""`profile` under the name of PyTorch's former profiler."""

from .profiler import profile

__all__ = ["profile"]
