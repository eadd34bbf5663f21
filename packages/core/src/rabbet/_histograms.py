"""Histograms of numbers and of points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import rabbet

from . import _destinations
from ._C import Tensor

__all__ = ["histogram", "histogramdd"]


class Histogram(NamedTuple):
    """What histogram() returns: counts or densities, and one edge more than those."""

    hist: Tensor
    bin_edges: Tensor


class Histogramdd(NamedTuple):
    """What histogramdd() returns: counts or densities, and for each dimension one edge more than it has bins."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def _ends(name: str, values: Tensor, range: Sequence[float] | None) -> tuple[float, float]:
    """Where the first bin starts and the last one ends."""
    if range is not None:
        low, high = map(float, range)
    elif values.numel():
        low, high = values.min().item(), values.max().item()
    else:
        low, high = 0.0, 1.0
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.{name}(): range [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(
            f"torch.{name}(): min should not exceed max, but got min {low} max {high}"
        )
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _edges(name: str, values: Tensor, bins: Any, range: Sequence[float] | None, dim: int) -> Tensor:
    """The rising edges of the bins of one dimension, given as such or by their number."""
    if isinstance(bins, Tensor):
        if bins.ndim != 1 or bins.numel() < 1:
            raise RuntimeError(
                f"torch.{name}(): bins tensor should have one dimension and elements, got {tuple(bins.shape)} "
                f"for dimension {dim}"
            )
        if bins.dtype is not values.dtype:
            raise RuntimeError(
                f"torch.{name}(): input tensor and bins tensors should have the same dtype, but got input with "
                f"dtype {values.dtype} and bins for dimension {dim} with dtype {bins.dtype}"
            )
        if range is not None:
            raise TypeError(f"{name}(): range is for a number of bins, not for their edges")
        return bins
    if bins <= 0:
        raise RuntimeError(f"torch.{name}(): bins must be > 0, but got {bins} for dimension {dim}")
    low, high = _ends(name, values, range)
    return rabbet.linspace(low, high, bins + 1, dtype=values.dtype, device=values.device)


def _counted(
    points: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool
) -> Tensor:
    """The weight of the points (n, dims) in each cell; a cell has its lower edges, the last ones both."""
    shape = [edge.numel() - 1 for edge in edges]
    inside = rabbet.ones(points.shape[0], dtype=rabbet.bool, device=points.device)
    cell = rabbet.zeros(points.shape[0], dtype=rabbet.int64, device=points.device)
    for values, edge, count in zip(points.unbind(1), edges, shape, strict=True):
        place = rabbet.searchsorted(edge.contiguous(), values.contiguous(), right=True) - 1
        place = rabbet.where(values == edge[-1], count - 1, place)
        inside &= (place >= 0) & (place < count) & (values <= edge[-1])
        cell = cell * count + place.clamp(0, max(count - 1, 0))
    amounts = rabbet.ones_like(inside, dtype=points.dtype) if weight is None else weight
    amounts = rabbet.where(inside, amounts, rabbet.zeros_like(amounts))
    hist = rabbet.zeros(math.prod(shape), dtype=points.dtype, device=points.device)
    if hist.numel():
        hist = hist.index_add(0, cell, amounts)
    hist = hist.reshape(shape)
    if density:
        hist = hist / hist.sum()
        for d, edge in enumerate(edges):
            hist = hist / edge.diff().reshape([-1] + [1] * (len(edges) - 1 - d))
    return hist


def _check_dtype(name: str, input: Tensor) -> None:
    if not input.is_floating_point():
        raise RuntimeError(f"{name}(): expected a floating tensor, got {input.dtype}")


def histogram(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
    out: tuple[Tensor, Tensor] | None = None,
) -> Histogram:
    """How many elements lie in each bin; a bin has its left edge, the last one both.

    Args:
        input: floating, of any shape; elements outside of the edges are not counted.
        bins: how many of equal width, or their rising edges (1-d).
        range: from where to where, for a number of bins; the smallest and largest element by default.
        weight: of each element, in the shape of `input`.
        density: divide by the sum and the widths, so that the area is 1.

    Raises:
        RuntimeError: for other dtypes and shapes, and for bins or ranges that are none.
    """
    _check_dtype("histogram", input)
    if weight is not None and (weight.shape != input.shape or weight.dtype is not input.dtype):
        raise RuntimeError(
            "torch.histogram(): if weight tensor is provided it should have the shape and dtype of input, got "
            f"{tuple(weight.shape)} of {weight.dtype} for {tuple(input.shape)} of {input.dtype}"
        )
    values = input.detach().reshape(-1, 1)
    edges = _edges("histogram", values, bins, range, 0)
    weights = None if weight is None else weight.detach().reshape(-1)
    hist = _counted(values, [edges], weights, density)
    if edges is bins:
        edges = edges.clone()
    return Histogram(*_destinations.write_all("histogram", (hist, edges), out))


def histogramdd(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogramdd:
    """How many points lie in each cell of a grid; a cell has its lower edges, the last ones of a dimension both.

    Args:
        input: points (*, N), floating; those outside of the edges are not counted.
        bins: for all N dimensions one number of bins of equal width; or for each a number, or its rising edges (1-d).
        range: 2 * N numbers, from where to where each dimension goes, for numbers of bins; its smallest and largest
            coordinate by default.
        weight: of each point, (*).
        density: divide by the sum and the volume of the cell, so that the integral is 1.

    Returns:
        hist (bins[0], ..., bins[N - 1]), and the edges of each dimension.

    Raises:
        RuntimeError: for other dtypes and shapes, and for bins or ranges that are none.

    Example:
        >>> points = rabbet.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [2.0, 2.0]])
        >>> rabbet.histogramdd(points, bins=[2, 2]).hist
        tensor([[0., 1.],
                [1., 2.]])
    """
    _check_dtype("histogramdd", input)
    if input.ndim < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    dims = input.shape[-1]
    each = [bins] * dims if isinstance(bins, int) else list(bins)
    if len(each) != dims:
        raise RuntimeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input."
        )
    if range is not None and len(range) != 2 * dims:
        raise RuntimeError(
            f"torch.histogramdd: for a {dims}-dimensional histogram range should have {2 * dims} elements, but got "
            f"{len(range)}"
        )
    if weight is not None and weight.shape != input.shape[:-1]:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
            f"excluding its innermost dimension, but got input with shape {list(input.shape)} and weight with shape "
            f"{list(weight.shape)}"
        )
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
            f"dtype, but got input({input.dtype}), and weight({weight.dtype})"
        )
    points = input.detach().reshape(-1, dims)
    edges = tuple(
        _edges(
            "histogramdd", points[:, d], b, None if range is None else range[2 * d : 2 * d + 2], d
        )
        for d, b in enumerate(each)
    )
    weights = None if weight is None else weight.detach().reshape(-1)
    return Histogramdd(_counted(points, edges, weights, density), edges)
