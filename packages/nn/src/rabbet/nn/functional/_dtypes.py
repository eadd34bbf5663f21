"""Refusals of dtypes by functions that no single operator implements."""

from __future__ import annotations

import rabbet
from rabbet import Tensor

_FLOATING = frozenset((rabbet.float16, rabbet.bfloat16, rabbet.float32, rabbet.float64))
INTEGERS = frozenset((rabbet.uint8, rabbet.int8, rabbet.int16, rabbet.int32, rabbet.int64))


def require_floating(op: str, *tensors: Tensor) -> None:
    """Refuse tensors that are not real floating."""
    for tensor in tensors:
        if tensor.dtype not in _FLOATING:
            raise rabbet.UnsupportedDTypeError(
                f"{op}: expected a floating dtype, got {tensor.dtype}"
            )


def refuse(op: str, tensor: Tensor, *dtypes: rabbet.dtype) -> None:
    """Refuse a tensor of one of `dtypes`."""
    if tensor.dtype in dtypes:
        raise rabbet.UnsupportedDTypeError(f"{op}: not implemented for {tensor.dtype}")
