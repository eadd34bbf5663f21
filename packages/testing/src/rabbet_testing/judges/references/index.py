"""Definitions of operators with indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from .definitions import Array, defines


def _grid(index: Array, dim: int) -> tuple[Array, ...]:
    places: list[Array] = list(np.indices(index.shape))
    places[dim] = index
    return tuple(places)


@defines("gather")
def gathered(input: Array, dim: int, index: Array) -> Any:
    return input[_grid(index, dim)]


def _part(src: Array, like: Array) -> Array:
    return src[tuple(slice(n) for n in like.shape)]


@defines("scatter_add")
def _scatter_add(input: Array, dim: int, index: Array, src: Array) -> Any:
    out = input.copy()
    np.add.at(out, _grid(index, dim), _part(src, index))
    return out


@defines("scatter")
def _scatter(input: Array, dim: int, index: Array, src: Array) -> Any:
    out = input.copy()
    out[_grid(index, dim)] = _part(src, index)
    return out


@defines("scatter.value")
def _scatter_value(input: Array, dim: int, index: Array, value: Any) -> Any:
    out = input.copy()
    out[_grid(index, dim)] = value
    return out


@defines("index_select")
def _index_select(input: Array, dim: int, index: Array) -> Any:
    return np.take(input, index, dim)


@defines("index_add")
def _index_add(input: Array, dim: int, index: Array, source: Array, alpha: Any) -> Any:
    out = input.copy()
    added = source * np.asarray(alpha).astype(input.dtype)
    np.add.at(np.moveaxis(out, dim, 0), index, np.moveaxis(added, dim, 0))
    return out


def _places(indices: list[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i for i in indices)


@defines("index")
def _index(input: Array, indices: list[Any]) -> Any:
    return input[_places(indices)]


@defines("index_put")
def _index_put(input: Array, indices: list[Any], values: Any, accumulate: bool) -> Any:
    out = input.copy()
    if accumulate:
        np.add.at(out, _places(indices), values)
    else:
        out[_places(indices)] = values
    return out


@defines("nonzero")
def _nonzero(input: Array) -> Any:
    return np.argwhere(input)


@defines("mask_indices")
def _mask_indices(mask: Array) -> Any:
    return np.nonzero(mask)


@defines("masked_select")
def _masked_select(input: Array, mask: Array) -> Any:
    x, m = np.broadcast_arrays(input, mask)
    return x[m]


@defines("searchsorted")
def _searchsorted(sorted_sequence: Array, input: Array, right: bool) -> Any:
    return np.searchsorted(sorted_sequence, input, "right" if right else "left")


@defines("embedding")
def _embedding(weight: Array, indices: Array) -> Any:
    return weight[indices]


@defines("embedding_backward")
def _embedding_backward(g: Array, indices: Array, shape: Any, padding_idx: int) -> Any:
    out = np.zeros(shape, g.dtype)
    np.add.at(
        out, indices, np.where((indices == padding_idx)[..., None], 0, g) if padding_idx >= 0 else g
    )
    return out


@defines("bincount")
def _bincount(input: Array, weights: Any, minlength: int) -> Any:
    return np.bincount(input, weights, minlength)


@defines("unique_results")
def _unique(input: Array, return_inverse: bool, return_counts: bool, dim: int | None) -> Any:
    values, inverse, counts = np.unique(
        input, return_inverse=True, return_counts=True, axis=dim, equal_nan=False
    )
    nothing = np.zeros(0, np.int64)
    inverse = inverse.reshape(input.shape if dim is None else -1)
    return values, inverse if return_inverse else nothing, counts if return_counts else nothing
