"""Adagrad (Duchi et al. 2011)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import Tensor, ops

from ._capture import Scaling, check_not_captured, is_elsewhere, on_device, plain_lr
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
        fused: count steps on the parameter's device, so that graphs can capture the step with `lr_decay`, too, and leave
            unscaling and skipping steps to the optimizer where a `GradScaler` is used.
        foreach: accepted for PyTorch's sake; the usual step is one operator anyway.
    """

    _fused = staticmethod(ops.fused_adagrad)
    _fused_tensors = staticmethod(ops("fused_adagrad.tensors"))

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
                step = on_device(0, param) if fused and not param.is_cpu else 0
                self.state[param] = {"step": step, **self._begin(param.detach(), group)}

    def _begin(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        start = group["initial_accumulator_value"]
        return {
            "sum": rabbet.full_like(param, complex(start, start) if param.is_complex() else start)
        }

    def _is_counted_there(self, group: dict[str, Any]) -> bool:
        return bool(group["fused"]) and is_elsewhere(group["params"])

    def _step_group(self, group: dict[str, Any], scaling: Scaling) -> None:
        if group["lr_decay"] and not group["fused"]:
            check_not_captured(self, group["params"], "with lr_decay, but fused is not True.")
        super()._step_group(group, scaling)

    def _decay(self, group: dict[str, Any], step: Any) -> Any:
        """The part of the learning rate that step `step` has."""
        return 1 / (1 + (step - 1) * group["lr_decay"])

    def _factors(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[Any, ...]:
        return (self._decay(group, state["step"]),)

    def _arguments(
        self,
        group: dict[str, Any],
        lr: float,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[Any],
    ) -> list[Any]:
        options = [lr, *numbers(group, "eps", "weight_decay"), group["maximize"]]
        return [params, grads, column(states, "sum"), *options]

    def _step_fused(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], states: list[Any]
    ) -> None:
        lr = as_number(group["lr"]) * self._decay(group, states[0]["step"])
        self._fused(*self._arguments(group, lr, params, grads, states))

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        grad = decayed(group, param, grad)
        state["sum"] = state["sum"] + grad * grad
        change = grad / (rabbet.sqrt(state["sum"]) + group["eps"])
        param.sub_(change * (plain_lr(group) * self._decay(group, state["step"])))
