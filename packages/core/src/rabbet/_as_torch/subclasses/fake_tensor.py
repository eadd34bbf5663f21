"""The private names of `torch._subclasses.fake_tensor` that packages import."""

import contextlib
from collections.abc import Iterator
from typing import Any

from ..._absent import refusing_class

__all__ = ["FakeTensor", "FakeTensorMode", "is_fake", "unset_fake_temporarily"]


class FakeTensor:
    """The class of tensors without elements that PyTorch's compiler traces with: no tensor is one."""


FakeTensorMode = refusing_class(
    "torch._subclasses.fake_tensor",
    "FakeTensorMode",
    "rabbet has no fake tensors; torch.device('meta') makes tensors without elements",
)


def is_fake(x: Any) -> bool:
    """Whether a value is traced in place of a tensor: no."""
    return False


@contextlib.contextmanager
def unset_fake_temporarily() -> Iterator[None]:
    """A block without a FakeTensorMode: none is ever active."""
    yield
