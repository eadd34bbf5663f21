"""NAdam (Dozat 2016)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import Tensor, ops

from ._checks import as_number, check_at_least_zero, check_betas
from ._stepwise import Stepwise, column, decayed, numbers

__all__ = ["NAdam"]

_fused_nadam = ops.fused_nadam


class NAdam(Stepwise):
    """Adam with Nesterov's momentum.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: learning rate.
        betas: parts of the two running means that are kept at each step.
        eps: added to the root of the mean square.
        weight_decay: multiple of the parameter that is added to the gradient.
        momentum_decay: how fast the momentum rises to `betas[0]`.
        decoupled_weight_decay: shrink the parameter instead of adding to the gradient.
        maximize: go up instead of down.
        differentiable: record the step on the tape.
        foreach, capturable: accepted for PyTorch's sake; the usual step is one operator anyway.
    """

    _number_state = frozenset({"step", "mu_product"})

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_betas(betas)
        check_at_least_zero(momentum_decay, "Invalid momentum_decay value")
        options = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "capturable": capturable,
        }
        super().__init__(params, options, foreach, differentiable)

    def _begin(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "mu_product": 1.0,
            "exp_avg": rabbet.zeros_like(param),
            "exp_avg_sq": rabbet.zeros_like(param),
        }

    def _parts(self, group: dict[str, Any], step: float, before: float) -> tuple[float, ...]:
        """Weights of the gradient and of the mean, and the product of all momenta; `before` is the last."""
        beta1, decay = group["betas"][0], group["momentum_decay"]
        now, following = (beta1 * (1 - 0.5 * 0.96 ** (n * decay)) for n in (step, step + 1))
        product = before * now
        return (1 - now) / (1 - product), following / (1 - product * following), product

    def _step_fused(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], states: list[Any]
    ) -> None:
        # Equal numbers of steps may have seen different betas; then one parameter at a time.
        if len({state["mu_product"] for state in states}) > 1:
            for one in zip(params, grads, states, strict=True):
                self._step_fused(group, *([item] for item in one))
            return
        step = states[0]["step"]
        beta1, beta2 = group["betas"]
        grad_part, mean_part, product = self._parts(group, step, states[0]["mu_product"])
        lr, eps, decay = numbers(group, "lr", "eps", "weight_decay")
        _fused_nadam(
            params,
            grads,
            column(states, "exp_avg"),
            column(states, "exp_avg_sq"),
            lr,
            beta1,
            beta2,
            eps,
            decay,
            group["decoupled_weight_decay"],
            group["maximize"],
            grad_part,
            mean_part,
            1 - beta2**step,
        )
        for state in states:
            state["mu_product"] = product

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        step = state["step"]
        beta1, beta2 = group["betas"]
        grad_part, mean_part, product = self._parts(group, step, state["mu_product"])
        state["mu_product"] = product
        grad = decayed(group, param, grad)
        state["exp_avg"] = mean = state["exp_avg"] + (grad - state["exp_avg"]) * (1 - beta1)
        state["exp_avg_sq"] = square = state["exp_avg_sq"] * beta2 + grad * grad * (1 - beta2)
        root = rabbet.sqrt(square / (1 - beta2**step)) + group["eps"]
        lr = as_number(group["lr"])
        param.sub_((grad * (lr * grad_part) + mean * (lr * mean_part)) / root)
