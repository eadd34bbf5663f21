"""Definitions of views, of the same with memory of their own, and of joins, splits and grids."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from .definitions import DEFINITIONS, Array, defines
from .index import gathered


def _moved(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return defines(name, f"{name}_copy")


@_moved("view")
def _view(input: Array, size: Any) -> Any:
    return input.reshape(size)


@defines("reshape")
def _reshape(input: Array, shape: Any) -> Any:
    return input.reshape(shape)


@_moved("expand")
def _expand(input: Array, size: Any) -> Any:
    lead = len(size) - input.ndim
    return np.broadcast_to(
        input, [input.shape[i - lead] if n == -1 else n for i, n in enumerate(size)]
    )


@_moved("permute")
def _permute(input: Array, dims: Any) -> Any:
    return np.transpose(input, dims)


@_moved("transpose")
def _transpose(input: Array, dim0: int, dim1: int) -> Any:
    return np.swapaxes(input, dim0, dim1) if input.ndim else input


@_moved("t")
def _t(input: Array) -> Any:
    return input.T


@_moved("mT")
def _mt(x: Array) -> Any:
    return np.swapaxes(x, -1, -2)


@defines("movedim")
def _movedim(input: Array, source: Any, destination: Any) -> Any:
    return np.moveaxis(input, source, destination)


@_moved("select")
def _select(input: Array, dim: int, index: int) -> Any:
    return np.take(input, index, dim)


def _section(x: Array, dim: int, *section: Any) -> tuple[slice, ...]:
    places = [slice(None)] * x.ndim
    places[dim] = slice(*section)
    return tuple(places)


@defines("slice")
def _slice(x: Array, dim: int, start: Any, end: Any, step: int) -> Any:
    return x[_section(x, dim, start, end, step)]


@defines("slice_copy")
def _slice_copy(input: Array, dim: int, start: Any, end: Any, step: int) -> Any:
    return _slice(input, dim, start, end, step)


@defines("slice_scatter")
def _slice_scatter(input: Array, src: Array, dim: int, start: Any, end: Any, step: int) -> Any:
    out = input.copy()
    out[_section(input, dim, start, end, step)] = src
    return out


@defines("select_scatter")
def _select_scatter(input: Array, src: Array, dim: int, index: int) -> Any:
    out = input.copy()
    np.moveaxis(out, dim, 0)[index] = src
    return out


@defines("narrow")
def _narrow(input: Array, dim: int, start: int, length: int) -> Any:
    first = start % input.shape[dim] if start < 0 else start
    return _slice(input, dim, first, first + length, 1)


@_moved("unsqueeze")
def _unsqueeze(input: Array, dim: int) -> Any:
    return np.expand_dims(input, dim)


@defines("view_as_real")
def _view_as_real(input: Array) -> Any:
    return np.stack([input.real, input.imag], -1)


@defines("view_as_complex")
def _view_as_complex(input: Array) -> Any:
    return input[..., 0] + 1j * input[..., 1]


@_moved("squeeze")
def _squeeze(input: Array, dim: Any) -> Any:
    dims = range(input.ndim) if dim is None else np.atleast_1d(dim)
    return np.squeeze(input, tuple(int(d) for d in dims if input.shape[d] == 1))


@defines("flatten")
def _flatten(input: Array, start_dim: int, end_dim: int) -> Any:
    x = np.atleast_1d(input)
    first, last = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape(
        *x.shape[:first], int(np.prod(x.shape[first : last + 1])), *x.shape[last + 1 :]
    )


@defines("unflatten")
def _unflatten(input: Array, dim: int, sizes: Any) -> Any:
    return input.reshape(*input.shape[:dim], *sizes, *input.shape[dim + 1 :])


@_moved("diagonal")
def _diagonal(input: Array, offset: int, dim1: int, dim2: int) -> Any:
    return np.diagonal(input, offset, dim1, dim2)


@defines("diagonal_scatter")
def _diagonal_scatter(input: Array, src: Array, offset: int, dim1: int, dim2: int) -> Any:
    out = input.copy()
    target = np.diagonal(out, offset, dim1, dim2)
    target.flags.writeable = True
    target[...] = src
    return out


@defines("view.dtype")
def _view_dtype(input: Array, dtype: str, dtype_name: str) -> Any:
    widened = dtype == dtype_name and "int" in dtype
    same = widened or input.dtype.kind in "bfc"
    return input if same else np.ascontiguousarray(input).view(dtype)


@defines("view.dtype_scatter")
def _view_dtype_scatter(src: Array) -> Any:
    return src


@_moved("as_strided")
def _as_strided(input: Array, size: Any, stride: Any, storage_offset: int | None) -> Any:
    flat, at = input.reshape(-1), np.zeros(size, np.int64) + (storage_offset or 0)
    for place, step in zip(np.indices(size), stride, strict=True):
        at = at + place * step
    return flat[at]


@defines("as_strided_scatter")
def _as_strided_scatter(
    input: Array, src: Array, size: Any, stride: Any, storage_offset: int | None
) -> Any:
    out = input.copy()
    out.reshape(-1)[_as_strided(np.arange(input.size), size, stride, storage_offset)] = src
    return out


@defines("strided_view")
def _strided_view(
    input: Array, size: Any, stride: Any, offset: int, input_size: Any, input_stride: Any
) -> Any:
    return _as_strided(input, size, stride, offset)


@defines("split")
def _split(input: Array, split_size: int, dim: int) -> Any:
    return tuple(np.split(input, range(split_size, input.shape[dim], split_size), dim))


@defines("split.sizes")
def _split_sizes(input: Array, split_sizes: Any, dim: int) -> Any:
    ends = np.cumsum(split_sizes)
    return tuple(
        _slice(input, dim, int(e - n), int(e), 1) for n, e in zip(split_sizes, ends, strict=True)
    )


@defines("chunk")
def _chunk(input: Array, chunks: int, dim: int) -> Any:
    size = -(-input.shape[dim] // chunks)
    return _split(input, size, dim) if size else tuple([input] * chunks)


@defines("unbind")
def _unbind(input: Array, dim: int) -> Any:
    return tuple(np.moveaxis(input, dim, 0))


@defines("detach", "detach_copy", "contiguous", "contiguous_clone", "clone")
def _same(input: Array) -> Any:
    return input


@defines("to_device")
def _to_device(x: Array) -> Any:
    return x


@defines("expand_as")
def _expand_as(input: Array, other: Array) -> Any:
    return np.broadcast_to(input, np.broadcast_shapes(input.shape, other.shape))


@defines("cat")
def _cat(tensors: list[Array], dim: int) -> Any:
    return np.concatenate([t for t in tensors if t.shape != (0,)], dim)


@defines("stack")
def _stack(tensors: list[Array], dim: int) -> Any:
    return np.stack(tensors, dim)


@defines("repeat")
def _repeat(input: Array, repeats: Any) -> Any:
    return np.tile(input, repeats)


@defines("pad_constant")
def _pad(input: Array, pad: Any, value: Any) -> Any:
    pairs = [(0, 0)] * (input.ndim - len(pad) // 2) + [*zip(pad[::2], pad[1::2], strict=True)][::-1]
    kept = input[
        tuple(
            slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(input.shape, pairs, strict=True)
        )
    ]
    return np.pad(kept, [(max(a, 0), max(b, 0)) for a, b in pairs], constant_values=value)


@defines("pad_to")
def _pad_to(x: Array, shape: Any) -> Any:
    return np.pad(x, [(0, n - m) for n, m in zip(shape, x.shape, strict=True)])


@defines("gather_as")
def _gather_as(x: Array, dim: int, index: Array, shape: Any) -> Any:
    return _pad_to(gathered(x, dim, index), shape)


@defines("tril")
def _tril(input: Array, diagonal: int) -> Any:
    return np.tril(input, diagonal)


@defines("triu")
def _triu(input: Array, diagonal: int) -> Any:
    return np.triu(input, diagonal)


@defines("sum_to")
def _sum_to(x: Array, shape: Any) -> Any:
    if list(x.shape) == list(shape):
        return x
    lead = x.ndim - len(shape)
    ones = tuple(i + lead for i, n in enumerate(shape) if n == 1 and x.shape[i + lead] != 1)
    return x.sum((*range(lead), *ones)).reshape(shape)


@defines("restore")
def _restore(x: Array, shape: Any, dim: Any) -> Any:
    reduced = range(len(shape)) if dim is None else dim
    return x.reshape([1 if i in reduced else n for i, n in enumerate(shape)])


@defines("tile")
def _tile(input: Array, dims: Any) -> Any:
    return np.tile(input, dims)


@defines("broadcast_to")
def _broadcast_to(input: Array, size: Any) -> Any:
    lead = len(size) - input.ndim
    return np.broadcast_to(
        input, [input.shape[i - lead] if n == -1 else n for i, n in enumerate(size)]
    )


@defines("broadcast_tensors")
def _broadcast_tensors(tensors: list[Array]) -> Any:
    return tuple(a.copy() for a in np.broadcast_arrays(*tensors))


# ---- joins, splits and grids


def _split_by(split: Callable[..., Any], *names: str) -> None:
    """Definitions that cut where NumPy does; it takes a number of parts or indices."""
    DEFINITIONS[names[0]] = lambda input, sections: tuple(split(input, sections))
    DEFINITIONS[names[1]] = lambda input, indices: tuple(split(input, indices))


for _name in ("hsplit", "vsplit", "dsplit"):
    _split_by(getattr(np, _name), _name, f"{_name}.indices")
DEFINITIONS.update(
    {
        "hstack": lambda tensors: np.hstack(tensors),
        "vstack": lambda tensors: np.vstack(tensors),
        "dstack": lambda tensors: np.dstack(tensors),
        "column_stack": lambda tensors: np.column_stack(tensors),
        "atleast_1d.tensors": lambda tensors: tuple(map(np.atleast_1d, tensors)),
        "atleast_2d.tensors": lambda tensors: tuple(map(np.atleast_2d, tensors)),
        "atleast_3d.tensors": lambda tensors: tuple(map(np.atleast_3d, tensors)),
        "meshgrid": lambda tensors, indexing: tuple(np.meshgrid(*tensors, indexing=indexing)),
        "tensor_split": lambda input, sections, dim: tuple(np.array_split(input, sections, dim)),
        "tensor_split.indices": lambda input, indices, dim: _cut(input, indices, dim),
    }
)


def _cut(x: Array, indices: Any, dim: int) -> Any:
    return tuple(np.array_split(x, list(indices), dim))


@defines("tensor_split.tensor")
def _tensor_split_tensor(input: Array, tensor_indices_or_sections: Array, dim: int) -> Any:
    return _cut(input, tensor_indices_or_sections.tolist(), dim)


@defines("cartesian_prod")
def _cartesian_prod(tensors: list[Array]) -> Any:
    if len(tensors) == 1:
        return tensors[0]
    rows = list(itertools.product(*tensors))
    return np.array(rows, tensors[0].dtype).reshape(-1, len(tensors))


@defines("block_diag")
def _block_diag(tensors: list[Array]) -> Any:
    parts = [np.atleast_2d(t) for t in tensors]
    made = np.zeros(np.sum([p.shape for p in parts], 0), np.result_type(*parts))
    row, column = 0, 0
    for p in parts:
        made[row : row + len(p), column : column + p.shape[1]] = p
        row, column = row + len(p), column + p.shape[1]
    return made


@defines("diag")
def _diag(input: Array, diagonal: int) -> Any:
    return np.diag(input, diagonal)
