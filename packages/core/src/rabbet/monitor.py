"""Events and counters of running programs, and handlers that take them elsewhere.

    handle = register_event_handler(print)
    log_event(Event("myapp.epoch", datetime.now(), {"loss": 0.5, "epoch": 3}))

    stat = Stat("step_ms", [Aggregation.MEAN, Aggregation.MAX], timedelta(seconds=60))
    stat.add(12.5)          # once a minute the handlers get the mean and the largest value

The names and their meaning are those of `torch.monitor`.
"""

from __future__ import annotations

import datetime
import enum
import math
import numbers
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .utils.tensorboard import SummaryWriter

__all__ = [
    "Aggregation", "Event", "EventHandlerHandle", "Stat", "TensorboardEventHandler", "data_value_t", "log_event",
    "register_event_handler", "unregister_event_handler",
]  # fmt: skip

STAT_EVENT = (
    "torch.monitor.Stat"  # the name of the events of all Stats, for handlers written for PyTorch
)

data_value_t = str | float | int | bool
"""Types that the data of an event may have."""


class Aggregation(enum.Enum):
    """Aggregations that a Stat computes over the values of a window."""

    VALUE = 0
    """The value that was added last."""
    MEAN = 2
    """The arithmetic mean."""
    COUNT = 3
    """The number of values that were added."""
    SUM = 4
    """The sum."""
    MAX = 5
    """The largest value."""
    MIN = 6
    """The smallest value."""

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


VALUE, MEAN, COUNT = Aggregation.VALUE, Aggregation.MEAN, Aggregation.COUNT
SUM, MAX, MIN = Aggregation.SUM, Aggregation.MAX, Aggregation.MIN


def _data_value(name: str, value: Any) -> data_value_t:
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(
        f"Event: expected a str, float, int or bool as data[{name!r}], got {type(value).__name__}"
    )


class Event:
    """Something that happened: a loss, the accuracy of an epoch, the summary of a Stat.

    Events of one kind have one name, by which handlers know what their data mean.

    Args:
        name: of the kind of events.
        timestamp: when it happened.
        data: the values by name.

    Raises:
        TypeError: if an argument, or a value of `data`, has another type.
    """

    name: str
    timestamp: datetime.datetime
    data: dict[str, data_value_t]

    def __init__(
        self, name: str, timestamp: datetime.datetime, data: Mapping[str, data_value_t]
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"Event: name must be a str, got {type(name).__name__}")
        if not isinstance(timestamp, datetime.datetime):
            raise TypeError(
                f"Event: timestamp must be a datetime.datetime, got {type(timestamp).__name__}"
            )
        if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
            raise TypeError(f"Event: data must map str to values, got {data!r}")
        self.name = name
        self.timestamp = timestamp
        self.data = {key: _data_value(key, value) for key, value in data.items()}

    def __repr__(self) -> str:
        return f"Event(name={self.name!r}, timestamp={self.timestamp!r}, data={self.data!r})"


class EventHandlerHandle:
    """The handle that `register_event_handler` returns and `unregister_event_handler` takes; it has no public constructor."""

    _callback: Callable[[Event], Any]

    def __init__(self) -> None:
        raise TypeError("EventHandlerHandle: register_event_handler() makes these")


_lock = threading.Lock()
_handlers: tuple[EventHandlerHandle, ...] = ()


def log_event(event: Event) -> None:
    """Give an event to all registered handlers, in the order of their registration; without any it does nothing.

    An exception of a handler reaches the caller.

    Raises:
        TypeError: if `event` is not an Event.
    """
    if not isinstance(event, Event):
        raise TypeError(f"log_event: expected an Event, got {type(event).__name__}")
    for handler in _handlers:
        handler._callback(event)


def register_event_handler(callback: Callable[[Event], None]) -> EventHandlerHandle:
    """Call `callback(event)` with each event that is logged from now on.

    It runs inside of `log_event`, in the thread that logs, so it should not take long.

    Returns:
        A handle for `unregister_event_handler`.

    Raises:
        TypeError: if `callback` cannot be called.
    """
    global _handlers
    if not callable(callback):
        raise TypeError(
            f"register_event_handler: callback must be callable, got {type(callback).__name__}"
        )
    handle = object.__new__(EventHandlerHandle)
    handle._callback = callback
    with _lock:
        _handlers = (*_handlers, handle)
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """Give no more events to a handler; a second call does nothing.

    Raises:
        TypeError: if `handler` does not come from `register_event_handler`.
    """
    global _handlers
    if not isinstance(handler, EventHandlerHandle):
        raise TypeError(
            f"unregister_event_handler: expected an EventHandlerHandle, got {type(handler).__name__}"
        )
    with _lock:
        _handlers = tuple(h for h in _handlers if h is not handler)


