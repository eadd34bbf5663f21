"""Steps whose counts and learning rates are tensors on the device, so that graphs can capture them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import rabbet
from rabbet import _C, Tensor, ops

from ._checks import as_number

__all__ = [
    "Scaling",
    "adam_on_device",
    "by_device",
    "check_capture",
    "check_not_captured",
    "count_steps",
    "is_elsewhere",
    "NO_SCALING",
    "as_numbers",
    "lr_of",
    "numbers_only",
    "on_device",
    "plain_lr",
    "run_with_tensors",
    "step_by_device",
]

_count, _divide = ops.foreach_count, ops.foreach_divide


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


def check_capture(optimizer: Any, group: dict[str, Any]) -> None:
    """Refuse to capture what is not `capturable`, and warn once where all groups are and nothing captures."""
    params, capturable = group["params"], group.get("capturable")
    if capturable is False:
        check_not_captured(optimizer, params, "but param_groups' capturable is False.")
    if not capturable or not is_elsewhere(params):
        return
    warned = getattr(optimizer, "_warned_capturable_if_run_uncaptured", False)
    if warned or _C.is_capturing(params[0].device):
        return
    if all(other["capturable"] for other in optimizer.param_groups):
        optimizer._warned_capturable_if_run_uncaptured = True
        warnings.warn(
            "This instance was constructed with capturable=True or some of all the param_groups came with "
            f"capturable=True, but step() is running without {params[0].device.type.upper()} graph capture. If you "
            "never intend to graph-capture this instance, capturable=True can impair performance, and you should set "
            "capturable=False.",
            stacklevel=3,
        )


def on_device(value: Any, param: Tensor) -> Tensor:
    """A number of the state, such as the count of steps, as a tensor without dimensions where the parameter is."""
    if isinstance(value, Tensor):
        return value.to(device=param.device, dtype=rabbet.float32)
    return rabbet.full((), float(value), dtype=rabbet.float32, device=param.device)


class Scaling:
    """What a GradScaler left at an optimizer: by what to divide the gradients, and whether to skip the step."""

    def __init__(self, optimizer: Any) -> None:
        self.divisor: Tensor | None = getattr(optimizer, "grad_scale", None)
        self.skip: Tensor | None = getattr(optimizer, "found_inf", None)

    def __bool__(self) -> bool:
        return self.divisor is not None or self.skip is not None

    def at(self, device: rabbet.device) -> tuple[Tensor | None, Tensor | None]:
        """Both on a device."""
        there = [
            t if t is None else t.to(device=device, dtype=rabbet.float32, non_blocking=True)
            for t in (self.divisor, self.skip)
        ]
        return there[0], there[1]

    def unscale(self, grads: list[Tensor]) -> bool:
        """Divide gradients by ordinary operators; False if the step is to be skipped, which the host reads."""
        if self.skip is not None and self.skip.item() != 0:
            return False
        if self.divisor is not None:
            for grad in grads:
                grad.div_(self.divisor.to(grad.device))
        return True


NO_SCALING = Scaling(None)


def by_device(params: list[Tensor], *more: list[Any]) -> list[tuple[list[Any], ...]]:
    """The lists, one device of the parameters at a time."""
    found: dict[rabbet.device, tuple[list[Any], ...]] = {}
    for row in zip(params, *more, strict=True):
        lists = found.setdefault(row[0].device, tuple([] for _ in row))
        for items, item in zip(lists, row, strict=True):
            items.append(item)
    return [*found.values()]


def count_steps(steps: list[Tensor], skip: Tensor | None = None) -> Tensor:
    """Count a step in tensors of one device, unless `skip` is not 0; returns the numbers of this step in float64."""
    try:
        counts: Tensor = _count(steps, skip)
    except NotImplementedError:  # a backend without the operator
        counts = rabbet.stack(steps).to(rabbet.float64) + 1
        one = 1 if skip is None else (skip == 0).to(rabbet.float32)
        for step in steps:
            step += one
    return counts


def step_by_device(
    params: list[Tensor],
    states: list[dict[str, Any]],
    names: Iterable[str],
    scaling: Scaling,
    fused: Callable[..., bool],
    plain: Callable[..., None],
) -> None:
    """Count a step and take it, one device of the parameters at a time, without a value on the host.

    Args:
        names: entries of the states that are to be tensors on the device, "step" among them.
        fused: takes parameters, gradients, states, counts and `Scaling.at`; False where it cannot: nothing is written.
        plain: takes one of each of the first three, and its count; the gradient is unscaled.
    """
    for there, their in by_device(params, states):
        for param, state in zip(there, their, strict=True):
            for name in names:
                if not isinstance(state[name], Tensor) or state[name].device != param.device:
                    state[name] = on_device(state[name], param)
        grads = [p.grad for p in there]
        at = scaling.at(there[0].device)
        counts = count_steps([state["step"] for state in their], at[1])
        if fused(there, grads, their, counts, at) or not scaling.unscale(grads):
            continue
        for i, row in enumerate(zip(there, grads, their, strict=True)):
            plain(*row, counts[i])


def lr_of(group: dict[str, Any]) -> tuple[float, Tensor | None]:
    """The learning rate as a number, or as a tensor where it is one."""
    lr = group["lr"]
    if not isinstance(lr, Tensor):
        return lr, None
    return 0.0, lr


def plain_lr(group: dict[str, Any]) -> Any:
    """The learning rate for ordinary operators: a tensor where it is on a device, or may want a gradient."""
    lr = group["lr"]
    if isinstance(lr, Tensor) and (group["differentiable"] or not lr.is_cpu):
        return lr.reshape(())
    return as_number(lr)


def run_with_tensors(
    operator: Callable[..., Any],
    grads: list[Tensor],
    arguments: list[Any],
    factors: tuple[Tensor, ...],
    lr: Tensor | None,
    scaling: tuple[Tensor | None, Tensor | None] = (None, None),
) -> None:
    """Call "NAME.tensors" for tensors of one device, and leave their gradients unscaled.

    Args:
        factors: what depends on the number of the step, a vector each.
    """
    rows = [rabbet.stack([*factors], 1)] if factors else []
    device = grads[0].device
    operator(*arguments, *rows, lr if lr is None else lr.to(device), *scaling)
    divisor, skip = scaling
    if divisor is not None:
        _divide(grads, divisor, skip)


def _correction(beta: Any, step: Tensor) -> Tensor:
    """`1 - beta**step` without cancellation in float32."""
    beta = beta.item() if isinstance(beta, Tensor) and beta.is_cpu else beta
    if isinstance(beta, Tensor):
        return 1 - beta**step
    return -rabbet.expm1(step * math.log(beta)) if beta > 0 else rabbet.ones_like(step)


def adam_on_device(
    group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any], step: Tensor
) -> None:
    """One step of Adam or AdamW in place, by ordinary operators, without a value on the host.

    Args:
        step: the number of this step.
    """
    beta1, beta2 = group["betas"]
    lr, weight_decay = plain_lr(group), group["weight_decay"]
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


def numbers_only(*values: Any) -> bool:
    """Whether none is a tensor on a device, whose number the host does not know."""
    return not any(isinstance(v, Tensor) and not v.is_cpu for v in values)


def as_numbers(*values: Any) -> tuple[float, ...]:
    """Values that `numbers_only` holds for, as Python numbers."""
    return tuple(as_number(v) for v in values)
