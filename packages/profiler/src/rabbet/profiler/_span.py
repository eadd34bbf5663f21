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
