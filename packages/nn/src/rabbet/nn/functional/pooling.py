"""Pooling: one value for each window of a line, a plane or a volume."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import rabbet
from rabbet import Tensor, ops
from rabbet._destinations import write

from .._accumulate import accumulated
from ._dtypes import INTEGERS, refuse, require_floating
from .convolution import Sizes, sizes_of

_max_pool = ops.max_pool_with_indices
_avg_pool = ops.avg_pool
_SHAPES = {
    1: "(N, C, L) or (C, L)",
    2: "(N, C, H, W) or (C, H, W)",
    3: "(N, C, D, H, W) or (C, D, H, W)",
}


def _check_rank(input: Tensor, rank: int, op: str) -> None:
    if input.ndim not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"{op}: non-empty {rank + 1}D or {rank + 2}D (batch mode) tensor expected for input, {_SHAPES[rank]}, "
            f"got shape {tuple(input.shape)}"
        )


def _check_input(input: Tensor, rank: int, op: str) -> None:
    _check_rank(input, rank, op)
    if 0 in input.shape[-rank - 1 :]:
        raise RuntimeError(
            f"{op}: Expected {rank + 1}D or {rank + 2}D (batch mode) tensor with optional 0 dim batch size for input, "
            f"but got: {list(input.shape)}"
        )


def _stride(stride: Sizes | None, window: Sequence[int], rank: int, op: str) -> Sequence[int]:
    """The stride that is given; None or no sizes: the window's."""
    if stride is None or (isinstance(stride, Sequence) and not stride):
        return window
    return sizes_of(stride, rank, "stride", op)


