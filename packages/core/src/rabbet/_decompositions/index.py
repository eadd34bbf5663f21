"""Decompositions of operators that count, search and pick by index."""

from .. import _C
from .._C import Tensor
from .._functions import broadcast_shapes

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


def search_rows(sorted_sequence: Tensor, input: Tensor, right: bool) -> Tensor:
    if sorted_sequence.ndim == 1:
        return _ops("searchsorted")(sorted_sequence, input, right=right)
    rows = zip(sorted_sequence.flatten(0, -2), input.flatten(0, -2), strict=True)
    each = [_ops("searchsorted")(sequence, row, right=right) for sequence, row in rows]
    return _ops("stack")(each).reshape(input.shape) if each else _ops("empty_like")(input)


def repeat_interleave(
    input: Tensor, repeats: int | Tensor, dim: int | None, *, output_size: int | None
) -> Tensor:
    x, d = (_ops("flatten")(input), 0) if dim is None else (input, dim)
    x = x if x.ndim else x.reshape([1])
    n = x.shape[d]
    if isinstance(repeats, Tensor) and repeats.numel() == 1:
        repeats = repeats.reshape([1]).expand([n])
    if isinstance(repeats, Tensor):
        if repeats.ndim > 1 or repeats.numel() != n:
            raise _C.ArgumentError(
                "repeat_interleave: repeats must have the same size as input along dim, but got "
                f"repeats.shape = {list(repeats.shape)} and input.size({d}) = {n}"
            )
        return x.index_select(d, repeat_interleave_counts(repeats, output_size=output_size))
    if repeats < 0:
        raise _C.ArgumentError(f"repeat_interleave: repeats can not be negative, got {repeats}")
    _check_size(n * repeats, output_size)
    each = _ops("arange")(n, device=x.device).unsqueeze(1).expand([n, repeats])
    return x.index_select(d, each.reshape([-1]))


def repeat_interleave_counts(repeats: Tensor, *, output_size: int | None) -> Tensor:
    """Each place as often as it says."""
    if repeats.dtype not in (_C.int64, _C.int32):
        raise _C.DTypeError(
            f"repeat_interleave: repeats has to be Long or Int tensor, got {repeats.dtype}"
        )
    if repeats.ndim > 1:
        raise _C.ArgumentError(
            f"repeat_interleave only accept 0D or 1D repeat tensor, got shape {list(repeats.shape)}"
        )
    if repeats.ndim == 0 or repeats.numel() == 0:
        return repeats.new_zeros([int(repeats) if repeats.ndim == 0 else 0], dtype=_C.int64)
    if int(repeats.min()) < 0:
        raise _C.ArgumentError("repeat_interleave: repeats can not be negative")
    ends = repeats.long().cumsum(0)
    total = int(ends[-1])
    _check_size(total, output_size)
    places = _ops("arange")(total, device=repeats.device)
    return _ops("searchsorted")(ends, places, right=True)


def _check_size(size: int, expected: int | None) -> None:
    if expected is not None and expected != size:
        raise _C.ArgumentError(
            f"repeat_interleave: allocated size {expected} does not match required size {size}"
        )


def isin(elements: Tensor, test_elements: Tensor, *, assume_unique: bool, invert: bool) -> Tensor:
    wanted = test_elements.reshape([-1])
    if wanted.numel() == 0:
        return _ops("full_like")(elements, invert, dtype=_C.bool)
    keys = wanted.sort()[0]
    at = _ops("searchsorted")(keys, elements).clamp(max=keys.numel() - 1)
    found = keys[at] == elements
    return found.logical_not() if invert else found


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None) -> Tensor:
    if indices.dtype is not _C.int64:
        raise _C.DTypeError(
            f"take_along_dim: dtype of indices should be Long but got {indices.dtype}"
        )
    count = input.numel() if dim is None else input.shape[dim]
    indices = _ops("where")(
        indices < 0, indices + count, indices
    )  # negative ones count from the end
    if dim is None:
        return input.reshape([-1]).gather(0, indices.reshape([-1]))
    if input.ndim != indices.ndim:
        raise _C.ArgumentError(
            "take_along_dim: input and indices should have the same number of dimensions, but got "
            f"{input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    places = list(input.shape)
    places[dim] = indices.shape[dim]
    values = list(indices.shape)
    values[dim] = input.shape[dim]
    index = indices.expand(broadcast_shapes(indices.shape, places))
    return input.expand(broadcast_shapes(input.shape, values)).gather(dim, index)
