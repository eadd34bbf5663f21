"""L-BFGS with a line search for the strong Wolfe conditions (Nocedal and Wright 2006, chapters 3 and 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import rabbet
from rabbet import Tensor
from rabbet.autograd import enable_grad, no_grad

from ._checks import as_number, check_lr
from ._stepwise import as_pair, from_pair
from .optimizer import Optimizer

__all__ = ["LBFGS"]

# The state that a step leaves to the next one, in the order of PyTorch's files.
_KEPT = (
    "func_evals", "n_iter", "al", "d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss",
)  # fmt: skip


class _Point(NamedTuple):
    """The function along a direction: where, its value, its gradient, its slope."""

    t: float
    value: float
    grad: Tensor
    slope: float


def _lowest_of_cubic(a: _Point, b: _Point, low: float, high: float) -> float:
    """Where the cubic of both values and slopes is least, within bounds; their middle where it has no minimum."""
    if a.t > b.t:
        a, b = b, a
    rise = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t)
    square = rise * rise - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    root = square**0.5
    below = b.slope - a.slope + 2 * root
    at = b.t - (b.t - a.t) * ((b.slope + root - rise) / below) if below else float("nan")
    return min(max(at, low), high)


class _LineSearch:
    """Looks for a step with enough descent (c1) and a slope that is small enough (c2), in at most so many rounds."""

    c1, c2 = 1e-4, 0.9

    def __init__(self, at: Callable[[float], _Point], start: _Point, most: int) -> None:
        self._at, self._start, self._most = at, start, most
        self.evaluations = 0

    def _evaluate(self, t: float) -> _Point:
        self.evaluations += 1
        return self._at(t)

    def _too_high(self, p: _Point) -> bool:
        return p.value > self._start.value + self.c1 * p.t * self._start.slope

    def _is_flat(self, p: _Point) -> bool:
        return abs(p.slope) <= -self.c2 * self._start.slope

    def run(self, t: float, size: float, tolerance: float) -> _Point:
        """The point found, from the first step `t`; `size` is that of the direction's largest entry."""
        before, now, rounds = self._start, self._evaluate(t), 0
        while rounds < self._most:
            if self._too_high(now) or (rounds > 1 and now.value >= before.value):
                break
            if self._is_flat(now):
                return now
            if now.slope >= 0:
                break
            low, high = now.t + 0.01 * (now.t - before.t), now.t * 10
            t = _lowest_of_cubic(before, now, low, high)
            before, now = now, self._evaluate(t)
            rounds += 1
        else:
            before = self._start
        return self._zoom(before, now, rounds, size, tolerance)

    def _zoom(self, a: _Point, b: _Point, rounds: int, size: float, tolerance: float) -> _Point:
        low, high = (a, b) if a.value <= b.value else (b, a)
        stuck = False
        while rounds < self._most and abs(high.t - low.t) * size >= tolerance:
            left, right = min(low.t, high.t), max(low.t, high.t)
            t = _lowest_of_cubic(low, high, left, right)
            # Twice in a row near an end, or on it: go a tenth of the way inside.
            margin = 0.1 * (right - left)
            near = min(right - t, t - left) < margin
            if near and (stuck or t >= right or t <= left):
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                near = False
            stuck = near
            now = self._evaluate(t)
            rounds += 1
            if self._too_high(now) or now.value >= low.value:
                high = now
                if high.value < low.value:
                    low, high = high, low
                continue
            if self._is_flat(now):
                return now
            if now.slope * (high.t - low.t) >= 0:
                high = low
            low = now
        return low


