"""Profilers and monitors. Labels of code and schedules work; recording does not."""

import contextlib
import enum
from collections.abc import Callable
from typing import Any

from . import Absent

_REASON = "rabbet has no profiler package yet"

ProfilerActivity = enum.Enum("ProfilerActivity", "CPU XPU MTIA CUDA HPU PrivateUse1", start=0)
ProfilerAction = enum.Enum(
    "ProfilerAction", "NONE WARMUP RECORD RECORD_AND_SAVE DEVICE_STOPPED", start=0
)


class RecordFunction(contextlib.ContextDecorator):
    """Labels a block of code for a profiler; without a profiler it does nothing."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args

    def __enter__(self) -> "RecordFunction":
        return self

    def __exit__(self, *error: object) -> None: ...


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


def _record_always(step: int) -> ProfilerAction:
    """The schedule of a profiler without one."""
    return ProfilerAction.RECORD


_FUNCTIONS = (
    "profile.add_metadata_json profile.export_chrome_trace profile.key_averages profile.step"
)
_ANNOTATIONS: dict[str, Any] = {"record_function": RecordFunction}

TABLE: dict[str, Absent] = {
    "autograd.profiler": Absent(
        _REASON,
        functions="EventList.key_averages EventList.table load_nvprof parse_nvprof_trace profile.export_chrome_trace "
        "profile.key_averages",
        classes="EnforceUnique EventList FunctionEvent KinetoStepTracker emit_itt emit_nvtx profile",
        others=_ANNOTATIONS,
    ),
    "autograd.profiler_legacy": Absent(_REASON, classes="profile"),
    "monitor": Absent(
        _REASON,
        functions="log_event register_event_handler unregister_event_handler",
        classes="Event EventHandlerHandle Stat TensorboardEventHandler",
        enums={"Aggregation": "VALUE MEAN COUNT SUM MAX MIN"},
    ),
    "profiler": Absent(
        _REASON,
        functions="tensorboard_trace_handler",
        classes="EventList",
        answers={"kineto_available": False, "supported_activities": set()},
        imports={"profiler.profiler": "ExecutionTraceObserver profile"},
        others=_ANNOTATIONS
        | {
            "ProfilerAction": ProfilerAction,
            "ProfilerActivity": ProfilerActivity,
            "schedule": schedule,
        },
    ),
    "profiler.itt": Absent(
        _REASON, functions="mark range range_pop range_push", answers={"is_available": False}
    ),
    "profiler.profiler": Absent(
        _REASON,
        functions=_FUNCTIONS,
        classes="ExecutionTraceObserver ITraceObserver _KinetoProfile profile",
        imports={
            "profiler": "ProfilerAction ProfilerActivity schedule supported_activities tensorboard_trace_handler"
        },
        others={"_default_schedule_fn": _record_always},
    ),
}
