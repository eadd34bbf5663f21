"""Adagrad (Duchi et al. 2011)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import Tensor, ops

from ._checks import as_number, check_at_least_zero
from ._stepwise import Stepwise, column, decayed, numbers

__all__ = ["Adagrad"]


class Adagrad(Stepwise):
    """Gradients divided by the root of the sum of all squares so far.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: learning rate.
        lr_decay: step n has the learning rate `lr / (1 + (n - 1) * lr_decay)`.
        weight_decay: multiple of the parameter that is added to the gradient.
        initial_accumulator_value: where the sums begin.
        eps: added to the root.
        maximize: go up instead of down.
        differentiable: record the step on the tape.
        foreach, fused: accepted for PyTorch's sake; the usual step is one operator anyway.
    """

    _fused = staticmethod(ops.fused_adagrad)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_at_least_zero(lr_decay, "Invalid lr_decay value")
        check_at_least_zero(initial_accumulator_value, "Invalid initial_accumulator_value value")
        options = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "maximize": maximize,
            "fused": fused,
        }
        super().__init__(params, options, foreach, differentiable, fused)
        # As in PyTorch the state is there from the start.
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param] = {"step": 0, **self._begin(param.detach(), group)}

    def _begin(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        start = group["initial_accumulator_value"]
        return {
            "sum": rabbet.full_like(param, complex(start, start) if param.is_complex() else start)
        }

    def _lr(self, group: dict[str, Any], step: float) -> float:
        return as_number(group["lr"]) / (1 + (step - 1) * group["lr_decay"])

    def _step_fused(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], states: list[Any]
    ) -> None:
        self._fused(
            params,
            grads,
            column(states, "sum"),
            self._lr(group, states[0]["step"]),
            *numbers(group, "eps", "weight_decay"),
            group["maximize"],
        )

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        grad = decayed(group, param, grad)
        state["sum"] = state["sum"] + grad * grad
        change = grad / (rabbet.sqrt(state["sum"]) + group["eps"])
        param.sub_(change * self._lr(group, state["step"]))
