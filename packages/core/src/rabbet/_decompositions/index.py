"""Decompositions of operators whose results' shapes depend on the data."""

from .. import _C
from .._C import Tensor

_ops = _C.op


def bincount(input: Tensor, weights: Tensor | None, minlength: int) -> Tensor:
    if input.is_floating_point() or input.is_complex() or input.dtype is _C.bool:
        raise _C.NotImplementedForError(f"bincount: expected integers, got {input.dtype}")
    if minlength < 0:
        raise _C.ArgumentError(f"bincount: minlength must not be negative, got {minlength}")
    empty = input.ndim == 1 and input.numel() == 0
    if input.ndim != 1 or (not empty and int(input.min()) < 0):
        raise _C.ArgumentError(
            f"bincount: expected a 1-d tensor of numbers that are not negative, got shape {tuple(input.shape)}"
        )
    if weights is not None and weights.shape != input.shape:
        raise _C.ArgumentError(
            f"bincount: weights must have the shape {tuple(input.shape)} of input, got {tuple(weights.shape)}"
        )
    size = minlength if empty else max(int(input.max()) + 1, minlength)
    if weights is None or empty:
        values = _ops("ones_like")(input, dtype=_C.int64)
    else:
        values = weights if weights.dtype is _C.float32 else weights.double()
    return values.new_zeros([size]).index_add(0, input.long(), values)


def unique_results(
    input: Tensor, sorted: bool, return_inverse: bool, return_counts: bool, dim: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    if dim is None:
        flat = input.reshape(-1)
        values, order = flat.sort(stable=True)
        different = values[1:] != values[:-1]
    else:
        dim %= max(input.ndim, 1)
        if any(size == 0 for d, size in enumerate(input.shape) if d != dim):
            raise _C.ArgumentError(
                f"unique: shape {tuple(input.shape)} has no elements beside dim {dim}"
            )
        rows = (
            input.movedim(dim, 0).reshape(input.size(dim), -1)
            if input.ndim
            else input.reshape(1, 1)
        )
        order = _sorted_rows(rows)
        values = rows[order]
        different = (values[1:] != values[:-1]).any(1)
    n = values.size(0)
    fresh = _ops("ones")(n, dtype=_C.bool, device=input.device)
    if n > 1:
        fresh[1:] = different
    output = values[fresh]
    nothing = _ops("empty")(0, dtype=_C.int64, device=input.device)
    inverse = counts = nothing
    group = fresh.long().cumsum(0) - 1
    if return_inverse:
        inverse = _ops("empty_like")(order)
        inverse[order] = group
    if return_counts:
        counts = bincount(group, None, output.size(0))
    if dim is None:
        return output, inverse.reshape(input.shape) if return_inverse else inverse, counts
    shape = [s for d, s in enumerate(input.shape) if d != dim]
    return output.reshape([output.size(0), *shape]).movedim(0, dim), inverse, counts


def _sorted_rows(rows: Tensor) -> Tensor:
    """The order in which rows ascend, first columns first: stable sorts from the last column on."""
    order = _ops("arange")(rows.size(0), device=rows.device)
    for column in reversed(range(rows.size(1))):
        order = order[rows[order, column].argsort(stable=True)]
    return order
