"""Decompositions of operators that count, search and pick by index."""

import math

from .. import _C
from .._C import Tensor
from .._functions import broadcast_shapes, searchsorted

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
        values = _ops("ones")([], dtype=_C.int64, device=input.device).expand(input.shape)
    else:
        values = weights if weights.dtype is _C.float32 else weights.double()
    return values.new_zeros([size]).index_add(0, input.long(), values)


def unique_results(
    input: Tensor, sorted: bool, return_inverse: bool, return_counts: bool, dim: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    x = _slices("unique", input, dim)
    if dim is None:
        ascending, order = x.sort(stable=True)
    else:
        order = _sorted_rows(x)
        ascending = x[order]
    values, group, counts = _runs(ascending, return_inverse, return_counts)
    inverse = _nothing(input)
    if return_inverse:
        inverse = _ops("empty_like")(order)
        inverse[order] = group
        inverse = _shaped(input, dim, inverse)
    return _unsliced(input, dim, values), inverse, counts


def unique_consecutive_results(
    input: Tensor, return_inverse: bool, return_counts: bool, dim: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    x = _slices("unique_consecutive", input, dim)
    values, group, counts = _runs(x, return_inverse, return_counts)
    inverse = _shaped(input, dim, group) if return_inverse else _nothing(input)
    return _unsliced(input, dim, values), inverse, counts


def _nothing(like: Tensor) -> Tensor:
    return _ops("empty")(0, dtype=_C.int64, device=like.device)


def _slices(name: str, input: Tensor, dim: int | None) -> Tensor:
    """The elements in one dimension, or what lies at each index of `dim` as a row."""
    if dim is None:
        return input.reshape([-1])
    along = dim % max(input.ndim, 1)
    if any(size == 0 for d, size in enumerate(input.shape) if d != along):
        raise _C.ArgumentError(
            f"{name}: shape {tuple(input.shape)} has no elements beside dim {dim}"
        )
    if input.ndim == 0:
        return input.reshape([1, 1])
    others = (size for d, size in enumerate(input.shape) if d != along)
    return input.movedim(dim, 0).reshape([input.size(dim), math.prod(others)])


def _runs(x: Tensor, return_groups: bool, return_counts: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The first element of each run of equal neighbours and, if asked for, the run of each element and the lengths."""
    different = x[1:] != x[:-1]
    n = x.size(0)
    fresh = _ops("ones")(n, dtype=_C.bool, device=x.device)
    if n > 1:
        fresh[1:] = different if x.ndim == 1 else different.any(1)
    values = x[fresh]
    if not (return_groups or return_counts):
        return values, _nothing(x), _nothing(x)
    group = fresh.long().cumsum(0) - 1
    counts = bincount(group, None, values.size(0)) if return_counts else _nothing(x)
    return values, group, counts


def _unsliced(input: Tensor, dim: int | None, values: Tensor) -> Tensor:
    """The counterpart of `_slices` for results."""
    if dim is None:
        return values
    along = dim % max(input.ndim, 1)
    shape = [s for d, s in enumerate(input.shape) if d != along]
    return values.reshape([values.size(0), *shape]).movedim(0, dim)


def _shaped(input: Tensor, dim: int | None, inverse: Tensor) -> Tensor:
    return inverse.reshape(input.shape) if dim is None else inverse


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


def _as_tensor(x: Tensor | float, other: Tensor | float) -> Tensor:
    """A number as a tensor on the other's device."""
    if isinstance(x, Tensor):
        return x
    return _C.tensor(x, device=other.device if isinstance(other, Tensor) else None)


def isin(elements: Tensor, test_elements: Tensor, *, assume_unique: bool, invert: bool) -> Tensor:
    elements = _as_tensor(elements, test_elements)
    test_elements = _as_tensor(test_elements, elements)
    wanted = test_elements.reshape([-1])
    if wanted.numel() == 0:
        return _ops("full_like")(elements, invert, dtype=_C.bool)
    keys = wanted.sort()[0]
    at = _ops("searchsorted")(keys, elements).clamp(max=keys.numel() - 1)
    found = keys.take(at) == elements
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


def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool
) -> Tensor:
    dim = dim % max(input.ndim, 1)
    if index.numel() == 0:
        return input.clone()
    src = _cut(src, index)
    if reduce == "amin":
        turned = _ops("neg") if input.is_floating_point() else _ops("bitwise_not")
        return turned(_ops("scatter_amax")(turned(input), dim, index, turned(src), include_self))
    if reduce == "amax":
        return _ops("scatter_amax")(input, dim, index, src, include_self)
    if reduce == "prod":
        return _ops("scatter_combined")(input, dim, index, src, reduce, include_self)
    base = input if include_self else _ops("scatter.value")(input, dim, index, 0)
    total = _ops("scatter_add")(base, dim, index, src)
    if reduce == "sum":
        return total
    count = _ops("ones_like")(input, dtype=_C.int64)
    if not include_self:
        count = _ops("scatter.value")(count, dim, index, 0)
    count = count.scatter_add(dim, index, _ops("ones_like")(index)).clamp(min=1)
    if input.is_floating_point() or input.is_complex():
        return total / count.to(input.dtype)
    return total.div(count, rounding_mode="floor").to(input.dtype)


def _cut(src: Tensor, index: Tensor) -> Tensor:
    """What of the source has an index."""
    for d, size in enumerate(index.shape[: src.ndim]):
        src = src if src.shape[d] == size else src.narrow(d, 0, size)
    return src if src.shape == index.shape else src.reshape(index.shape)


def scatter_combined(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool
) -> Tensor:
    """Sources sorted by where they go; running reductions by doubling steps, of which the last of each place is written."""
    if index.numel() == 0:
        return input.clone()
    src = _cut(src, index)
    combine = _ops("maximum") if reduce == "amax" else _ops("mul")
    if input.ndim == 0:
        one = (input.reshape([1]), 0, index.reshape([1]), src.reshape([1]))
        return scatter_combined(*one, reduce, include_self).reshape([])
    dim = dim % input.ndim
    keys, order = index.sort(dim, stable=True)
    x = src.gather(dim, order)
    size, step = index.shape[dim], 1
    while step < size:
        before, at = (x.narrow(dim, start, size - step) for start in (0, step))
        same = keys.narrow(dim, 0, size - step) == keys.narrow(dim, step, size - step)
        joined = _ops("where")(same, combine(before, at), at)
        x = _ops("cat")([x.narrow(dim, 0, step), joined], dim)
        step *= 2
    beyond = input.shape[dim]
    following = _ops("cat")(
        [keys.narrow(dim, 1, size - 1), _ops("full_like")(keys.narrow(dim, 0, 1), -1)], dim
    )
    last = keys != following
    if include_self:
        x = combine(input.gather(dim, keys), x)
    spare = _ops("cat")([input, _ops("zeros_like")(input.narrow(dim, 0, 1))], dim)
    written = spare.scatter(dim, _ops("where")(last, keys, beyond), x)
    return written.narrow(dim, 0, beyond).contiguous()


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    shape = broadcast_shapes(input.shape, mask.shape)
    mask, x, values = mask.expand(shape), input.expand(shape), source.reshape([-1])
    flat = mask.reshape([-1])
    place = flat.cumsum(0) - 1  # which of the chosen ones each is
    _ops("assert_all")(
        flat.logical_not() | (place < values.numel()),
        "masked_scatter: expected the number of elements in source to be at least the number of ones in mask, got "
        f"{values.numel()} elements",
    )
    if values.numel() == 0 or flat.numel() == 0:
        return x.clone()
    chosen = values.index_select(0, place.clamp(0, values.numel() - 1)).reshape(shape)
    return _ops("where")(mask, chosen, x)


def nonzero_static(input: Tensor, *, size: int, fill_value: int) -> Tensor:
    if input.numel() == 0 or input.ndim == 0:
        return input.new_full([size, input.ndim], fill_value, dtype=_C.int64)
    # Each nonzero element writes its flat index to the row of its rank; the row behind the last takes the rest.
    nonzero = _ops("ne")(input, 0).reshape([-1])
    ranks = nonzero.cumsum(0) - 1
    rows = _ops("where")(nonzero & (ranks < size), ranks, size)
    places = _ops("arange")(nonzero.numel(), device=input.device)
    found = places.new_full([size + 1], -1).scatter(0, rows, places)[:size]
    step = nonzero.numel()
    columns = []
    for length in input.shape:
        step //= length
        columns.append(found // step % length)
    indices = _ops("stack")(columns, 1)
    return _ops("where")((found < 0).unsqueeze(1), fill_value, indices)


# The operator that combines a segment's elements, and what an empty segment holds.
_SEGMENTS = {
    "sum": ("sum", 0.0),
    "mean": ("sum", 0.0),
    "max": ("amax", -math.inf),
    "min": ("amin", math.inf),
    "prod": ("prod", 1.0),
}


def _segment_ends(
    data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int, unsafe: bool
) -> tuple[Tensor, Tensor]:
    """Where the segments start and end, (*outer, segments) each."""
    if lengths is None and offsets is None:
        raise _C.ArgumentError("segment_reduce: Either lengths or offsets must be defined.")
    given, name = (offsets, "offsets") if lengths is None else (lengths, "lengths")
    assert given is not None
    if given.dtype not in (_C.int32, _C.int64):
        raise _C.DTypeError(f"segment_reduce: expected {name} of int32 or int64, got {given.dtype}")
    if given.ndim != axis + 1 or given.shape[:axis] != data.shape[:axis]:
        raise _C.ArgumentError(
            f"segment_reduce: expected {name} of the shape {tuple(data.shape[:axis])} of the leading axes of data "
            f"and one dimension more, got {tuple(given.shape)}"
        )
    given = given.long()
    if lengths is None:
        if given.shape[-1] == 0:
            raise _C.ArgumentError("segment_reduce: expected at least one offset, got none")
        return given[..., :-1], given[..., 1:]
    if not unsafe:
        _ops("assert_all")(given >= 0, "segment_reduce: lengths contains negative value!")
        _ops("assert_all")(
            given.sum(-1) == data.shape[axis],
            f"segment_reduce: Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1), "
            f"which is {data.shape[axis]}, when !unsafe.",
        )
    ends = given.cumsum(-1)
    return ends - given, ends


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None,
    indices: Tensor | None,
    offsets: Tensor | None,
    axis: int,
    unsafe: bool,
    initial: float | None,
) -> Tensor:
    """Each element is scattered into its segment; what lies in no segment, into one that is dropped."""
    if indices is not None:
        raise _C.NotImplementedForError(
            "segment_reduce: indices are not supported; give lengths or offsets"
        )
    if not 0 <= axis < data.ndim:
        raise _C.ArgumentError(
            f"segment_reduce: expected an axis of data of shape {tuple(data.shape)}, got {axis}"
        )
    starts, ends = _segment_ends(data, lengths, offsets, axis, unsafe)
    count, size = ends.shape[-1], data.shape[axis]
    at = _ops("arange")(size, device=data.device).expand([*data.shape[:axis], size]).contiguous()
    segment = searchsorted(ends.contiguous(), at, right=True)
    if count:
        begun = starts.gather(-1, segment.clamp(max=count - 1)) <= at
        segment = _ops("where")(begun, segment, count)
    index = segment.reshape([*segment.shape, *[1] * (data.ndim - axis - 1)]).expand(data.shape)
    combine, nothing = _SEGMENTS[reduce]
    shape = [*data.shape[:axis], count + 1, *data.shape[axis + 1 :]]
    start = data.new_full(shape, nothing if initial is None else initial)
    found = _ops("scatter_reduce")(start, axis, index, data, combine).narrow(axis, 0, count)
    if reduce == "mean":
        sizes = (ends - starts).reshape([*ends.shape, *[1] * (data.ndim - axis - 1)])
        found = found / (sizes if initial is None else sizes.clamp(min=1))
    return found.contiguous()
