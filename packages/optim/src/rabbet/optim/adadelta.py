"""Adadelta (Zeiler 2012, https://arxiv.org/abs/1212.5701)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import Tensor

from ._capture import plain_lr
from ._stepwise import Stepwise, decayed

__all__ = ["Adadelta"]


class Adadelta(Stepwise):
    """Gradients in units of the last changes: their running mean squares are divided by each other.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: factor of the change.
        rho: part of both running means that is kept at each step.
        eps: added under both roots.
        weight_decay: multiple of the parameter that is added to the gradient.
        maximize: go up instead of down.
        differentiable: record the step on the tape.
        capturable: count steps in tensors beside the parameters, so that graphs can capture the step.
        foreach: accepted for PyTorch's sake.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        options = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
        }
        super().__init__(params, options, foreach, differentiable)

    def _begin(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {name: rabbet.zeros_like(param) for name in ("square_avg", "acc_delta")}

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        rho, eps = group["rho"], group["eps"]
        grad = decayed(group, param, grad)
        state["square_avg"] = square = state["square_avg"] * rho + grad * grad * (1 - rho)
        change = rabbet.sqrt(state["acc_delta"] + eps) / rabbet.sqrt(square + eps) * grad
        state["acc_delta"] = state["acc_delta"] * rho + change * change * (1 - rho)
        param.sub_(change * plain_lr(group))
