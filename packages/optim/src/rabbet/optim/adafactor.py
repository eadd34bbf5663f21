"""Adafactor (Shazeer and Stern 2018, https://arxiv.org/abs/1804.04235)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import rabbet
from rabbet import Tensor

from ._checks import as_number
from ._each import EachParameter, check_option

__all__ = ["Adafactor"]


class Adafactor(EachParameter):
    """Gradients divided by the root of an estimate of their squares, which for matrices is a product of a column and a row.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: the largest relative step size.
        beta2_decay: power of the step's number by which running means forget.
        eps: least size of the estimate (None: the machine epsilon of the dtype), and least size of a parameter.
        d: bound of the root mean square of a change.
        weight_decay: part of the parameter that each step takes away, times `lr`.
        maximize: go up instead of down.
        foreach: accepted for PyTorch's sake.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        check_option(as_number(lr) >= 0, "Learning rate should be >= 0 but is", lr)
        check_option(beta2_decay <= 0, "beta2_decay should be <= 0 but is", beta2_decay)
        check_option(eps[0] is None or eps[0] >= 0, "epsilon1 should be >= 0 but is", eps[0])
        check_option(eps[1] >= 0, "epsilon2 should be >= 0 but is", eps[1])
        check_option(d >= 1, "Clipping threshold d should be >= 1 but is", d)
        check_option(weight_decay >= 0, "weight_decay should be >= 0 but is", weight_decay)
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _begin(self, grad: Tensor) -> dict[str, Any]:
        if grad.ndim <= 1:
            return {"step": 0, "variance": rabbet.zeros_like(grad)}
        *front, rows, columns = grad.shape
        return {
            "step": 0,
            "row_var": grad.new_zeros((*front, rows, 1)),
            "col_var": grad.new_zeros((*front, 1, columns)),
        }

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        if grad.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        if not state:
            state.update(self._begin(grad))
        if group["maximize"]:
            grad = -grad
        state["step"] += 1
        lr, step = as_number(group["lr"]), state["step"]
        eps1, eps2 = group["eps"]
        eps1 = rabbet.finfo(param.dtype).eps if eps1 is None else eps1
        news = step ** group["beta2_decay"]  # part of the running means that is new
        size = max(eps2, param.norm(2).item() / math.sqrt(param.numel()))
        if group["weight_decay"] != 0:
            param.mul_(1 - lr * group["weight_decay"])
        squares = grad * grad
        if grad.ndim > 1:
            row, column = state["row_var"], state["col_var"]
            row.lerp_(squares.mean(-1, keepdim=True), news)
            column.lerp_(squares.mean(-2, keepdim=True), news)
            estimate = row @ column / row.mean(-2, keepdim=True).clamp(min=eps1)
        else:
            estimate = state["variance"].lerp_(squares, news)
        change = estimate.clamp(min=eps1 * eps1).rsqrt() * grad
        spread = change.norm(2).item() / (math.sqrt(change.numel()) * group["d"])
        rate = size * min(lr, 1 / math.sqrt(step))
        param.sub_(change, alpha=rate / max(1.0, spread))
