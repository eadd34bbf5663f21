"""Convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rabbet
from rabbet import Tensor

from .. import functional as F
from ..functional.convolution import same_padding
from ..parameter import Parameter
from .linear import init_weight_and_bias
from .module import Module

Sizes = int | Sequence[int]
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions share: sizes, weight and bias."""

    dims: int
    transposed = False
    _function: Callable[..., Tensor]  # of `nn.functional`
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        padding: Sizes | str,
        dilation: Sizes,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
        output_padding: Sizes = 0,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError(f"groups must be a positive integer, got {groups}")
        if in_channels % groups:
            raise ValueError(
                f"in_channels must be divisible by groups, got {in_channels} and {groups}"
            )
        if out_channels % groups:
            raise ValueError(
                f"out_channels must be divisible by groups, got {out_channels} and {groups}"
            )
        if padding_mode not in _PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {set(_PADDING_MODES)}, but got padding_mode='{padding_mode}'"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = self._sizes(kernel_size, "kernel_size")
        self.stride = self._sizes(stride, "stride")
        self.dilation = self._sizes(dilation, "dilation")
        self.padding: tuple[int, ...] | str
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(
                    f"Invalid padding string {padding!r}, should be one of ['valid', 'same']"
                )
            if padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
            self.padding = padding
        else:
            self.padding = self._sizes(padding, "padding")
        self.output_padding = self._sizes(output_padding, "output_padding")
        self.groups = groups
        self.padding_mode = padding_mode
        ends = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = [ends[0], ends[1] // groups, *self.kernel_size]
        self.weight = Parameter(rabbet.empty(shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias",
            Parameter(rabbet.empty([out_channels], device=device, dtype=dtype)) if bias else None,
        )
        self.reset_parameters()

    def _sizes(self, value: Sizes, name: str) -> tuple[int, ...]:
        sizes = (value,) * self.dims if isinstance(value, int) else tuple(value)
        if len(sizes) != self.dims:
            raise ValueError(
                f"{type(self).__name__}: expected {name} to be an int or {self.dims} ints, got {sizes}"
            )
        return sizes

    def reset_parameters(self) -> None:
        """Fill weight and bias with values uniform on +-1 / sqrt(fan_in)."""
        init_weight_and_bias(self.weight, self.bias)

    def _padded(self, input: Tensor) -> tuple[Tensor, Any]:
        """Input and the zero padding that is left to the convolution."""
        if self.padding_mode == "zeros":
            return input, self.padding
        if self.padding == "valid":
            return input, 0
        if self.padding == "same":
            widths = same_padding(self.kernel_size, self.dilation)
        else:
            widths = [p for p in reversed(self.padding) for _ in range(2)]  # type: ignore[misc]
        return F.pad(input, widths, mode=self.padding_mode), 0

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for name, default in (
            ("padding", (0,) * self.dims),
            ("dilation", (1,) * self.dims),
            ("output_padding", (0,) * self.dims),
            ("groups", 1),
        ):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Plain(_ConvNd):
    """A convolution as such: the window moves over the input."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        return self._function(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


class Conv1d(_Plain):
    """Convolve (N, in_channels, L) with `out_channels` filters; arguments as in `Conv2d`."""

    dims = 1
    _function = staticmethod(F.conv1d)


class Conv2d(_Plain):
    """Convolve (N, in_channels, H, W) with `out_channels` filters.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: of a filter, one int or one per direction.
        stride: step of the window.
        padding: added around the input, or 'same' or 'valid'.
        dilation: step between the elements of a filter.
        groups: into how many independent groups the channels fall.
        bias: whether there is a bias.
        padding_mode: 'zeros', 'reflect', 'replicate' or 'circular'.
    """

    dims = 2
    _function = staticmethod(F.conv2d)


class Conv3d(_Plain):
    """Convolve (N, in_channels, D, H, W) with `out_channels` filters; arguments as in `Conv2d`."""

    dims = 3
    _function = staticmethod(F.conv3d)


class _ConvTransposeNd(_ConvNd):
    """A convolution that spreads its input; the transpose of the others as a linear map."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(
                f'Only "zeros" padding mode is supported for {type(self).__name__}, got {padding_mode!r}'
            )
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
            output_padding,
        )

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self._extra(input, output_size)
        return self._function(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            extra,
            self.groups,
            self.dilation,
        )

    def _extra(self, input: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        """The output padding that gives `output_size`."""
        if output_size is None:
            return self.output_padding
        sizes = list(output_size)[-self.dims :]
        extra = []
        for d in range(self.dims):
            reach = self.dilation[d] * (self.kernel_size[d] - 1) + 1
            pad = self.padding[d]
            assert isinstance(pad, int)
            least = (input.shape[d - self.dims] - 1) * self.stride[d] - 2 * pad + reach
            if len(sizes) != self.dims or not least <= sizes[d] < least + self.stride[d]:
                raise ValueError(
                    f"requested an output size of {tuple(output_size)}, but direction {d} allows "
                    f"{least} to {least + self.stride[d] - 1} (for an input of {tuple(input.shape)})"
                )
            extra.append(sizes[d] - least)
        return tuple(extra)


class ConvTranspose1d(_ConvTransposeNd):
    """Spread (N, in_channels, L) over windows; arguments as in `ConvTranspose2d`."""

    dims = 1
    _function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTransposeNd):
    """Spread (N, in_channels, H, W) over windows: the transpose of `Conv2d` as a linear map."""

    dims = 2
    _function = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTransposeNd):
    """Spread (N, in_channels, D, H, W) over windows; arguments as in `ConvTranspose2d`."""

    dims = 3
    _function = staticmethod(F.conv_transpose3d)
