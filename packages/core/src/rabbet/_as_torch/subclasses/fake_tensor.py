"""The private names of `torch._subclasses.fake_tensor` that packages import."""

from typing import Any

__all__ = ["FakeTensor", "is_fake"]


class FakeTensor:
    """The class of tensors without elements that PyTorch's compiler traces with: no tensor is one."""


def is_fake(x: Any) -> bool:
    """Whether a value is traced in place of a tensor: no."""
    return False
