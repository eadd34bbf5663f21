"""Adamax (Kingma and Ba 2015)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import Tensor, ops

from ._capture import plain_lr
from ._checks import check_betas
from ._moments import Moments, next_mean
from ._stepwise import decayed

__all__ = ["Adamax"]


class Adamax(Moments):
    """Adam with a decaying maximum of magnitudes instead of the mean square.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: learning rate.
        betas: parts of mean and maximum that are kept at each step.
        eps: added to the magnitudes.
        weight_decay: multiple of the parameter that is added to the gradient.
        maximize: go up instead of down.
        differentiable: record the step on the tape.
        capturable: count steps in tensors beside the parameters, so that graphs can capture the step.
        foreach: accepted for PyTorch's sake; the usual step is one operator anyway.
    """

    _names = ("exp_avg", "exp_inf")
    _fused = staticmethod(ops.fused_adamax)
    _fused_tensors = staticmethod(ops("fused_adamax.tensors"))

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_betas(betas)
        options = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
        }
        super().__init__(params, options, foreach, differentiable)

    def _factors(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[Any, ...]:
        return (1 - group["betas"][0] ** state["step"],)

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        beta1, beta2 = group["betas"]
        grad = decayed(group, param, grad)
        mean = next_mean(group, state, grad)
        state["exp_inf"] = largest = rabbet.maximum(
            state["exp_inf"] * beta2, rabbet.abs(grad) + group["eps"]
        )
        param.sub_(mean / largest * (plain_lr(group) / (1 - beta1 ** state["step"])))
