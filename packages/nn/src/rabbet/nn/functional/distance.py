"""Norms of vectors, distances and similarities between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import rabbet
from rabbet import Tensor

from .._accumulate import accumulated, widened

_vector_norm = rabbet._C.op("vector_norm")

_Dims: TypeAlias = int | Sequence[int]


def vector_norm(input: Tensor, p: float, dim: _Dims | None = None, keepdim: bool = False) -> Tensor:
    """Return the p-norm over the dimensions `dim`, or over all elements if None."""
    return _vector_norm(input, p, dim, keepdim)


def normalize(
    input: Tensor, p: float = 2.0, dim: _Dims = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """Return `input` divided by its p-norm over the dimensions `dim`, or by `eps` where that is larger."""
    if out is None:
        return _normalized(input, p, dim, eps)
    x = widened(input)
    return rabbet.div(x, _divisor(x, p, dim, eps), out=out)


@accumulated
def _normalized(input: Tensor, p: float, dim: _Dims, eps: float) -> Tensor:
    return input / _divisor(input, p, dim, eps)


def _divisor(x: Tensor, p: float, dim: _Dims, eps: float) -> Tensor:
    return rabbet.clamp(vector_norm(x, p, dim, True), min=eps)


@accumulated
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine of the angle between `x1` and `x2` along `dim`; norms count at least `eps`.

    Both are broadcast and cast to one dtype first.

    Raises:
        RuntimeError: if that is neither floating nor complex.
    """
    dtype = rabbet.result_type(x1, x2)
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(
            f"cosine_similarity: expected common dtype to be floating point, yet common dtype is {dtype}"
        )
    x1, x2 = rabbet.broadcast_tensors(x1.to(dtype), x2.to(dtype))
    return rabbet.sum(_normalized(x1, 2, dim, eps) * _normalized(x2, 2, dim, eps), dim)


@accumulated
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """Return the p-norm of `x1 - x2 + eps` along the last dimension."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


@accumulated
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Return the p-norm distances of all pairs of rows of (N, M), as N (N - 1) / 2 values."""
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    rows, columns = rabbet.triu_indices(
        input.shape[0], input.shape[0], 1, dtype=rabbet.int64, device=input.device
    )
    return rabbet.cdist(input, input, p)[rows, columns]
