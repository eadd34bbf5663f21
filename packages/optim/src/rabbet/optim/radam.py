"""RAdam (Liu et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import Tensor, ops

from ._capture import plain_lr
from ._checks import check_betas
from ._moments import Moments, next_mean, next_square
from ._stepwise import decayed

__all__ = ["RAdam"]


class RAdam(Moments):
    """Adam that uses the mean square only where enough steps make it a good estimate.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: learning rate.
        betas: parts of the two running means that are kept at each step.
        eps: added to the root of the mean square.
        weight_decay: multiple of the parameter that is added to the gradient.
        decoupled_weight_decay: shrink the parameter instead of adding to the gradient.
        maximize: go up instead of down.
        differentiable: record the step on the tape.
        capturable: count steps in tensors beside the parameters, so that graphs can capture the step.
        foreach: accepted for PyTorch's sake; the usual step is one operator anyway.
    """

    _fused = staticmethod(ops.fused_radam)
    _fused_tensors = staticmethod(ops("fused_radam.tensors"))

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_betas(betas)
        options = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, options, foreach, differentiable)

    def _rectification(self, beta2: float, step: Any) -> Any:
        """The factor of the adaptive step; 0 while the variance of the mean square is unbounded."""
        last = 2 / (1 - beta2) - 1
        rho = last - 2 * step * beta2**step / (1 - beta2**step)
        above = rho > 5
        if above is False:
            return 0.0
        ratio = (rho - 4) * (rho - 2) * last / ((last - 4) * (last - 2) * rho)
        factor = (ratio * (1 - beta2**step)) ** 0.5
        return factor if above is True else rabbet.where(above, factor, 0.0)

    def _factors(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[Any, ...]:
        (beta1, beta2), step = group["betas"], state["step"]
        return 1 - beta1**step, self._rectification(beta2, step)

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        step = state["step"]
        beta1, beta2 = group["betas"]
        grad = decayed(group, param, grad)
        mean = next_mean(group, state, grad)
        square = next_square(group, state, grad)
        change = mean * (plain_lr(group) / (1 - beta1**step))
        factor = self._rectification(beta2, step)
        if isinstance(factor, Tensor) or factor:
            rectified = change * factor / (rabbet.sqrt(square) + group["eps"])
            may = isinstance(factor, Tensor)
            change = rabbet.where(factor != 0, rectified, change) if may else rectified
        param.sub_(change)
