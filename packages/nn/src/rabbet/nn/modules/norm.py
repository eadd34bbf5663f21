"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rabbet
from rabbet import Tensor

from .. import functional as F
from .. import init
from ..parameter import Parameter
from .module import Module


class _RunningNorm(Module):
    """Batch and instance normalisation: scale and shift per channel, running statistics."""

    _version = 2
    allowed_dims: tuple[int, ...]
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        made = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            values = Parameter(rabbet.empty([num_features], **made)) if wanted else None
            self.register_parameter(name, values)
        tracked = track_running_stats
        self.register_buffer(
            "running_mean", rabbet.zeros([num_features], **made) if tracked else None
        )
        self.register_buffer(
            "running_var", rabbet.ones([num_features], **made) if tracked else None
        )
        count = rabbet.zeros([], dtype=rabbet.int64, device=device) if tracked else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Start the running statistics anew: mean 0, variance 1."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)  # type: ignore[arg-type]
            init.ones_(self.running_var)  # type: ignore[arg-type]
            self.num_batches_tracked.zero_()  # type: ignore[union-attr]

    def reset_parameters(self) -> None:
        """Start anew: running statistics, weight 1, bias 0."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in self.allowed_dims:
            wanted = " or ".join(f"{d}D" for d in self.allowed_dims)
            raise ValueError(f"expected {wanted} input (got {input.ndim}D input)")

    def _factor(self) -> float:
        """The part of this batch in the running statistics."""
        if not (self.training and self.track_running_stats):
            return 0.0 if self.momentum is None else self.momentum
        count = self.num_batches_tracked
        if count is not None:
            count.add_(1)
        if self.momentum is not None:
            return self.momentum
        return 1.0 / float(count) if count is not None else 0.0

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        *rest: Any,
    ) -> None:
        # State dicts of version 1 do not count batches.
        key = prefix + "num_batches_tracked"
        version = local_metadata.get("version")
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            count = self.num_batches_tracked
            state_dict[key] = rabbet.zeros([], dtype=rabbet.int64) if count is None else count
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_RunningNorm):
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        factor = self._factor()
        mean, var = self.running_mean, self.running_var
        by_batch = self.training or (mean is None and var is None)
        # Without tracking the statistics of evaluation stay as they are.
        keep = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            mean if keep else None,
            var if keep else None,
            self.weight,
            self.bias,
            by_batch,
            factor,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Normalise each channel of (N, C) or (N, C, L); arguments as in `BatchNorm2d`."""

    allowed_dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalise each channel of (N, C, H, W) over the batch and all positions.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: the part of a batch in the running statistics; None averages over all batches.
        affine: whether there is a scale per channel (and a shift with `bias`).
        track_running_stats: whether to keep running statistics for evaluation.
    """

    allowed_dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalise each channel of (N, C, D, H, W); arguments as in `BatchNorm2d`."""

    allowed_dims = (5,)


class _InstanceNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        single = input.ndim == self.allowed_dims[0]
        y = F.instance_norm(
            input.unsqueeze(0) if single else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return y.squeeze(0) if single else y


class InstanceNorm1d(_InstanceNorm):
    """Normalise each channel of each item of (N, C, L) or (C, L)."""

    allowed_dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalise each channel of each item of (N, C, H, W) or (C, H, W)."""

    allowed_dims = (3, 4)


def _as_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class LayerNorm(Module):
    """Normalise over the last dimensions (Ba et al. 2016).

    Args:
        normalized_shape: sizes of those dimensions.
        eps: added to the variance.
        elementwise_affine: whether there are a scale and a shift per element.
        bias: whether there is a shift.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (("weight", True), ("bias", bias)):
            values = None
            if elementwise_affine and wanted:
                shape = list(self.normalized_shape)
                values = Parameter(rabbet.empty(shape, device=device, dtype=dtype))
            self.register_parameter(name, values)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight 1 and bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divide by the root of the mean square over the last dimensions.

    Args:
        normalized_shape: sizes of those dimensions.
        eps: added to the mean square; the dtype's machine epsilon if None.
        elementwise_affine: whether there is a scale per element.
    """

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        values = None
        if elementwise_affine:
            values = Parameter(
                rabbet.empty(list(self.normalized_shape), device=device, dtype=dtype)
            )
        self.register_parameter("weight", values)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """Normalise groups of channels of each item of (N, C, *).

    Args:
        num_groups: number of groups.
        num_channels: number of channels, a multiple of it.
        eps: added to the variance.
        affine: whether there is a scale per channel (and a shift with `bias`).
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            values = rabbet.empty([num_channels], device=device, dtype=dtype)
            self.register_parameter(name, Parameter(values) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight 1 and bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
