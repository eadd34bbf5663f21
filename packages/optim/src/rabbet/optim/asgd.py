"""Averaged stochastic gradient descent (Polyak and Juditsky 1992, https://doi.org/10.1137/0330046)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import Tensor

from ._capture import plain_lr
from ._checks import as_number
from ._stepwise import Stepwise, decayed

__all__ = ["ASGD"]


def _as_float32(x: Any) -> Any:
    """Rounded as the 0-d tensor that a state dict holds."""
    if isinstance(x, Tensor):
        return x.to(rabbet.float32)
    rounded: float = struct.unpack("f", struct.pack("f", x))[0]
    return rounded


class ASGD(Stepwise):
    """Gradient steps of falling size; `state[param]["ax"]` is the mean of the parameter since step `t0`.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: learning rate; step n has `lr / (1 + lambd * lr * n) ** alpha`.
        lambd: decay of the parameter and of the learning rate.
        alpha: power of the decay of the learning rate.
        t0: the step at which averaging begins.
        weight_decay: multiple of the parameter that is added to the gradient.
        maximize: go up instead of down.
        differentiable: record the step on the tape.
        capturable: count steps in tensors beside the parameters, so that graphs can capture the step.
        foreach: accepted for PyTorch's sake.
    """

    _number_state = frozenset({"step", "eta", "mu"})
    _at_least_zero = ("weight_decay",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
        }
        super().__init__(params, options, foreach, differentiable)

    def _begin(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        eta = _as_float32(as_number(group["lr"]))
        return {"eta": eta, "mu": 1.0, "ax": rabbet.zeros_like(param)}

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        lr, lambd, step = plain_lr(group), group["lambd"], state["step"]
        grad = decayed(group, param, grad)
        param.mul_(1 - lambd * state["eta"])
        param.sub_(grad * state["eta"])
        if not isinstance(state["mu"], Tensor) and state["mu"] == 1:
            state["ax"] = param.detach().clone()
        else:
            state["ax"] = state["ax"] + (param - state["ax"]) * state["mu"]
        state["eta"] = _as_float32(lr / (1 + lambd * lr * step) ** group["alpha"])
        after = step - group["t0"]
        state["mu"] = _as_float32(
            1 / (after.clamp(min=1) if isinstance(after, Tensor) else max(1, after))
        )
