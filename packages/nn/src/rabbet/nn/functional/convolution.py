"""Convolutions and padding."""

from __future__ import annotations

from collections.abc import Sequence

import rabbet
from rabbet import Tensor, ops

_conv2d = ops.conv2d
Pair = int | Sequence[int]


def _pair(value: Pair, name: str, op: str) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    if len(value) == 1:
        return value[0], value[0]
    if len(value) != 2:
        raise RuntimeError(f"{op}: expected {name} to be an int or 2 ints, got {tuple(value)}")
    return value[0], value[1]


def _single(value: Pair, name: str, op: str) -> int:
    if isinstance(value, int):
        return value
    if len(value) != 1:
        raise RuntimeError(f"{op}: expected {name} to be an int or 1 int, got {tuple(value)}")
    return value[0]


def same_padding(kernel_size: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Padding, as `pad` takes it, that keeps sizes; the odd element goes behind."""
    widths: list[int] = []
    for kernel, step in zip(reversed(kernel_size), reversed(dilation), strict=True):
        total = step * (kernel - 1)
        widths += [total // 2, total - total // 2]
    return widths


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve a plane with filters.

    Args:
        input: (N, C, H, W) or (C, H, W).
        weight: (O, C / groups, kH, kW).
        bias: (O,).
        stride: step of the window, one int or one per direction.
        padding: zeros around the input, or 'valid' (none) or 'same' (the output has the input's size).
        dilation: step between the elements of a filter.
        groups: into how many independent groups the channels fall.
    """
    if isinstance(padding, str):
        if padding == "valid":
            padding = 0
        elif padding != "same":
            raise RuntimeError(
                f"Invalid padding string: {padding!r}, should be one of 'valid', 'same'"
            )
        else:
            if _pair(stride, "stride", "conv2d") != (1, 1):
                raise RuntimeError("padding='same' is not supported for strided convolutions")
            steps = _pair(dilation, "dilation", "conv2d")
            left, right, top, bottom = same_padding(weight.shape[2:], steps)
            if left == right and top == bottom:
                padding = (top, left)
            else:
                input, padding = ops.pad_constant(input, [left, right, top, bottom]), 0
    if input.ndim == 3:
        batch = input.unsqueeze(0)
        return _conv2d(batch, weight, bias, stride, padding, dilation, groups).squeeze(0)
    return _conv2d(input, weight, bias, stride, padding, dilation, groups)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve a line with filters: as `conv2d`, with (N, C, L) or (C, L) and (O, C / groups, k)."""
    if input.ndim not in (2, 3) or weight.ndim != 3:
        raise RuntimeError(
            "conv1d: expected input of 2 or 3 and weight of 3 dimensions, "
            f"got {tuple(input.shape)} and {tuple(weight.shape)}"
        )
    if not isinstance(padding, str):
        padding = (0, _single(padding, "padding", "conv1d"))
    plane = conv2d(
        input.unsqueeze(-2),
        weight.unsqueeze(-2),
        bias,
        (1, _single(stride, "stride", "conv1d")),
        padding,
        (1, _single(dilation, "dilation", "conv1d")),
        groups,
    )
    return plane.squeeze(-2)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    groups: int = 1,
    dilation: Pair = 1,
) -> Tensor:
    """Spread each element of a plane over a window: the gradient of `conv2d` with respect to its input.

    Args:
        input: (N, C, H, W) or (C, H, W).
        weight: (C, O / groups, kH, kW).
        bias: (O,).
        stride, padding, dilation, groups: of that convolution.
        output_padding: added to one side of the output's size, less than stride or dilation.
    """
    if input.ndim == 3:
        batch = input.unsqueeze(0)
        return conv_transpose2d(
            batch, weight, bias, stride, padding, output_padding, groups, dilation
        ).squeeze(0)
    if input.ndim != 4 or weight.ndim != 4:
        raise RuntimeError(
            "conv_transpose2d: expected input of 3 or 4 and weight of 4 dimensions, "
            f"got {tuple(input.shape)} and {tuple(weight.shape)}"
        )
    if input.shape[1] != weight.shape[0]:
        raise RuntimeError(
            f"conv_transpose2d: weight {tuple(weight.shape)} expects {weight.shape[0]} channels, "
            f"got {input.shape[1]} in {tuple(input.shape)}"
        )
    steps, pads, extra, dilations = (
        _pair(value, name, "conv_transpose2d")
        for value, name in (
            (stride, "stride"),
            (padding, "padding"),
            (output_padding, "output_padding"),
            (dilation, "dilation"),
        )
    )
    sizes = []
    for d in range(2):
        if not 0 <= extra[d] < max(steps[d], dilations[d]):
            raise RuntimeError(
                "output padding must be smaller than either stride or dilation, but got "
                f"output_padding {extra[d]}, stride {steps[d]}, dilation {dilations[d]}"
            )
        kernel = dilations[d] * (weight.shape[2 + d] - 1) + 1
        sizes.append((input.shape[2 + d] - 1) * steps[d] - 2 * pads[d] + kernel + extra[d])
    shape = [input.shape[0], weight.shape[1] * groups, *sizes]
    result = ops.conv2d_dx(input, weight, shape, steps, pads, dilations, groups)
    return result if bias is None else result + bias.reshape([-1, 1, 1])


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
    groups: int = 1,
    dilation: Pair = 1,
) -> Tensor:
    """Spread each element of a line over a window: as `conv_transpose2d`, in one direction."""
    if input.ndim not in (2, 3) or weight.ndim != 3:
        raise RuntimeError(
            "conv_transpose1d: expected input of 2 or 3 and weight of 3 dimensions, "
            f"got {tuple(input.shape)} and {tuple(weight.shape)}"
        )
    op = "conv_transpose1d"
    plane = conv_transpose2d(
        input.unsqueeze(-2),
        weight.unsqueeze(-2),
        bias,
        (1, _single(stride, "stride", op)),
        (0, _single(padding, "padding", op)),
        (0, _single(output_padding, "output_padding", op)),
        groups,
        (1, _single(dilation, "dilation", op)),
    )
    return plane.squeeze(-2)


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Add elements around the last dimensions, or take some away where a width is negative.

    Args:
        input: any tensor.
        pad: (before, after) pairs, beginning with the last dimension.
        mode: 'constant', 'reflect' (mirrored without the edge), 'replicate' (the edge) or 'circular'.
        value: what 'constant' adds, 0 if None.
    """
    widths = list(pad)
    if len(widths) % 2 or len(widths) > 2 * input.ndim:
        raise RuntimeError(
            f"pad: expected at most {input.ndim} (before, after) pairs for shape "
            f"{tuple(input.shape)}, got {tuple(widths)}"
        )
    if mode == "constant":
        return ops.pad_constant(input, widths, 0 if value is None else value)
    if mode not in _SOURCES:
        raise NotImplementedError(
            f"pad: expected mode 'constant', 'reflect', 'replicate' or 'circular', got {mode!r}"
        )
    if value is not None and value != 0:
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    for i in range(len(widths) // 2):
        before, after = widths[2 * i], widths[2 * i + 1]
        if before == 0 and after == 0:
            continue
        dim = input.ndim - 1 - i
        size = input.shape[dim]
        _check_reach(mode, before, after, size, dim)
        places = rabbet.arange(-before, size + after, device=input.device)
        # What negative widths take away is gone before the rest wraps around.
        first, last = max(-before, 0), size - max(-after, 0)
        input = rabbet.index_select(input, dim, _SOURCES[mode](places, size, first, last))
    return input


def _reflected(i: Tensor, size: int, first: int, last: int) -> Tensor:
    return (size - 1) - rabbet.abs(rabbet.abs(i) - (size - 1))


def _nearest(i: Tensor, size: int, first: int, last: int) -> Tensor:
    return rabbet.clamp(i, 0, size - 1)


def _wrapped(i: Tensor, size: int, first: int, last: int) -> Tensor:
    return rabbet.remainder(i - first, last - first) + first


# Where the element at place `i`, which may lie outside, comes from.
_SOURCES = {"reflect": _reflected, "replicate": _nearest, "circular": _wrapped}


def _check_reach(mode: str, before: int, after: int, size: int, dim: int) -> None:
    left = size + min(before, 0) + min(after, 0)
    limit = {"reflect": size - 1, "circular": left, "replicate": None}[mode]
    if left <= 0 or (limit is not None and max(before, after) > limit):
        raise RuntimeError(
            f"pad: widths ({before}, {after}) are too large for mode {mode!r} in dimension {dim} with size {size}"
        )
