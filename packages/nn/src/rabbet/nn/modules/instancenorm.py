"""Instance normalisation."""

from __future__ import annotations

from typing import Any

from rabbet import Tensor

from .. import functional as F
from .batchnorm import _LazyNorm, _NormBase


class _InstanceNorm(_NormBase):
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


class InstanceNorm3d(_InstanceNorm):
    """Normalise each channel of each item of (N, C, D, H, W) or (C, D, H, W)."""

    allowed_dims = (4, 5)


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An `InstanceNorm1d` that takes `num_features` from its first input.

    As in PyTorch it has weights and statistics if nothing else is said, unlike `InstanceNorm1d`.
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An `InstanceNorm2d` that takes `num_features` from its first input.

    As in PyTorch it has weights and statistics if nothing else is said, unlike `InstanceNorm2d`.
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An `InstanceNorm3d` that takes `num_features` from its first input.

    As in PyTorch it has weights and statistics if nothing else is said, unlike `InstanceNorm3d`.
    """

    cls_to_become = InstanceNorm3d
