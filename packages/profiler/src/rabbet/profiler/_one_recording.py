"""`profile` of `rabbet.autograd.profiler`: one recording and its results."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Self

from rabbet import cuda

from . import _C
from ._chrome import write_trace
from ._event_list import EventList
from ._events import FunctionEvent, FunctionEventAvg
from ._page import write_page
from ._perfetto import write_perfetto
from ._session import Session
from ._speedscope import write_speedscope
from ._trace import Options, Trace


class profile:
    """Context manager: record the calls on the CPU that run inside, of all threads, and the work of devices.

    Args:
        enabled: False: record nothing.
        use_cuda, use_device: devices whose work to record; None: of all whose backends tell when they do it, False: none.
        record_shapes: keep the shapes of arguments.
        with_flops: count floating-point operations.
        profile_memory: keep the memory that calls make and free.
        with_stack: keep the lines of Python that calls come from, and the modules around them.
        with_modules: keep the modules around calls.
        use_kineto, use_cpu, experimental_config: as in PyTorch, without effect.
        acc_events: keep the events of earlier recordings of this object.
        custom_trace_id_callback: names the recording.

    Example:
        >>> import rabbet
        >>> from rabbet.autograd import profiler
        >>> with profiler.profile(record_shapes=True) as prof:
        ...     _ = rabbet.ones(2, 3) @ rabbet.ones(3, 4)
        >>> [e.input_shapes for e in prof.function_events if e.name == "aten::matmul"]
        [[[2, 3], [3, 4]]]
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | bool | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
    ) -> None:
        self.enabled = enabled
        self.use_device = "cuda" if use_cuda else use_device or None
        self._devices = use_device is not False and self.use_device != "cpu"
        if enabled and self.use_device == "cuda" and not cuda.is_available():
            warnings.warn("CUDA is not available, disabling CUDA profiling", stacklevel=2)
            self.use_device = None
        if enabled and self.use_device not in (None, "cpu", "cuda"):
            warnings.warn(
                f"profile: work on '{self.use_device}' is not recorded, only the calls on the CPU are",
                stacklevel=2,
            )
        self.entered = False
        self.record_shapes = record_shapes
        self.with_flops = with_flops
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_modules = with_modules
        self.use_cpu = use_cpu
        self.acc_events = acc_events
        self.custom_trace_id_callback = custom_trace_id_callback
        self.trace_id: str | None = None
        self._session: Session | None = None
        self._trace: Trace | None = None
        self._events: EventList | None = None  # of the trace, when they have been asked for
        self._earlier: list[FunctionEvent] = []  # events of earlier recordings

    # ---- begin and end

    def __enter__(self) -> Self:
        if not self.enabled:
            return self
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self._start_trace()
        return self

    def __exit__(self, *error: object) -> None:
        if self._session is None:
            return
        session, self._session = self._session, None
        if self.acc_events and self._trace is not None:
            self._earlier += self._trace.events()
        self._trace, self._events = None, None
        self._trace = session.stop()

    def _start_trace(self) -> None:
        session = Session(
            Options(
                shapes=self.record_shapes,
                memory=self.profile_memory,
                stacks=self.with_stack,
                flops=self.with_flops,
                modules=self.with_modules,
                devices=self._devices,
            )
        )
        session.start()
        self.entered = True
        self._session = session
        make_id = self.custom_trace_id_callback or (lambda: uuid.uuid4().hex.upper())
        self.trace_id = make_id()

    def toggle_collection_dynamic(
        self, enabled: bool, activities: Iterable[Any] | None = None
    ) -> None:
        """Switch recording off and on again before the end."""
        if self._session is not None:
            (_C.resume if enabled else _C.pause)()

    # ---- results

    @property
    def trace(self) -> Trace:
        """The finished recording.

        Raises:
            RuntimeError: if it has not ended, or never began.
        """
        if self._session is not None or self._trace is None:
            state = "it is still running" if self._session is not None else "it was never started"
            raise RuntimeError(
                f"Profiler didn't finish running: {state}; leave the `with` block or call stop() first"
            )
        return self._trace

    @property
    def function_events(self) -> EventList:
        """All events in the order in which they began.

        Raises:
            RuntimeError: if the recording has not ended.
        """
        trace = self.trace
        if self._events is None:
            self._events = trace.events()
            self._events[:0] = self._earlier
        return self._events

    def __repr__(self) -> str:
        if self._session is not None or self._trace is None:
            return "<unfinished torch.autograd.profile>"
        return repr(self.function_events)

    def __str__(self) -> str:
        if self._session is not None or self._trace is None:
            return "<unfinished torch.autograd.profile>"
        return str(self.function_events)

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """The events as text; see EventList.table."""
        return self.function_events.table(sort_by=sort_by, row_limit=row_limit, **options)

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Sums over events with the same name; see EventList.key_averages."""
        return self.function_events.key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def total_average(self) -> FunctionEventAvg:
        """The sums over all events."""
        return self.function_events.total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events, each without those inside of it."""
        return self.function_events.self_cpu_time_total

    def export_chrome_trace(self, path: str, metadata: dict[str, Any] | None = None) -> None:
        """Write Chrome's JSON; `metadata` are further entries of its outermost object."""
        write_trace(path, self.trace, {"trace_id": self.trace_id, **(metadata or {})})

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write stacks with microseconds as FlameGraph's tools read them; needs `with_stack=True`.

        Raises:
            ValueError: without `with_stack`, or for another metric.
        """
        events = self.function_events
        if not self.with_stack:
            raise ValueError("export_stacks() requires with_stack=True.")
        events.export_stacks(path, metric)

    def export_speedscope(self, path: str, name: str = "rabbet") -> None:
        """Write the JSON of https://www.speedscope.app."""
        write_speedscope(path, self.trace, name)

    def export_perfetto(self, path: str) -> None:
        """Write Perfetto's own format, for https://ui.perfetto.dev; `.gz` at the end of the path compresses."""
        write_perfetto(path, self.trace)

    def export_html(self, path: str, title: str = "Profile") -> None:
        """Write one page with flame graphs, memory over time and the top operators."""
        write_page(path, self.trace, title)
