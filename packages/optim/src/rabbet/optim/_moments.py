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

    def _factors(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        """The operator's last arguments, which depend on the number of the step."""
        raise NotImplementedError

    def _step_fused(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], states: list[Any]
    ) -> None:
        beta1, beta2 = group["betas"]
        lr, eps, decay = numbers(group, "lr", "eps", "weight_decay")
        lists = [column(states, name) for name in self._names]
        options = [lr, beta1, beta2, eps, decay]
        if "decoupled_weight_decay" in self.defaults:
            options.append(group["decoupled_weight_decay"])
        factors = self._factors(group, states[0])
        self._fused(params, grads, *lists, *options, group["maximize"], *factors)


def next_mean(group: dict[str, Any], state: dict[str, Any], grad: Tensor) -> Tensor:
    """Take `grad` into the running mean; returns it."""
    state["exp_avg"] = mean = state["exp_avg"] + (grad - state["exp_avg"]) * (1 - group["betas"][0])
    return mean


def next_square(group: dict[str, Any], state: dict[str, Any], grad: Tensor) -> Tensor:
    """Take `grad` into the running mean of squares; returns it."""
    beta2 = group["betas"][1]
    state["exp_avg_sq"] = square = state["exp_avg_sq"] * beta2 + grad * grad * (1 - beta2)
    return square
