"""Steps that can be captured as work of a device: their counts and learning rates are tensors there."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import _C, Tensor

__all__ = ["adam_on_device", "check_not_captured", "count_on_device", "is_elsewhere"]


def is_elsewhere(params: Iterable[Tensor]) -> bool:
    """Whether the first parameter is on another device than the CPU."""
    return any(not p.is_cpu for p in [*params][:1])


def check_not_captured(optimizer: Any, params: list[Tensor], hint: str) -> None:
    """Refuse a step whose count is a number: each launch of a graph would repeat the same step.

    Raises:
        RuntimeError: if the thread captures the device of the parameters.
    """
    if is_elsewhere(params) and _C.is_capturing(params[0].device):
        raise RuntimeError(
            f"Attempting CUDA graph capture of step() for an instance of {type(optimizer).__name__} {hint}"
        )


def count_on_device(step: Any, param: Tensor) -> Tensor:
    """A count of steps as a tensor without dimensions on the parameter's device."""
    if isinstance(step, Tensor):
        return step.to(device=param.device, dtype=rabbet.float32)
    return rabbet.full((), float(step), dtype=rabbet.float32, device=param.device)


def _correction(beta: Any, step: Tensor) -> Tensor:
    """`1 - beta**step` without cancellation in float32."""
    beta = beta.item() if isinstance(beta, Tensor) and beta.is_cpu else beta
    if isinstance(beta, Tensor):
        return 1 - beta**step
    return -rabbet.expm1(step * math.log(beta)) if beta > 0 else rabbet.ones_like(step)


def adam_on_device(
    group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
) -> None:
    """One step of Adam or AdamW in place, without a value on the host. `state["step"]` is a tensor."""
    step = state["step"]
    step += 1
    beta1, beta2 = group["betas"]
    lr, weight_decay = group["lr"], group["weight_decay"]
    names = ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if group["amsgrad"] else [])
    kept = [state[name] for name in names]
    if param.is_complex():  # pairs of real numbers
        param, grad = rabbet.view_as_real(param), rabbet.view_as_real(grad)
        kept = [rabbet.view_as_real(t) for t in kept]
    if group["maximize"]:
        grad = -grad
    if isinstance(weight_decay, Tensor) or weight_decay != 0:
        if group["decoupled_weight_decay"]:
            param.mul_(1 - lr * weight_decay)
        else:
            grad = grad + param * weight_decay
    mean, square = kept[:2]
    mean.mul_(beta1).add_(grad * (1 - beta1))
    square.mul_(beta2).add_(grad * grad * (1 - beta2))
    if group["amsgrad"]:
        largest = kept[2]
        largest.copy_(rabbet.maximum(largest, square))
        square = largest
    root = rabbet.sqrt(square / _correction(beta2, step)) + group["eps"]
    param.sub_((mean / root * (lr / _correction(beta1, step))).to(param.dtype))
