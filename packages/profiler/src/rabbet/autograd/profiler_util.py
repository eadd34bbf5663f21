"""Events of profilers and their lists; `rabbet.profiler` makes them."""

from collections import defaultdict

from rabbet.profiler._event_list import EventList
from rabbet.profiler._events import (
    DeviceType,
    FormattedTimesMixin,
    FunctionEvent,
    FunctionEventAvg,
    Interval,
    Kernel,
)
from rabbet.profiler._format import format_memory as _format_memory  # noqa: F401
from rabbet.profiler._format import format_time as _format_time  # noqa: F401
from rabbet.profiler._format import format_time_share as _format_time_share  # noqa: F401

__all__ = [
    "DeviceType",
    "EventList",
    "FormattedTimesMixin",
    "FunctionEvent",
    "FunctionEventAvg",
    "Interval",
    "Kernel",
    "StringTable",
]

MEMORY_EVENT_NAME = "[memory]"
OUT_OF_MEMORY_EVENT_NAME = "[OutOfMemory]"


class StringTable(defaultdict[str, str]):
    """Names as they are shown, each made once."""

    def __missing__(self, key: str) -> str:
        self[key] = key
        return key
