"""L1: streams and events of a device. What waits for work that it was told to wait for sees its results."""

import threading
import time

import pytest
import rabbet
from rabbet import _C
from rabbet.accelerator import current_stream, set_stream

from rabbet_testing.judges.gradients import offered
from rabbet_testing.judges.reference import array

SIZE, STEPS, ROUNDS = 1 << 16, 30, 5
SEGMENT = 3 << 20  # elements that core keeps in a segment of their own
PATIENCE = 60  # seconds for work that takes parts of one


@pytest.fixture(autouse=True)
def streams(device, report):
    """They are there, and something to do on them; the default one is the thread's again afterwards."""
    try:
        rabbet.Stream(device)
    except NotImplementedError as error:
        report.not_implemented(str(error))
    default = current_stream(device)
    with offered("add"):
        count_up(start(device), 1)
    yield
    set_stream(default)
    _C.synchronize(rabbet.device(device))


def start(device, first=0.0):
    """A tensor there, when the work of the thread's stream is done."""
    return rabbet.full((SIZE,), float(first)).to(device)


def count_up(x, steps=STEPS):
    """`x` and the number of `steps`, by as many calls."""
    for _ in range(steps):
        x = x + 1.0
    return x


def expect(x, value, what):
    got = array(x)
    assert (got == value).all(), f"{what}: expected {value}, got {got.min()} to {got.max()}"


def test_the_default_stream_is_current_at_first(device):
    assert current_stream(device).stream_id == 0
    stream = rabbet.Stream(device)
    assert stream.stream_id != 0
    with stream:
        assert current_stream(device) == stream
    assert current_stream(device).stream_id == 0


def test_work_on_a_stream_is_in_order(device):
    for _ in range(ROUNDS):
        with rabbet.Stream(device):
            expect(count_up(start(device)), STEPS, "a chain of additions on a stream")


def test_a_stream_waits_for_another(device):
    one, two = rabbet.Stream(device), rabbet.Stream(device)
    for k in range(ROUNDS):
        with one:
            x = count_up(start(device, k))
        two.wait_stream(one)
        with two:
            y = count_up(x)
            expect(y, k + 2 * STEPS, "additions on a stream that waits for another one's")
        one.wait_stream(two)


def test_a_stream_waits_for_an_event_and_not_for_what_is_behind_it(device):
    one, two = rabbet.Stream(device), rabbet.Stream(device)
    for k in range(ROUNDS):
        event = rabbet.Event(device)
        with one:
            x = count_up(start(device, k))
            event.record()
            behind = count_up(x)
        two.wait_event(event)
        with two:
            expect(count_up(x), k + 2 * STEPS, "additions on a stream that waits for an event")
        one.synchronize()
        with one:
            expect(behind, k + 2 * STEPS, "additions behind the event")


def test_an_event_can_be_recorded_again_and_dropped_while_it_is_waited_for(device):
    one, two = rabbet.Stream(device), rabbet.Stream(device)
    event = rabbet.Event(device)
    for k in range(ROUNDS):
        with one:
            x = count_up(start(device, k))
            event.record()
        two.wait_event(event)
    del event
    with two:
        expect(x, ROUNDS - 1 + STEPS, "additions before an event's last record")


def test_the_host_waits_for_a_stream(device):
    stream, other = rabbet.Stream(device), rabbet.Stream(device)
    for k in range(ROUNDS):
        with stream:
            x = count_up(start(device, k))
        stream.synchronize()
        assert stream.query(), "a stream has work after synchronize()"
        with other:
            expect(x, k + STEPS, "additions after synchronize() of their stream")


def test_the_host_waits_for_an_event(device):
    stream, other = rabbet.Stream(device), rabbet.Stream(device)
    for k in range(ROUNDS):
        with stream:
            x = count_up(start(device, k))
            event = current_stream(device).record_event()
        event.synchronize()
        assert event.query(), "an event is not passed after synchronize()"
        with other:
            expect(x, k + STEPS, "additions before an event that was waited for")


@pytest.mark.parametrize("asked", ["stream", "event"])
def test_asking_is_not_waiting(asked, device):
    stream, other = rabbet.Stream(device), rabbet.Stream(device)
    for k in range(ROUNDS):
        with stream:
            x = count_up(start(device, k))
            event = stream.record_event()
        end = time.monotonic() + PATIENCE
        while not (stream if asked == "stream" else event).query():
            assert time.monotonic() < end, f"the {asked} is not done after {PATIENCE} s"
        with other:
            expect(x, k + STEPS, f"additions when the {asked} says that they are done")


def test_waiting_for_the_device_is_waiting_for_all_streams(device):
    streams, other = [rabbet.Stream(device) for _ in range(3)], rabbet.Stream(device)
    made = []
    for k, stream in enumerate(streams):
        with stream:
            made.append(count_up(start(device, k)))
    _C.synchronize(rabbet.device(device))
    with other:
        for k, x in enumerate(made):
            expect(x, k + STEPS, "additions after synchronize() of the device")


def test_memory_is_not_given_again_while_another_stream_uses_it(device):
    maker, user = rabbet.Stream(device), rabbet.Stream(device)
    for k in range(ROUNDS):
        with maker:
            x = start(device, k)
        user.wait_stream(maker)
        with user:
            y = count_up(x)
        x.record_stream(user)
        del x
        with maker:
            spoilt = [start(device, -1.0) for _ in range(3)]
        with user:
            expect(y, k + STEPS, "additions to a tensor that was dropped after record_stream()")
        del spoilt


def test_memory_is_not_given_back_while_a_stream_uses_it(device):
    stream = rabbet.Stream(device)
    for k in range(ROUNDS):
        with stream:
            x = rabbet.full((SEGMENT,), float(k)).to(device)
            stream.synchronize()
            y = count_up(x[:SIZE])
            del x
            _C.empty_cache()
            expect(
                y,
                k + STEPS,
                "additions to a tensor that was dropped, and given back by empty_cache()",
            )


def test_every_thread_has_its_own_stream(device):
    found, gate = {}, threading.Barrier(3)

    def work(k):
        try:
            stream = rabbet.Stream(device)
            before = current_stream(device).stream_id
            set_stream(stream)
            gate.wait(PATIENCE)
            x = count_up(start(device, k))
            found[k] = before, current_stream(device) == stream, array(x).max()
        except Exception as error:
            gate.abort()
            found[k] = error

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {k: (0, True, k + STEPS) for k in range(3)}


def test_times_between_events(device, report):
    try:
        begin, end = (rabbet.Event(device, enable_timing=True) for _ in range(2))
    except NotImplementedError as error:
        report.not_implemented(str(error))
    began = time.perf_counter()
    begin.record()
    count_up(start(device))
    end.record()
    end.synchronize()
    whole = (time.perf_counter() - began) * 1000
    took = begin.elapsed_time(end)
    assert 0 <= took <= whole * 1.5 + 1, f"{took} ms between events, {whole} ms on the host"


def test_gradients_pass_between_streams(device):
    one, two = rabbet.Stream(device), rabbet.Stream(device)
    for k in range(ROUNDS):
        with offered("mul"):
            x, g = start(device, k + 1.0).requires_grad_(), start(device, 1.0)
            one.wait_stream(current_stream(device))
            two.wait_stream(current_stream(device))
            with one:
                a = count_up(x * 2.0)
            with two:
                b = count_up(x * x)
            two.wait_stream(one)
            with two:
                c = a * b
            current_stream(device).wait_stream(two)
            c.backward(g)
        n, s = k + 1.0, STEPS
        expect(x.grad, 2 * (n * n + s) + (2 * n + s) * 2 * n, "the gradient")
