"""One span of a recording."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Kind(enum.IntEnum):
    """The kinds of spans, numbered as in csrc/spans.h."""

    CALL = 0
    USER = 1
    FRAMEWORK = 2
    NODE = 3
    DERIVATIVE = 4
    MEMORY = 5


KINDS = list(Kind)
STEP_PREFIX = "ProfilerStep#"  # of the ranges of steps


class LaunchKind(enum.IntEnum):
    """The kinds of work of devices, numbered as RB_LAUNCH_* of rabbet/trace.h."""

    KERNEL = 0
    COPY = 1
    GRAPH = 2


class Launch(NamedTuple):
    """Work that a device did; times in nanoseconds.

    `span` is the number of the call or range around the launch (-1: none), `time` when the host launched it, `stream`
    the backend's own number of it (0: the default one).
    """

    name: int
    kind: LaunchKind
    span: int
    thread: int
    time: int
    backend: str
    device: int
    stream: int
    begin: int
    end: int


class Span(NamedTuple):
    """A call, a range or a backward node; times in nanoseconds, -1 or 0 where there is nothing to refer to."""

    kind: Kind
    name: int
    thread: int
    begin: int
    end: int
    parent: int
    node: int
    inputs: int
    outputs: int
    stack: int
    host_bytes: int
    device_bytes: int
    in_place: bool
    failed: bool
