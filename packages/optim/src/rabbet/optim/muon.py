"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import Tensor

from ._checks import as_number
from ._each import EachParameter, check_option

__all__ = ["Muon"]

# How the learning rate follows the shape of a matrix.
_RATIOS = {
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}


def orthogonalized(
    matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """About the nearest matrix with orthogonal rows or columns, by a Newton-Schulz iteration in bfloat16."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.to(rabbet.bfloat16)
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = rabbet.addmm(x, rabbet.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class Muon(EachParameter):
    """Momentum whose steps are made orthogonal, for the matrices of hidden layers.

    Args:
        params: tensors of 2 dimensions, (name, tensor) pairs or group dicts.
        lr: learning rate.
        weight_decay: part of the parameter that each step takes away, times `lr`.
        momentum: part of the running mean of gradients that is kept.
        nesterov: look ahead by the momentum.
        ns_coefficients: of the polynomial that the Newton-Schulz iteration applies.
        eps: least norm to divide by.
        ns_steps: number of iterations, below 100.
        adjust_lr_fn: "original" (None) or "match_rms_adamw": how the learning rate follows the shape.
    """

    _number_state = frozenset()

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        check_option(as_number(lr) >= 0, "Learning rate should be >= 0 but is", lr)
        check_option(momentum >= 0, "momentum should be >= 0 but is", momentum)
        check_option(weight_decay >= 0, "weight decay should be >= 0 but is", weight_decay)
        if adjust_lr_fn is not None and adjust_lr_fn not in _RATIOS:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for param in group["params"]:
                if param.ndim != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {param.size()}"
                    )

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        if param.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        if not state:
            state["momentum_buffer"] = rabbet.zeros_like(grad)
        lr, momentum = as_number(group["lr"]), group["momentum"]
        mean = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        step = grad.lerp(mean, momentum) if group["nesterov"] else mean
        step = orthogonalized(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
        ratio = _RATIOS[group["adjust_lr_fn"] or "original"](*param.shape)
        param.mul_(1 - lr * group["weight_decay"])
        param.sub_(step, alpha=lr * ratio)
