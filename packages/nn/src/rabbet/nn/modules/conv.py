"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rabbet
from rabbet import Tensor

from .. import functional as F
from ..functional.convolution import same_padding
from ..parameter import Parameter, UninitializedParameter
from ._late import LateFunction
from .lazy import LazyModuleMixin
from .linear import init_weight_and_bias
from .module import Module

Sizes = int | Sequence[int]
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions share: sizes, weight and bias."""

    dims: int
    transposed = False
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
        self._reversed_padding_repeated_twice = self._reversed_padding()
        self.weight = Parameter(rabbet.empty(self._weight_shape(), device=device, dtype=dtype))
        self.register_parameter(
            "bias",
            Parameter(rabbet.empty([out_channels], device=device, dtype=dtype)) if bias else None,
        )
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        ends = (self.out_channels, self.in_channels)
        first, second = reversed(ends) if self.transposed else ends
        return first, second // self.groups, *self.kernel_size

    def _reversed_padding(self) -> Any:
        """The widths that `F.pad` takes, as PyTorch keeps them in its pickles."""
        if self.padding == "valid":
            return [0] * (2 * self.dims)
        if self.padding == "same":
            total = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            return [width for t in reversed(total) for width in (t // 2, t - t // 2)]
        return tuple(width for width in reversed(self.padding) for _ in range(2))

    def _sizes(self, value: Sizes, name: str) -> tuple[int, ...]:
        sizes = (value,) * self.dims if isinstance(value, int) else tuple(value)
        if len(sizes) == 1 and name != "kernel_size":
            sizes *= self.dims
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
    _function = LateFunction("conv1d")


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
    _function = LateFunction("conv2d")


class Conv3d(_Plain):
    """Convolve (N, in_channels, D, H, W) with `out_channels` filters; arguments as in `Conv2d`."""

    dims = 3
    _function = LateFunction("conv3d")


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
        extra = self._output_padding(
            input,
            output_size,
            self.stride,
            self.padding,
            self.kernel_size,
            self.dims,
            self.dilation,
        )
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

    def _output_padding(  # subclasses outside of rabbet call it
        self,
        input: Tensor,
        output_size: Sequence[int] | None,
        stride: Sequence[int],
        padding: Any,
        kernel_size: Sequence[int],
        num_spatial_dims: int,
        dilation: Sequence[int] | None = None,
    ) -> tuple[int, ...]:
        """The output padding that gives `output_size`."""
        if output_size is None:
            return self.output_padding
        sizes = list(output_size)[-num_spatial_dims:]
        extra = []
        for d in range(num_spatial_dims):
            reach = (1 if dilation is None else dilation[d]) * (kernel_size[d] - 1) + 1
            least = (input.shape[d - num_spatial_dims] - 1) * stride[d] - 2 * padding[d] + reach
            if len(sizes) != num_spatial_dims or not least <= sizes[d] < least + stride[d]:
                raise ValueError(
                    f"requested an output size of {tuple(output_size)}, but direction {d} allows "
                    f"{least} to {least + stride[d] - 1} (for an input of {tuple(input.shape)})"
                )
            extra.append(sizes[d] - least)
        return tuple(extra)


class ConvTranspose1d(_ConvTransposeNd):
    """Spread (N, in_channels, L) over windows; arguments as in `ConvTranspose2d`."""

    dims = 1
    _function = LateFunction("conv_transpose1d")


class ConvTranspose2d(_ConvTransposeNd):
    """Spread (N, in_channels, H, W) over windows: the transpose of `Conv2d` as a linear map."""

    dims = 2
    _function = LateFunction("conv_transpose2d")


class ConvTranspose3d(_ConvTransposeNd):
    """Spread (N, in_channels, D, H, W) over windows; arguments as in `ConvTranspose2d`."""

    dims = 3
    _function = LateFunction("conv_transpose3d")


class _LazyConvXdMixin(LazyModuleMixin, _ConvNd):
    """A convolution that takes `in_channels` from its first input."""

    def _start_lazy(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Fill weight and bias, once they have a shape."""
        if not self.has_uninitialized_params() and self.in_channels:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take `in_channels` from the channels of `input`."""
        if not self.has_uninitialized_params():
            return
        if input.ndim not in (self.dims + 1, self.dims + 2):
            raise RuntimeError(
                f"Expected {self.dims + 1}D (unbatched) or {self.dims + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        channels = input.shape[-self.dims - 1]
        if channels % self.groups:
            raise ValueError(
                f"in_channels must be divisible by groups, got {channels} and {self.groups}"
            )
        self.in_channels = channels
        self.weight.materialize(self._weight_shape())  # type: ignore[attr-defined]
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))  # type: ignore[attr-defined]
        self.reset_parameters()


class _LazyPlain(_LazyConvXdMixin, _Plain):
    def __init__(
        self,
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
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._start_lazy(out_channels, bias, device, dtype)


class _LazyTransposed(_LazyConvXdMixin, _ConvTransposeNd):
    def __init__(
        self,
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
        super().__init__(
            0,
            0,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            False,
            dilation,
            padding_mode,
        )
        self._start_lazy(out_channels, bias, device, dtype)


class LazyConv1d(_LazyPlain, Conv1d):
    """A `Conv1d` that takes `in_channels` from its first input."""

    cls_to_become = Conv1d


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d):
    """A `ConvTranspose1d` that takes `in_channels` from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConv2d(_LazyPlain, Conv2d):
    """A `Conv2d` that takes `in_channels` from its first input."""

    cls_to_become = Conv2d


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d):
    """A `ConvTranspose2d` that takes `in_channels` from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConv3d(_LazyPlain, Conv3d):
    """A `Conv3d` that takes `in_channels` from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d):
    """A `ConvTranspose3d` that takes `in_channels` from its first input."""

    cls_to_become = ConvTranspose3d