class _Window:
    """Sums over the values of one window."""

    def __init__(self) -> None:
        self.count = 0
        self.value = self.sum = self.max = self.min = 0.0

    def add(self, v: float) -> None:
        self.max = max(self.max, v) if self.count else v
        self.min = min(self.min, v) if self.count else v
        self.value = v
        self.sum += v
        self.count += 1

    def get(self, what: Aggregation) -> float:
        if what is Aggregation.MEAN:
            return self.sum / self.count if self.count else 0.0
        return float(getattr(self, what.name.lower()))


def _milliseconds(window_size: Any) -> int:
    if isinstance(window_size, datetime.timedelta):
        size = window_size // datetime.timedelta(milliseconds=1)
    elif isinstance(window_size, numbers.Real) and math.isfinite(window_size):
        size = int(float(window_size) * 1000)
    else:
        raise TypeError(
            f"Stat: window_size must be a datetime.timedelta or seconds, got {window_size!r}"
        )
    if size < 1:
        raise ValueError(f"Stat: window_size must be at least a millisecond, got {window_size!r}")
    return size


class Stat:
    """Aggregates of values over windows of time, logged as one event for each window.

    The first `add` after the end of a window logs the event "torch.monitor.Stat", whose data are the aggregates as
    `{"NAME.mean": ...}`. A stat that goes away logs what it still has. Windows should be long, such as 60 seconds, so that
    there are few events; they are counted in milliseconds. `add` may be called by several threads at once.

    Args:
        name: of the stat.
        aggregations: what to compute.
        window_size: of the windows, as a timedelta or in seconds.
        max_samples: a window with as many values is logged at once, and takes no more: aggregates of windows can then be
            compared even if the number of values varies.

    Raises:
        TypeError: if an argument has another type.
        ValueError: if `window_size` is shorter than a millisecond or `max_samples` less than 1.
    """

    def __init__(
        self,
        name: str,
        aggregations: Iterable[Aggregation],
        window_size: datetime.timedelta | float,
        max_samples: int = sys.maxsize,
    ) -> None:
        self._current = self._logged = _Window()
        if not isinstance(name, str):
            raise TypeError(f"Stat: name must be a str, got {type(name).__name__}")
        wanted = list(aggregations) if isinstance(aggregations, Iterable) else [aggregations]
        if not all(isinstance(a, Aggregation) for a in wanted) or not isinstance(
            aggregations, Iterable
        ):
            raise TypeError(
                f"Stat: aggregations must be a list of Aggregation, got {aggregations!r}"
            )
        if isinstance(max_samples, bool) or not isinstance(max_samples, int):
            raise TypeError(f"Stat: max_samples must be an int, got {max_samples!r}")
        if max_samples < 1:
            raise ValueError(f"Stat: max_samples must be at least 1, got {max_samples}")
        self._name = name
        self._aggregations = [a for a in Aggregation if a in wanted]
        self._size = _milliseconds(window_size)
        self._max_samples = max_samples
        self._lock = threading.Lock()
        self._window = self._now()
        self._full = -1  # the window that has taken all of its samples

    def _now(self) -> int:
        """The number of the current window."""
        return time.monotonic_ns() // 1_000_000 // self._size

    @property
    def name(self) -> str:
        """The name that the stat was made with."""
        return self._name

    @property
    def count(self) -> int:
        """The number of values in the current window; 0 once it is logged."""
        return self._current.count

    def add(self, v: float) -> None:
        """Add a value to the current window.

        Raises:
            TypeError: if `v` is not a number.
        """
        if not isinstance(v, numbers.Real):
            raise TypeError(f"Stat.add: expected a number, got {type(v).__name__}")
        ended = []
        with self._lock:
            window = self._now()
            if window != self._window:
                ended.append(self._end())
                self._window = window
            if window != self._full:
                self._current.add(float(v))
                if self._current.count >= self._max_samples:
                    ended.append(self._end())
                    self._full = window
        for values in ended:  # the handlers may use this stat
            self._log(values)

    def get(self) -> dict[Aggregation, float]:
        """The aggregates of the window that was logged last; zeros before the first one. For tests."""
        with self._lock:
            return {what: self._logged.get(what) for what in self._aggregations}

    def _end(self) -> _Window:
        self._logged, self._current = self._current, _Window()
        return self._logged

    def _log(self, values: _Window) -> None:
        if not values.count or not _handlers:
            return
        data = {f"{self._name}.{a.name.lower()}": values.get(a) for a in self._aggregations}
        log_event(Event(STAT_EVENT, datetime.datetime.now(), data))

    def __del__(self) -> None:
        if self._current.count:
            self._log(self._end())


class TensorboardEventHandler:
    """A handler that writes the events of Stats as scalars; other events it leaves.

    Args:
        writer: of the scalars.

    Example:
        >>> writer = SummaryWriter("log_dir")
        >>> register_event_handler(TensorboardEventHandler(writer))
    """

    def __init__(self, writer: SummaryWriter) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        if event.name == STAT_EVENT:
            for name, value in event.data.items():
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())
