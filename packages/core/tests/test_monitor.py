"""rabbet.monitor: events, their handlers, and stats over windows of time."""

import datetime
import gc
import threading
import time

import numpy as np
import pytest
import rabbet
from rabbet import monitor
from rabbet.monitor import (
    Aggregation,
    Event,
    EventHandlerHandle,
    Stat,
    TensorboardEventHandler,
    log_event,
    register_event_handler,
    unregister_event_handler,
)

HOUR = datetime.timedelta(hours=1)
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


@pytest.fixture
def events():
    seen = []
    handle = register_event_handler(seen.append)
    yield seen
    unregister_event_handler(handle)


class Windows(Stat):
    """A stat whose windows a test opens."""

    window = 1

    def _now(self):
        return self.window


def test_events_reach_handlers_until_they_are_unregistered():
    seen = []
    first = register_event_handler(lambda e: seen.append((1, e)))
    second = register_event_handler(lambda e: seen.append((2, e)))
    event = Event(name="app.epoch", timestamp=NOW, data={"loss": 0.5, "n": 3, "ok": True, "s": "x"})
    log_event(event)
    assert seen == [(1, event), (2, event)]
    assert (event.name, event.timestamp) == ("app.epoch", NOW)
    assert event.data == {"loss": 0.5, "n": 3, "ok": True, "s": "x"} and event.data["ok"] is True
    unregister_event_handler(first)
    unregister_event_handler(first)  # once more: nothing
    log_event(event=event)
    assert [n for n, _ in seen] == [1, 2, 2]
    unregister_event_handler(handler=second)
    log_event(event)
    assert len(seen) == 3


def test_the_error_of_a_handler_reaches_who_logs():
    def fails(event):
        raise OSError("disk full")

    handle = register_event_handler(callback=fails)
    try:
        with pytest.raises(OSError, match="disk full"):
            log_event(Event("a", NOW, {}))
    finally:
        unregister_event_handler(handle)


def test_numbers_of_numpy_become_numbers_of_python():
    data = Event("a", NOW, {"i": np.int32(3), "f": np.float32(0.5)}).data
    assert data == {"i": 3, "f": 0.5} and [type(v) for v in data.values()] == [int, float]
    event = Event("a", NOW, data)
    event.name, event.data = "b", {}
    assert repr(event) == f"Event(name='b', timestamp={NOW!r}, data={{}})"
    assert isinstance(3, monitor.data_value_t) and not isinstance(None, monitor.data_value_t)


ALL = list(Aggregation)


def test_aggregates_of_a_window(events):
    stat = Stat("x", ALL, HOUR, max_samples=6)
    assert stat.get() == dict.fromkeys(ALL, 0.0) and stat.name == "x"
    values = [0, 5, -5, -6, 9, 2]
    for n, v in enumerate(values):
        assert stat.count == n
        stat.add(v)
    assert stat.count == 0
    expected = {"value": 2, "mean": 5 / 6, "count": 6, "sum": 5, "max": 9, "min": -6}
    assert stat.get() == {a: pytest.approx(expected[a.name.lower()]) for a in ALL}
    (event,) = events
    assert event.name == "torch.monitor.Stat" == monitor.STAT_EVENT
    assert event.data == {f"x.{name}": pytest.approx(v) for name, v in expected.items()}
    assert abs(event.timestamp.timestamp() - time.time()) < 60
    stat.add(100)  # the window takes no more
    assert stat.count == 0 and stat.get()[Aggregation.SUM] == 5 and len(events) == 1


@pytest.mark.parametrize("values", [[-3.0], [3.0, 1.0, 2.0]])
def test_extremes_are_those_of_the_values(values):
    stat = Stat("x", (Aggregation.MIN, Aggregation.MAX), HOUR, len(values))
    for v in values:
        stat.add(v)
    assert stat.get() == {Aggregation.MAX: max(values), Aggregation.MIN: min(values)}


def test_the_first_value_of_a_window_logs_the_one_before(events):
    stat = Windows("a", (Aggregation.COUNT, Aggregation.SUM), HOUR)
    stat.add(1)
    stat.add(2)
    assert not events and stat.count == 2
    stat.window = 100
    stat.add(3)
    assert stat.count == 1
    assert [e.data for e in events] == [{"a.sum": 3.0, "a.count": 2.0}]
    assert stat.get() == {Aggregation.SUM: 3.0, Aggregation.COUNT: 2.0}


def test_a_full_window_is_followed_by_an_empty_one(events):
    stat = Windows("a", [Aggregation.SUM], HOUR, 2)
    for window in (1, 2, 5):
        stat.window = window
        for v in (1, 2, 4):
            stat.add(v)
    assert [e.data["a.sum"] for e in events] == [3, 3, 3] and stat.count == 0


