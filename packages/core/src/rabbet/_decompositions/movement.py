"""Decompositions of operators that move elements: joins, splits, grids."""

import itertools
import warnings
from collections.abc import Sequence

from .. import _C
from .._C import Tensor
from .._functions import broadcast_shapes, extent

_ops = _C.op
_MOST_PIECES = 2**24  # as in formulas


_SHAPES_SHOWN = 4  # in errors


def _need_some(op: str, tensors: Sequence[Tensor]) -> None:
    if not tensors:
        raise _C.ArgumentError(f"{op}: expected at least one tensor, got an empty list")


def broadcast_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return [t if t.shape == shape else t.expand(shape) for t in tensors]


def _joined(op: str, tensors: Sequence[Tensor], parts: Sequence[Tensor], dim: int) -> Tensor:
    """Join `parts`, which were made of `tensors`; an error names the shapes that the caller knows."""
    try:
        return _ops("cat")(parts, dim)
    except _C.ArgumentError as error:
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors[:_SHAPES_SHOWN])
        more = ", ..." if len(tensors) > _SHAPES_SHOWN else ""
        raise _C.ArgumentError(
            f"{op}: tensors of shapes {shapes}{more} do not fit together: {error}"
        ) from None


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    _need_some("hstack", tensors)
    parts = _ops("atleast_1d.tensors")(tensors)
    return _joined("hstack", tensors, parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    _need_some("vstack", tensors)
    return _joined("vstack", tensors, _ops("atleast_2d.tensors")(tensors), 0)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    _need_some("dstack", tensors)
    return _joined("dstack", tensors, _ops("atleast_3d.tensors")(tensors), 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    _need_some("column_stack", tensors)
    columns = [t.reshape(t.numel(), 1) if t.ndim <= 1 else t for t in tensors]
    return _joined("column_stack", tensors, columns, 1)


def tensor_split_sections(input: Tensor, sections: int, dim: int) -> Sequence[Tensor]:
    if input.ndim == 0:
        raise _C.ArgumentError("tensor_split: expected at least 1 dimension, got a 0-d tensor")
    if sections <= 0:
        raise _C.ArgumentError(
            f"tensor_split: the number of sections must be positive, got {sections}"
        )
    if sections > _MOST_PIECES:
        raise _C.ArgumentError(
            f"tensor_split: too many pieces: expected at most {_MOST_PIECES}, got {sections}"
        )
    n = input.size(dim)
    sizes = [n // sections + (i < n % sections) for i in range(sections)]
    return _ops("split.sizes")(input, sizes, dim)


def tensor_split_indices(input: Tensor, indices: Sequence[int], dim: int) -> list[Tensor]:
    if input.ndim == 0:
        raise _C.ArgumentError("tensor_split: expected at least 1 dimension, got a 0-d tensor")
    n = input.size(dim)
    bounds = [0, *(max(0, min(n, i + n if i < 0 else i)) for i in indices), n]
    return [input.narrow(dim, a, max(b - a, 0)) for a, b in itertools.pairwise(bounds)]


def tensor_split_tensor(input: Tensor, given: Tensor, dim: int) -> Sequence[Tensor]:
    if given.dtype is not _C.int64 or given.ndim > 1:
        raise _C.ArgumentError(
            "tensor_split: expected sections or indices as an int64 tensor of at most 1 dimension, got "
            f"{given.dtype} of shape {tuple(given.shape)}"
        )
    if given.ndim == 0:
        return tensor_split_sections(input, int(given), dim)
    return tensor_split_indices(input, given.tolist(), dim)


def _split_at(op: str, input: Tensor, given: int | Sequence[int]) -> Sequence[Tensor]:
    need = {"hsplit": 1, "vsplit": 2, "dsplit": 3}[op]
    if input.ndim < need:
        raise _C.ArgumentError(
            f"{op}: expected at least {need} dimension{'s' * (need > 1)}, got shape {tuple(input.shape)}"
        )
    dim = {"hsplit": min(input.ndim - 1, 1), "vsplit": 0, "dsplit": 2}[op]
    if not isinstance(given, int):
        return tensor_split_indices(input, given, dim)
    if given <= 0 or input.size(dim) % given:
        raise _C.ArgumentError(
            f"{op}: dimension {dim} of size {input.size(dim)} does not split into {given} equal sections"
        )
    return tensor_split_sections(input, given, dim)


def hsplit(input: Tensor, given: int | Sequence[int]) -> Sequence[Tensor]:
    return _split_at("hsplit", input, given)


def vsplit(input: Tensor, given: int | Sequence[int]) -> Sequence[Tensor]:
    return _split_at("vsplit", input, given)


def dsplit(input: Tensor, given: int | Sequence[int]) -> Sequence[Tensor]:
    return _split_at("dsplit", input, given)


def meshgrid(tensors: Sequence[Tensor], *, indexing: str | None) -> list[Tensor]:
    if indexing is None:
        warnings.warn(
            "meshgrid: pass indexing='ij' or 'xy'; a later version will require it",
            UserWarning,
            stacklevel=2,
        )
        indexing = "ij"
    _need_some("meshgrid", tensors)
    if indexing not in ("ij", "xy"):
        raise _C.ArgumentError(f"meshgrid: indexing must be 'ij' or 'xy', got {indexing!r}")
    for i, t in enumerate(tensors):
        if t.ndim > 1:
            raise _C.ArgumentError(
                f"meshgrid: expected tensors of at most 1 dimension, tensor {i} has shape {tuple(t.shape)}"
            )
        if t.dtype is not tensors[0].dtype:
            raise _C.DTypeError(
                f"meshgrid: expected tensors of one dtype, tensor 0 is {tensors[0].dtype}, tensor {i} is {t.dtype}"
            )
    axes = list(tensors)
    swap = indexing == "xy" and len(axes) >= 2
    if swap:
        axes[:2] = axes[1::-1]
    shape = [a.numel() for a in axes]
    grids = [
        a.reshape([-1 if j == i else 1 for j in range(len(axes))]).expand(shape)
        for i, a in enumerate(axes)
    ]
    if swap:
        grids[:2] = grids[1::-1]
    return grids


def cartesian_prod(tensors: Sequence[Tensor]) -> Tensor:
    _need_some("cartesian_prod", tensors)
    for i, t in enumerate(tensors):
        if t.ndim != 1:
            raise _C.ArgumentError(
                f"cartesian_prod: expected 1-d tensors, tensor {i} has shape {tuple(t.shape)}"
            )
    if len(tensors) == 1:
        return tensors[0]
    return _ops("stack")([g.reshape(-1) for g in meshgrid(tensors, indexing="ij")], 1)


def block_diag(tensors: Sequence[Tensor]) -> Tensor:
    for i, t in enumerate(tensors):
        if t.ndim > 2:
            raise _C.ArgumentError(
                f"block_diag: expected tensors of at most 2 dimensions, tensor {i} has shape {tuple(t.shape)}"
            )
    if not tensors:
        return _ops("empty")(1, 0)
    parts = _ops("atleast_2d.tensors")(tensors)
    rows = list(itertools.accumulate((p.size(0) for p in parts), initial=0))
    columns = list(itertools.accumulate((p.size(1) for p in parts), initial=0))
    return _ops("join_diagonal")(parts, rows[:-1], columns[:-1], [rows[-1], columns[-1]])


def join_diagonal(
    tensors: Sequence[Tensor], rows: Sequence[int], columns: Sequence[int], shape: Sequence[int]
) -> Tensor:
    widths = [(c, shape[1] - c - t.size(1)) for t, c in zip(tensors, columns, strict=True)]
    padded = [_ops("pad_constant")(t, w, 0) for t, w in zip(tensors, widths, strict=True)]
    return _ops("cat")(padded, 0)


def _border_places(size: int, before: int, after: int, mode: str, like: Tensor) -> Tensor:
    """Where the elements of a padded dimension come from."""
    i = _ops("arange")(-before, size + after, device=like.device)
    if mode == "reflect":
        return (size - 1) - ((size - 1) - i.abs()).abs()
    if mode == "replicate":
        return i.clamp(0, size - 1)
    # What negative widths take away is gone before the rest wraps around.
    first, last = max(-before, 0), size - max(-after, 0)
    return (i - first).remainder(last - first) + first


def _padded_dims(ndim: int, pad: Sequence[int]) -> list[tuple[int, int, int]]:
    """The dimensions that change, as (dim, before, after)."""
    pairs = zip(pad[::2], pad[1::2], strict=True)
    return [(ndim - 1 - i, *pair) for i, pair in enumerate(pairs) if any(pair)]


def pad_border(input: Tensor, pad: Sequence[int], mode: str) -> Tensor:
    padded = input
    for dim, before, after in _padded_dims(input.ndim, pad):
        places = _border_places(input.shape[dim], before, after, mode, input)
        padded = padded.index_select(dim, places)
    return input.clone() if padded is input else padded


def pad_circular(input: Tensor, pad: Sequence[int]) -> Tensor:
    return pad_border(input, pad, "circular")


def pad_border_dx(g: Tensor, shape: Sequence[int], pad: Sequence[int], mode: str) -> Tensor:
    x = g
    for dim, before, after in _padded_dims(g.ndim, pad):
        places = _border_places(shape[dim], before, after, mode, g)
        summed = list(x.shape)
        summed[dim] = shape[dim]
        x = x.new_zeros(summed).index_add(dim, places, x)
    return g.clone() if x is g else x


def diag(input: Tensor, diagonal: int) -> Tensor:
    if input.ndim == 2:
        return input.diagonal(diagonal).clone()
    if input.ndim != 1:
        raise _C.ArgumentError(f"diag: expected 1 or 2 dimensions, got shape {tuple(input.shape)}")
    n = input.numel() + abs(diagonal)
    empty = input.new_zeros([n, n])
    return _ops("diagonal_scatter")(empty, input, diagonal)


def _may_overlap(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether no order of dimensions shows that each element has a place of its own."""
    reach = 1
    for step, n in sorted(zip(stride, size, strict=True)):
        if n > 1 and step < reach:
            return True
        reach += (n - 1) * step
    return False


def _places(size: Sequence[int], stride: Sequence[int], offset: int, like: Tensor) -> Tensor:
    """Where in memory each element lies, in row-major order."""
    reach = _ops("arange")(offset, offset + extent(size, stride), device=like.device)
    return reach.as_strided(size, stride).reshape(-1)


def strided_scatter(
    src: Tensor,
    stride: Sequence[int],
    offset: int,
    input_size: Sequence[int],
    input_stride: Sequence[int],
) -> Tensor:
    begin = min(offset, 0)
    own = extent(input_size, input_stride)
    memory = _ops("zeros")(
        [max(own, offset + extent(src.shape, stride)) - begin], dtype=src.dtype, device=src.device
    )
    places = _places(src.shape, stride, offset - begin, src)
    memory = _ops("index_add")(memory, 0, places, src.reshape(-1))[-begin:]
    if _may_overlap(input_size, input_stride):
        places = _places(input_size, input_stride, 0, src)
        sharing = _ops("zeros")(memory.shape, dtype=src.dtype, device=src.device)
        ones = _ops("ones")(places.shape, dtype=src.dtype, device=src.device)
        memory = memory / _ops("index_add")(sharing, 0, places, ones)
    return memory.as_strided(input_size, input_stride)


def as_strided_scatter(
    input: Tensor, src: Tensor, size: list[int], stride: list[int], storage_offset: int | None
) -> Tensor:
    if list(src.shape) != size:
        raise _C.ArgumentError(
            f"as_strided_scatter: expected src to have a size equal to the slice of self, {tuple(size)}, got "
            f"{tuple(src.shape)}"
        )
    start = input.storage_offset()
    offset = start if storage_offset is None else storage_offset
    begin = min(start, offset)
    reach = max(start + extent(input.shape, input.stride()), offset + extent(size, stride)) - begin
    memory = input.as_strided([reach], [1], begin)
    places = _places(size, stride, offset - begin, input)
    memory = _ops("index_put")(
        memory, [places], src.reshape(-1)
    ).contiguous()  # vmap may permute it
    return memory.as_strided(input.shape, input.stride(), start - begin)


def restrided(input: Tensor, stride: Sequence[int]) -> Tensor:
    same = all(n < 2 or a == b for n, a, b in zip(input.shape, input.stride(), stride, strict=True))
    if same or 0 in input.shape:
        return input
    memory = _ops("zeros")(extent(input.shape, stride), dtype=input.dtype, device=input.device)
    places = _places(input.shape, stride, 0, input)
    memory = _ops("index_put")(memory, [places], input.reshape(-1))
    return memory.as_strided(input.shape, stride)


def diag_embed(input: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    if input.ndim == 0:
        raise _C.ArgumentError("diag_embed: expected at least 1 dimension, got a 0-d tensor")
    n = input.ndim + 1
    for name, d in (("dim1", dim1), ("dim2", dim2)):
        if not -n <= d < n:
            raise _C.OutOfRangeError(
                f"diag_embed: {name} must be in the range of [{-n}, {n - 1}], got {d}"
            )
    first, second = dim1 % n, dim2 % n
    if first == second:
        raise _C.ArgumentError(
            f"diag_embed: diagonal dimensions cannot be identical, got {dim1} and {dim2}"
        )
    size = input.shape[-1] + abs(offset)
    shape = list(input.shape[:-1])
    for d in sorted((first, second)):
        shape.insert(d, size)
    return _ops("diagonal_scatter")(input.new_zeros(shape), input, offset, first, second)


def sum_to_size(input: Tensor, size: Sequence[int]) -> Tensor:
    lead = input.ndim - len(size)
    if lead < 0 or any(
        a not in (1, b) for a, b in zip(size, input.shape[max(lead, 0) :], strict=True)
    ):
        raise _C.ArgumentError(
            f"sum_to_size: size {tuple(size)} does not broadcast to shape {tuple(input.shape)}"
        )
    if not size:
        return input.sum()  # also of one element, and of bools in int64
    return _ops("sum_to")(input, size)
