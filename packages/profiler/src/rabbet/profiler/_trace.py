"""A finished recording: a tree of spans with their names, stacks and shapes."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, NamedTuple

from ._event_list import EventList
from ._events import DeviceType, FunctionEvent, RecordScope
from ._flops import flops_of
from ._names import key_of_record
from ._span import KINDS, STEP_PREFIX, Kind, Launch, LaunchKind, Span
from ._values import concrete, sizes_of

MODULE_PREFIX = "nn.Module: "
_OWN_FILES = (os.path.dirname(__file__), os.path.join("rabbet", "autograd", "profiler.py"))


class Options(NamedTuple):
    """The options of a recording: the data that it keeps besides names and times."""

    shapes: bool = False
    memory: bool = False
    stacks: bool = False
    flops: bool = False
    modules: bool = False
    devices: bool = True  # when they do what they are given


class Frame(NamedTuple):
    """A line of a program."""

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}({self.line}): {self.name}"


def _relative(file: str) -> str:
    """A file by its place below the folders of imports."""
    for folder in sorted((p or os.getcwd() for p in sys.path), key=len, reverse=True):
        if file.startswith(folder + os.sep):
            return file[len(folder) + 1 :]
    return file


@contextmanager
def _without_collection() -> Iterator[None]:
    """Makes many objects without the collector of cycles, which would look at all of them again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Trace:
    """The trace that a recording produced.

    Args:
        raw: as `_C.stop` returns it.
        start: the time at which it began, in nanoseconds of its clock.
        options: the options of the recording.
        paths: the paths of modules by the names of their ranges.
        live_bytes: bytes of tensors when it began.
    """

    def __init__(
        self,
        raw: dict[str, Any],
        start: int,
        options: Options,
        paths: dict[str, str],
        live_bytes: int,
    ) -> None:
        self.start = start
        self.end: int = raw["end"]
        self.options = options
        with _without_collection():
            self.spans = [Span(KINDS[kind], *rest) for kind, *rest in raw["spans"]]
        self.launches = [
            Launch(name, LaunchKind(kind), span, thread, time, raw["backends"][backend], *rest)
            for name, kind, span, thread, time, backend, *rest in raw["launches"]
        ]
        self.threads: list[int] = raw["threads"]
        self.paths = paths
        self.live_bytes = live_bytes
        self.memory: list[tuple[int, int, int]] = raw["memory"]
        self._names: list[tuple[str, bool]] = raw["names"]
        self._signatures: list[list[Any]] = raw["signatures"]
        self._stacks: list[tuple[int, CodeType, int]] = raw["stacks"]
        self._arguments: dict[int, tuple[list[Any], list[Any]]] = {}  # as events show them
        self._frames: dict[int, list[Frame]] = {0: []}
        self._forward: dict[int, int] | None = None

    # ---- a span

    def label(self, span: Span) -> str:
        """The name of a span in tables and traces."""
        text, is_op = self._names[span.name]
        if is_op:
            return key_of_record(text) + ("_" if span.in_place else "")
        if span.kind in (Kind.NODE, Kind.DERIVATIVE):
            node = f"torch::autograd::{text}" if text == "AccumulateGrad" else text
            return node if span.kind is Kind.DERIVATIVE else f"autograd::engine::evaluate_function: {node}"  # fmt: skip
        return text

    def work(self, launch: Launch) -> str:
        """The name of what a device did, in tables and traces."""
        text = self._names[launch.name][0]
        return f"{text} kernel" if launch.kind is LaunchKind.KERNEL else text

    def streams(self) -> dict[tuple[str, int, int], int]:
        """Small numbers of the streams in which something ran, by (backend, device, stream); 0 is a device's default one."""
        numbers: dict[tuple[str, int, int], int] = {}
        count: dict[tuple[str, int], int] = {}
        for launch in self.launches:
            place = launch.backend, launch.device
            stream = (*place, launch.stream)
            if stream not in numbers:
                if launch.stream:
                    count[place] = count.get(place, 0) + 1
                numbers[stream] = count.get(place, 0) if launch.stream else 0
        return numbers

    def device_type(self) -> str | None:
        """The type of the devices that did something, or None."""
        return self.launches[0].backend if self.launches else None

    def record(self, span: Span) -> str | None:
        """The operator's record, of a call."""
        text, is_op = self._names[span.name]
        return text if is_op else None

    def is_module(self, span: Span) -> bool:
        """Whether a span is a call of a module."""
        return span.kind == Kind.USER and self._names[span.name][0].startswith(MODULE_PREFIX)

    def inputs(self, span: Span) -> list[Any]:
        """The arguments of a call: tensors as (dtype id, sizes), None where they were not kept."""
        return [] if span.inputs < 0 else self._signatures[span.inputs]

    def _shown(self, signature: int) -> tuple[list[Any], list[Any]]:
        """The shapes of the arguments of calls, and the numbers among them."""
        found = self._arguments.get(signature)
        if found is None:
            values = [] if signature < 0 else self._signatures[signature]
            found = [sizes_of(v) for v in values], [concrete(v) for v in values]
            self._arguments[signature] = found
        return found

    def outputs(self, span: Span) -> list[Any]:
        """The results of a call, as `inputs`."""
        return [] if span.outputs < 0 else self._signatures[span.outputs]

    def ancestors(self, span: Span) -> Iterator[Span]:
        """The spans around a span, innermost first."""
        while span.parent >= 0:
            span = self.spans[span.parent]
            yield span

    def forward_of(self, span: Span) -> Span | None:
        """The call that a backward node, or the node around a span, differentiates."""
        for outer in (span, *self.ancestors(span)):
            if outer.kind in (Kind.NODE, Kind.DERIVATIVE):
                found = self._forward_calls().get(outer.node)
                return None if found is None else self.spans[found]
        return None

    def _forward_calls(self) -> dict[int, int]:
        if self._forward is None:
            self._forward = {
                span.node: i
                for i, span in enumerate(self.spans)
                if span.kind is Kind.CALL and span.node
            }
        return self._forward

    def stack(self, span: Span) -> list[Frame]:
        """The stack of a span, innermost line first; a span of backward has that of its forward call."""
        if not self.options.stacks:
            return []
        forward = self.forward_of(span)
        span = forward or span
        for outer in (span, *self.ancestors(span)):
            if outer.stack:
                return self._frames_of(outer.stack)
        return []

    def _frames_of(self, number: int) -> list[Frame]:
        if number not in self._frames:
            outer, code, line = self._stacks[number - 1]
            rest = self._frames_of(outer)
            own = any(part in code.co_filename for part in _OWN_FILES)
            frame = Frame(_relative(code.co_filename), line, code.co_name)
            self._frames[number] = rest if own else [frame, *rest]
        return self._frames[number]

    # ---- events

    def flops(self) -> list[int]:
        """Operations of each span; of nested calls only the innermost ones that are counted have some."""
        counts = [0] * len(self.spans)
        counted = [False] * len(self.spans)
        known: dict[tuple[str, int, int], int] = {}
        for i in range(len(self.spans) - 1, -1, -1):  # the spans inside of a span come after it
            span = self.spans[i]
            record = self.record(span)
            if record is not None and not counted[i]:
                call = (record, span.inputs, span.outputs)
                if call not in known:
                    known[call] = flops_of(record, self.inputs(span), self.outputs(span))
                counts[i] = known[call]
                counted[i] = counts[i] > 0
            if counted[i] and span.parent >= 0:
                counted[span.parent] = True
        return counts

    def events(self, use_device: str | None = None) -> EventList:
        """All spans as events, in the order in which they begin."""
        flops = self.flops() if self.options.flops else [0] * len(self.spans)
        use_device = use_device or self.device_type()
        with _without_collection():
            events = [
                self._event(i, span, flops[i], use_device) for i, span in enumerate(self.spans)
            ]
        for event, span in zip(events, self.spans, strict=True):
            if span.parent >= 0:
                event.set_cpu_parent(events[span.parent])
                events[span.parent].append_cpu_child(event)
        streams = self.streams()
        for launch in self.launches:
            work = self._device_event(len(events), launch, streams)
            if launch.span >= 0:
                duration = work.time_range.elapsed_us()
                events[launch.span].append_kernel(work.name, launch.device, duration)
            events.append(work)
        events.sort(key=lambda event: event.time_range.start)
        return EventList(
            events,
            use_device=use_device,
            profile_memory=self.options.memory,
            with_flops=self.options.flops,
        )

    def _device_event(
        self, i: int, launch: Launch, streams: dict[tuple[str, int, int], int]
    ) -> FunctionEvent:
        return FunctionEvent(
            id=i,
            name=self.work(launch),
            thread=launch.thread + 1,
            start_us=(launch.begin - self.start) / 1000,
            end_us=(launch.end - self.start) / 1000,
            use_device=launch.backend,
            device_type=DeviceType.CUDA,
            device_index=launch.device,
            device_resource_id=streams[launch.backend, launch.device, launch.stream],
        )

    def _event(self, i: int, span: Span, flops: int, use_device: str | None) -> FunctionEvent:
        forward = self.forward_of(span) if span.kind in (Kind.NODE, Kind.DERIVATIVE) else None
        by_user = span.kind in (Kind.USER, Kind.FRAMEWORK) and not self.is_module(span)
        scope = RecordScope.USER_SCOPE if by_user else RecordScope.FUNCTION
        if span.kind is Kind.DERIVATIVE:
            scope = RecordScope.BACKWARD_FUNCTION
        shapes, numbers = self._shown(span.inputs) if self.options.shapes else ([], [])
        label = self.label(span)
        return FunctionEvent(
            id=i,
            name="ProfilerStep*" if label.startswith(STEP_PREFIX) else label,
            trace_name=label,
            thread=span.thread + 1,
            start_us=(span.begin - self.start) / 1000,
            end_us=(span.end - self.start) / 1000,
            fwd_thread=None if forward is None else forward.thread + 1,
            input_shapes=list(shapes),
            concrete_inputs=list(numbers),
            stack=[str(frame) for frame in self.stack(span)],
            scope=scope,
            use_device=use_device,
            cpu_memory_usage=span.host_bytes,
            device_memory_usage=span.device_bytes,
            sequence_nr=span.node or -1,
            device_resource_id=self.threads[span.thread],
            flops=flops,
            is_user_annotation=by_user,
        )