def test_windows_follow_the_clock(events):
    stat = Stat("a", (Aggregation.SUM, Aggregation.COUNT), datetime.timedelta(milliseconds=1))
    until = time.monotonic() + 20
    while not events and time.monotonic() < until:
        stat.add(3)
        time.sleep(0.001)
    assert events and events[0].data["a.sum"] == 3 * events[0].data["a.count"]


def test_a_stat_that_goes_away_logs_what_it_has(events):
    stat = Stat("a", [Aggregation.VALUE], HOUR)
    stat.add(7)
    empty = Stat("b", [Aggregation.VALUE], HOUR)
    del stat, empty
    gc.collect()
    assert [e.data for e in events] == [{"a.value": 7.0}]


def test_threads_add_to_one_stat():
    stat = Stat("a", [Aggregation.SUM, Aggregation.COUNT], HOUR, 4000)
    threads = [
        threading.Thread(target=lambda: [stat.add(2) for _ in range(1000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stat.get() == {Aggregation.SUM: 8000.0, Aggregation.COUNT: 4000.0}


def test_handlers_may_use_the_stat_that_logs():
    stat = Stat("a", [Aggregation.SUM], 3600.0, 1)
    seen = []
    handle = register_event_handler(lambda e: seen.append(stat.get()))
    stat.add(5)
    unregister_event_handler(handle)
    assert seen == [{Aggregation.SUM: 5.0}]


def test_stats_go_to_tensorboard(tmp_path):
    multiplexer = pytest.importorskip(
        "tensorboard.backend.event_processing.plugin_event_multiplexer"
    )
    from rabbet.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        handle = register_event_handler(TensorboardEventHandler(writer))
        stat = Stat("asdf", (Aggregation.SUM, Aggregation.COUNT), HOUR, 5)
        for i in range(10):
            stat.add(i)
        log_event(Event("other", NOW, {"x": 1.0}))
        unregister_event_handler(handle)
    found = multiplexer.EventMultiplexer()
    found.AddRunsFromDirectory(str(tmp_path))
    found.Reload()
    scalars = {
        tag: [e.tensor_proto.float_val[0] for e in found.Tensors(run, tag)]
        for run, tags in found.PluginRunToTagToContent("scalars").items()
        for tag in tags
    }
    assert scalars == {"asdf.sum": [10], "asdf.count": [5]}


def test_aggregations_are_names_of_the_module_too():
    assert monitor.MEAN is Aggregation.MEAN is Aggregation(2) and int(monitor.MIN) == 6
    assert [a.name for a in Aggregation] == ["VALUE", "MEAN", "COUNT", "SUM", "MAX", "MIN"]
    assert rabbet.monitor is monitor


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: Event(3, NOW, {}), TypeError, "Event: name must be a str, got int"),
        (lambda: Event("a", 3.0, {}), TypeError, "timestamp must be a datetime.datetime, got float"),
        (lambda: Event("a", NOW, [1]), TypeError, r"data must map str to values, got \[1\]"),
        (lambda: Event("a", NOW, {1: 1}), TypeError, "data must map str to values"),
        (lambda: Event("a", NOW, {"k": None}), TypeError, r"bool as data\['k'\], got NoneType"),
        (lambda: log_event("a"), TypeError, "log_event: expected an Event, got str"),
        (lambda: register_event_handler(3), TypeError, "callback must be callable, got int"),
        (lambda: unregister_event_handler(len), TypeError, "expected an EventHandlerHandle, got"),
        (EventHandlerHandle, TypeError, r"register_event_handler\(\) makes these"),
        (lambda: Stat(1, ALL, HOUR), TypeError, "Stat: name must be a str, got int"),
        (lambda: Stat("a", ["sum"], HOUR), TypeError, "must be a list of Aggregation, got"),
        (lambda: Stat("a", Aggregation.SUM, HOUR), TypeError, "must be a list of Aggregation"),
        (lambda: Stat("a", ALL, "1s"), TypeError, "must be a datetime.timedelta or seconds, got '1s'"),
        (lambda: Stat("a", ALL, float("inf")), TypeError, "timedelta or seconds, got inf"),
        (lambda: Stat("a", ALL, 0), ValueError, "at least a millisecond, got 0"),
        (lambda: Stat("a", ALL, -HOUR), ValueError, "at least a millisecond"),
        (lambda: Stat("a", ALL, HOUR, 0), ValueError, "max_samples must be at least 1, got 0"),
        (lambda: Stat("a", ALL, HOUR, 1.5), TypeError, r"max_samples must be an int, got 1\.5"),
        (lambda: Stat("a", ALL, HOUR).add("1"), TypeError, "Stat.add: expected a number, got str"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()
