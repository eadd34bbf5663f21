"""Types for annotations, under PyTorch's names."""

import builtins
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from ._C import Size, Tensor
from ._C import device as _device_type
from ._C import dtype as _dtype_type
from ._C import layout as _layout_type

__all__ = ["Device", "FileLike", "Number", "Storage"]

_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_bool, _bytes, _complex, _float, _int = bool, bytes, complex, float, int
_device, _dtype, _layout = _device_type, _dtype_type, _layout_type
_size: TypeAlias = Size | list[int] | tuple[int, ...]
Number: TypeAlias = builtins.int | builtins.float | builtins.bool
Device: TypeAlias = _device_type | str | int | None
FileLike: TypeAlias = "str | os.PathLike[str] | Any"
Storage: TypeAlias = Any
