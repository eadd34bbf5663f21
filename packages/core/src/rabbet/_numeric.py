"""Gradients of sampled functions, sums and products of several values, and older names of linear algebra."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import rabbet

from . import _destinations, linalg
from ._C import Tensor
from ._functions import accumulation_dtype

__all__ = ["chain_matmul", "gradient", "lu", "matrix_power", "sym_sum"]


def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """`rabbet.linalg.matrix_power`."""
    return linalg.matrix_power(input, n, out=out)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """`linalg.lu_factor_ex` under its former name: (LU, pivots), with `get_infos` (LU, pivots, infos).

    Args:
        A: matrices (*, m, n), floating or complex.
        out: a tuple of tensors for the results.

    Example:
        >>> LU, pivots = rabbet.lu(rabbet.tensor([[1.0, 2.0], [4.0, 4.0]]))
        >>> pivots
        tensor([2, 2], dtype=rabbet.int32)
    """
    LU, pivots, infos = linalg.lu_factor_ex(A, pivot=pivot)
    results = (LU, pivots, infos) if get_infos else (LU, pivots)
    written = _destinations.write_all("lu", results, out, cast=True)
    return written if out is None else out


def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of matrices; deprecated: `rabbet.linalg.multi_dot` takes a list of them."""
    warnings.warn(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. "
        "Use torch.linalg.multi_dot instead, which accepts a list of two or more tensors rather than "
        "multiple parameters.",
        UserWarning,
        stacklevel=2,
    )
    if len(matrices) == 1:
        return matrices[0]
    return linalg.multi_dot(matrices, out=out)


def sym_sum(*args: Any) -> Any:
    """The sum of numbers, given one by one or as one sequence."""
    values = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    return sum(values)


# ---- gradients of sampled functions


def _spacings(spacing: Any, dims: list[int], input: Tensor) -> list[Any]:
    """The distance of the samples along each dim: a number, or their coordinates."""
    if spacing is None:
        return [1.0] * len(dims)
    if isinstance(spacing, (int, float, complex)) and not isinstance(spacing, bool):
        return [spacing] * len(dims)
    if isinstance(spacing, Tensor):
        raise TypeError(
            "gradient(): expected spacing to be a number or a sequence of numbers or of tensors, got a Tensor"
        )
    found = list(spacing)
    if len(found) != len(dims):
        raise RuntimeError(
            f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to "
            f"'input.dim()' or 'dim': {len(dims)}, but got a list of length {len(found)}"
        )
    for dim, value in zip(dims, found, strict=True):
        if isinstance(value, Tensor) and value.shape != (input.shape[dim],):
            raise RuntimeError(
                f"torch.gradient expected the coordinates of dim {dim} to have the shape "
                f"({input.shape[dim]},), got {tuple(value.shape)}"
            )
    return found


def gradient(
    input: Tensor, *, spacing: Any = 1, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The partial derivatives of a sampled function, by central differences of second order.

    Args:
        input: the samples.
        spacing: the distance of the samples: one number, one per dim, or their coordinates per dim (1-d).
        dim: the dims to differentiate along, all by default.
        edge_order: of the one-sided differences at both ends, 1 or 2.

    Raises:
        RuntimeError: for other orders, repeated dims, and fewer than edge_order + 1 samples.

    Source: B. Fornberg, "Generation of finite difference formulas on arbitrarily spaced grids", 1988.

    Example:
        >>> rabbet.gradient(rabbet.tensor([1.0, 2.0, 4.0, 7.0]))
        (tensor([1.0000, 1.5000, 2.5000, 3.0000]),)
    """
    dims = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = [
        d % max(input.ndim, 1) if -input.ndim <= d < input.ndim else _no_dim(d, input) for d in dims
    ]
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"dim {dims} appears multiple times in the list of dims")
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    for d in dims:
        if input.shape[d] < edge_order + 1:
            raise RuntimeError(
                "torch.gradient expected each dimension size to be at least edge_order+1"
            )
    if not (input.is_floating_point() or input.is_complex()):
        if input.dtype is rabbet.uint8:
            raise RuntimeError("torch.gradient does not support uint8 input.")
        input = input.to(rabbet.get_default_dtype())
    steps = _spacings(spacing, dims, input)
    samples = input.to(accumulation_dtype(input.dtype))
    slopes = [_along(samples, d, step, edge_order) for d, step in zip(dims, steps, strict=True)]
    return tuple(slope.to(input.dtype) for slope in slopes)


def _no_dim(dim: int, input: Tensor) -> int:
    raise IndexError(
        f"Dimension out of range (expected to be in range of [{-input.ndim}, {input.ndim - 1}], but got {dim})"
    )


def _along_even(x: Tensor, dim: int, step: Any, edge_order: int) -> Tensor:
    """The slopes of samples that are `step` apart."""
    count = x.shape[dim]

    def slope(place: int) -> Tensor:
        return (x.narrow(dim, place + 1, 1) - x.narrow(dim, place, 1)) / step

    inner = (x.narrow(dim, 2, count - 2) - x.narrow(dim, 0, count - 2)) / (2 * step)
    first, last = slope(0), slope(count - 2)
    if edge_order == 2:
        first = first + (first - slope(1)) / 2
        last = last + (last - slope(count - 3)) / 2
    return rabbet.cat([first, inner, last], dim)


def _along(x: Tensor, dim: int, step: Any, edge_order: int) -> Tensor:
    count = x.shape[dim]

    def at(start: int, length: int = 1) -> Tensor:
        return x.narrow(dim, start % count, length)

    if not isinstance(step, Tensor) and (x.is_complex() or not isinstance(step, complex)):
        return _along_even(x, dim, step, edge_order)
    if isinstance(step, Tensor):
        between = step.to(x.dtype).diff()
        widths = between.reshape([-1] + [1] * (x.ndim - 1 - dim))
    else:
        widths = rabbet.full(
            [count - 1] + [1] * (x.ndim - 1 - dim), step, dtype=x.dtype, device=x.device
        )

    def width(i: int) -> Tensor:
        return widths.narrow(0, i % (count - 1), 1)

    slopes = (at(1, count - 1) - at(0, count - 1)) / widths
    left, right = widths[:-1], widths[1:]
    before, after = slopes.narrow(dim, 0, count - 2), slopes.narrow(dim, 1, count - 2)
    inner = (before * right + after * left) / (left + right)
    first, last = slopes.narrow(dim, 0, 1), slopes.narrow(dim, count - 2, 1)
    if edge_order == 2:
        second, previous = slopes.narrow(dim, 1, 1), slopes.narrow(dim, count - 3, 1)
        first = first + (first - second) * width(0) / (width(0) + width(1))
        last = last + (last - previous) * width(-1) / (width(-1) + width(-2))
    return rabbet.cat([first, inner, last], dim)
