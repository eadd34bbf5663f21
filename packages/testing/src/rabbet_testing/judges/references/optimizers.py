"""Definitions of the steps of optimizers: what is written, in the order of the arguments."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from .definitions import DEFINITIONS, WHOLE, defines


def _step(
    update: Callable[..., tuple[Any, ...]], lists: list[list[Any]], weight_decay: float, maximize: bool, lr: float,
    decoupled: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """Weight decay, then update(parameter, gradient, further arrays), which gives the parameter and those."""
    made = []
    for p, g, *state in itertools.zip_longest(*lists):
        grad = -g if maximize else g
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            grad = grad + weight_decay * p
        new, *states = update(p, grad, *state)
        made.append([new, g, *states])
    columns = zip(*made, strict=True)
    return tuple(a for given, column in zip(lists, columns, strict=True) if given for a in column)


@defines("fused_adam")
def _adam(params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, max_exp_avg_sqs: Any, lr: float, beta1: float,
          beta2: float, eps: float, weight_decay: float, decoupled: bool, maximize: bool, bias_correction1: float,
          bias_correction2: float) -> Any:  # fmt: skip
    def update(p: Any, g: Any, m: Any, v: Any, top: Any) -> Any:
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        top = None if top is None else np.maximum(top, v)
        size = np.sqrt((v if top is None else top) / bias_correction2) + eps
        return p - lr / bias_correction1 * m / size, m, v, top

    return _step(
        update,
        [params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs],
        weight_decay,
        maximize,
        lr,
        decoupled,
    )


@defines("fused_sgd")
def _sgd(params: Any, grads: Any, momentum_buffers: Any, lr: float, momentum: float, dampening: float,
         weight_decay: float, nesterov: bool, maximize: bool, first_step: bool) -> Any:  # fmt: skip
    def update(p: Any, g: Any, b: Any) -> Any:
        if b is None:
            return p - lr * g, None
        b = g if first_step else momentum * b + (1 - dampening) * g
        return p - lr * (g + momentum * b if nesterov else b), b

    return _step(update, [params, grads, momentum_buffers], weight_decay, maximize, lr)


@defines("fused_rmsprop")
def _rmsprop(params: Any, grads: Any, square_avgs: Any, momentum_buffers: Any, grad_avgs: Any, lr: float, alpha: float,
             eps: float, weight_decay: float, momentum: float, maximize: bool) -> Any:  # fmt: skip
    def update(p: Any, g: Any, s: Any, b: Any, a: Any) -> Any:
        s = alpha * s + (1 - alpha) * g * g
        a = None if a is None else alpha * a + (1 - alpha) * g
        step = g / (np.sqrt(s if a is None else s - a * a) + eps)
        b = None if b is None else momentum * b + step
        return p - lr * (step if b is None else b), s, b, a

    return _step(
        update,
        [params, grads, square_avgs, momentum_buffers, grad_avgs],
        weight_decay,
        maximize,
        lr,
    )


@defines("fused_adagrad")
def _adagrad(
    params: Any,
    grads: Any,
    state_sums: Any,
    lr: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> Any:
    def update(p: Any, g: Any, s: Any) -> Any:
        return p - lr * g / (np.sqrt(s + g * g) + eps), s + g * g

    return _step(update, [params, grads, state_sums], weight_decay, maximize, lr)


@defines("fused_adamax")
def _adamax(params: Any, grads: Any, exp_avgs: Any, exp_infs: Any, lr: float, beta1: float, beta2: float, eps: float,
            weight_decay: float, maximize: bool, bias_correction1: float) -> Any:  # fmt: skip
    def update(p: Any, g: Any, m: Any, u: Any) -> Any:
        m, u = beta1 * m + (1 - beta1) * g, np.maximum(beta2 * u, np.abs(g) + eps)
        return p - lr / bias_correction1 * m / u, m, u

    return _step(update, [params, grads, exp_avgs, exp_infs], weight_decay, maximize, lr)


@defines("fused_nadam")
def _nadam(params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, lr: float, beta1: float, beta2: float, eps: float,
           weight_decay: float, decoupled: bool, maximize: bool, grad_part: float, mean_part: float,
           bias_correction2: float) -> Any:  # fmt: skip
    def update(p: Any, g: Any, m: Any, v: Any) -> Any:
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        return (
            p - lr * (grad_part * g + mean_part * m) / (np.sqrt(v / bias_correction2) + eps),
            m,
            v,
        )

    return _step(
        update, [params, grads, exp_avgs, exp_avg_sqs], weight_decay, maximize, lr, decoupled
    )


@defines("fused_radam")
def _radam(params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, lr: float, beta1: float, beta2: float, eps: float,
           weight_decay: float, decoupled: bool, maximize: bool, bias_correction1: float, rectification: float) -> Any:  # fmt: skip
    def update(p: Any, g: Any, m: Any, v: Any) -> Any:
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        scale = rectification / (np.sqrt(v) + eps) if rectification else 1.0
        return p - lr / bias_correction1 * m * scale, m, v

    return _step(
        update, [params, grads, exp_avgs, exp_avg_sqs], weight_decay, maximize, lr, decoupled
    )


@defines("foreach_norm")
def _foreach_norm(tensors: Any, ord: float) -> Any:
    return np.array([np.linalg.norm(t.reshape(-1), ord) for t in tensors])


@defines("foreach_clamp")
def _foreach_clamp(tensors: Any, low: float, high: float) -> Any:
    return tuple(np.clip(t, low, high) for t in tensors)


def _counted(
    step: Callable[..., Any], lists: int, factors: int, whole: bool = False
) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """The definition of "NAME.tensors" by that of NAME.

    Args:
        lists: how many lists NAME takes.
        factors: how many numbers that depend on the step, its last arguments.
        whole: the factors belong to the learning rate instead.
    """

    def with_tensors(named: dict[str, Any]) -> tuple[Any, ...]:
        arguments = [value for name, value in named.items() if name != "dtype_name"]
        given, (lr, *rest) = arguments[:lists], arguments[lists:]
        lr_tensor, grad_scale, found_inf = (None if t is None else t.item() for t in rest[-3:])
        rows = rest[-4] if factors else np.ones((len(given[0]), 0))
        options = rest[: -4 if factors else -3]
        others = [t for t in rest[-4 if factors else -3 :] if t is not None]  # they stay
        if found_inf:
            return (*(a for each in given for a in each), *others)
        lr = lr if lr_tensor is None else lr_tensor
        columns = []
        for i, row in enumerate(np.asarray(rows, np.float64)):
            one = [each[i : i + 1] for each in given]
            one[1] = [one[1][0] / (grad_scale or 1.0)]
            last = [] if whole else row
            columns.append(step(*one, lr * row[0] if whole else lr, *options, *last))
        for i, column in enumerate(columns):  # gradients stay
            columns[i] = (column[0], given[1][i], *column[2:])
        return (*(a for each in zip(*columns, strict=True) for a in each), *others)

    return with_tensors


for _name, _lists, _factors in [
    ("adam", 5, 2),
    ("sgd", 3, 0),
    ("rmsprop", 5, 0),
    ("adagrad", 3, 1),
    ("adamax", 4, 1),
    ("nadam", 4, 3),
    ("radam", 4, 2),
]:
    _step_of = _counted(DEFINITIONS[f"fused_{_name}"], _lists, _factors, _name == "adagrad")
    WHOLE[f"fused_{_name}.tensors"] = _step_of


@defines("foreach_count")
def _foreach_count(counts: Any, skip: Any = None) -> Any:
    return np.array([c + 1 for c in counts], np.float64)


@defines("foreach_divide")
def _divided(tensors: Any, divisor: Any = None, skip: Any = None) -> Any:
    keep = divisor is None or (skip is not None and skip.item())
    others = [t for t in (divisor, skip) if t is not None]  # they stay
    return (*(t if keep else t / divisor.item() for t in tensors), *others)
