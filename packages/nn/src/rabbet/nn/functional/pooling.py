"""Pooling: one value for each window of a plane or a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rabbet import Tensor, ops

_max_pool2d = ops.max_pool2d_with_indices
_avg_pool2d = ops.avg_pool2d
Pair = int | Sequence[int]


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return the maximum of each window and its index in the flattened plane."""
    values, indices = _max_pool2d(
        input, kernel_size, stride or kernel_size, padding, dilation, ceil_mode
    )
    return values, indices


def max_pool2d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    dilation: Pair = 1,
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
    pooled = _max_pool2d(input, kernel_size, stride or kernel_size, padding, dilation, ceil_mode)
    return tuple(pooled) if return_indices else pooled[0]


def avg_pool2d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
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
    """
    if divisor_override == 0:
        raise RuntimeError("avg_pool2d: divisor must be not zero")
    return _avg_pool2d(
        input,
        kernel_size,
        stride or kernel_size,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int | None] | None) -> Tensor:
    """Return means over windows that divide the plane into `output_size`; None keeps a size."""
    if input.ndim not in (3, 4):
        raise RuntimeError(
            f"adaptive_avg_pool2d: expected 3 or 4 dimensions, got shape {tuple(input.shape)}"
        )
    sizes = (
        (output_size,) * 2 if output_size is None or isinstance(output_size, int) else output_size
    )
    if len(sizes) != 2:
        raise RuntimeError(f"adaptive_avg_pool2d: output_size must be 2, got {tuple(sizes)}")
    whole = input.shape[-2:]
    return ops.adaptive_avg_pool2d(
        input, [n if size is None else size for size, n in zip(sizes, whole, strict=True)]
    )


def _line(value: Pair, name: str, op: str) -> int:
    if isinstance(value, int):
        return value
    if len(value) != 1:
        raise RuntimeError(f"{op}: expected {name} to be an int or 1 int, got {tuple(value)}")
    return value[0]


def _check_line(input: Tensor, op: str) -> None:
    if input.ndim not in (2, 3):
        raise RuntimeError(f"{op}: expected (N, C, L) or (C, L), got shape {tuple(input.shape)}")


def max_pool1d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the maximum of each window of (N, C, L) or (C, L); arguments as in `max_pool2d`."""
    op = "max_pool1d"
    _check_line(input, op)
    window = _line(kernel_size, "kernel_size", op)
    step = _line(stride or window, "stride", op)
    pooled = _max_pool2d(
        input.unsqueeze(-2),
        (1, window),
        (1, step),
        (0, _line(padding, "padding", op)),
        (1, _line(dilation, "dilation", op)),
        ceil_mode,
    )
    if return_indices:
        return pooled[0].squeeze(-2), pooled[1].squeeze(-2)
    return pooled[0].squeeze(-2)


def avg_pool1d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Return the mean of each window of (N, C, L) or (C, L); arguments as in `avg_pool2d`."""
    op = "avg_pool1d"
    _check_line(input, op)
    window = _line(kernel_size, "kernel_size", op)
    step = _line(stride or window, "stride", op)
    pads = (0, _line(padding, "padding", op))
    plane = _avg_pool2d(
        input.unsqueeze(-2), (1, window), (1, step), pads, ceil_mode, count_include_pad, None
    )
    return plane.squeeze(-2)


def adaptive_avg_pool1d(input: Tensor, output_size: Pair) -> Tensor:
    """Return means over windows that divide the line into `output_size`."""
    _check_line(input, "adaptive_avg_pool1d")
    size = _line(output_size, "output_size", "adaptive_avg_pool1d")
    return ops.adaptive_avg_pool2d(input.unsqueeze(-2), [1, size]).squeeze(-2)
