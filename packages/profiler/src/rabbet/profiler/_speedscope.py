"""Speedscope's JSON (https://www.speedscope.app): one evented profile for each thread."""

from __future__ import annotations

import json
from typing import Any

from ._chrome import open_text
from ._nesting import Tree
from ._trace import Trace


def write_speedscope(path: str, trace: Trace, name: str) -> None:
    """Write a recording; `.gz` at the end of the path compresses."""
    tree = Tree(trace)
    frames: dict[str, int] = {}
    profiles = []
    for i, tops in enumerate(tree.tops):
        events: list[dict[str, Any]] = []
        for opens, nested in tree.edges(tops, trace.start, trace.end):
            frame = frames.setdefault(trace.label(nested.span), len(frames))
            at = (nested.begin if opens else nested.end) - trace.start
            events.append({"type": "O" if opens else "C", "frame": frame, "at": at})
        profiles.append(
            {
                "type": "evented",
                "name": f"thread {trace.threads[i]}",
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": trace.end - trace.start,
                "events": events,
            }
        )
    with open_text(path) as file:
        json.dump(
            {
                "$schema": "https://www.speedscope.app/file-format-schema.json",
                "name": name,
                "exporter": "rabbet-profiler",
                "activeProfileIndex": 0,
                "shared": {"frames": [{"name": frame} for frame in frames]},
                "profiles": profiles,
            },
            file,
        )
