"""AdamW (Loshchilov and Hutter 2019)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rabbet import Tensor

from .adam import Adam

__all__ = ["AdamW"]


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameters instead of adding to the gradients.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: learning rate.
        betas: parts of the two running means that are kept at each step.
        eps: added to the root of the mean square.
        weight_decay: each step multiplies the parameters by `1 - lr * weight_decay`.
        amsgrad: divide by the largest mean square so far.
        maximize: go up instead of down.
        differentiable: record the step on the tape.
        capturable: count steps in tensors beside the parameters, so that graphs can capture the step.
        foreach, fused: accepted for PyTorch's sake.
    """

    _decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | Tensor = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # Groups that another version saved may lack it, or hold Adam's.
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
