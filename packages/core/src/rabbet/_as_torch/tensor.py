"""The names of `torch._tensor` that packages import."""

from .._C import Tensor

__all__ = ["Tensor"]
