"""What all schedulers share: the count, the order of calls with the optimizer, state dicts."""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rabbet import Tensor

from .optimizer import Optimizer

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler."
)


class LRScheduler:
    """Base of all schedulers; subclasses define `get_lr`.

    Args:
        optimizer: whose groups get the rates.
        last_epoch: the count to go on from; -1 begins, and then the present rates are the initial ones.
    """

    _get_closed_form_lr: Callable[[], list[float]]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        _check_optimizer(self, optimizer)
        self.optimizer = optimizer
        if last_epoch == -1:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", _number(group["lr"]))
        else:
            for i, group in enumerate(optimizer.param_groups):
                if "initial_lr" not in group:
                    raise KeyError(
                        f"param 'initial_lr' is not specified in param_groups[{i}] when resuming "
                        f"a scheduler with last_epoch={last_epoch}"
                    )
        self.base_lrs: list[float] = [g["initial_lr"] for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        _note_steps(optimizer)
        self._get_lr_called_within_step = False
        self._initial_step()

    def _initial_step(self) -> None:
        """Count from 0 and take the first step, which sets the rates at the beginning."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[float]:
        """Rates at `last_epoch`, one per group; every subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__}: `get_lr` is not defined")

    def get_last_lr(self) -> list[float]:
        """Return the rates that the last step set."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go on by one, or to `epoch`, and set the rates."""
        if self._step_count == 1:
            self._warn_of_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _warn_of_order(self) -> None:
        """Warn if the optimizer has taken no step that could be seen."""
        if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
            text = (
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                "initialization: whether `optimizer.step()` is called before `lr_scheduler.step()` cannot be seen"
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            text = (
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the "
                "opposite order: otherwise the first value of the schedule is skipped"
            )
        else:
            return
        warnings.warn(text, UserWarning, stacklevel=3)

    def _update_lr(self, epoch: int | None = None) -> None:
        """Go on by one, or to `epoch`, and set the rates; counts no step."""
        with _enable_get_lr_call(self):
            if epoch is None:
                self.last_epoch += 1
                rates = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", None)
                rates = self.get_lr() if closed is None else closed()
        self._set(rates)

    def _set(self, rates: Iterable[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            _set_lr(group, rate)
        self._last_lr = self._present()

    def _present(self) -> list[float]:
        return [_number(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` returned."""
        self.__dict__.update(state_dict)


@contextlib.contextmanager
def _enable_get_lr_call(scheduler: Any) -> Iterator[Any]:
    """A block in which `get_lr` is called as it should be, by `step`."""
    scheduler._get_lr_called_within_step = True
    try:
        yield scheduler
    finally:
        scheduler._get_lr_called_within_step = False


def _warn_get_lr_called_within_step(scheduler: Any) -> None:
    """Warn of a call of `get_lr` by a user, which gives the rates after another step."""
    if not getattr(scheduler, "_get_lr_called_within_step", False):
        warnings.warn(
            "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
            UserWarning,
            stacklevel=3,
        )


def _note_steps(optimizer: Any) -> None:
    """Let `optimizer.step` note that it was called, for `LRScheduler.step` to see the order of calls."""
    step = optimizer.step
    if hasattr(step, "_wrapped_by_lr_sched"):
        return
    function = getattr(step, "__func__", step)
    held = weakref.ref(optimizer)

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        owner: Any = held()
        owner._opt_called = True
        return function.__get__(owner, type(owner))(*args, **kwargs)

    counted._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = counted


def _check_optimizer(scheduler: Any, optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            f"{type(scheduler).__name__}: {type(optimizer).__name__} is not an Optimizer"
        )


def _number(rate: Any) -> float:
    number: float = rate.item() if isinstance(rate, Tensor) else rate
    return number


def _set_lr(group: dict[str, Any], rate: float) -> None:
    """A rate that is a tensor stays that tensor."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _per_group(scheduler: Any, optimizer: Optimizer, name: str, value: Any) -> list[Any]:
    """`value` for each group: one for all, or a list with one for each."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * groups
    if len(value) != groups:
        raise ValueError(
            f"{type(scheduler).__name__}: expected {groups} values in {name}, got {len(value)}"
        )
    return list(value)
