"""Chrome's JSON of traces, which chrome://tracing, Perfetto and TensorBoard's plugin read."""

from __future__ import annotations

import gzip
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO, cast

from ._span import Kind, LaunchKind, Span
from ._values import concrete, sizes_of, type_of

if TYPE_CHECKING:
    from ._trace import Trace


def open_text(path: str) -> TextIO:
    """A file to write, compressed where its name ends in `.gz`."""
    if str(path).endswith(".gz"):
        return cast(TextIO, gzip.open(path, "wt"))
    return open(path, "w")


def write_trace(path: str, trace: Trace, metadata: dict[str, Any]) -> None:
    """Write a recording; `metadata` are further entries of the outermost object."""
    options = trace.options
    head = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "record_shapes": int(options.shapes),
        "profile_memory": int(options.memory),
        "with_stack": int(options.stacks),
        "with_flops": int(options.flops),
        "with_modules": int(options.modules),
        "host_name": socket.gethostname(),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": time.time_ns() - time.monotonic_ns(),
        "traceName": str(path),
        **metadata,
    }
    _write(path, head, _events_of(trace))


def write_events(path: str, events: Iterable[Any]) -> None:
    """Write a list of events, without what only a recording knows."""
    pid = os.getpid()
    _write(
        path,
        {"schemaVersion": 1, "displayTimeUnit": "ms"},
        (
            {
                "ph": "X",
                "cat": _category_of_event(e),
                "name": e.name,
                "pid": e.device_index if e.device_type else pid,
                "tid": e.device_resource_id,
                "ts": e.time_range.start,
                "dur": e.time_range.elapsed_us(),
                "args": {"Input Dims": e.input_shapes} if e.input_shapes else {},
            }
            for e in events
        ),
    )


def _category_of_event(event: Any) -> str:
    if event.device_type:
        return "kernel"
    return "user_annotation" if event.is_user_annotation else "cpu_op"


def _write(path: str, head: dict[str, Any], events: Iterator[dict[str, Any]]) -> None:
    with open_text(path) as file:
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        for i, event in enumerate(events):
            file.write((",\n" if i else "") + json.dumps(event))
        file.write("\n]}\n")


def _events_of(trace: Trace) -> Iterator[dict[str, Any]]:
    pid = os.getpid()
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": trace.start / 1000, "args": {"name": "python"}}  # fmt: skip
    for i, tid in enumerate(trace.threads):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts": trace.start / 1000, "args": {"name": f"thread {tid}"}}  # fmt: skip
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "ts": trace.start / 1000, "args": {"sort_index": i}}  # fmt: skip
    flops = trace.flops() if trace.options.flops else [0] * len(trace.spans)
    for i, span in enumerate(trace.spans):
        yield from _events_of_span(trace, i, span, flops[i], pid)
    yield from _events_of_devices(trace, pid)
    yield from _memory(trace, pid)


def _events_of_devices(trace: Trace, pid: int) -> Iterator[dict[str, Any]]:
    """A process for each device with a track for each stream, and arrows from the launches."""
    streams = trace.streams()
    devices = {place: n for n, place in enumerate(sorted({(b, d) for b, d, _ in streams}))}
    at = trace.start / 1000
    for (backend, device), n in devices.items():
        name = {"name": f"{backend}:{device}"}
        yield {"ph": "M", "name": "process_name", "pid": n, "tid": 0, "ts": at, "args": name}
        yield {"ph": "M", "name": "process_sort_index", "pid": n, "tid": 0, "ts": at, "args": {"sort_index": pid + 1 + n}}  # fmt: skip
    for (backend, device, _), number in streams.items():
        place = {"pid": devices[backend, device], "tid": number, "ts": at}
        name = {"name": f"stream {number}" if number else "default stream"}
        yield {"ph": "M", "name": "thread_name", **place, "args": name}
        yield {"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": number}}
    for i, launch in enumerate(trace.launches, 1):
        stream = streams[launch.backend, launch.device, launch.stream]
        device = devices[launch.backend, launch.device]
        category = "gpu_memcpy" if launch.kind is LaunchKind.COPY else "kernel"
        begin = launch.begin / 1000
        args = {"device": launch.device, "stream": stream, "correlation": i, "External id": launch.span + 1}  # fmt: skip
        yield {"ph": "X", "cat": category, "name": trace.work(launch), "pid": device, "tid": stream,
               "ts": begin, "dur": (launch.end - launch.begin) / 1000, "args": args}  # fmt: skip
        flow = {"id": i, "cat": "ac2g", "name": "ac2g"}
        thread = trace.threads[launch.thread]
        yield {"ph": "s", **flow, "pid": pid, "tid": thread, "ts": launch.time / 1000}
        yield {"ph": "f", "bp": "e", **flow, "pid": device, "tid": stream, "ts": begin}


def _category(trace: Trace, span: Span) -> str:
    if trace.is_module(span):
        return "python_function"
    return "user_annotation" if span.kind in (Kind.USER, Kind.FRAMEWORK) else "cpu_op"


def _events_of_span(
    trace: Trace, i: int, span: Span, flops: int, pid: int
) -> Iterator[dict[str, Any]]:
    at = {"pid": pid, "tid": trace.threads[span.thread], "ts": span.begin / 1000}
    if span.kind is Kind.MEMORY:
        used = {"Bytes": span.host_bytes or span.device_bytes, "Device Type": int(not span.host_bytes), "Device Id": -1}  # fmt: skip
        yield {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", **at, "args": used}  # fmt: skip
        return
    args = {"External id": i + 1, "Ev Idx": i, **_details(trace, span)}
    if flops:
        args["Flops"] = flops
    yield {
        "ph": "X",
        "cat": _category(trace, span),
        "name": trace.label(span),
        **at,
        "dur": (span.end - span.begin) / 1000,
        "args": args,
    }
    if span.kind is Kind.NODE:
        forward = trace.forward_of(span)
        if forward is not None:
            flow = {"id": span.node, "pid": pid, "cat": "fwdbwd", "name": "fwdbwd"}
            origin = {"tid": trace.threads[forward.thread], "ts": forward.begin / 1000}
            yield {"ph": "s", **flow, **origin}
            yield {"ph": "f", "bp": "e", **flow, "tid": at["tid"], "ts": at["ts"]}


def _details(trace: Trace, span: Span) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if span.node:
        out["Sequence number"] = span.node
        forward = trace.forward_of(span)
        out["Fwd thread id"] = 0 if forward is None else forward.thread + 1
    if trace.options.shapes and span.inputs >= 0:
        inputs = trace.inputs(span)
        out["Input Dims"] = [sizes_of(v) for v in inputs]
        out["Input type"] = [type_of(v) for v in inputs]
        out["Concrete Inputs"] = ["" if concrete(v) is None else str(concrete(v)) for v in inputs]
    if span.failed:
        out["Failed"] = True
    if trace.options.memory:
        out["Bytes kept on the CPU"] = span.host_bytes
        out["Bytes kept on devices"] = span.device_bytes
    if trace.options.stacks and span.stack:
        out["Call stack"] = ";\n".join(str(frame) for frame in trace.stack(span))
    return out


def _memory(trace: Trace, pid: int) -> Iterator[dict[str, Any]]:
    """Bytes of tensors over time, as a counter."""
    for at, host, device in trace.memory:
        sizes = {"CPU": trace.live_bytes + host, "devices": device}
        yield {"ph": "C", "name": "bytes of tensors", "pid": pid, "ts": at / 1000, "args": sizes}