class LBFGS(Optimizer):
    """Newton-like steps from the last changes of parameters and gradients. One parameter group only.

    A step calls the closure several times. The history takes `history_size * 2` copies of all parameters.

    Args:
        params: tensors or (name, tensor) pairs.
        lr: learning rate: the first step that a line search tries, or the step itself without one.
        max_iter: iterations in a step.
        max_eval: calls of the closure in a step; None: 5/4 of `max_iter`.
        tolerance_grad: a step ends where no entry of the gradient is larger.
        tolerance_change: it ends where value or parameters change less.
        history_size: how many changes are kept.
        line_search_fn: "strong_wolfe" or None.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_lr(lr)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Tensor]:
        params: list[Tensor] = self.param_groups[0]["params"]
        return params

    def _flat_grad(self) -> Tensor:
        parts = []
        for param in self._params:
            grad = rabbet.zeros_like(param) if param.grad is None else param.grad
            parts.append((as_pair(grad) if grad.is_complex() else grad).reshape(-1))
        return rabbet.cat(parts)

    def _move(self, t: float, direction: Tensor) -> None:
        at = 0
        for param in self._params:
            n = param.numel() * (2 if param.is_complex() else 1)
            change = direction[at : at + n]
            at += n
            if param.is_complex():
                param.add_(from_pair(change.reshape(2, *param.shape)), alpha=t)
            else:
                param.add_(change.reshape(param.shape), alpha=t)

    def _direction(self, state: dict[str, Any], grad: Tensor) -> Tensor:
        """The gradient times the inverse Hessian that the history gives (two-loop recursion)."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return -grad
        history_size = self.param_groups[0]["history_size"]
        change, step = grad - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = change.dot(step)
        if curvature > 1e-10:
            if len(state["old_dirs"]) == history_size:
                for name in ("old_dirs", "old_stps", "ro"):
                    state[name].pop(0)
            state["old_dirs"].append(change)
            state["old_stps"].append(step)
            state["ro"].append(1.0 / curvature)
            state["H_diag"] = curvature / change.dot(change)
        history = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
        q, factors = -grad, []
        for change, step, ro in reversed(history):
            factors.append(step.dot(q) * ro)
            q = q - change * factors[-1]
        # PyTorch's files hold the factors, too.
        state["al"] = [*reversed(factors), *[None] * (history_size - len(factors))]
        direction = q * state["H_diag"]
        for (change, step, ro), factor in zip(history, state["al"], strict=False):
            direction = direction + step * (factor - change.dot(direction) * ro)
        return direction

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Minimise along some directions.

        Args:
            closure: clears the gradients, computes the loss, calls backward and returns the loss.

        Returns:
            The loss before the step.
        """
        if closure is None:
            raise TypeError("LBFGS.step: expected a closure that computes the loss again, got None")
        with no_grad():
            return self._step(closure)

    def _evaluate(self, closure: Callable[[], Any]) -> tuple[Any, Tensor]:
        with enable_grad():
            loss = closure()
        return loss, self._flat_grad()

    def _step(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        lr, tolerance = as_number(group["lr"]), group["tolerance_change"]
        kept = self.state[self._params[0]]
        kept.setdefault("func_evals", 0)
        kept.setdefault("n_iter", 0)
        state = dict(kept)
        first_loss, grad = self._evaluate(closure)
        loss, evaluations = float(first_loss), 1
        state["func_evals"] += 1
        if _largest(grad) <= group["tolerance_grad"]:
            kept.update(state)
            return first_loss
        for n in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            state["d"] = direction = self._direction(state, grad)
            state["prev_flat_grad"], state["prev_loss"] = grad.clone(), loss
            first = state["n_iter"] == 1
            state["t"] = t = (min(1.0, 1.0 / grad.abs().sum().item()) if first else 1.0) * lr
            slope = grad.dot(direction).item()
            if slope > -tolerance:
                break
            if group["line_search_fn"] is not None:
                if group["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                start, most = _Point(0, loss, grad, slope), group["max_eval"] - evaluations
                found, used = self._search(closure, start, t, direction, most)
                state["t"], loss, grad = found.t, found.value, found.grad
                self._move(found.t, direction)
            else:
                self._move(t, direction)
                used = 0
                if n != group["max_iter"]:  # the next step would compute it anyway
                    value, grad = self._evaluate(closure)
                    loss, used = float(value), 1
            evaluations += used
            state["func_evals"] += used
            if (
                evaluations >= group["max_eval"]
                or _largest(grad) <= group["tolerance_grad"]
                or _largest(direction) * abs(state["t"]) <= tolerance
                or abs(loss - state["prev_loss"]) < tolerance
            ):
                break
        kept.update((name, state[name]) for name in _KEPT if name in state)
        return first_loss

    def _search(
        self,
        closure: Callable[[], Any],
        start: _Point,
        t: float,
        direction: Tensor,
        most: int,
    ) -> tuple[_Point, int]:
        here = [param.clone() for param in self._params]

        def at(t: float) -> _Point:
            self._move(t, direction)
            loss, grad = self._evaluate(closure)
            for param, value in zip(self._params, here, strict=True):
                param.copy_(value)
            return _Point(t, float(loss), grad, grad.dot(direction).item())

        search = _LineSearch(at, start, most)
        found = search.run(t, _largest(direction), self.param_groups[0]["tolerance_change"])
        return found, search.evaluations


def _largest(t: Tensor) -> float:
    return t.abs().max().item()
