"""What the optimizers of one fused operator share: a state of running tensors and a count of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import rabbet
from rabbet import Tensor
from rabbet.autograd import enable_grad, no_grad

from ._capture import (
    Scaling,
    check_capture,
    lr_of,
    numbers_only,
    run_with_tensors,
    step_by_device,
)
from ._checks import as_number, check_at_least_zero, check_fused, check_lr, check_modes
from .optimizer import Optimizer


class Stepwise(Optimizer):
    """Steps that depend on the parameter, its gradient, its state and the number of the step.

    Subclasses say how the state begins and make the step twice: for lists by a fused operator, and for
    one parameter by ordinary operators, which serve complex numbers, `differentiable=True` and backends
    without the fused one.
    """

    _number_state = frozenset({"step"})
    _at_least_zero: tuple[str, ...] = ("eps", "weight_decay")
    _fused: Callable[..., Any]  # the operator
    _fused_tensors: Callable[..., Any]  # the same with learning rate and factors in tensors

    def __init__(
        self,
        params: Iterable[Any],
        options: dict[str, Any],
        foreach: bool | None,
        differentiable: bool,
        fused: bool | None = None,
    ) -> None:
        check_lr(options["lr"])
        for name in self._at_least_zero:
            what = "epsilon" if name == "eps" else name
            check_at_least_zero(options[name], f"Invalid {what} value")
        check_modes(foreach, fused, differentiable)
        super().__init__(params, {**options, "foreach": foreach, "differentiable": differentiable})
        if fused:
            check_fused(self.param_groups)
            self._step_supports_amp_scaling = True

    def _begin(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """State of a parameter before its first step, the count aside."""
        raise NotImplementedError

    def _factors(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[Any, ...]:
        """The operator's last arguments, which depend on `state["step"]`: numbers, or a vector for each if it is one."""
        return ()

    def _arguments(
        self,
        group: dict[str, Any],
        lr: float,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[Any],
    ) -> list[Any]:
        """The operator's arguments before the factors."""
        raise NotImplementedError

    def _step_fused(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], states: list[Any]
    ) -> None:
        """Step `states[0]["step"]`, which all parameters share, in place."""
        arguments = self._arguments(group, as_number(group["lr"]), params, grads, states)
        self._fused(*arguments, *self._factors(group, states[0]))

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        """The same for one parameter, real numbers only; replaces the entries of `state`."""
        raise NotImplementedError

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("maximize", "differentiable", "capturable"):
                if name in self.defaults or name in group:
                    group.setdefault(name, False)
            group.setdefault("foreach", None)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients; returns the closure's loss."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        scaling = Scaling(self)
        for group in self.param_groups:
            check_capture(self, group)
            self._step_group(group, scaling)
        return loss

    def _is_counted_there(self, group: dict[str, Any]) -> bool:
        """Whether steps are counted in tensors, beside the parameters."""
        return bool(group["capturable"])

    def _step_group(self, group: dict[str, Any], scaling: Scaling) -> None:
        params = [param for param in group["params"] if param.grad is not None]
        for param in params:
            state = self.state[param]
            if not state:
                state.update({"step": 0, **self._begin(param.detach(), group)})
        if params and (scaling or self._is_counted_there(group)):
            with no_grad():
                self._step_with_tensors(group, params, scaling)
            return
        by_step: dict[float, list[tuple[Tensor, Tensor, dict[str, Any]]]] = {}
        for param in params:
            state = self.state[param]
            for name in self._number_state:
                if isinstance(state.get(name), Tensor):  # of steps with a GradScaler
                    state[name] = state[name].item()
            by_step.setdefault(state["step"], []).append((param, param.grad, state))
        for members in by_step.values():
            for _, _, state in members:
                state["step"] += 1
            plain = group["differentiable"]
            if not plain and all(
                p.is_floating_point() and g.is_floating_point() for p, g, _ in members
            ):
                try:
                    columns = [list(column) for column in zip(*members, strict=True)]
                    self._step_fused(group, *columns)
                    continue
                except (
                    NotImplementedError
                ):  # a backend without the operator: nothing is written yet
                    pass
            for param, grad, state in members:
                if plain:
                    self._step_plainly(group, param, grad, state)
                else:
                    with no_grad():
                        self._step_plainly(group, param, grad, state)

    def _step_with_tensors(
        self, group: dict[str, Any], params: list[Tensor], scaling: Scaling
    ) -> None:
        """The same step without a number that the host knows."""
        step_by_device(
            params,
            [self.state[p] for p in params],
            self._number_state,
            scaling,
            partial(self._step_fused_with_tensors, group),
            partial(self._step_in_place, group),
        )

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
        operator = getattr(self, "_fused_tensors", None)
        options = [value for name, value in group.items() if name not in ("params", "lr")]
        if (
            operator is None
            or not numbers_only(*options)
            or not all(g.is_floating_point() for g in grads)
        ):
            return False
        lr, lr_tensor = lr_of(group)
        arguments = self._arguments(group, lr, params, grads, states)
        now = {"step": counts}
        for name in self._number_state - now.keys():
            now[name] = rabbet.stack([state[name] for state in states]).to(rabbet.float64)
        factors = self._factors(group, now)
        try:
            run_with_tensors(operator, grads, arguments, factors, lr_tensor, scaling)
        except NotImplementedError:  # a backend without the operator
            return False
        self._keep_numbers(now, states)
        return True

    def _keep_numbers(self, now: dict[str, Any], states: list[dict[str, Any]]) -> None:
        """Write what `_factors` changed in `now` to the states, the count aside."""
        for name in now.keys() - {"step"}:
            for i, state in enumerate(states):
                state[name].copy_(now[name][i])

    def _step_in_place(
        self,
        group: dict[str, Any],
        param: Tensor,
        grad: Tensor,
        state: dict[str, Any],
        step: Tensor,
    ) -> None:
        """By ordinary operators; the state stays where graphs read it."""
        now = {**state, "step": step}
        self._step_plainly(group, param, grad, now)
        for name in state.keys() - {"step"}:
            if now[name] is not state[name]:
                state[name].copy_(now[name])

    def _step_plainly(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        if group["maximize"]:
            grad = -grad
        if not param.is_complex():
            self._step_one(group, param, grad, state)
            return
        # Complex numbers count as pairs of real ones.
        parts = {n: as_pair(v) if _is_complex(v) else v for n, v in state.items()}
        both = as_pair(param)
        self._step_one(group, both, as_pair(grad), parts)
        param.copy_(from_pair(both))
        for name, value in parts.items():
            state[name] = from_pair(value) if _is_complex(state[name]) else value


def _is_complex(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_complex()


def as_pair(z: Tensor) -> Tensor:
    """Real and imaginary parts of complex numbers, as the first dimension."""
    return rabbet.stack([rabbet.real(z), rabbet.imag(z)])


def from_pair(pair: Tensor) -> Tensor:
    """The complex numbers of such a pair."""
    return rabbet.complex(pair[0], pair[1])


def column(states: list[Any], name: str) -> list[Tensor]:
    """One entry of all states; empty where they lack it."""
    return [state[name] for state in states if name in state]


def decayed(group: dict[str, Any], param: Tensor, grad: Tensor) -> Tensor:
    """The gradient with weight decay added, or the parameter shrunk where that is decoupled."""
    decay = group["weight_decay"]
    if not isinstance(decay, Tensor) and decay == 0:
        return grad
    if group.get("decoupled_weight_decay"):
        param.mul_(1 - group["lr"] * decay)
        return grad
    return grad + param * decay


def numbers(group: dict[str, Any], *names: str) -> tuple[float, ...]:
    """Options as Python numbers."""
    return tuple(as_number(group[name]) for name in names)
