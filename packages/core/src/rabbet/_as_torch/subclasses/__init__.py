"""The private names of `torch._subclasses` that packages import."""

from . import fake_tensor
from .fake_tensor import FakeTensor

__all__ = ["FakeTensor", "fake_tensor"]
