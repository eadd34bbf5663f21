"""Batch normalisation."""

from __future__ import annotations

from typing import Any

import rabbet
from rabbet import Tensor

from .. import functional as F
from .. import init
from ..parameter import Parameter, UninitializedBuffer, UninitializedParameter
from .lazy import LazyModuleMixin
from .module import Module


class _NormBase(Module):
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


class _BatchNorm(_NormBase):
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


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over all processes; of one process it is `BatchNorm` of any dimensions."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Return `module` with every batch normalisation in it replaced; tensors stay the same."""
        result = module
        if isinstance(module, _BatchNorm):
            result = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            result._parameters.update(module._parameters)
            result._buffers.update(module._buffers)
            result.training = module.training
        for name, child in module.named_children():
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A normalisation that takes `num_features` from its first input."""

    def _start_lazy(
        self, affine: bool, track_running_stats: bool, bias: bool, device: Any, dtype: Any
    ) -> None:
        made = {"device": device, "dtype": dtype}
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(**made)
            if bias:
                self.bias = UninitializedParameter(**made)
        if track_running_stats:
            self.register_buffer("running_mean", UninitializedBuffer(**made))
            self.register_buffer("running_var", UninitializedBuffer(**made))
            count = rabbet.zeros([], dtype=rabbet.int64, device=device)
            self.register_buffer("num_batches_tracked", count)

    def reset_parameters(self) -> None:
        """Start anew, once there are shapes."""
        if not self.has_uninitialized_params() and self.num_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take `num_features` from the second size of `input`."""
        if self.has_uninitialized_params():
            self._check_input_dim(input)
            self.num_features = input.shape[1]
            for part in (self.weight, self.bias, self.running_mean, self.running_var):
                if part is not None:
                    part.materialize((self.num_features,))  # type: ignore[attr-defined]
            self.reset_parameters()


class _LazyNorm(_LazyNormBase):
    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, bias=False)
        self._start_lazy(affine, track_running_stats, bias, device, dtype)


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A `BatchNorm1d` that takes `num_features` from its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A `BatchNorm2d` that takes `num_features` from its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A `BatchNorm3d` that takes `num_features` from its first input."""

    cls_to_become = BatchNorm3d
