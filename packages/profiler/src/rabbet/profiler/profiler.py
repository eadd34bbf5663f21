"""`profile`: recordings by steps, with the files that they are written to."""

from __future__ import annotations

import enum
import gzip
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Self

from rabbet import cuda

from . import _one_recording as prof
from ._event_list import EventList
from ._record_function import record_function
from ._schedule import ProfilerAction, record_always, schedule
from ._span import STEP_PREFIX
from ._step_tracker import KinetoStepTracker

__all__ = [
    "ExecutionTraceObserver",
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]

PROFILER_STEP_NAME = STEP_PREFIX.removesuffix("#")
_default_schedule_fn = record_always


class ProfilerActivity(enum.IntEnum):
    """Devices that a profiler watches."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


def kineto_available() -> bool:
    """Whether `profile` works, which in PyTorch needs the library Kineto: always, rabbet has a recorder of its own."""
    return True


def supported_activities() -> set[ProfilerActivity]:
    """The activities that are recorded: those of the CPU, and of CUDA devices where there are some.

    Example:
        >>> from rabbet import profiler
        >>> profiler.ProfilerActivity.CPU in profiler.supported_activities()
        True
    """
    activities = {ProfilerActivity.CPU}
    if cuda.is_available():
        activities.add(ProfilerActivity.CUDA)
    return activities


def _checked_activities(activities: Iterable[ProfilerActivity] | None) -> set[ProfilerActivity]:
    if activities is None:
        return {ProfilerActivity.CPU, ProfilerActivity.CUDA}  # without asking for devices
    chosen = set(activities)
    if not chosen:
        raise AssertionError("No valid profiler activities found: expected at least one, got none")
    for activity in chosen:
        if not isinstance(activity, ProfilerActivity):
            raise TypeError(
                f"profile: expected activities of ProfilerActivity, got {type(activity).__name__}"
            )
    unknown = chosen - {ProfilerActivity.CPU}
    for missing in sorted(unknown - supported_activities() if unknown else unknown):
        warnings.warn(
            f"profile: activities of {missing.name} are not recorded, only the calls on the CPU are",
            stacklevel=4,
        )
    return chosen


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[_KinetoProfile], None]:
    """A function for `on_trace_ready` that writes each trace into a folder of TensorBoard.

    Args:
        worker_name: names the files; None: by host and process.
        use_gzip: compress the files.

    Raises:
        RuntimeError: if the folder cannot be made.
    """
    if not os.path.isdir(dir_name):
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError(f"Can't create directory: {dir_name}") from error

    def write(profiler: _KinetoProfile) -> None:
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        profiler.export_chrome_trace(os.path.join(dir_name, name))

    return write


class _KinetoProfile:
    """A recording that is started and stopped by hand; `profile` adds steps and schedules.

    Args:
        activities: what to record; None: `supported_activities()`. Calls on the CPU are recorded with all of them.
        record_shapes: keep the shapes of arguments.
        profile_memory: keep the memory that calls make and free.
        with_stack: keep the lines of Python that calls come from, and the modules around them.
        with_flops: count floating-point operations of products, convolutions, attention, sums and products of elements.
        with_modules: keep the modules around calls.
        experimental_config, execution_trace_observer: as in PyTorch; without effect.
        acc_events: keep the events of earlier recordings of this object.
        custom_trace_id_callback: names traces.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        self.activities = _checked_activities(activities)
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        self.experimental_config = experimental_config
        self.execution_trace_observer = execution_trace_observer
        self.acc_events = acc_events
        self.custom_trace_id_callback = custom_trace_id_callback
        self.post_processing_timeout_s = post_processing_timeout_s
        self.profiler: prof.profile | None = None
        self.preset_metadata: dict[str, str] = {}
        self._metadata: dict[str, Any] = {}

    # ---- begin and end

    def start(self) -> None:
        """Begin to record."""
        self.prepare_trace()
        self.start_trace()

    def stop(self) -> None:
        """End the recording."""
        self.stop_trace()

    def prepare_trace(self) -> None:
        """Make the recording that `start_trace` begins."""
        if self.profiler is not None and self.acc_events:
            return
        self.profiler = prof.profile(
            use_cpu=ProfilerActivity.CPU in self.activities,
            use_device=None if ProfilerActivity.CUDA in self.activities else False,
            record_shapes=self.record_shapes,
            with_flops=self.with_flops,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_modules=self.with_modules,
            acc_events=self.acc_events,
            custom_trace_id_callback=self.custom_trace_id_callback,
        )

    def start_trace(self) -> None:
        """Begin the recording that `prepare_trace` has made."""
        if self.profiler is None:
            raise RuntimeError("profile.start_trace: expected prepare_trace() to be called first")
        self.profiler._start_trace()
        self._metadata = {key: json.loads(value) for key, value in self.preset_metadata.items()}

    def stop_trace(self) -> None:
        """End the recording."""
        self._recording("stop_trace").__exit__(None, None, None)

    def toggle_collection_dynamic(
        self, enable: bool, activities: Iterable[ProfilerActivity]
    ) -> None:
        """Switch recording off and on again while the profiler runs.

        Args:
            activities: which; those of the CPU are the only ones there are.
        """
        if self.profiler is not None:
            self.profiler.toggle_collection_dynamic(enable, activities)

    def _recording(self, method: str) -> prof.profile:
        if self.profiler is None:
            raise RuntimeError(
                f"profile.{method}: expected a profiler that was started, this one was not"
            )
        return self.profiler

    # ---- results

    def events(self) -> EventList:
        """All events in the order in which they began.

        Raises:
            RuntimeError: if the recording has not ended.
        """
        return self._recording("events").function_events

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Sums over events with the same name.

        Args:
            group_by_input_shape: and the same shapes; needs `record_shapes=True`.
            group_by_stack_n: and the same n innermost lines of Python; needs `with_stack=True`.
            group_by_overload_name: and the same overload.

        Raises:
            RuntimeError: if the recording has not ended.

        Example:
            >>> import rabbet
            >>> from rabbet.profiler import profile
            >>> with profile() as prof:
            ...     _ = rabbet.ones(3) + 1
            >>> [(e.key, e.count) for e in prof.key_averages() if e.key == "aten::add"]
            [('aten::add', 1)]
        """
        return self._recording("key_averages").key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def export_chrome_trace(self, path: str) -> None:
        """Write Chrome's JSON, for chrome://tracing and https://ui.perfetto.dev; `.gz` at the end of the path compresses.

        Raises:
            RuntimeError: if the recording has not ended.
        """
        self._recording("export_chrome_trace").export_chrome_trace(path, self._metadata)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write stacks with microseconds as FlameGraph's tools read them; needs `with_stack=True`.

        Raises:
            RuntimeError: if the recording has not ended.
        """
        self._recording("export_stacks").export_stacks(path, metric)

    def export_perfetto(self, path: str) -> None:
        """Write Perfetto's own format, for https://ui.perfetto.dev, which is smaller; `.gz` at the end of the path compresses.

        Raises:
            RuntimeError: if the recording has not ended.
        """
        self._recording("export_perfetto").export_perfetto(path)

    def export_speedscope(self, path: str, name: str = "rabbet") -> None:
        """Write the JSON of https://www.speedscope.app; `.gz` at the end of the path compresses.

        Raises:
            RuntimeError: if the recording has not ended.
        """
        self._recording("export_speedscope").export_speedscope(path, name)

    def export_html(self, path: str, title: str = "Profile") -> None:
        """Write one page with flame graphs, memory over time and the top operators; it needs no network.

        Raises:
            RuntimeError: if the recording has not ended.
        """
        self._recording("export_html").export_html(path, title)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Write bytes of tensors over time; needs `profile_memory=True`.

        Args:
            path: `.html` for a page; `.json` or `.json.gz` for `[[microseconds, ...], [[0, bytes], ...]]`, the form in
                which PyTorch writes sizes by category, with all tensors in one.
            device: "cpu" or a device type; None: the CPU.

        Raises:
            ValueError: for another form, or without `profile_memory`.
            RuntimeError: if the recording has not ended.
        """
        warnings.warn(
            "`export_memory_timeline` is deprecated and will be removed in a future version.",
            FutureWarning,
            stacklevel=2,
        )
        trace = self._recording("export_memory_timeline").trace
        if not self.profile_memory:
            raise ValueError("export_memory_timeline: profile_memory=True required, got False")
        if path.endswith(".html"):
            return self.export_html(path)
        if not path.endswith((".json", ".json.gz")) or "raw.json" in path:
            raise ValueError(
                f"export_memory_timeline: expected a path that ends in .html, .json or .json.gz, got {path!r}"
            )
        on_cpu = device is None or device.startswith("cpu")
        times = [at // 1000 for at, _, _ in trace.memory]
        sizes = [[0, trace.live_bytes + host if on_cpu else other] for _, host, other in trace.memory]  # fmt: skip
        text = json.dumps([times, sizes])
        if path.endswith(".gz"):
            with gzip.open(path, "wt") as file:
                file.write(text)
        else:
            with open(path, "w") as plain:
                plain.write(text)

    # ---- metadata

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text into the trace."""
        self.add_metadata_json(key, json.dumps(value))

    def add_metadata_json(self, key: str, value: str) -> None:
        """Put a value, written as JSON, into the trace.

        Raises:
            ValueError: if it is no JSON.
        """
        self._metadata[key] = json.loads(value)

    def preset_metadata_json(self, key: str, value: str) -> None:
        """Put a value, written as JSON, into each trace that begins from now on."""
        self.preset_metadata[key] = value

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Let a function name the traces that begin from now on."""
        self.custom_trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """The name of the trace; None before there is one."""
        return None if self.profiler is None else self.profiler.trace_id


# The transition between two steps by their actions; None stands for the time before the start and after the end.
_START, _STOP, _PREPARE, _READY = "start_trace", "stop_trace", "prepare_trace", "_trace_ready"
_NOTHING, _WARMUP = ProfilerAction.NONE, ProfilerAction.WARMUP
_RECORD, _SAVE = ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE
_LOST = {
    (_WARMUP, _NOTHING): "Incorrect schedule: WARMUP followed by NONE",
    (_RECORD, _NOTHING): "Incorrect schedule: RECORD followed by NONE",
    (_RECORD, _WARMUP): "Incorrect schedule: RECORD followed by WARMUP",
}
_TRANSITIONS: dict[tuple[ProfilerAction | None, ProfilerAction | None], tuple[str, ...]] = {
    (_NOTHING, _WARMUP): (_PREPARE,),
    (_NOTHING, _RECORD): (_PREPARE, _START),
    (_NOTHING, _SAVE): (_PREPARE, _START),
    (_WARMUP, _NOTHING): (_START, _STOP),
    (_WARMUP, _RECORD): (_START,),
    (_WARMUP, _SAVE): (_START,),
    (_RECORD, _NOTHING): (_STOP,),
    (_RECORD, _WARMUP): (_STOP,),
    (_SAVE, _NOTHING): (_STOP, _READY),
    (_SAVE, _WARMUP): (_STOP, _READY, _PREPARE),
    (_SAVE, _RECORD): (_STOP, _READY, _PREPARE, _START),
    (_SAVE, _SAVE): (_STOP, _READY, _PREPARE, _START),
    (None, _WARMUP): (_PREPARE,),
    (None, _RECORD): (_PREPARE, _START),
    (None, _SAVE): (_PREPARE, _START),
    (_WARMUP, None): (_START, _STOP),
    (_RECORD, None): (_STOP, _READY),
    (_SAVE, None): (_STOP, _READY),
}


class profile(_KinetoProfile):
    """Context manager: record what runs inside, perhaps only in some steps.

    Args:
        activities: what to record; None: `supported_activities()`.
        schedule: what to do in each step, as `schedule(...)` says; None: record all.
        on_trace_ready: called with the profiler when a recording has ended.
        record_shapes: keep the shapes of arguments.
        profile_memory: keep the memory that calls make and free.
        with_stack: keep the lines of Python that calls come from, and the modules around them.
        with_flops: count floating-point operations.
        with_modules: keep the modules around calls.
        experimental_config, execution_trace_observer: as in PyTorch; without effect.
        acc_events: keep the events of earlier recordings of this object.
        custom_trace_id_callback: names traces.
        use_cuda: deprecated; adds the activity CUDA.

    Example:
        >>> import rabbet
        >>> from rabbet.profiler import profile, schedule
        >>> saved = []
        >>> with profile(schedule=schedule(wait=1, warmup=0, active=1), on_trace_ready=saved.append) as prof:
        ...     for _ in range(4):
        ...         _ = rabbet.ones(2) * 2
        ...         prof.step()
        >>> len(saved)
        2
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        if use_cuda is not None:
            warnings.warn(
                "`use_cuda` is deprecated, use `activities` argument instead",
                FutureWarning,
                stacklevel=2,
            )
            chosen = supported_activities() if activities is None else set(activities)
            activities = chosen | {ProfilerActivity.CUDA} if use_cuda else chosen - {ProfilerActivity.CUDA}  # fmt: skip
        super().__init__(
            activities=activities,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            experimental_config=experimental_config,
            execution_trace_observer=execution_trace_observer,
            acc_events=acc_events,
            custom_trace_id_callback=custom_trace_id_callback,
            post_processing_timeout_s=post_processing_timeout_s,
        )
        for name, given in (("schedule", schedule), ("on_trace_ready", on_trace_ready)):
            if given is not None and not callable(given):
                raise TypeError(
                    f"profile: expected {name} to be a function or None, got {type(given).__name__}"
                )
        self.schedule = schedule or record_always
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(self.step_num)
        self.step_rec_fn: record_function | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with the first step."""
        self._transit(None, self.current_action)
        self._begin_step()

    def stop(self) -> None:
        """End; a recording that runs is handed to `on_trace_ready`."""
        self._end_step()
        self._transit(self.current_action, None)

    def step(self) -> None:
        """Go on to the next step."""
        self._end_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._transit(before, self.current_action)
        KinetoStepTracker.increment_step(PROFILER_STEP_NAME)
        self._begin_step()

    def _begin_step(self) -> None:
        if self.record_steps:
            self.step_rec_fn = record_function(f"{STEP_PREFIX}{self.step_num}")
            self.step_rec_fn.__enter__()

    def _end_step(self) -> None:
        if self.step_rec_fn is not None:
            self.step_rec_fn.__exit__(None, None, None)
            self.step_rec_fn = None

    def _trace_ready(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _transit(self, before: ProfilerAction | None, after: ProfilerAction | None) -> None:
        if before is not None and after is not None and (before, after) in _LOST:
            warnings.warn(_LOST[before, after], stacklevel=3)
        for action in _TRANSITIONS.get((before, after), ()):
            getattr(self, action)()


class ExecutionTraceObserver:
    """PyTorch's record of a program's graph, for replaying it, which rabbet does not write.

    Raises:
        NotImplementedError: always.
    """

    def __init__(self) -> None:
        raise NotImplementedError(
            "profiler.ExecutionTraceObserver: rabbet writes no execution traces; "
            "profile(...).export_chrome_trace writes what ran"
        )
