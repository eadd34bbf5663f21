"""Definitions of pooling."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from .definitions import Array, defines
from .products import each


def _windows(size: int, k: int, s: int, p: int, d: int, ceil: bool) -> list[list[int]]:
    """The places of each window in one direction, those in the padding included."""
    room = size + 2 * p - d * (k - 1) - 1
    count = (-(-room // s) if ceil else room // s) + 1
    if ceil and (count - 1) * s >= size + p:
        count -= 1
    return [[i * s - p + d * j for j in range(k)] for i in range(count)]


def _adaptive(size: int, out: int) -> list[list[int]]:
    return [list(range(i * size // out, -(-(i + 1) * size // out))) for i in range(out)]


def _pooled(
    x: Array, windows: list[list[list[int]]], f: Callable[[list[tuple[int, ...]]], Any]
) -> Any:
    """f(the places of a window) for each window."""
    found = [f(list(itertools.product(*w))) for w in itertools.product(*windows)]
    return np.moveaxis(np.array(found), 0, -1).reshape(*np.shape(found[0]), *map(len, windows))


def _inside(places: Any, sizes: Any) -> list[tuple[int, ...]]:
    return [p for p in places if all(0 <= i < n for i, n in zip(p, sizes, strict=True))]


def _largest(x: Array, windows: list[list[list[int]]]) -> Any:
    n = len(windows)
    flat = x.reshape(*x.shape[: x.ndim - n], -1)

    def best(places: Any) -> Any:
        at = np.array(
            [np.ravel_multi_index(p, x.shape[-n:]) for p in _inside(places, x.shape[-n:])]
        )
        return at[np.argmax(flat[..., at], -1)]

    indices = _pooled(x, windows, best)
    values = np.take_along_axis(flat, indices.reshape(*flat.shape[:-1], -1), -1)
    return values.reshape(indices.shape), indices


def _pool_windows(
    sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> list[list[list[int]]]:
    n = len(kernel)
    parts = zip(
        sizes[-n:],
        kernel,
        each(stride or kernel, n),
        each(padding, n),
        each(dilation, n),
        strict=True,
    )
    return [_windows(*part, ceil) for part in parts]


@defines("max_pool_with_indices")
def _max_pool(
    input: Array, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    return _largest(
        input, _pool_windows(input.shape, kernel_size, stride, padding, dilation, ceil_mode)
    )


@defines("adaptive_max_pool_with_indices")
def _adaptive_max_pool(input: Array, output_size: Any) -> Any:
    sizes = input.shape[-len(output_size) :]
    return _largest(input, [_adaptive(n, o) for n, o in zip(sizes, output_size, strict=True)])


@defines("max_pool_dx")
def _max_pool_dx(g: Array, indices: Array, shape: Any, rank: int) -> Any:
    out = np.zeros((int(np.prod(shape[:-rank])), int(np.prod(shape[-rank:]))), g.dtype)
    for row, values, at in zip(
        out, g.reshape(len(out), -1), indices.reshape(len(out), -1), strict=True
    ):
        np.add.at(row, at, values)
    return out.reshape(shape)


def _mean_weights(
    sizes: Any, windows: list[list[list[int]]], padding: Any, whole: bool, divisor: Any
) -> Any:
    """For each window its places, and what their sum is divided by."""
    for window in itertools.product(*windows):
        places = list(itertools.product(*window))
        kept = _inside(places, sizes)
        padded = [
            all(-p <= i < n + p for i, n, p in zip(q, sizes, padding, strict=True)) for q in places
        ]
        yield kept, divisor or (sum(padded) if whole else len(kept))


def _average(
    x: Array, windows: list[list[list[int]]], padding: Any, whole: bool, divisor: Any
) -> Any:
    n = len(windows)
    weights = _mean_weights(x.shape[-n:], windows, padding, whole, divisor)
    found = [sum(x[(..., *p)] for p in kept) / count for kept, count in weights]
    return np.moveaxis(np.array(found), 0, -1).reshape(*x.shape[:-n], *map(len, windows))


def _average_dx(g: Array, shape: Any, windows: Any, padding: Any, whole: bool, divisor: Any) -> Any:
    n, out = len(windows), np.zeros(shape, g.dtype)
    flat = g.reshape(*g.shape[:-n], -1)
    for i, (kept, count) in enumerate(_mean_weights(shape[-n:], windows, padding, whole, divisor)):
        for p in kept:
            out[(..., *p)] += flat[..., i] / count
    return out


@defines("avg_pool")
def _avg_pool(input: Array, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
              divisor_override: Any) -> Any:  # fmt: skip
    windows = _pool_windows(input.shape, kernel_size, stride, padding, [1], ceil_mode)
    return _average(
        input, windows, each(padding, len(windows)), count_include_pad, divisor_override
    )


@defines("avg_pool_dx")
def _avg_pool_dx(g: Array, shape: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
                 count_include_pad: bool, divisor_override: Any) -> Any:  # fmt: skip
    windows = _pool_windows(shape, kernel_size, stride, padding, [1], ceil_mode)
    return _average_dx(
        g, shape, windows, each(padding, len(windows)), count_include_pad, divisor_override
    )


@defines("adaptive_avg_pool")
def _adaptive_avg_pool(input: Array, output_size: Any) -> Any:
    n = len(output_size)
    windows = [_adaptive(a, b) for a, b in zip(input.shape[-n:], output_size, strict=True)]
    return _average(input, windows, [0] * n, True, None)


@defines("adaptive_avg_pool_dx")
def _adaptive_avg_pool_dx(g: Array, shape: Any, rank: int) -> Any:
    windows = [_adaptive(a, b) for a, b in zip(shape[-rank:], g.shape[-rank:], strict=True)]
    return _average_dx(g, shape, windows, [0] * rank, True, None)
