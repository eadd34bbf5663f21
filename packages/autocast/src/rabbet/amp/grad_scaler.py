"""Scaling of the loss, so that small float16 gradients do not vanish."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from typing import Any

import rabbet
from rabbet import Tensor

from ._state import backend_of


class OptState(Enum):
    """What has happened to an optimizer since the last `update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _total(states: Iterable[dict[str, Any]], scale: Tensor) -> Tensor:
    """How many devices of all states found a number that is not finite, where the scale is."""
    found = [f for state in states for f in state["found_inf_per_device"].values()]
    return sum((f.to(scale.device, non_blocking=True) for f in found), rabbet.zeros_like(scale))


def _new_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


def _scaled(output: Tensor, scale: Tensor) -> Tensor:
    scale = scale.to(device=output.device, non_blocking=True)
    if output.dtype in (rabbet.float16, rabbet.bfloat16):  # which the scale may not fit into
        return (output.float() * scale).to(output.dtype)
    return output * scale


_GROUP = 1 << 18  # elements: what a processor's own cache holds


def _groups(grads: list[Tensor]) -> list[list[Tensor]]:
    """Neighbours together, so that a group that was checked is in the cache when it is scaled."""
    groups: list[list[Tensor]] = [[]]
    room = _GROUP
    for grad in grads:
        size = grad.numel()
        if size > room and groups[-1]:
            groups.append([])
            room = _GROUP
        groups[-1].append(grad)
        room -= size
    return groups


_divide = rabbet.ops.foreach_divide


def _check_and_divide(grads: list[Tensor], divisor: Tensor | None) -> Tensor:
    """Divide tensors of one device and dtype in place; 1.0 if a number was not finite, else 0.0."""
    if grads[0].is_floating_point():
        with suppress(NotImplementedError):  # a backend without operators on lists
            sizes = []
            for group in _groups(grads):
                sizes.append(rabbet.ops.foreach_norm(group, math.inf))
                if divisor is not None:
                    _divide(group, divisor)
            return (~rabbet.isfinite(rabbet.cat(sizes)).all()).to(rabbet.float32)
    good = rabbet.stack([rabbet.isfinite(grad).all() for grad in grads]).all()
    if divisor is not None:
        for grad in grads:
            grad.div_(divisor)
    return (~good).to(rabbet.float32)


class GradScaler:
    """Scale the loss up, gradients down again, and skip steps whose gradients are not finite.

    `scale` multiplies a loss by the scale; `step` divides the gradients by it and lets the optimizer step
    unless one is infinite or NaN; `update` then halves the scale after such a step, or doubles it after
    `growth_interval` good ones.

        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    Args:
        device: the device type that is trained on; for 'cuda' without its backend the scaler warns and
            is disabled.
        init_scale: the scale at the start.
        growth_factor: above 1.
        backoff_factor: below 1.
        growth_interval: good steps in a row until the scale grows.
        enabled: if False, `scale` and `unscale_` do nothing and `step` only steps.

    Raises:
        AssertionError: if `growth_factor` or `backoff_factor` is on the wrong side of 1.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = bool(enabled)
        if self._enabled and device == "cuda" and backend_of("cuda") is None:
            warnings.warn(
                "GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2
            )
            self._enabled = False
        if not self._enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        # Made by the first call of `scale`, on the device of what it scales: the host waits for nothing.
        self._scale: Tensor | None = None
        self._growth_tracker: Tensor | None = None
        self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_new_state)

    def _checked_scale(self, name: str) -> Tensor:
        if self._scale is None:
            raise AssertionError(
                f"Attempted {name} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )
        return self._scale

    def _started(self, device: rabbet.device) -> Tensor:
        if self._scale is None:
            self._scale = rabbet.full((), self._init_scale, dtype=rabbet.float32, device=device)
            start = self._init_growth_tracker
            self._growth_tracker = rabbet.full((), start, dtype=rabbet.int32, device=device)
        return self._scale

    def scale(self, outputs: Any) -> Any:
        """Return `outputs`, a tensor or an iterable of such, nested as deep as you like, times the scale.

        Lists and tuples give their own kind, other iterables an iterator; a float16 tensor whose product
        is too large becomes infinite.

        Raises:
            ValueError: if it holds something else.
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return _scaled(outputs, self._started(outputs.device))
        if isinstance(outputs, Iterable):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, list | tuple) else scaled
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _unscale_grads_(
        self, optimizer: Any, divisor: Tensor | None, allow_fp16: bool
    ) -> dict[rabbet.device, Tensor]:
        """Divide all gradients; whether one was not finite, as a number for each device."""
        lists: dict[tuple[Any, Any], list[Tensor]] = defaultdict(list)
        for group in optimizer.param_groups:
            for param in group["params"]:
                if not isinstance(param, Tensor):
                    raise AssertionError(
                        f"expected param to be a Tensor, got {type(param).__name__}"
                    )
                grad = param.grad
                if grad is None:
                    continue
                if grad.dtype == rabbet.float16 and not allow_fp16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                lists[grad.device, grad.dtype].append(grad)
        found: dict[rabbet.device, Tensor] = {}
        with rabbet.no_grad():
            for (device, _), grads in lists.items():
                there = None if divisor is None else divisor.to(device, non_blocking=True)
                here = _check_and_divide(grads, there)
                found[device] = rabbet.maximum(found[device], here) if device in found else here
        return found

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, in place.

        Only needed where gradients are looked at or clipped between backward and `step`; once per step and
        optimizer, after all gradients for the step have been summed.

        Raises:
            RuntimeError: on a second call, or after `step`, without an `update` between.
            ValueError: if a gradient is float16.
            AssertionError: if nothing was scaled yet.
        """
        if not self._enabled:
            return
        scale = self._checked_scale("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, scale, False)
        state["stage"] = OptState.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale the gradients, unless `unscale_` did, and step if all are finite.

        Args:
            optimizer: steps; an optimizer that has `_step_supports_amp_scaling` gets the tensors `grad_scale`
                and `found_inf` as attributes instead and does the rest itself.
            args: of `optimizer.step`, as well as kwargs; closures are not supported.

        Returns:
            What the optimizer's step returns, or None if it was skipped.

        Raises:
            RuntimeError: on a second call without an `update` between, or with a closure.
            ValueError: if a gradient is float16.
            AssertionError: if nothing was scaled yet, or no parameter has a gradient.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        scale = self._checked_scale("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._hand_over(optimizer, state, scale, args, kwargs)
        else:
            if state["stage"] is OptState.READY:
                self.unscale_(optimizer)
            if not state["found_inf_per_device"]:
                raise AssertionError("No inf checks were recorded for this optimizer.")
            good = not any(found.item() for found in state["found_inf_per_device"].values())
            result = optimizer.step(*args, **kwargs) if good else None
        state["stage"] = OptState.STEPPED
        return result

    def _hand_over(
        self, optimizer: Any, state: dict[str, Any], scale: Tensor, args: Any, kwargs: Any
    ) -> Any:
        """Step with an optimizer that unscales and skips by itself."""
        if state["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
        given = getattr(optimizer, "grad_scale", None)
        if state["stage"] is not OptState.UNSCALED:
            given = scale if given is None else scale * given
        optimizer.grad_scale = given
        optimizer.found_inf = _total([state], scale)
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.found_inf, optimizer.grad_scale

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the scale at the end of an iteration, when all optimizers have stepped.

        Args:
            new_scale: the scale from now on, a float or a tensor of one element on the scaler's device
                type that does not require grad; None adapts it to the gradients that were seen.

        Raises:
            AssertionError: if nothing was scaled or unscaled yet, or `new_scale` is something else.
        """
        if not self._enabled:
            return
        scale = self._checked_scale("update")
        if new_scale is not None:
            scale.copy_(self._checked_new(new_scale))
        else:
            states = self._per_optimizer_states.values()
            if not any(state["found_inf_per_device"] for state in states):
                raise AssertionError("No inf checks were recorded prior to update.")
            self._adapt(scale, _total(states, scale) > 0)
        self._per_optimizer_states = defaultdict(_new_state)

    def _checked_new(self, new_scale: float | Tensor) -> float | Tensor:
        if not isinstance(new_scale, Tensor):
            return float(new_scale)
        if (
            new_scale.device.type != self._device
            or new_scale.numel() != 1
            or new_scale.requires_grad
        ):
            raise AssertionError(
                f"new_scale should be a float or a tensor of one element on {self._device} with "
                "requires_grad=False."
            )
        return new_scale.reshape(())

    def _adapt(self, scale: Tensor, found_inf: Tensor) -> None:
        tracker = self._growth_tracker
        assert tracker is not None
        good = tracker + 1
        grows = good == self._growth_interval
        grown = scale * self._growth_factor
        grown = rabbet.where(grows & rabbet.isfinite(grown), grown, scale)
        scale.copy_(rabbet.where(found_inf, scale * self._backoff_factor, grown))
        tracker.copy_(rabbet.where(found_inf | grows, 0, good))

    def get_scale(self) -> float:
        """The scale, or 1.0 if the scaler is disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """By what the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set by what the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """By what the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set by what the scale shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many good steps in a row the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many good steps in a row the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        tracker = self._growth_tracker
        return self._init_growth_tracker if tracker is None else int(tracker.item())

    def is_enabled(self) -> bool:
        """Whether the scaler does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale, its factors and interval and the number of good steps; {} if disabled.

        Take it after `update`.
        """
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave; does nothing if disabled.

        Raises:
            RuntimeError: if `state_dict` is empty, as that of a disabled scaler is.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._init_scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = int(state_dict["_growth_tracker"])
        if self._scale is not None and self._growth_tracker is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        if self._enabled and self._per_optimizer_states:
            raise AssertionError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at the "
                "end after scaler.update()."
            )
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _check_inf_per_device(self, optimizer: Any) -> dict[rabbet.device, Tensor]:
        self._checked_scale("_check_inf_per_device")
        found = self._unscale_grads_(optimizer, None, True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    def _found_inf_per_device(self, optimizer: Any) -> dict[rabbet.device, Tensor]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
