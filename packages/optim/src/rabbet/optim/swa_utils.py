"""Means of a model's weights over the steps of training (Izmailov et al. 2018), and a rate for that time."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import rabbet
from rabbet import Tensor, nn
from rabbet.autograd import no_grad

from ._scheduler import LRScheduler, _check_optimizer, _per_group
from .optimizer import Optimizer

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Mean = Callable[[Tensor, Tensor, Any], Tensor]
MeanOfLists = Callable[[Any, Any, Any], None]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def get_ema_avg_fn(decay: float = 0.999) -> Mean:
    """Return the exponential mean: `decay` of the old mean and the rest of the new value."""
    _check_decay(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Mean:
    """Return the plain mean: each value counts the same."""

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with no_grad():
            return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def _of_lists(mean: Mean) -> MeanOfLists:
    def update(averaged: Any, current: Any, num_averaged: Any) -> None:
        with no_grad():
            for old, new in zip(averaged, current, strict=True):
                old.copy_(mean(old, new, num_averaged) if _has_mean(old) else new)

    return update


def _has_mean(t: Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def get_ema_multi_avg_fn(decay: float = 0.999) -> MeanOfLists:
    """Return the exponential mean of lists, in place; what holds no floating numbers is copied."""
    return _of_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> MeanOfLists:
    """Return the plain mean of lists, in place; what holds no floating numbers is copied."""
    return _of_lists(get_swa_avg_fn())


class AveragedModel(nn.Module):
    """A copy of a model whose parameters are means of those that `update_parameters` is given.

    Args:
        model: copied with deepcopy.
        device: where the means are kept; None: where the model is.
        avg_fn: `avg_fn(mean, value, n)` gives the next mean of a parameter.
        multi_avg_fn: `multi_avg_fn(means, values, n)` changes all means in place. The default of both: the plain mean.
        use_buffers: take means of buffers, too; otherwise they are copied at each update.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: nn.Module,
        device: Any = None,
        avg_fn: Mean | None = None,
        multi_avg_fn: MeanOfLists | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", rabbet.tensor(0, dtype=rabbet.long, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _averaged(self, model: nn.Module) -> list[Tensor]:
        buffers = model.buffers() if self.use_buffers else ()
        return [t.detach() for t in itertools.chain(model.parameters(), buffers)]

    def update_parameters(self, model: nn.Module) -> None:
        """Take the parameters of `model` into the means; the first ones are copied."""
        means, values = self._averaged(self.module), self._averaged(model)
        values = [v.to(m.device) for m, v in zip(means, values, strict=True)]
        if self.n_averaged == 0:
            for mean, value in zip(means, values, strict=True):
                mean.copy_(value)
        elif self.avg_fn is not None:
            for mean, value in zip(means, values, strict=True):
                mean.copy_(self.avg_fn(mean, value, self.n_averaged.to(mean.device)))
        else:
            update = self.multi_avg_fn or get_swa_multi_avg_fn()
            update(means, values, self.n_averaged)
        if not self.use_buffers:
            for mean, value in zip(self.module.buffers(), model.buffers(), strict=True):
                mean.detach().copy_(value.detach().to(mean.device))
        self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: nn.Module, device: Any = None) -> None:
    """Compute the running statistics of all batch norms anew, by one pass over `loader` in train mode.

    Args:
        loader: gives inputs, or tuples and lists that begin with the input.
        device: where inputs go; None: they stay.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    momenta = {norm: norm.momentum for norm in norms}
    was_training = model.training
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of all batches
    with no_grad():
        for batch in loader:
            batch = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(batch if device is None else batch.to(device))
    for norm, momentum in momenta.items():
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From the present rate to `swa_lr` in `anneal_epochs` steps, then constant.

    Args:
        optimizer: whose groups get the rates.
        swa_lr: the rate at the end, one or one per group.
        anneal_epochs: the number of steps until then.
        anneal_strategy: "cos" or "linear".
        last_epoch: the count to go on from.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer(self, optimizer)
        rates = _per_group(self, optimizer, "swa_lr", swa_lr)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _part(self, step: int) -> float:
        """How much of `swa_lr` the rate holds at a step."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._part(step - 1), self._part(step)
        rates = []
        for group, rate in zip(self.optimizer.param_groups, self._present(), strict=True):
            end = group["swa_lr"]
            first = end if before == 1 else (rate - before * end) / (1 - before)
            rates.append(end * now + first * (1 - now))
        return rates
