"""Which steps of a program are recorded."""

from __future__ import annotations

import enum
from collections.abc import Callable


class ProfilerAction(enum.Enum):
    """The action of a profiler in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4  # of PyTorch's profilers of devices; no schedule returns it


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """Which steps a profiler records: cycles of `wait`, `warmup` and `active` steps after `skip_first` ones.

    Args:
        repeat: how many cycles; 0: without end.
        skip_first_wait: not 0: the first cycle does not wait.

    Raises:
        AssertionError: for negative numbers, or no active steps.

    Example:
        >>> from rabbet import profiler
        >>> plan = profiler.schedule(wait=1, warmup=1, active=2)
        >>> [plan(step).name for step in range(4)]
        ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE']
    """
    given = (wait, warmup, active, repeat, skip_first)
    assert min(given) >= 0 and active > 0, (
        f"Invalid profiler schedule arguments: expected numbers >= 0 and active > 0, got {given}"
    )

    def action(step: int) -> ProfilerAction:
        assert step >= 0, f"Step must be non-negative, got {step}"
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait != 0:
            step += wait
        cycle = wait + warmup + active
        if repeat > 0 and step >= repeat * cycle:
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def record_always(step: int) -> ProfilerAction:
    """The schedule of a profiler without one."""
    return ProfilerAction.RECORD
