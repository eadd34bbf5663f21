"""Learning rates that change over time.

A scheduler keeps a count, `last_epoch`, and at each `step()` gives every group of its optimizer a new rate. Most
rates follow from the rate before (`get_lr`), so that several schedulers can act on one optimizer; where a closed
form exists, `step(epoch)` jumps.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ._scheduler import (
    EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING,
)
from ._scheduler import (
    LRScheduler,
    _check_optimizer,
    _enable_get_lr_call,
    _number,
    _per_group,
    _set_lr,
    _warn_get_lr_called_within_step,
)
from .optimizer import Optimizer

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


class LambdaLR(LRScheduler):
    """The initial rate times `lr_lambda(epoch)`; one function for all groups, or one for each."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | list[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer(self, optimizer)
        self.lr_lambdas = _per_group(self, optimizer, "lr_lambda", lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        _warn_get_lr_called_within_step(self)
        return [
            base * fn(self.last_epoch)
            for base, fn in zip(self.base_lrs, self.lr_lambdas, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer; of functions only the state of callable objects."""
        return _without_functions(super().state_dict(), self.lr_lambdas)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` returned."""
        super().load_state_dict(_with_functions(state_dict, self.lr_lambdas))


def _without_functions(state: dict[str, Any], fns: list[Any]) -> dict[str, Any]:
    kept = [None if hasattr(fn, "__code__") else dict(getattr(fn, "__dict__", {})) for fn in fns]
    return {**state, "lr_lambdas": kept}


def _with_functions(state: dict[str, Any], fns: list[Any]) -> dict[str, Any]:
    for fn, saved in zip(fns, state["lr_lambdas"], strict=True):
        if saved:
            fn.__dict__.update(saved)
    return {**state, "lr_lambdas": fns}


class MultiplicativeLR(LambdaLR):
    """The last rate times `lr_lambda(epoch)`."""

    def get_lr(self) -> list[float]:
        _warn_get_lr_called_within_step(self)
        if self._is_initial:
            return self._present()
        return [
            rate * fn(self.last_epoch)
            for rate, fn in zip(self._present(), self.lr_lambdas, strict=True)
        ]


class StepLR(LRScheduler):
    """The rate times `gamma` after each `step_size` steps."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        if step_size < 1:
            raise ValueError(f"StepLR: expected step_size to be at least 1, got {step_size}")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        _warn_get_lr_called_within_step(self)
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._present()
        return [rate * self.gamma for rate in self._present()]

    def _get_closed_form_lr(self) -> list[float]:
        factor = self.gamma ** (self.last_epoch // self.step_size)
        return [base * factor for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """The rate times `gamma` at each of `milestones`."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        _warn_get_lr_called_within_step(self)
        factor = self.gamma ** self.milestones.get(self.last_epoch, 0)
        return [rate * factor for rate in self._present()]

    def _get_closed_form_lr(self) -> list[float]:
        passed = bisect.bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The rate times `factor` for the first `total_iters` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueError(
                f"Constant multiplicative factor expected to be between 0 and 1, got {factor}"
            )
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        _warn_get_lr_called_within_step(self)
        if self.last_epoch == 0:
            return [rate * self.factor for rate in self._present()]
        if self.last_epoch != self.total_iters:
            return self._present()
        return [rate / self.factor for rate in self._present()]

    def _get_closed_form_lr(self) -> list[float]:
        factor = 1.0 if self.last_epoch >= self.total_iters else self.factor
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """The initial rate times a factor that goes straight from `start_factor` to `end_factor`."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal to 1, "
                f"got {start_factor}"
            )
        if not 0 <= end_factor <= 1:
            raise ValueError(
                f"Ending multiplicative factor expected to be between 0 and 1, got {end_factor}"
            )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        done = min(epoch, self.total_iters) / self.total_iters if self.total_iters else 1.0
        return self.start_factor + (self.end_factor - self.start_factor) * done

    def get_lr(self) -> list[float]:
        _warn_get_lr_called_within_step(self)
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self._present()]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._present()
        ratio = self._factor(self.last_epoch) / self._factor(self.last_epoch - 1)
        return [rate * ratio for rate in self._present()]

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self._factor(self.last_epoch) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """The rate times `gamma` at each step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        _warn_get_lr_called_within_step(self)
        if self._is_initial:
            return self._present()
        return [rate * self.gamma for rate in self._present()]

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The initial rate times `(1 - epoch / total_iters) ** power`."""

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        _warn_get_lr_called_within_step(self)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._present()
        left = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return [rate * (left / before) ** self.power for rate in self._present()]

    def _get_closed_form_lr(self) -> list[float]:
        left = 1.0 - min(self.last_epoch, self.total_iters) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to `eta_min` in `T_max` steps, and back (Loshchilov and Hutter 2017)."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_max < 1:
            raise ValueError(f"CosineAnnealingLR: expected T_max to be at least 1, got {T_max}")
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        _warn_get_lr_called_within_step(self)
        epoch, low = self.last_epoch, self.eta_min
        if self._is_initial:
            return self._present()
        if self._step_count == 1 and epoch > 0:
            return self._closed(epoch)
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # The step after the bottom, where the ratio below is 0 / 0.
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [
                rate + (base - low) * rise
                for base, rate in zip(self.base_lrs, self._present(), strict=True)
            ]
        ratio = (1 + math.cos(math.pi * epoch / self.T_max)) / (
            1 + math.cos(math.pi * (epoch - 1) / self.T_max)
        )
        return [ratio * (rate - low) + low for rate in self._present()]

    def _closed(self, epoch: int) -> list[float]:
        part = (1 + math.cos(math.pi * epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * part for base in self.base_lrs]

    def _get_closed_form_lr(self) -> list[float]:
        return self._closed(self.last_epoch)


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the initial rate to `eta_min`, again and again; each one `T_mult` times as long as the one
    before, the first one `T_0` steps (Loshchilov and Hutter 2017)."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        _warn_get_lr_called_within_step(self)
        part = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * part for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go on by one, or to `epoch`, which may be a fraction, and set the rates."""
        self._update_lr(epoch)

    def _update_lr(self, epoch: float | None = None) -> None:
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            epoch = 0 if epoch is None else epoch
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self.T_i, self.T_cur = self.T_0, epoch
            while self.T_mult > 1 and self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
            self.T_cur %= self.T_i
        self.last_epoch = math.floor(epoch)
        with _enable_get_lr_call(self):
            rates = self.get_lr()
        self._set(rates)


class _MomentumCycle(LRScheduler):
    """A schedule that may change the momentum (or Adam's first beta), too."""

    def _begin_momentum(
        self, optimizer: Optimizer, base: Any, most: Any, last_epoch: int
    ) -> tuple[list[float], list[float]]:
        """Least and largest momentum of each group; a new schedule begins at the largest."""
        if not any(name in optimizer.defaults for name in ("momentum", "betas")):
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        self.use_beta1 = "betas" in optimizer.defaults
        low = _per_group(self, optimizer, "base_momentum", base)
        high = _per_group(self, optimizer, "max_momentum", most)
        if last_epoch == -1:
            for group, small, large in zip(optimizer.param_groups, low, high, strict=True):
                group["base_momentum"], group["max_momentum"] = small, large
                self._set_momentum(group, large)
        return low, high

    def _set_momentum(self, group: dict[str, Any], momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_MomentumCycle):
    """Up from `base_lr` to `max_lr` and down again, over and over, the momentum the other way (Smith 2017).

    Args:
        optimizer: whose groups get the rates.
        base_lr, max_lr: limits of the rate, one or one per group.
        step_size_up, step_size_down: lengths of both halves of a cycle; None: equally long.
        mode: "triangular", "triangular2" (half the height after each cycle) or "exp_range" (`gamma` to the power of the
            step); not used with `scale_fn`.
        gamma: of "exp_range".
        scale_fn: factor of the height, a function of what `scale_mode` counts: "cycle" or "iterations".
        cycle_momentum: whether the momentum (or Adam's first beta) changes too.
        base_momentum, max_momentum: its limits, one or one per group.
        last_epoch: the count to go on from.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer(self, optimizer)
        base_lrs = _per_group(self, optimizer, "base_lr", base_lr)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, base_lrs, strict=True):
                _set_lr(group, rate)
        self.max_lrs = _per_group(self, optimizer, "max_lr", max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        if scale_fn is None:
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode = scale_mode
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            limits = self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
            self.base_momentums, self.max_momentums = limits
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """Return the factor of the height at `x`, a cycle or a step."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "exp_range":
            return self._exp_range_scale_fn(self.gamma, x)
        scale = (
            self._triangular_scale_fn if self.mode == "triangular" else self._triangular2_scale_fn
        )
        return scale(x)

    # PyTorch's pickles of schedulers name these.

    @staticmethod
    def _triangular_scale_fn(x: float) -> float:
        return 1.0

    @staticmethod
    def _triangular2_scale_fn(x: float) -> float:
        return 0.5 ** (x - 1)

    @staticmethod
    def _exp_range_scale_fn(gamma: float, x: float) -> float:
        return float(gamma**x)

    def get_lr(self) -> list[float]:
        _warn_get_lr_called_within_step(self)
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        up = x <= self.step_ratio
        height = x / self.step_ratio if up else (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            limits = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (low, high) in zip(self.optimizer.param_groups, limits, strict=True):
                self._set_momentum(group, high - (high - low) * height)
        return [
            low + (high - low) * height
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer; of `scale_fn` only the state of a callable object."""
        fn = self._scale_fn_custom
        kept = None if fn is None or hasattr(fn, "__code__") else dict(vars(fn))
        return {**super().state_dict(), "_scale_fn_custom": kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` returned."""
        fn, saved = self._scale_fn_custom, state_dict["_scale_fn_custom"]
        if saved and fn is not None:
            vars(fn).update(saved)
        super().load_state_dict({**state_dict, "_scale_fn_custom": fn})


class OneCycleLR(_MomentumCycle):
    """Up to `max_lr` and down again, once, with the momentum going the other way (Smith and Topin 2018).

    Args:
        optimizer: whose groups get the rates.
        max_lr: the highest rate, one or one per group.
        total_steps: length of the cycle; or `epochs * steps_per_epoch`.
        epochs, steps_per_epoch: used without `total_steps`.
        pct_start: the part of the cycle that goes up.
        anneal_strategy: 'cos' or 'linear'.
        cycle_momentum: whether the momentum (or Adam's first beta) changes too.
        base_momentum, max_momentum: its limits, one or one per group.
        div_factor: the first rate is `max_lr / div_factor`.
        final_div_factor: the last rate is the first one divided by this.
        three_phase: down as slowly as up, then far down; otherwise down in one go.
        last_epoch: the count to go on from.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer(self, optimizer)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_func_type = anneal_strategy
        up = float(pct_start * self.total_steps) - 1
        end = self.total_steps - 1
        self._schedule_phases = [
            _phase(up, "initial_lr", "max_lr", "max_momentum", "base_momentum"),
            _phase(end, "max_lr", "min_lr", "base_momentum", "max_momentum"),
        ]
        if three_phase:
            down = float(2 * pct_start * self.total_steps) - 2
            self._schedule_phases[1:] = [
                _phase(down, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
                _phase(end, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
            ]
        highest = _per_group(self, optimizer, "max_lr", max_lr)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, highest, strict=True):
                group["initial_lr"] = rate / div_factor
                group["max_lr"] = rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, part: float) -> float:
        if self._anneal_func_type == "linear":
            return start + (end - start) * part
        return end + (start - end) / 2 * (1 + math.cos(math.pi * part))

    def get_lr(self) -> list[float]:
        _warn_get_lr_called_within_step(self)
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is {self.total_steps}"
            )
        begin = 0.0
        for i, phase in enumerate(self._schedule_phases):
            if step <= phase["end_step"] or i == len(self._schedule_phases) - 1:
                break
            begin = phase["end_step"]
        end = phase["end_step"]
        part = (step - begin) / (end - begin) if end != begin else 1.0
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], part))
            if self.cycle_momentum:
                self._set_momentum(
                    group,
                    self._between(
                        group[phase["start_momentum"]], group[phase["end_momentum"]], part
                    ),
                )
        return rates


def _phase(
    end: float, start_lr: str, end_lr: str, start_momentum: str, end_momentum: str
) -> dict[str, Any]:
    """A part of OneCycleLR up to a step: the entries of a group between which it goes, as in PyTorch's state dicts."""
    return {
        "end_step": end,
        "start_lr": start_lr,
        "end_lr": end_lr,
        "start_momentum": start_momentum,
        "end_momentum": end_momentum,
    }


def _total_steps(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total_steps is None:
        if epochs is None or steps_per_epoch is None:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        for name, value in (("epochs", epochs), ("steps_per_epoch", steps_per_epoch)):
            if not isinstance(value, int) or value <= 0:
                raise ValueError(f"Expected positive integer {name}, but got {value}")
        return epochs * steps_per_epoch
    if not isinstance(total_steps, int) or total_steps <= 0:
        raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
    return total_steps


class SequentialLR(LRScheduler):
    """Several schedulers, one after the other.

    Args:
        optimizer: the optimizer of all of them.
        schedulers: in their order.
        milestones: the steps at which the next one begins; one less than schedulers.
        last_epoch: the count to go on from.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer(self, optimizer)
        if not schedulers:
            raise ValueError(
                "SequentialLR expects at least one scheduler to be chained, but got none"
            )
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer") or isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"SequentialLR does not support `{type(scheduler).__name__}`, which needs arguments in `step`"
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    "SequentialLR expects all schedulers to belong to the same optimizer, but got "
                    f"another one in scheduler {i}"
                )
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "SequentialLR expects number of schedulers provided to be one more than the number "
                f"of milestone points, but got number of schedulers {len(schedulers)} and the number "
                f"of milestones to be equal to {len(milestones)}"
            )
        self.optimizer = optimizer
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        # Each scheduler took its own first step on the optimizer: back to the initial rates, then the first one's.
        for group in optimizer.param_groups:
            _set_lr(group, group["initial_lr"])
        for scheduler in self._schedulers:
            scheduler.last_epoch -= 1
        first = self._schedulers[0]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Go on by one; at a milestone the next scheduler begins."""
        if epoch is not None:
            raise ValueError("SequentialLR.step: cannot go to a given epoch")
        self.last_epoch += 1
        i = bisect.bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer, with the state dicts of the schedulers."""
        state = super().state_dict()
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` returned."""
        rest = {name: value for name, value in state_dict.items() if name != "_schedulers"}
        self.__dict__.update(rest)
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ChainedScheduler(SequentialLR):
    """Several schedulers that all step at once; the optimizer is the first one's unless given."""

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if not schedulers:
            raise ValueError(
                "ChainedScheduler expects at least one scheduler to be chained, but got no scheduler."
            )
        optimizer = optimizer or schedulers[0].optimizer
        for i, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    "ChainedScheduler does not support `ReduceLROnPlateau`, which needs arguments in `step`"
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    "ChainedScheduler expects all schedulers to belong to the same optimizer, but got "
                    f"another one in scheduler {i}"
                )
        self.optimizer = optimizer
        self._schedulers = list(schedulers)
        self._last_lr = self._present()

    def step(self, epoch: int | None = None) -> None:
        """Go on by one with each scheduler, in their order."""
        if epoch is not None:
            raise ValueError("ChainedScheduler.step: cannot go to a given epoch")
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._present()


class ReduceLROnPlateau(LRScheduler):
    """The rate times `factor` when a metric has not become better for `patience` steps.

    Args:
        optimizer: whose groups get the rates.
        mode: 'min' if lower is better, 'max' if higher is.
        factor: below 1.
        patience: steps without progress that are let pass.
        threshold: least change that counts as progress.
        threshold_mode: 'rel' or 'abs'.
        cooldown: steps after a reduction in which nothing is counted.
        min_lr: the lowest rate, one or one per group.
        eps: a smaller change of the rate is not made.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        _check_optimizer(self, optimizer)
        if mode not in ("min", "max"):
            raise ValueError("mode " + mode + " is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError("threshold mode " + threshold_mode + " is unknown!")
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lrs = _per_group(self, optimizer, "min_lr", min_lr)
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._present()
        self._reset()

    def _reset(self) -> None:
        self.best = math.inf if self.mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take the metric of another epoch, and lower the rates if it is time."""
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._present()

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            old = _number(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                _set_lr(group, new)

    @property
    def in_cooldown(self) -> bool:
        """Whether bad epochs are not counted."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether `a` is progress over `best`."""
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "rel":
            return sign * a < sign * best * (1 - sign * self.threshold)
        return sign * a < sign * best - self.threshold


class _LRScheduler(LRScheduler):
    """The name that older programs derive from."""
