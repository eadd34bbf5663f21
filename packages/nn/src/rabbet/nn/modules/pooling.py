"""Pooling layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rabbet import Tensor

from .. import functional as F
from ._late import LateFunction
from .module import Module

Sizes = int | Sequence[int]


class _MaxPoolNd(Module):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        return self._function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """The maximum of each window of (N, C, L)."""

    _function = LateFunction("max_pool1d")


class MaxPool2d(_MaxPoolNd):
    """The maximum of each window of (N, C, H, W)."""

    _function = LateFunction("max_pool2d")


class MaxPool3d(_MaxPoolNd):
    """The maximum of each window of (N, C, D, H, W)."""

    _function = LateFunction("max_pool3d")


class _AvgPoolNd(Module):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def _arguments(self) -> tuple[Sizes, Sizes, Sizes, bool, bool]:
        return (
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of each window of (N, C, L)."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        step = kernel_size if stride is None else stride
        sizes = [(n,) if isinstance(n, int) else tuple(n) for n in (kernel_size, step, padding)]
        super().__init__(sizes[0], sizes[1], sizes[2], ceil_mode, count_include_pad)

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, *self._arguments())


class _DividedAvgPool(_AvgPoolNd):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, *self._arguments(), divisor_override=self.divisor_override)


class AvgPool2d(_DividedAvgPool):
    """The mean of each window of (N, C, H, W)."""

    _function = LateFunction("avg_pool2d")


class AvgPool3d(_DividedAvgPool):
    """The mean of each window of (N, C, D, H, W)."""

    _function = LateFunction("avg_pool3d")


class _Adaptive(Module):
    def __init__(self, output_size: int | Sequence[int | None] | None) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPoolNd(_Adaptive):
    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means over windows that divide the line into `output_size`; None keeps a size."""

    _function = LateFunction("adaptive_avg_pool1d")


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means over windows that divide the plane into `output_size`; None keeps a size."""

    _function = LateFunction("adaptive_avg_pool2d")


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means over windows that divide the volume into `output_size`; None keeps a size."""

    _function = LateFunction("adaptive_avg_pool3d")


class _AdaptiveMaxPoolNd(_Adaptive):
    def __init__(
        self, output_size: int | Sequence[int | None] | None, return_indices: bool = False
    ) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return self._function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima over windows that divide the line into `output_size`; None keeps a size."""

    _function = LateFunction("adaptive_max_pool1d")


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima over windows that divide the plane into `output_size`; None keeps a size."""

    _function = LateFunction("adaptive_max_pool2d")


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima over windows that divide the volume into `output_size`; None keeps a size."""

    _function = LateFunction("adaptive_max_pool3d")


class _LPPoolNd(Module):
    """Power-average pooling: `(sum of x ** norm_type) ** (1 / norm_type)` over each window."""

    def __init__(
        self,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return self._function(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """Power-average pooling of a line."""

    _function = LateFunction("lp_pool1d")


class LPPool2d(_LPPoolNd):
    """Power-average pooling of a plane."""

    _function = LateFunction("lp_pool2d")


class LPPool3d(_LPPoolNd):
    """Power-average pooling of a volume."""

    _function = LateFunction("lp_pool3d")


class _MaxUnpoolNd(Module):
    """Puts maxima back where max pooling found them, zeros elsewhere."""

    _dims: int

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        stride = kernel_size if stride is None else stride
        self.kernel_size, self.stride, self.padding = (
            (value,) * self._dims if isinstance(value, int) else tuple(value)
            for value in (kernel_size, stride, padding)
        )

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return self._function(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """The partial inverse of `MaxPool1d`."""

    _dims = 1
    _function = LateFunction("max_unpool1d")


class MaxUnpool2d(_MaxUnpoolNd):
    """The partial inverse of `MaxPool2d`."""

    _dims = 2
    _function = LateFunction("max_unpool2d")


class MaxUnpool3d(_MaxUnpoolNd):
    """The partial inverse of `MaxPool3d`."""

    _dims = 3
    _function = LateFunction("max_unpool3d")


class _FractionalMaxPoolNd(Module):
    dims: int
    _random_samples: Tensor | None

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{name} requires specifying either an output size, or a pooling ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        self.kernel_size = self._each(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else self._each(output_size)
        self.output_ratio = None if output_ratio is None else self._each(output_ratio)
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def _each(self, value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, Sequence) else (value,) * self.dims

    def forward(self, input: Tensor) -> Any:
        return self._function(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Maxima over windows at pseudo-random distances in (N, C, H, W) or (C, H, W)."""

    dims = 2
    _function = LateFunction("fractional_max_pool2d")


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """Maxima over windows at pseudo-random distances in (N, C, D, H, W) or (C, D, H, W)."""

    dims = 3
    _function = LateFunction("fractional_max_pool3d")
