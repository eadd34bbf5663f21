"""Gradients of convolutions with regard to their input and their weight."""

from __future__ import annotations

from collections.abc import Sequence

from rabbet import Tensor, ops

from .functional.convolution import Sizes, sizes_of

__all__ = [
    "conv1d_input",
    "conv1d_weight",
    "conv2d_input",
    "conv2d_weight",
    "conv3d_input",
    "conv3d_weight",
]


def _gradient(
    op: str,
    rank: int,
    size: Sequence[int],
    given: Tensor,
    grad_output: Tensor,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> Tensor:
    """The gradient of size `size`; `given` is the other factor of the convolution."""
    for name, dims in (
        ("weight" if op.endswith("input") else "input", given.ndim),
        ("grad_output", grad_output.ndim),
        ("input_size" if op.endswith("input") else "weight_size", len(size)),
    ):
        if dims != rank + 2:
            raise RuntimeError(f"{op}: expected {name} of {rank + 2} dimensions, got {dims}")
    window = [
        sizes_of(value, rank, name, op)
        for name, value in (("stride", stride), ("padding", padding), ("dilation", dilation))
    ]
    if op.endswith("input"):
        return ops.convolution_dx(grad_output, given, list(size), *window, groups)
    return ops.convolution_dw(given, grad_output, list(size), *window, groups)


def conv1d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv1d` with regard to its input, of size `input_size`."""
    window = (stride, padding, dilation, groups)
    return _gradient("conv1d_input", 1, input_size, weight, grad_output, *window)


def conv1d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv1d` with regard to its weight, of size `weight_size`."""
    window = (stride, padding, dilation, groups)
    return _gradient("conv1d_weight", 1, weight_size, input, grad_output, *window)


def conv2d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv2d` with regard to its input, of size `input_size`."""
    window = (stride, padding, dilation, groups)
    return _gradient("conv2d_input", 2, input_size, weight, grad_output, *window)


def conv2d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv2d` with regard to its weight, of size `weight_size`."""
    window = (stride, padding, dilation, groups)
    return _gradient("conv2d_weight", 2, weight_size, input, grad_output, *window)


def conv3d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv3d` with regard to its input, of size `input_size`."""
    window = (stride, padding, dilation, groups)
    return _gradient("conv3d_input", 3, input_size, weight, grad_output, *window)


def conv3d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of `conv3d` with regard to its weight, of size `weight_size`."""
    window = (stride, padding, dilation, groups)
    return _gradient("conv3d_weight", 3, weight_size, input, grad_output, *window)
