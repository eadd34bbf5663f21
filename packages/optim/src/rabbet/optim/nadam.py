"""NAdam (Dozat 2016)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import Tensor, ops

from ._capture import plain_lr
from ._checks import as_number, check_at_least_zero, check_betas
from ._moments import Moments, next_mean, next_square
from ._stepwise import decayed

__all__ = ["NAdam"]


class NAdam(Moments):
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
        capturable: count steps in tensors beside the parameters, so that graphs can capture the step.
        foreach: accepted for PyTorch's sake; the usual step is one operator anyway.
    """

    _number_state = frozenset({"step", "mu_product"})
    _fused = staticmethod(ops.fused_nadam)
    _fused_tensors = staticmethod(ops("fused_nadam.tensors"))

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
        return {"mu_product": 1.0, **super()._begin(param, group)}

    def _parts(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[Any, ...]:
        """Weights of the gradient and of the mean, and the product of all momenta with this step's."""
        beta1, decay, step = group["betas"][0], group["momentum_decay"], state["step"]
        now, following = (beta1 * (1 - 0.5 * 0.96 ** (n * decay)) for n in (step, step + 1))
        product = state["mu_product"] * now
        return (1 - now) / (1 - product), following / (1 - product * following), product

    def _factors(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[Any, ...]:
        grad_part, mean_part, state["mu_product"] = self._parts(group, state)
        return grad_part, mean_part, 1 - group["betas"][1] ** state["step"]

    def _step_fused(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], states: list[Any]
    ) -> None:
        # Equal numbers of steps may have seen different betas; then one parameter at a time.
        first = states[0]["mu_product"]
        if any(state["mu_product"] != first for state in states):
            for one in zip(params, grads, states, strict=True):
                self._step_fused(group, *([item] for item in one))
            return
        now = {"step": states[0]["step"], "mu_product": first}
        arguments = self._arguments(group, as_number(group["lr"]), params, grads, states)
        self._fused(*arguments, *self._factors(group, now))
        for state in states:
            state["mu_product"] = now["mu_product"]

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        grad_part, mean_part, product = self._parts(group, state)
        state["mu_product"] = product
        grad = decayed(group, param, grad)
        mean = next_mean(group, state, grad)
        square = next_square(group, state, grad)
        root = rabbet.sqrt(square / (1 - group["betas"][1] ** state["step"])) + group["eps"]
        lr = plain_lr(group)
        param.sub_((grad * (lr * grad_part) + mean * (lr * mean_part)) / root)
