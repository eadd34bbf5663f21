"""Exchange of tensors by DLPack."""

from typing import Any

from .. import _C
from .._C import Tensor

__all__ = ["from_dlpack", "to_dlpack"]

from_dlpack = _C.from_dlpack


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule that shares the tensor's memory; it can be read once."""
    return tensor.__dlpack__()
