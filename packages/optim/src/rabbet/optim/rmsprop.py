"""RMSprop (Tieleman and Hinton 2012)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import Tensor, ops

from ._capture import plain_lr
from ._checks import check_at_least_zero
from ._stepwise import Stepwise, column, decayed, numbers

__all__ = ["RMSprop"]


class RMSprop(Stepwise):
    """Gradients divided by the root of a running mean of their squares.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: learning rate.
        alpha: part of the running mean that is kept at each step.
        eps: added to the root.
        weight_decay: multiple of the parameter that is added to the gradient.
        momentum: part of the last change that is made again.
        centered: divide by the standard deviation, not by the root mean square.
        maximize: go up instead of down.
        differentiable: record the step on the tape.
        capturable: count steps in tensors beside the parameters, so that graphs can capture the step.
        foreach: accepted for PyTorch's sake; the usual step is one operator anyway.
    """

    _fused = staticmethod(ops.fused_rmsprop)
    _fused_tensors = staticmethod(ops("fused_rmsprop.tensors"))

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_at_least_zero(momentum, "Invalid momentum value")
        check_at_least_zero(alpha, "Invalid alpha value")
        options = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "maximize": maximize,
        }
        super().__init__(params, options, foreach, differentiable)

    def _begin(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = {"square_avg": rabbet.zeros_like(param)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = rabbet.zeros_like(param)
        if group["centered"]:
            state["grad_avg"] = rabbet.zeros_like(param)
        return state

    def _arguments(
        self,
        group: dict[str, Any],
        lr: float,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[Any],
    ) -> list[Any]:
        return [
            params,
            grads,
            column(states, "square_avg"),
            column(states, "momentum_buffer") if group["momentum"] > 0 else [],
            column(states, "grad_avg") if group["centered"] else [],
            lr,
            *numbers(group, "alpha", "eps", "weight_decay", "momentum"),
            group["maximize"],
        ]

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        alpha = group["alpha"]
        grad = decayed(group, param, grad)
        state["square_avg"] = spread = state["square_avg"] * alpha + grad * grad * (1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"] + (grad - state["grad_avg"]) * (1 - alpha)
            state["grad_avg"] = mean
            spread = spread - mean * mean
        change = grad / (rabbet.sqrt(spread) + group["eps"])
        if group["momentum"] > 0:
            state["momentum_buffer"] = change = (
                state["momentum_buffer"] * group["momentum"] + change
            )
        param.sub_(change * plain_lr(group))
