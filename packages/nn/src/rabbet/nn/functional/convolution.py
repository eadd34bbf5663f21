"""Convolutions and padding."""

from __future__ import annotations

from collections.abc import Sequence

import rabbet
from rabbet import Tensor, ops

from .._accumulate import accumulated
from ._dtypes import refuse

Sizes = int | Sequence[int]
_convolution = ops.convolution


def sizes_of(value: Sizes, rank: int, name: str, op: str) -> list[int]:
    """One int for each of `rank` directions."""
    if isinstance(value, int):
        return [value] * rank
    sizes = list(value)
    if len(sizes) == 1:
        return sizes * rank
    if len(sizes) != rank:
        wanted = f"an int or {rank} int{'s' if rank > 1 else ''}"
        raise RuntimeError(f"{op}: expected {name} to be {wanted}, got {tuple(value)}")
    return sizes


def same_padding(kernel_size: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Padding, as `pad` takes it, that keeps sizes; the odd element goes behind."""
    widths: list[int] = []
    for kernel, step in zip(reversed(kernel_size), reversed(dilation), strict=True):
        total = step * (kernel - 1)
        widths += [total // 2, total - total // 2]
    return widths


def _check_ranks(op: str, rank: int, input: Tensor, weight: Tensor) -> None:
    if input.ndim not in (rank + 1, rank + 2) or weight.ndim != rank + 2:
        raise RuntimeError(
            f"{op}: expected input of {rank + 1} or {rank + 2} and weight of {rank + 2} dimensions, "
            f"got {tuple(input.shape)} and {tuple(weight.shape)}"
        )


def _convolve(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
) -> Tensor:
    op = f"conv{rank}d"
    _check_ranks(op, rank, input, weight)
    steps = sizes_of(stride, rank, "stride", op)
    spread = sizes_of(dilation, rank, "dilation", op)
    if isinstance(padding, str):
        if padding not in ("valid", "same"):
            raise RuntimeError(
                f"Invalid padding string: {padding!r}, should be one of 'valid', 'same'"
            )
        pads = [0] * rank
        if padding == "same":
            if any(step != 1 for step in steps):
                raise RuntimeError("padding='same' is not supported for strided convolutions")
            widths = same_padding(weight.shape[2:], spread)
            if widths[::2] == widths[1::2]:
                pads = widths[::-2]
            else:
                input = ops.pad_constant(input, widths)
    else:
        pads = sizes_of(padding, rank, "padding", op)
    if input.ndim == rank + 1:
        batch = input.unsqueeze(0)
        return _convolution(batch, weight, bias, steps, pads, spread, groups).squeeze(0)
    return _convolution(input, weight, bias, steps, pads, spread, groups)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve a line with filters: as `conv2d`, with (N, C, L) or (C, L) and (O, C / groups, k)."""
    return _convolve(1, input, weight, bias, stride, padding, dilation, groups)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolve a line with filters; time comes first.

    Args:
        input: (T, N, C).
        weight: (k, C, O).
        bias: (O,).
        pad: zeros at each end.
    """
    if input.ndim != 3:
        raise RuntimeError(
            f"conv_tbc: Input must have 3 dims: time, batch, in_channel; got {tuple(input.shape)}"
        )
    if weight.ndim != 3:
        raise RuntimeError(
            "conv_tbc: Weight tensor must have 3 dims: kernel_width, in_channels, out_channels; "
            f"got {tuple(weight.shape)}"
        )
    if bias.ndim != 1 or bias.shape[0] != weight.shape[2]:
        raise RuntimeError(
            "conv_tbc: Bias size must equal dim 2 in the weight tensor (output channels); "
            f"got {tuple(bias.shape)} and {tuple(weight.shape)}"
        )
    if input.shape[2] != weight.shape[1]:
        raise RuntimeError(
            "conv_tbc: Input dim 2 (input channels) is not == dim 1 in the weight tensor; "
            f"got {tuple(input.shape)} and {tuple(weight.shape)}"
        )
    result = conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return result.permute(2, 0, 1).contiguous()


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
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

    Raises:
        RuntimeError: for shapes that do not fit, or 'same' with a stride.
    """
    return _convolve(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve a volume with filters: as `conv2d`, with (N, C, D, H, W) or (C, D, H, W) and
    (O, C / groups, kD, kH, kW)."""
    return _convolve(3, input, weight, bias, stride, padding, dilation, groups)


def _convolve_transposed(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    groups: int,
    dilation: Sizes,
) -> Tensor:
    op = f"conv_transpose{rank}d"
    _check_ranks(op, rank, input, weight)
    if input.ndim == rank + 1:
        return _convolve_transposed(
            rank,
            input.unsqueeze(0),
            weight,
            bias,
            stride,
            padding,
            output_padding,
            groups,
            dilation,
        ).squeeze(0)
    spread = _spread_out if bias is None or bias.dtype is not input.dtype else _wide_spread_out
    return spread(rank, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _spread_out(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    groups: int,
    dilation: Sizes,
) -> Tensor:
    op = f"conv_transpose{rank}d"
    if input.shape[1] != weight.shape[0]:
        raise RuntimeError(
            f"{op}: weight {tuple(weight.shape)} expects {weight.shape[0]} channels, "
            f"got {input.shape[1]} in {tuple(input.shape)}"
        )
    steps = sizes_of(stride, rank, "stride", op)
    pads = sizes_of(padding, rank, "padding", op)
    extra = sizes_of(output_padding, rank, "output_padding", op)
    spread = sizes_of(dilation, rank, "dilation", op)
    sizes = []
    for d in range(rank):
        if not 0 <= extra[d] < max(steps[d], spread[d]):
            raise RuntimeError(
                "output padding must be smaller than either stride or dilation, but got "
                f"output_padding {extra[d]}, stride {steps[d]}, dilation {spread[d]}"
            )
        kernel = spread[d] * (weight.shape[2 + d] - 1) + 1
        sizes.append((input.shape[2 + d] - 1) * steps[d] - 2 * pads[d] + kernel + extra[d])
        if sizes[-1] < 0:
            raise RuntimeError(
                f"{op}: padding {pads[d]} leaves an output of {sizes[-1]} elements in direction {d}"
            )
    shape = [input.shape[0], weight.shape[1] * groups, *sizes]
    if all(e < s for e, s in zip(extra, steps, strict=True)):
        result = ops.convolution_dx(input, weight, shape, steps, pads, spread, groups)
    else:  # a convolution of such an output would have more windows than the input has elements
        whole = [n + 2 * p - e for n, p, e in zip(sizes, pads, extra, strict=True)]
        spread_out = ops.convolution_dx(
            input, weight, [*shape[:2], *whole], steps, [0] * rank, spread, groups
        )
        widths = [w for p, e in reversed([*zip(pads, extra, strict=True)]) for w in (-p, e - p)]
        result = pad(spread_out, widths)
    if bias is None:
        return result
    if tuple(bias.shape) != (shape[1],):
        raise RuntimeError(f"{op}: expected a bias of shape ({shape[1]},), got {tuple(bias.shape)}")
    return result + bias.reshape([-1] + [1] * rank)


# With a bias there are two operators, and the result is rounded once.
_wide_spread_out = accumulated(_spread_out)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Spread each element of a line over a window: as `conv_transpose2d`, in one direction."""
    return _convolve_transposed(
        1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Spread each element of a plane over a window: the gradient of `conv2d` with respect to its input.

    Args:
        input: (N, C, H, W) or (C, H, W).
        weight: (C, O / groups, kH, kW).
        bias: (O,).
        stride, padding, dilation, groups: of that convolution.
        output_padding: added to one side of the output's size, less than stride or dilation.

    Raises:
        RuntimeError: for shapes that do not fit, or an `output_padding` that is too large.
    """
    return _convolve_transposed(
        2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Spread each element of a volume over a window: as `conv_transpose2d`, in three directions."""
    return _convolve_transposed(
        3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


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
    if mode not in _BORDERS:
        raise NotImplementedError(
            f"pad: expected mode 'constant', 'reflect', 'replicate' or 'circular', got {mode!r}"
        )
    if mode != "circular":
        refuse("pad", input, rabbet.bool)
    if value is not None and value != 0:
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    for i in range(len(widths) // 2):
        before, after = widths[2 * i : 2 * i + 2]
        dim = input.ndim - 1 - i
        if before or after:
            _check_reach(mode, before, after, input.shape[dim], dim)
    if mode == "circular":
        return ops.pad_circular(input, widths)
    return ops.pad_border(input, widths, mode)


_BORDERS = ("reflect", "replicate", "circular")


def _check_reach(mode: str, before: int, after: int, size: int, dim: int) -> None:
    left = size + min(before, 0) + min(after, 0)
    limit = {"reflect": size - 1, "circular": left, "replicate": None}[mode]
    if mode == "replicate":  # the edge is repeated wherever the result begins or ends
        left = size and size + before + after
    if left <= 0 or (limit is not None and max(before, after) > limit):
        raise RuntimeError(
            f"pad: widths ({before}, {after}) are too large for mode {mode!r} in dimension {dim} with size {size}"
        )
