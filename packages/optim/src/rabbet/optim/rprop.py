"""Resilient backpropagation (Riedmiller and Braun 1993, https://doi.org/10.1109/ICNN.1993.298623)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import Tensor

from ._capture import plain_lr
from ._stepwise import Stepwise

__all__ = ["Rprop"]


class Rprop(Stepwise):
    """Steps along the sign of the gradient: longer while the sign stays, shorter when it turns.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: size of the first step.
        etas: factors of the size when the sign has turned and when it has stayed.
        step_sizes: least and largest size.
        maximize: go up instead of down.
        differentiable: record the step on the tape.
        capturable: count steps in tensors beside the parameters, so that graphs can capture the step.
        foreach: accepted for PyTorch's sake.
    """

    _at_least_zero = ()

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        options = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "maximize": maximize,
            "capturable": capturable,
        }
        super().__init__(params, options, foreach, differentiable)

    def _begin(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        lr = plain_lr(group)
        if isinstance(lr, Tensor):
            lr = rabbet.complex(lr, lr) if param.is_complex() else lr
            size = rabbet.zeros_like(param) + lr
        else:
            size = rabbet.full_like(param, complex(lr, lr) if param.is_complex() else lr)
        return {"prev": rabbet.zeros_like(param), "step_size": size}

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        shorter, longer = group["etas"]
        turned = grad * state["prev"] < 0
        stayed = grad * state["prev"] > 0
        one = rabbet.ones_like(grad)
        factor = rabbet.where(turned, one * shorter, rabbet.where(stayed, one * longer, one))
        state["step_size"] = (state["step_size"] * factor).clamp(*group["step_sizes"])
        state["prev"] = grad = rabbet.where(turned, rabbet.zeros_like(grad), grad)
        param.sub_(grad.sign() * state["step_size"])
