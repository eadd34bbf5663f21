"""What Adamax, NAdam and RAdam share: running means of the gradient and of its size."""

from __future__ import annotations

from typing import Any

import rabbet
from rabbet import Tensor

from ._stepwise import Stepwise, column, numbers


class Moments(Stepwise):
    """Steps of a fused operator that takes lists, Adam's options and factors of the step."""

    _names = ("exp_avg", "exp_avg_sq")

    def _begin(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {name: rabbet.zeros_like(param) for name in self._names}

    def _arguments(
        self,
        group: dict[str, Any],
        lr: float,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[Any],
    ) -> list[Any]:
        lists = [column(states, name) for name in self._names]
        options = [lr, *numbers(group, "eps", "weight_decay")]
        options[1:1] = group["betas"]
        if "decoupled_weight_decay" in self.defaults:
            options.append(group["decoupled_weight_decay"])
        return [params, grads, *lists, *options, group["maximize"]]


def next_mean(group: dict[str, Any], state: dict[str, Any], grad: Tensor) -> Tensor:
    """Take `grad` into the running mean; returns it."""
    state["exp_avg"] = mean = state["exp_avg"] + (grad - state["exp_avg"]) * (1 - group["betas"][0])
    return mean


def next_square(group: dict[str, Any], state: dict[str, Any], grad: Tensor) -> Tensor:
    """Take `grad` into the running mean of squares; returns it."""
    beta2 = group["betas"][1]
    state["exp_avg_sq"] = square = state["exp_avg_sq"] * beta2 + grad * grad * (1 - beta2)
    return square
