"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import rabbet
from rabbet import Tensor, ops
from rabbet.autograd import enable_grad, no_grad

from ._capture import NO_SCALING, Scaling, by_device, lr_of, plain_lr, run_with_tensors
from ._checks import as_number, check_at_least_zero, check_fused, check_lr, check_modes
from .optimizer import Optimizer

__all__ = ["SGD", "sgd"]

_fused_sgd, _fused_sgd_tensors = ops.fused_sgd, ops("fused_sgd.tensors")


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (Nesterov's if wanted) and weight decay.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: learning rate.
        momentum: part of the last step that is kept.
        dampening: part of the gradient that momentum leaves out.
        weight_decay: multiple of the parameter that is added to the gradient.
        nesterov: look one step of momentum ahead (Sutskever et al. 2013).
        maximize: go up instead of down.
        differentiable: record the step on the tape.
        fused: leave unscaling and skipping steps to the optimizer where a `GradScaler` is used.
        foreach: accepted for PyTorch's sake; the usual step is one operator anyway.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_at_least_zero(momentum, "Invalid momentum value")
        check_at_least_zero(weight_decay, "Invalid weight_decay value")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        check_modes(foreach, fused, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
                "foreach": foreach,
                "differentiable": differentiable,
                "fused": fused,
            },
        )
        if fused:
            check_fused(self.param_groups)
            self._step_supports_amp_scaling = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in (("nesterov", False), ("maximize", False), ("foreach", None)):
                group.setdefault(name, value)
            group.setdefault("differentiable", False)
            group.setdefault("fused", None)

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
            try:
                self._step_group(group, scaling)
            except NotImplementedError:  # a backend without the operator: nothing is written yet
                with no_grad():
                    if scaling.unscale([p.grad for p in group["params"] if p.grad is not None]):
                        self._step_plainly(group)
        return loss

    def _step_group(self, group: dict[str, Any], scaling: Scaling = NO_SCALING) -> None:
        params, grads = [], []
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            if not grad.is_floating_point():
                with no_grad():
                    if scaling.unscale([p.grad for p in group["params"] if p.grad is not None]):
                        self._step_plainly(group)
                return
            params.append(param)
            grads.append(grad)
        if not params:
            return
        momentum = group["momentum"]
        lr, lr_tensor = lr_of(group)
        fused = _fused_sgd
        if scaling or lr_tensor is not None:

            def fused(*arguments: Any) -> None:
                with no_grad():
                    self._step_with_tensors(arguments, lr_tensor, scaling)

        options = (
            lr,
            momentum,
            group["dampening"],
            as_number(group["weight_decay"]),
            group["nesterov"],
            group["maximize"],
        )
        if not momentum:
            fused(params, grads, [], *options, False)
            return
        state = self.state
        begun: tuple[list[Tensor], ...] = ([], [], [])
        first: tuple[list[Tensor], ...] = ([], [], [])
        for param, grad in zip(params, grads, strict=True):
            buffer = state[param].get("momentum_buffer")
            lists = begun
            if buffer is None:
                # A step that is skipped leaves its buffers for the next one.
                make = rabbet.zeros_like if scaling else rabbet.empty_like
                buffer = make(param.detach())
                lists = first
            for items, item in zip(lists, (param, grad, buffer), strict=True):
                items.append(item)
        if begun[0]:
            fused(*begun, *options, False)
        if first[0]:
            fused(*first, *options, True)
            for param, _, buffer in zip(*first, strict=True):
                state[param]["momentum_buffer"] = buffer

    def _step_with_tensors(
        self, arguments: tuple[Any, ...], lr: Tensor | None, scaling: Scaling
    ) -> None:
        """The call of the operator, for one device at a time."""
        params, grads, buffers, *options = arguments
        rows = (params, grads, buffers) if buffers else (params, grads)
        for there, their_grads, *rest in by_device(*rows):
            lists = [there, their_grads, rest[0] if rest else []]
            at = scaling.at(there[0].device)
            run_with_tensors(_fused_sgd_tensors, their_grads, [*lists, *options], (), lr, at)

    def _step_plainly(self, group: dict[str, Any]) -> None:
        """The same step by ordinary operators."""
        params = [p for p in group["params"] if p.grad is not None]
        buffers = [
            self.state[p].get("momentum_buffer") if p in self.state else None for p in params
        ]
        sgd(
            params,
            [p.grad for p in params],
            buffers,
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            lr=plain_lr(group),
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
        )
        if group["momentum"]:
            for param, buffer in zip(params, buffers, strict=True):
                kept = self.state[param].get("momentum_buffer")
                if kept is None or group["differentiable"]:
                    self.state[param]["momentum_buffer"] = buffer
                else:  # where graphs read it
                    kept.copy_(buffer)


def sgd(
    params: list[Tensor],
    d_p_list: list[Tensor],
    momentum_buffer_list: list[Tensor | None],
    *,
    weight_decay: float | Tensor,
    momentum: float,
    lr: float | Tensor,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """One step by ordinary operators, which change `params` and `momentum_buffer_list` in place."""
    for i, (param, grad) in enumerate(zip(params, d_p_list, strict=True)):
        if maximize:
            grad = -grad
        if isinstance(weight_decay, Tensor) or weight_decay != 0:
            grad = grad + param * weight_decay
        if momentum:
            buffer = momentum_buffer_list[i]
            if buffer is None:
                buffer = grad.clone()
            else:
                buffer = buffer * momentum + grad * (1 - dampening)
            momentum_buffer_list[i] = buffer
            grad = grad + buffer * momentum if nesterov else buffer
        param.sub_(grad * lr)
