"""Results of composed functions in the tensors that callers give as `out`."""

from collections.abc import Sequence
from typing import Any

import rabbet

from . import _C
from ._C import Tensor


def write(function: str, result: Tensor, out: Tensor | None, cast: bool = False) -> Tensor:
    """The result, written to `out` where it is given; the rules are those of operators.

    Args:
        function: what messages call the function.
        result: the result.
        out: where to write it; resized to its shape.
        cast: whether `out` may have another dtype that holds the result's.

    Raises:
        TypeError: if `out` is no tensor.
        DTypeError: if it has another dtype.
        DeviceError: if it lies on another device.
        StateError: if it, or the result, requires grad.
    """
    if out is None:
        return result
    if not isinstance(out, Tensor):
        raise TypeError(f"{function}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if not cast and result.dtype is not out.dtype:
        raise _C.DTypeError(
            f"{function}: Expected out tensor to have dtype {result.dtype}, but got {out.dtype} instead"
        )
    if not _C.can_cast(result.dtype, out.dtype):
        raise _C.DTypeError(
            f"{function}: a result of dtype {result.dtype} cannot be written to a destination of dtype {out.dtype}"
        )
    if out.device != result.device:
        raise _C.DeviceError(
            f"{function}: the destination is on {out.device}, but the result is on {result.device}"
        )
    if rabbet.is_grad_enabled():
        for what, t in (("'out'", out), ("an argument", result)):
            if t.requires_grad:
                raise _C.StateError(
                    f"{function}: out= does not support gradients, but {what} requires grad"
                )
    with rabbet.no_grad():
        written: Tensor = _C.op("alias_copy")(result.to(out.dtype), out=out)
    return written


def write_all(
    function: str, results: Sequence[Tensor], out: Sequence[Tensor] | None, cast: bool = False
) -> tuple[Tensor, ...]:
    """The results, each written to its tensor of `out` where that is given."""
    if out is None:
        return tuple(results)
    if not isinstance(out, (tuple, list)) or len(out) != len(results):
        got: Any = len(out) if isinstance(out, (tuple, list)) else type(out).__name__
        raise TypeError(
            f"{function}(): argument 'out' must be a tuple of {len(results)} Tensors, got {got}"
        )
    return tuple(write(function, r, target, cast) for r, target in zip(results, out, strict=True))
