"""Adam (Kingma and Ba 2015)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import rabbet
from rabbet import Tensor, ops
from rabbet.autograd import _C, enable_grad, no_grad

from ._capture import (
    Scaling,
    adam_on_device,
    as_numbers,
    check_capture,
    lr_of,
    numbers_only,
    run_with_tensors,
    step_by_device,
)
from ._checks import as_number, check_at_least_zero, check_betas, check_fused, check_lr, check_modes
from .optimizer import Optimizer

__all__ = ["Adam", "adam"]

_fused_adam, _fused_adam_tensors = ops.fused_adam, ops("fused_adam.tensors")
_real_grads = _C.real_grads


def _check_tensor_betas(betas: Any, refused: bool | None) -> None:
    """Refuse one tensor beside one number, more than one element, and tensors where a step cannot take them."""
    if isinstance(betas[0], Tensor) != isinstance(betas[1], Tensor):
        raise ValueError("betas must be either both floats or both Tensors")
    for i in range(2):
        if not isinstance(betas[i], Tensor):
            continue
        if refused:
            raise ValueError(
                f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True"
            )
        if betas[i].numel() != 1:
            raise ValueError(f"Tensor betas[{i}] must be 1-element")


class Adam(Optimizer):
    """Steps scaled by running means of the gradient and of its square.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: learning rate.
        betas: parts of the two running means that are kept at each step.
        eps: added to the root of the mean square.
        weight_decay: multiple of the parameter that is added to the gradient.
        amsgrad: divide by the largest mean square so far (Reddi et al. 2018).
        maximize: go up instead of down.
        differentiable: record the step on the tape.
        decoupled_weight_decay: shrink the parameter instead of adding to the gradient, as AdamW.
        capturable: count steps in tensors beside the parameters, so that graphs can capture the step.
        fused: leave unscaling and skipping steps to the optimizer where a `GradScaler` is used.
        foreach: accepted for PyTorch's sake; the usual step is one operator anyway.
    """

    _number_state = frozenset({"step"})
    _decoupled = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | Tensor = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        if foreach and not capturable and isinstance(lr, Tensor):
            raise ValueError(
                "lr as a Tensor is not supported for capturable=False and foreach=True"
            )
        check_lr(lr)
        check_at_least_zero(eps, "Invalid epsilon value")
        check_betas(betas)
        check_at_least_zero(weight_decay, "Invalid weight_decay value")
        _check_tensor_betas(betas, foreach and not capturable)
        check_modes(foreach, fused, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
                "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )
        if fused:
            check_fused(self.param_groups)
            self._step_supports_amp_scaling = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("amsgrad", "maximize", "capturable", "differentiable"):
                group.setdefault(name, False)
            group.setdefault("foreach", None)
            group.setdefault("fused", None)
            group.setdefault("decoupled_weight_decay", self._decoupled)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients; returns the closure's loss."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        scaling = Scaling(self)
        for group in self.param_groups:
            if group["differentiable"]:
                self._step_plainly(group)
                continue
            check_capture(self, group)
            if scaling or group["capturable"]:
                with no_grad():
                    self._step_with_tensors(group, scaling)
                continue
            try:
                self._step_group(group)
            except NotImplementedError:  # a backend without the operator: nothing is written yet
                with no_grad():
                    self._step_plainly(group)
        return loss

    def _begin(self, param: Tensor, amsgrad: bool) -> dict[str, Any]:
        """State of a parameter before its first step."""
        state = self.state[param]
        values = param.detach()
        state["step"] = 0
        state["exp_avg"] = rabbet.zeros_like(values)
        state["exp_avg_sq"] = rabbet.zeros_like(values)
        if amsgrad:
            state["max_exp_avg_sq"] = rabbet.zeros_like(values)
        return state

    def _step_with_tensors(self, group: dict[str, Any], scaling: Scaling) -> None:
        """The same step without a number that the host knows."""
        params = [p for p in group["params"] if p.grad is not None]
        states = [self.state[p] or self._begin(p, group["amsgrad"]) for p in params]

        def plain(param: Tensor, grad: Tensor, state: dict[str, Any], count: Tensor) -> None:
            adam_on_device(group, param, grad, state, count.to(rabbet.float32))

        fused = partial(self._step_fused_with_tensors, group)
        step_by_device(params, states, ("step",), scaling, fused, plain)

    def _step_fused_with_tensors(
        self,
        group: dict[str, Any],
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
        counts: Tensor,
        scaling: tuple[Tensor | None, Tensor | None],
    ) -> bool:
        """The step by one operator; False where that does not take the tensors: nothing is written then."""
        options = (*group["betas"], group["eps"], group["weight_decay"])
        if not numbers_only(*options) or not all(g.is_floating_point() for g in grads):
            return False
        beta1, beta2, eps, weight_decay = as_numbers(*options)
        lr, lr_tensor = lr_of(group)
        lists = [params, grads, *([s[name] for s in states] for name in ("exp_avg", "exp_avg_sq"))]
        lists.append([s["max_exp_avg_sq"] for s in states] if group["amsgrad"] else [])
        numbers = [lr, beta1, beta2, eps, weight_decay]
        modes = [group["decoupled_weight_decay"], group["maximize"]]
        factors = 1 - beta1**counts, 1 - beta2**counts
        try:
            run_with_tensors(
                _fused_adam_tensors,
                grads,
                [*lists, *numbers, *modes],
                factors,
                lr_tensor,
                scaling,
            )
        except NotImplementedError:  # a backend without the operator
            return False
        return True

    def _step_together(self, group: dict[str, Any]) -> bool:
        """The step of a group whose parameters all have gradients and made as many steps as the first.

        False: the group is not like that, and nothing was done.
        """
        params = group["params"]
        grads = _real_grads(params)
        if not grads:
            return False
        state_of = self.state
        states, means, squares = [], [], []
        step: Any = None
        for param in params:
            state = state_of.get(param)
            if not state:  # its steps are still to begin
                return False
            count = state["step"]
            if isinstance(count, Tensor):  # of steps with a GradScaler
                count = state["step"] = count.item()
            if step is None:
                step = count
            elif count != step:
                return False
            states.append(state)
            means.append(state["exp_avg"])
            squares.append(state["exp_avg_sq"])
        beta1, beta2 = group["betas"]
        lr, weight_decay = group["lr"], group["weight_decay"]
        if not (type(lr) is type(beta1) is type(beta2) is float) or isinstance(
            weight_decay, Tensor
        ):
            return False
        count = step + 1
        _fused_adam(
            params,
            grads,
            means,
            squares,
            [],
            lr,
            beta1,
            beta2,
            group["eps"],
            weight_decay,
            group["decoupled_weight_decay"],
            group["maximize"],
            1 - beta1**count,
            1 - beta2**count,
        )
        for state in states:
            state["step"] = count
        return True

    def _step_group(self, group: dict[str, Any]) -> None:
        if not group["amsgrad"] and self._step_together(group):
            return
        amsgrad = group["amsgrad"]
        state_of = self.state
        # Parameters that have made the same number of steps share one call; mostly these are all.
        by_step: dict[float, tuple[list[Tensor], ...]] = {}
        last = None
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            if not grad.is_floating_point():
                with no_grad():
                    self._step_plainly(group)
                return
            state = state_of[param] or self._begin(param, amsgrad)
            step = state["step"]
            if isinstance(step, Tensor):
                step = state["step"] = step.item()
            if step != last:
                lists = by_step.get(step)
                if lists is None:
                    lists = by_step[step] = ([], [], [], [], [])
                params, grads, means, squares, largest = lists
                last = step
            params.append(param)
            grads.append(grad)
            means.append(state["exp_avg"])
            squares.append(state["exp_avg_sq"])
            if amsgrad:
                largest.append(state["max_exp_avg_sq"])
        if not by_step:
            return
        beta1, beta2 = group["betas"]
        beta1, beta2 = as_number(beta1), as_number(beta2)
        options = (
            as_number(group["lr"]),
            beta1,
            beta2,
            group["eps"],
            as_number(group["weight_decay"]),
            group["decoupled_weight_decay"],
            group["maximize"],
        )
        for step, lists in by_step.items():
            count = step + 1
            _fused_adam(*lists, *options, 1 - beta1**count, 1 - beta2**count)
            for param in lists[0]:
                state_of[param]["step"] = count

    def _step_plainly(self, group: dict[str, Any]) -> None:
        """The same step by ordinary operators."""
        amsgrad = group["amsgrad"]
        params = [p for p in group["params"] if p.grad is not None]
        states = [self.state[p] or self._begin(p, amsgrad) for p in params]
        for state in states:
            state["step"] += 1
        names = ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if amsgrad else [])
        columns = [[state[name] for state in states] for name in names]
        adam(
            params,
            [p.grad for p in params],
            columns[0],
            columns[1],
            columns[2] if amsgrad else [],
            [state["step"] for state in states],
            amsgrad=amsgrad,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=group["maximize"],
            decoupled_weight_decay=group["decoupled_weight_decay"],
        )
        for name, column in zip(names, columns, strict=True):
            for state, value in zip(states, column, strict=True):
                state[name] = value


def adam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    state_steps: list[float],
    *,
    amsgrad: bool,
    beta1: float,
    beta2: float,
    lr: float | Tensor,
    weight_decay: float | Tensor,
    eps: float,
    maximize: bool,
    decoupled_weight_decay: bool = False,
) -> None:
    """One step by ordinary operators, which change `params` and replace the entries of the other lists.

    `state_steps` counts this step already. Complex numbers count as pairs of real ones.
    """
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        if maximize:
            grad = -grad
        if isinstance(weight_decay, Tensor) or weight_decay != 0:
            if decoupled_weight_decay:
                param.mul_(1 - lr * weight_decay)
            else:
                grad = grad + param * weight_decay
        count = as_number(state_steps[i])
        exp_avgs[i] = exp_avgs[i] * beta1 + grad * (1 - beta1)
        exp_avg_sqs[i] = exp_avg_sqs[i] * beta2 + _square(grad) * (1 - beta2)
        square = exp_avg_sqs[i]
        if amsgrad:
            max_exp_avg_sqs[i] = square = _by_parts(rabbet.maximum, max_exp_avg_sqs[i], square)
        scaled = square / (1 - beta2**count)
        root = _by_parts(lambda x: rabbet.sqrt(x) + eps, scaled)
        mean = exp_avgs[i] / (1 - beta1**count)
        param.sub_(_by_parts(lambda m, r: m / r, mean, root) * lr)


def _by_parts(fn: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """`fn` on real and imaginary parts each, if the tensors are complex."""
    if not tensors[0].is_complex():
        return fn(*tensors)
    real = fn(*(rabbet.real(t) for t in tensors))
    return rabbet.complex(real, fn(*(rabbet.imag(t) for t in tensors)))


def _square(x: Tensor) -> Tensor:
    return _by_parts(lambda part: part * part, x)
