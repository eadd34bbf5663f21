"""Norms of vectors, distances and similarities between them."""

from __future__ import annotations

import rabbet
from rabbet import Tensor


def vector_norm(input: Tensor, p: float, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the p-norm over `dim`, or over all elements if None."""
    if p == 2:
        return rabbet.sqrt(rabbet.sum(rabbet.abs(input) ** 2, dim, keepdim))
    magnitude = rabbet.abs(input)
    if p == float("inf"):
        return rabbet.amax(magnitude, dim, keepdim)
    if p == float("-inf"):
        return rabbet.amin(magnitude, dim, keepdim)
    if p == 1:
        return rabbet.sum(magnitude, dim, keepdim)
    if p == 0:
        return rabbet.sum((magnitude != 0).to(dtype=magnitude.dtype), dim, keepdim)
    return rabbet.sum(magnitude**p, dim, keepdim) ** (1.0 / p)


def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """Return `input` divided by its p-norm along `dim`, or by `eps` where that is larger."""
    norm = rabbet.clamp(vector_norm(input, p, dim, True), min=eps)
    return input / norm if out is None else rabbet.div(input, norm, out=out)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine of the angle between `x1` and `x2` along `dim`; norms count at least `eps`."""
    unit1 = x1 / rabbet.clamp(vector_norm(x1, 2, dim, True), min=eps)
    unit2 = x2 / rabbet.clamp(vector_norm(x2, 2, dim, True), min=eps)
    return rabbet.sum(unit1 * unit2, dim)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """Return the p-norm of `x1 - x2 + eps` along the last dimension."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)
