"""One page of HTML: flame graphs by module, source line and call, memory over time, the top operators."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import Any

from ._nesting import Tree
from ._span import Kind, Span
from ._trace import Trace

_MOST_POINTS = 4000
_MOST_OPERATORS = 100
Path = list[str]


def write_page(path: str, trace: Trace, title: str) -> None:
    """Write a recording as a page that needs no network."""
    data = {
        "graphs": _graphs(trace),
        "memory": _memory(trace),
        "operators": _operators(trace),
        "seconds": (trace.end - trace.start) / 1e9,
    }
    # "</" would end the script element.
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    page = files(__package__).joinpath("page.html").read_text()
    page = page.replace("@TITLE@", html.escape(title)).replace("@DATA@", text)
    with open(path, "w") as file:
        file.write(page)


# ---- flame graphs


def _graphs(trace: Trace) -> dict[str, Any]:
    graphs = {"calls": _flame(trace, lambda span: _calls(trace, span))}
    if any(trace.is_module(span) for span in trace.spans):
        graphs = {"modules": _flame(trace, lambda span: _modules(trace, span)), **graphs}
    if trace.options.stacks:
        graphs["source lines"] = _flame(trace, lambda span: _lines(trace, span))
    if trace.options.memory:
        path_of = _lines if trace.options.stacks else _calls
        made = _summed(_self_bytes(trace), lambda span: path_of(trace, span))
        if made["t"]:
            graphs["memory"] = {**made, "unit": "bytes"}
    return graphs


def _self_bytes(trace: Trace) -> Iterable[tuple[Span, int]]:
    """Calls with the bytes that they have made and not freed, outside of those inside of them."""
    own = [span.host_bytes + span.device_bytes for span in trace.spans]
    for span in trace.spans:
        if span.parent >= 0:
            own[span.parent] -= span.host_bytes + span.device_bytes
    return zip(trace.spans, own, strict=True)


def _self_times(trace: Trace) -> Iterable[tuple[Span, int]]:
    """Spans with their nanoseconds outside of those inside of them."""
    tree = Tree(trace)
    for tops in tree.tops:
        todo = list(tree.nested(tops, trace.start, trace.end))
        while todo:
            nested = todo.pop()
            inner = list(tree.nested(tree.children(nested.number), nested.begin, nested.end))
            yield nested.span, nested.end - nested.begin - sum(n.end - n.begin for n in inner)
            todo += inner


def _flame(trace: Trace, path_of: Callable[[Span], Path]) -> dict[str, Any]:
    return _summed(_self_times(trace), path_of)


def _summed(amounts: Iterable[tuple[Span, int]], path_of: Callable[[Span], Path]) -> dict[str, Any]:
    """Amounts above 0 summed by path: nodes {"n": name, "t": the amount with those inside, "c": children}."""
    root: dict[str, Any] = {"n": "all", "t": 0, "c": {}}
    for span, amount in amounts:
        if amount <= 0:
            continue
        node = root
        node["t"] += amount
        for name in path_of(span):
            node = node["c"].setdefault(name, {"n": name, "t": 0, "c": {}})
            node["t"] += amount
    return _listed(root)


def _listed(node: dict[str, Any]) -> dict[str, Any]:
    inner = sorted(node["c"].values(), key=lambda n: -n["t"])
    return {"n": node["n"], "t": node["t"], "c": [_listed(n) for n in inner]}


def _around(trace: Trace, span: Span) -> list[Span]:
    """A span and those around it, outermost first."""
    return [span, *trace.ancestors(span)][::-1]


def _calls(trace: Trace, span: Span) -> Path:
    return [trace.label(s) for s in _around(trace, span)]


def _modules(trace: Trace, span: Span) -> Path:
    """The modules around a call; around a call of backward, those of the forward call."""
    forward = trace.forward_of(span)
    around = _around(trace, forward or span)
    modules = [trace.paths[trace.label(s)] for s in around if trace.is_module(s)]
    if forward is None:
        return modules + [trace.label(s) for s in around if not trace.is_module(s)]
    return [*modules, "backward", *(trace.label(s) for s in _within_node(trace, span))]


def _within_node(trace: Trace, span: Span) -> list[Span]:
    around = _around(trace, span)
    first = next(i for i, s in enumerate(around) if s.kind in (Kind.NODE, Kind.DERIVATIVE))
    return around[first:]


def _lines(trace: Trace, span: Span) -> Path:
    calls = [s for s in _around(trace, span) if s.kind is not Kind.USER]
    return [str(frame) for frame in reversed(trace.stack(span))] + [trace.label(s) for s in calls]


# ---- the rest


def _memory(trace: Trace) -> list[tuple[float, int]]:
    """(seconds, bytes of tensors on all devices), at most so many that a page can draw them: the peaks are kept."""
    points = [
        ((at - trace.start) / 1e9, trace.live_bytes + host + device)
        for at, host, device in trace.memory
    ]
    if len(points) <= _MOST_POINTS:
        return points
    step = -(-len(points) // _MOST_POINTS)
    return [
        max(points[i : i + step], key=lambda point: point[1]) for i in range(0, len(points), step)
    ]


def _operators(trace: Trace) -> list[dict[str, Any]]:
    averages = trace.events().key_averages()
    times = [(max(e.self_cpu_time_total, e.self_device_time_total), e) for e in averages]
    rows = [e for _, e in sorted(times, key=lambda pair: -pair[0])[:_MOST_OPERATORS]]
    return [
        {
            "name": e.key,
            "count": e.count,
            "self": e.self_cpu_time_total,
            "total": e.cpu_time_total,
            "device": e.device_time_total,
            "memory": e.self_cpu_memory_usage,
            "flops": e.flops,
        }
        for e in rows
    ]