def _max(
    rank: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    op = f"max_pool{rank}d"
    _check_input(input, rank, op)
    window = sizes_of(kernel_size, rank, "kernel_size", op)
    if rank == 1 and not return_indices:  # PyTorch's kernel for it has no integers
        refuse(op, input, *INTEGERS)
    values, indices = _max_pool(
        input,
        window,
        _stride(stride, window, rank, op),
        sizes_of(padding, rank, "padding", op),
        sizes_of(dilation, rank, "dilation", op),
        ceil_mode,
    )
    return (values, indices) if return_indices else values


def _average(
    rank: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    out: Tensor | None = None,
) -> Tensor:
    op = f"avg_pool{rank}d"
    _check_input(input, rank, op)
    if divisor_override == 0:
        raise RuntimeError(f"{op}: divisor must be not zero")
    window = sizes_of(kernel_size, rank, "kernel_size", op)
    windows = (
        window,
        _stride(stride, window, rank, op),
        sizes_of(padding, rank, "padding", op),
        ceil_mode,
        count_include_pad,
    )
    if input.dtype == rabbet.int64:
        found = _whole_average(input, windows, divisor_override)
        return write(op, found, out)
    return _avg_pool(input, *windows, divisor_override, out=out)


def _whole_average(input: Tensor, windows: tuple[Any, ...], divisor: int | None) -> Tensor:
    """Means of int64 windows, their fractions cut off; sums are exact up to 2**53."""
    numbers = input.double()
    totals = _avg_pool(numbers, *windows, 1).to(rabbet.int64)
    if divisor is None:
        ones = rabbet.ones_like(numbers)
        counts = _avg_pool(ones, *windows, 1) / _avg_pool(ones, *windows, None)
        return totals.div(rabbet.round(counts).to(rabbet.int64), rounding_mode="trunc")
    return totals.div(divisor, rounding_mode="trunc")


def _adapted(
    rank: int, input: Tensor, output_size: int | Sequence[int | None] | None, op: str
) -> list[int]:
    """The output's sizes; None keeps that of the input."""
    if rank > 1 and input.ndim <= rank and isinstance(output_size, Sequence):
        raise ValueError(
            f"{op}: Input dimension should be at least {rank + 1}, got shape {tuple(input.shape)}"
        )
    _check_rank(input, rank, op)
    wanted = (
        (output_size,) * rank
        if output_size is None or isinstance(output_size, int)
        else tuple(output_size)
    )
    if len(wanted) != rank:
        raise RuntimeError(f"{op}: output_size must be {rank} sizes, got {wanted}")
    sizes = [
        n if size is None else size for size, n in zip(wanted, input.shape[-rank:], strict=True)
    ]
    if any(size < 0 for size in sizes):
        raise RuntimeError(f"{op}: output_size must not be negative, got {tuple(sizes)}")
    return sizes


def _adaptive_average(
    rank: int, input: Tensor, output_size: int | Sequence[int | None] | None
) -> Tensor:
    sizes = _adapted(rank, input, output_size, f"adaptive_avg_pool{rank}d")
    return ops.adaptive_avg_pool(input, sizes)


def _adaptive_max(
    rank: int,
    input: Tensor,
    output_size: int | Sequence[int | None] | None,
    return_indices: bool,
) -> Any:
    op = f"adaptive_max_pool{rank}d"
    sizes = _adapted(rank, input, output_size, op)
    if 0 in input.shape[1:]:
        raise RuntimeError(
            f"{op}: Expected input to have non-zero size for non-batch dimensions, but input has sizes "
            f"{list(input.shape)}"
        )
    values, indices = ops.adaptive_max_pool_with_indices(input, sizes)
    return (values, indices) if return_indices else values


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return the maximum of each window and its index in the flattened line."""
    return _max(1, input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the maximum of each window of (N, C, L) or (C, L); arguments as in `max_pool2d`."""
    return _max(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return the maximum of each window and its index in the flattened plane."""
    return _max(2, input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the maximum of each window of (N, C, H, W) or (C, H, W).

    Args:
        input: the planes.
        kernel_size: the window.
        stride: its step, the window itself if None.
        padding: minus infinity around the input, at most half of the window.
        dilation: step between the elements of a window.
        ceil_mode: whether a window may reach over the end.
        return_indices: also return where in the flattened plane the maxima stand.
    """
    return _max(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return the maximum of each window and its index in the flattened volume."""
    return _max(3, input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the maximum of each window of (N, C, D, H, W) or (C, D, H, W); arguments as in `max_pool2d`."""
    return _max(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def avg_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Return the mean of each window of (N, C, L) or (C, L); arguments as in `avg_pool2d`."""
    return _average(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the mean of each window of (N, C, H, W) or (C, H, W).

    Args:
        input: the planes.
        kernel_size: the window.
        stride: its step, the window itself if None.
        padding: zeros around the input.
        ceil_mode: whether a window may reach over the end.
        count_include_pad: whether padding counts in the divisor.
        divisor_override: divide by this instead of the number of elements.
        out: where the result is written.
    """
    return _average(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, out
    )


def avg_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the mean of each window of (N, C, D, H, W) or (C, D, H, W); arguments as in `avg_pool2d`."""
    return _average(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, out
    )


def adaptive_avg_pool1d(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
    """Return means over windows that divide the line into `output_size`."""
    return _adaptive_average(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
    """Return means over windows that divide the plane into `output_size`; None keeps a size."""
    return _adaptive_average(2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
    """Return means over windows that divide the volume into `output_size`; None keeps a size."""
    return _adaptive_average(3, input, output_size)


def adaptive_max_pool1d(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> Any:
    """Return maxima over windows that divide the line into `output_size`.

    With `return_indices` also where in the flattened line they stand.
    """
    return _adaptive_max(1, input, output_size, return_indices)


def adaptive_max_pool2d(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> Any:
    """Return maxima over windows that divide the plane into `output_size`; None keeps a size.

    With `return_indices` also where in the flattened plane they stand.
    """
    return _adaptive_max(2, input, output_size, return_indices)


def adaptive_max_pool3d(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> Any:
    """Return maxima over windows that divide the volume into `output_size`; None keeps a size.

    With `return_indices` also where in the flattened volume they stand.
    """
    return _adaptive_max(3, input, output_size, return_indices)


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool1d` with return_indices=True."""
    return _adaptive_max(1, input, output_size, True)


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool2d` with return_indices=True."""
    return _adaptive_max(2, input, output_size, True)


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: int | Sequence[int | None] | None, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool3d` with return_indices=True."""
    return _adaptive_max(3, input, output_size, True)


def _power_average(
    rank: int,
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None,
    ceil_mode: bool,
) -> Tensor:
    count = math.prod(sizes_of(kernel_size, rank, "kernel_size", f"lp_pool{rank}d"))
    means = _average(rank, input**norm_type, kernel_size, stride, 0, ceil_mode, True, None)
    return (rabbet.sign(means) * rabbet.relu(rabbet.abs(means)) * count) ** (1.0 / norm_type)


@accumulated
def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Return `(sum of x ** norm_type) ** (1 / norm_type)` over each window of a line."""
    return _power_average(1, input, norm_type, kernel_size, stride, ceil_mode)


@accumulated
def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Return `(sum of x ** norm_type) ** (1 / norm_type)` over each window of a plane."""
    return _power_average(2, input, norm_type, kernel_size, stride, ceil_mode)


@accumulated
def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Return `(sum of x ** norm_type) ** (1 / norm_type)` over each window of a volume."""
    return _power_average(3, input, norm_type, kernel_size, stride, ceil_mode)


def _unpool(
    rank: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    output_size: Sequence[int] | None,
) -> Tensor:
    op = f"max_unpool{rank}d"
    _check_rank(input, rank, op)
    require_floating(op, input)
    if tuple(indices.shape) != tuple(input.shape):
        raise RuntimeError(
            f"{op}: expected shape of indices to be same as that of the input tensor "
            f"{list(input.shape)} but got indices tensor with shape: {list(indices.shape)}"
        )
    window = sizes_of(kernel_size, rank, "kernel_size", op)
    steps = _stride(stride, window, rank, op)
    pads = sizes_of(padding, rank, "padding", op)
    sizes = [
        (n - 1) * steps[d] + window[d] - 2 * pads[d] for d, n in enumerate(input.shape[-rank:])
    ]
    if output_size is not None:
        wanted = list(output_size)
        if len(wanted) == rank + 2:
            wanted = wanted[2:]
        if len(wanted) != rank:
            raise ValueError(
                f"output_size should be a sequence containing {rank} or {rank + 2} elements, "
                f"but it has a length of '{len(wanted)}'"
            )
        for d in range(rank):
            low, high = sizes[d] - steps[d], sizes[d] + steps[d]
            if not low < wanted[d] < high:
                raise ValueError(
                    f'invalid output_size "{wanted}" (dim {d} must be between {low} and {high})'
                )
        sizes = wanted
    count = math.prod(sizes)
    lead = list(input.shape[:-rank])
    flat = rabbet.zeros([*lead, count], dtype=input.dtype, device=input.device)
    try:
        flat = flat.scatter(-1, indices.reshape([*lead, -1]), input.reshape([*lead, -1]))
    except IndexError as error:
        raise RuntimeError(
            f"{op}: found an invalid max index (output volumes are of size "
            f"{'x'.join(map(str, sizes))}): {error}"
        ) from error
    result = flat.reshape([*lead, *sizes])
    channels_last = input.ndim == 4 and rank == 2 and not input.is_contiguous()
    if channels_last and input.is_contiguous(memory_format=rabbet.channels_last):
        return result.contiguous(memory_format=rabbet.channels_last)
    return result


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put maxima back where `max_pool1d` found them, zeros elsewhere."""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put maxima back where `max_pool2d` found them, zeros elsewhere."""
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Put maxima back where `max_pool3d` found them, zeros elsewhere."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)


def _starts(samples: Tensor, size: int, window: int, count: int) -> Tensor:
    """First positions (N, C, count) of windows whose distances are pseudo-random (Graham 2015)."""
    last = rabbet.full([*samples.shape, 1], size - window, device=samples.device)
    if count == 1:
        return last
    step = (size - window) / (count - 1)
    places = rabbet.arange(count - 1, dtype=samples.dtype, device=samples.device)
    shifted = ((places + samples.unsqueeze(-1)) * step).to(dtype=rabbet.int64)
    first = (samples * step).to(dtype=rabbet.int64).unsqueeze(-1)
    return rabbet.cat([shifted - first, last], dim=-1)


def _fractional_max(
    rank: int,
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None,
    output_ratio: Any,
    samples: Tensor | None,
) -> tuple[Tensor, Tensor]:
    op = f"fractional_max_pool{rank}d"
    _check_rank(input, rank, op)
    require_floating(op, input)
    if output_size is None and output_ratio is None:
        raise ValueError(f"{op} requires specifying either an output_size or an output_ratio")
    sizes = list(input.shape[-rank:])
    window = sizes_of(kernel_size, rank, "kernel_size", op)
    if output_size is None:
        ratios = [output_ratio] * rank if isinstance(output_ratio, float) else output_ratio
        output_size = [int(n * r) for n, r in zip(sizes, ratios, strict=True)]
    counts = sizes_of(output_size, rank, "output_size", op)
    for size, k, count in zip(sizes, window, counts, strict=True):
        if count < 1 or size < count + k - 1:
            raise RuntimeError(
                f"{op}: expected an output_size of 1 to {size - k + 1} for size {size} and "
                f"kernel_size {k}, got {count}"
            )
    x = input if input.ndim == rank + 2 else input.unsqueeze(0)
    planes = list(x.shape[:2])
    if samples is None:
        samples = rabbet.rand([*planes, rank], dtype=input.dtype, device=input.device)
    elif list(samples.shape[1:]) != [planes[1], rank] or samples.shape[0] < planes[0]:
        raise RuntimeError(
            f"{op}: expected _random_samples of shape {(*planes, rank)}, got {tuple(samples.shape)}"
        )
    samples = samples[: planes[0]]
    # Positions in the flattened plane: (N, C, *counts, *window), a sum over the directions.
    index = rabbet.zeros([1] * (2 + 2 * rank), dtype=rabbet.int64, device=input.device)
    for d, (size, k, count) in enumerate(zip(sizes, window, counts, strict=True)):
        # PyTorch's order of samples: width first for planes, depth first for volumes.
        sample = samples[..., rank - 1 - d if rank == 2 else d]
        offsets = rabbet.arange(k, device=input.device)
        own = _starts(sample, size, k, count).unsqueeze(-1) + offsets
        shape = [1] * (2 * rank)
        shape[d], shape[rank + d] = count, k
        index = index + own.view(planes + shape) * math.prod(sizes[d + 1 :])
    index = index.flatten(-rank)
    values = x.flatten(2).gather(2, index.flatten(2)).view(index.shape)
    best, where = values.max(dim=-1)
    found = index.gather(-1, where.unsqueeze(-1)).squeeze(-1)
    return (best, found) if x is input else (best.squeeze(0), found.squeeze(0))


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`fractional_max_pool2d` with return_indices=True."""
    return _fractional_max(2, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Return maxima over windows at pseudo-random distances (Graham 2015).

    Args:
        input: (N, C, *) or (C, *).
        kernel_size: size of a window.
        output_size: how many windows there are in each direction.
        output_ratio: instead of it, its ratio to the input's size.
        return_indices: whether to return also where in the flattened plane the maxima stand.
    """
    best, found = _fractional_max(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return (best, found) if return_indices else best


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`fractional_max_pool3d` with return_indices=True."""
    return _fractional_max(3, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Return maxima over windows at pseudo-random distances (Graham 2015).

    Args:
        input: (N, C, *) or (C, *).
        kernel_size: size of a window.
        output_size: how many windows there are in each direction.
        output_ratio: instead of it, its ratio to the input's size.
        return_indices: whether to return also where in the flattened volume the maxima stand.
    """
    best, found = _fractional_max(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return (best, found) if return_indices else best
