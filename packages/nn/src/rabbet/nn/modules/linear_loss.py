"""The loss that has a linear layer of its own."""

from __future__ import annotations

import math
from typing import Any

from rabbet import Tensor

from .. import functional as F
from ..functional.linear_loss import LinearCrossEntropyOptions
from .linear import Linear
from .loss import _WeightedLoss


class LinearCrossEntropyLoss(_WeightedLoss):
    """Cross entropy of scores `linear(input)` (N, C, *out_features); `self.linear` holds the weight.

    Args:
        in_features: size of each input.
        num_classes: C.
        out_features: more dimensions of the scores.
        bias: whether the linear layer adds one.
        reduction: 'mean', 'sum' or 'none'.
        weight: one factor per class.
        ignore_index: a class that does not count; None: -100.
        label_smoothing: the part of the target that is spread over all classes.
        options: cuts the batch into chunks, see `LinearCrossEntropyOptions`.
    """

    __constants__ = ["num_classes", "out_features", "reduction", "ignore_index", "label_smoothing"]

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and list(weight.shape) != [num_classes]:
            raise RuntimeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if not 0.0 <= label_smoothing <= 1.0:
            raise RuntimeError(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        super().__init__(weight, None, None, reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.linear = Linear(
            in_features, math.prod([num_classes, *out_features]), bias, device, dtype
        )
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape = [self.num_classes, *self.out_features]
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape([*shape, self.linear.in_features]),
            target,
            linear_bias=bias.reshape(shape) if bias is not None else None,
            weight=self._buffers["weight"],
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, reduction={self.reduction}, "
            f"ignore_index={self.ignore_index}, label_smoothing={self.label_smoothing}, options={self.options}"
        )
