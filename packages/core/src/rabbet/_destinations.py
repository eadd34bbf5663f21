"""Results of composed functions in the tensors that callers give as `out`."""

from collections.abc import Sequence
from typing import Any

import rabbet

from . import _C
from ._C import Tensor


def write(function: str, result: Tensor, out: Tensor | None) -> Tensor:
    """The result, written to `out` where it is given; the rules are those of operators.

    Raises:
        TypeError: if `out` is no tensor.
        DTypeError: if its dtype cannot hold the result's.
        DeviceError: if it lies on another device.
    """
    if out is None:
        return result
    if not isinstance(out, Tensor):
        raise TypeError(f"{function}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if not _C.can_cast(result.dtype, out.dtype):
        raise _C.DTypeError(
            f"{function}: a result of dtype {result.dtype} cannot be written to a destination of dtype {out.dtype}"
        )
    if out.device != result.device:
        raise _C.DeviceError(
            f"{function}: the destination is on {out.device}, but the result is on {result.device}"
        )
    with rabbet.no_grad():
        written: Tensor = _C.op("alias_copy")(result, out=out)
    return written


def write_all(
    function: str, results: Sequence[Tensor], out: Sequence[Tensor] | None
) -> tuple[Tensor, ...]:
    """The results, each written to its tensor of `out` where that is given."""
    if out is None:
        return tuple(results)
    if not isinstance(out, (tuple, list)) or len(out) != len(results):
        got: Any = len(out) if isinstance(out, (tuple, list)) else type(out).__name__
        raise TypeError(
            f"{function}(): argument 'out' must be a tuple of {len(results)} Tensors, got {got}"
        )
    return tuple(write(function, r, target) for r, target in zip(results, out, strict=True))
