"""Streams and events through core and autograd, on a backend where a wait that is missing always shows as NaN."""

import threading

import numpy as np
import pytest
import rabbet
from lazy_device import X, seen, there
from plugin_wheels import BACKEND, compile_library, run
from rabbet import _C
from rabbet.accelerator import current_stream, set_stream

pytestmark = pytest.mark.usefixtures("lazy", "settled")


def stale(x):
    return np.isnan(seen(x)).all()


def test_signatures_are_those_of_torch():
    torch = pytest.importorskip("torch")
    public = {"query", "synchronize", "record_event", "wait_event", "wait_stream", "device", "stream_id",
              "device_index", "native_handle"}  # fmt: skip
    assert public <= set(dir(torch.Stream)) and public <= set(dir(rabbet.Stream))
    public = {"record", "wait", "query", "synchronize", "elapsed_time", "device"}
    assert public <= set(dir(torch.Event)) and public <= set(dir(rabbet.Event))
    assert hasattr(torch.Tensor, "record_stream") and hasattr(rabbet.Tensor, "record_stream")


# ---- order


def test_what_does_not_wait_sees_nothing():
    """Else the other tests would show nothing."""
    s = rabbet.Stream("lazy")
    x = there()
    s.wait_stream(current_stream("lazy"))
    with s:
        y = x * 2
    assert stale(y)
    current_stream("lazy").wait_stream(s)
    assert (seen(y) == 2 * X).all()


def test_streams_of_a_device_are_told_apart():
    one, two = rabbet.Stream("lazy"), rabbet.Stream("lazy:0", priority=-1)
    other = rabbet.Stream("lazy:1")
    assert len({one, two, other, current_stream("lazy")}) == 4
    assert one == one and one != two and one != 3 and hash(one) == hash(one)
    assert (one.device_index, other.device_index) == (0, 1)
    assert one.native_handle == one.stream_id != 0
    assert repr(one).startswith("rabbet.Stream(device='lazy")
    with one, other:
        assert current_stream("lazy") == one and current_stream("lazy:1") == other
        with two:
            assert current_stream("lazy") == two
        assert current_stream("lazy:0") == one


def test_streams_come_from_a_pool():
    made = {rabbet.Stream("lazy", priority=7) for _ in range(80)}
    assert len(made) == 32


def test_an_error_in_a_stream_leaves_it():
    with pytest.raises(ZeroDivisionError), rabbet.Stream("lazy"):
        raise ZeroDivisionError
    assert current_stream("lazy").stream_id == 0


def test_set_stream_is_the_threads_own():
    mine, found = rabbet.Stream("lazy"), []
    set_stream(mine)
    try:
        thread = threading.Thread(target=lambda: found.append(current_stream("lazy").stream_id))
        thread.start()
        thread.join()
        assert found == [0] and current_stream("lazy") == mine
    finally:
        with pytest.raises(TypeError, match="stream must be a Stream, not int"):
            set_stream(0)
        _C.stream_set("lazy", 0)


def test_decompositions_views_and_in_place_writes_are_on_the_stream():
    s, x = rabbet.Stream("lazy"), there()
    s.wait_stream(current_stream("lazy"))
    with s:
        y = x.unsqueeze(0).expand(2, 3).contiguous()[1]
        y += 1
        z = rabbet.addcmul(y, x, x)
    assert stale(z)
    s.synchronize()
    assert (seen(z) == X + 1 + X * X).all()


def test_copies_are_in_the_order_of_the_stream():
    s = rabbet.Stream("lazy")
    with s:
        x = there() + 1
        assert (seen(x) == X + 1).all()
    t = rabbet.Stream("lazy:1")
    with s, t:
        y = (x * 2).to("lazy:1")
        assert (seen(y + 1) == 2 * X + 3).all()
    assert y.device == rabbet.device("lazy:1")


# ---- events


def test_events():
    event = rabbet.Event("lazy")
    assert event.query() and "lazy" in repr(event)
    event.wait()
    event.synchronize()
    s = rabbet.Stream("lazy")
    with s:
        x = there() * 2
        event.record()
    y = x + 1
    assert not event.query()
    current_stream("lazy").wait_event(event)
    z = x + 1
    assert stale(y) and (seen(z) == 2 * X + 1).all() and event.query()
    assert s.record_event(event) is event
    event.synchronize()
    assert s.query()


def test_an_event_of_another_device_of_the_backend():
    event, t = rabbet.Event("lazy"), rabbet.Stream("lazy:1")
    x = there() * 2
    event.record()
    event.wait(t)
    with t:
        y = there(device="lazy:1")
        t.synchronize()
    assert (event.query(), seen(x).tolist(), seen(y).tolist()) == (True, [2, 4, 6], [1, 2, 3])


def test_times():
    a, b, plain = (rabbet.Event("lazy", enable_timing=t) for t in (True, True, False))
    with pytest.raises(RuntimeError, match=r"Event.elapsed_time: this event was not recorded"):
        a.elapsed_time(b)
    a.record()
    x = there() + 1
    b.record()
    a.synchronize()
    with pytest.raises(RuntimeError, match="end_event is not passed yet"):
        a.elapsed_time(b)
    b.synchronize()
    assert 0 < a.elapsed_time(b) < 1000 and (seen(x) == X + 1).all()
    with pytest.raises(RuntimeError, match="end_event was made without enable_timing"):
        a.elapsed_time(plain)


# ---- memory


def block(stream):
    with stream:
        return rabbet.empty(1000, device="lazy")


def test_a_block_is_given_again_on_its_own_stream():
    one, two = rabbet.Stream("lazy"), rabbet.Stream("lazy")
    x = block(one)
    address = x.data_ptr()
    del x
    other, mine = block(two), block(one)
    assert other.data_ptr() != address and mine.data_ptr() == address


def used_elsewhere(recorded):
    """The results of a call on one stream with a tensor of another one, which is dropped and overwritten at once."""
    one, two = rabbet.Stream("lazy"), rabbet.Stream("lazy")
    with one:
        x = there(np.full(1000, 5, np.float32))
    two.wait_stream(one)
    with two:
        y = x * 2
    if recorded:
        x.record_stream(two)
        x.record_stream(one)
        x[1:].record_stream(two)
    address = x.data_ptr()
    del x
    with one:
        z = there(np.full(1000, 7, np.float32))
        assert (z.data_ptr() == address) != recorded
        one.synchronize()
    with two:
        result = seen(y)  # two has done its work
    with one:
        again = there(np.full(1000, 8, np.float32))
        assert (again.data_ptr() == address) == recorded
    return result


def test_record_stream_keeps_a_block_while_it_is_used():
    assert (used_elsewhere(recorded=True) == 10).all()
    assert (used_elsewhere(recorded=False) != 10).all()


def test_record_stream_of_tensors_of_others():
    s = rabbet.Stream("lazy")
    for x, device in ((rabbet.ones(2), "cpu"), (there(device="lazy:1"), "lazy:1")):
        with pytest.raises(RuntimeError, match=f"the tensor is on {device}, the stream of lazy"):
            x.record_stream(s)
    with pytest.raises(TypeError, match="record_stream: stream must be a Stream, not int"):
        there().record_stream(3)
    rabbet.ones(2).record_stream(current_stream("cpu"))


# ---- autograd


def test_backward_follows_the_streams_of_forward():
    for home in (current_stream("lazy"), rabbet.Stream("lazy")):
        s1, s2 = rabbet.Stream("lazy"), rabbet.Stream("lazy")
        x, w = there().requires_grad_(), there(X + 1).requires_grad_()
        for s in (s1, s2):
            s.wait_stream(current_stream("lazy"))
        with s1:
            a = x * w
        with s2:
            b = x * x
        s1.wait_stream(s2)
        with s1:
            c = a * b + x
            c.retain_grad()
        g = there(X * 0 + 1)
        home.wait_stream(current_stream("lazy"))
        with home:
            c.backward(g, retain_graph=True)
            assert np.allclose(seen(x.grad), 3 * X**2 * (X + 1) + 1)
            assert np.allclose(seen(w.grad), X**3)
            assert np.allclose(seen(c.grad), 1)
            c.backward(g, retain_graph=True)  # adds to what is there
            assert np.allclose(seen(x.grad), 2 * (3 * X**2 * (X + 1) + 1))
            gx, gb = rabbet.autograd.grad(c, (x, b), g, retain_graph=True)
            assert np.allclose(seen(gx), 3 * X**2 * (X + 1) + 1)
            assert np.allclose(seen(gb), X * (X + 1))
            (gb,) = rabbet.autograd.grad(c, b, g)
            assert np.allclose(seen(gb), X * (X + 1))
        s1.synchronize()
        s2.synchronize()


def overwrite(*streams):
    """What these streams have is given again, overwritten, and that is done."""
    for s in streams:
        with s:
            kept = [there(np.full(1000, np.nan, np.float32)) for _ in range(8)]
        s.synchronize()
        del kept


def test_gradients_keep_their_memory_while_another_stream_uses_them():
    ones = np.ones(1000, np.float32)
    s1, s2 = rabbet.Stream("lazy"), rabbet.Stream("lazy")
    x, g = there(3 * ones).requires_grad_(), there(ones)
    for s in (s1, s2):
        s.wait_stream(current_stream("lazy"))
    with s2:
        a = x * x
    s1.wait_stream(s2)
    with s1:
        b = a * a
    s1.synchronize()
    b.backward(g, retain_graph=True)
    overwrite(s1, s2)
    assert (seen(x.grad) == 4 * 27).all()
    (ga,) = rabbet.autograd.grad(b, a, g)
    y = ga * 2
    del ga
    overwrite(s1, s2)
    assert (seen(y) == 36).all()


def test_hooks_and_functions_run_on_the_stream_of_forward():
    where = []

    class Double(rabbet.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            where.append(current_stream("lazy"))
            return g * 2

    s, x = rabbet.Stream("lazy"), there().requires_grad_()
    s.wait_stream(current_stream("lazy"))
    with s:
        y = Double.apply(x)
        y.register_hook(lambda g: where.append(current_stream("lazy")))
        z = y * y
    z.backward(there(X * 0 + 1))
    assert where == [s, s] and np.allclose(seen(x.grad), 8 * X)


def test_a_write_to_a_view_runs_on_its_stream():
    s, x, w = rabbet.Stream("lazy"), there().requires_grad_(), there()
    s.wait_stream(current_stream("lazy"))
    with s:
        y = x * 2
        y.unsqueeze(0).mul_(w)
        z = y * 3
    z.backward(there(X * 0 + 1))
    assert (seen(x.grad) == 6 * X).all()


def test_an_error_in_backward_leaves_the_stream():
    def fail(g):
        raise ZeroDivisionError

    s, x = rabbet.Stream("lazy"), there().requires_grad_()
    with s:
        y = x * 2
        y.register_hook(fail)
    with pytest.raises(ZeroDivisionError):
        y.backward(there())
    assert current_stream("lazy").stream_id == 0


def test_transforms_on_a_stream():
    s, x = rabbet.Stream("lazy"), there()
    s.wait_stream(current_stream("lazy"))
    with s:
        g = rabbet.func.vmap(rabbet.func.grad(lambda v: v * v * v))(x)
        assert np.allclose(seen(g), 3 * X * X)


# ---- what there is not


NOT_THERE = {
    "a backend without streams": (lambda: rabbet.Stream("cpu"), "the backend 'cpu' has no streams besides the default one"),
    "and without events": (lambda: rabbet.Event("cpu"), "the backend 'cpu' has no streams besides the default one, and no events"),
    "a device": (lambda: rabbet.Stream("lazy:2"), "Stream: there is no device lazy:2, 'lazy' has 2"),
    "no device": (lambda: rabbet.Event("lazy:9"), "Event: there is no device lazy:9"),
    "a strange device": (lambda: rabbet.Stream(1.5), "Stream: expected a device, its name or an index, got float"),
    "events between processes": (lambda: rabbet.Event("lazy", interprocess=True), "the backend 'lazy' cannot share its events with other processes"),
    "an event of another device": (lambda: rabbet.Event("lazy").record(rabbet.Stream("lazy:1")),
                                   "an event of lazy:0 cannot be recorded in a stream of lazy:1"),
    "a stream of another backend": (lambda: rabbet.Event("lazy").wait(current_stream("cpu")), "a stream of cpu cannot wait for an event of lazy"),
    "no stream": (lambda: rabbet.Stream("lazy").wait_stream(1), "Stream.wait_stream: stream must be a Stream, not int"),
    "no event": (lambda: rabbet.Stream("lazy").wait_event(1), "Stream.wait_event: event must be an Event, not int"),
    "events of two devices": (lambda: rabbet.Event("lazy", enable_timing=True).elapsed_time(rabbet.Event("lazy:1", enable_timing=True)),
                              "one event is of lazy:0, the other of lazy:1"),
}  # fmt: skip


@pytest.mark.parametrize("what", NOT_THERE)
def test_what_is_not_there_is_told(what):
    call, words = NOT_THERE[what]
    with pytest.raises((RuntimeError, TypeError, NotImplementedError), match=words):
        call()


def test_the_default_stream_of_a_backend_without_streams_can_be_waited_for():
    stream = current_stream("cpu")
    stream.synchronize()
    with stream:
        assert current_stream("cpu") == stream
    stream.wait_stream(current_stream("cpu"))
    with pytest.raises(NotImplementedError, match="the backend 'cpu' has no streams"):
        stream.query()


def test_a_process_can_leave_with_work_and_events_under_way(lazy, tmp_path):
    code = f"""
import rabbet
rabbet._C.load_plugin({str(lazy)!r})
s = rabbet.Stream("lazy")
with s:
    x = rabbet.ones(1000).to("lazy") + 1
    event = s.record_event()
rabbet.accelerator.current_stream("lazy").wait_event(event)
print("left")
"""
    assert run(tmp_path, code) == "left\n"


# ---- backends whose streams are wrong


WRONG = {
    "host memory": ("RB_B_HOST_MEMORY, NAME", "RbStreams s = {0}; streams = s;", "a backend of host memory has no streams"),
    "no function": ("0, NAME", "streams.query = 0;", "the struct of streams is too short, or one of its functions is null"),
    "a short struct": ("0, NAME", "streams.struct_size = 8;", "the struct of streams is too short"),
    "a stream that is null": ("0, NAME", "", "the backend 'odd' made a stream that is null, the default one"),
    "no times": ("0, NAME", "", "the events of the backend 'odd' do not tell times"),
}  # fmt: skip
STREAMS = """
static int32_t fn0(void* s, int32_t d, int32_t p, void** out) { (void)s; (void)d; (void)p; *out = 0; return RB_OK; }
static int32_t fn1(void* s, int32_t d, void* x) { (void)s; (void)d; (void)x; return RB_OK; }
static int32_t fn2(void* s, int32_t d, void* x, int32_t* done) { (void)s; (void)d; (void)x; *done = 1; return RB_OK; }
static int32_t fn3(void* s, int32_t d, uint32_t f, void** out) { (void)s; (void)d; (void)f; *out = 0; return RB_OK; }
static void fn4(void* s, int32_t d, void* x) { (void)s; (void)d; (void)x; }
static int32_t fn5(void* s, int32_t d, void* x, void* y) { (void)s; (void)d; (void)x; (void)y; return RB_OK; }
static RbStreams streams = {RB_SIZE(RbStreams, event_query), 0, 0, fn0, fn1, fn2, fn3, fn4, fn5, fn5, fn1, fn2, 0};
"""


@pytest.mark.parametrize("what", WRONG)
def test_wrong_streams_are_refused(what, tmp_path):
    flags, change, words = WRONG[what]
    source = BACKEND.replace("static const RbBackend", STREAMS + "static const RbBackend")
    source = source.replace(
        "RB_SIZE(RbBackend, allocator), 0, NAME", f"RB_SIZE(RbBackend, streams), {flags}"
    )
    source = source.replace("&devices, &allocator}", "&devices, &allocator, &streams}")
    source = source.replace("{ core = host;", f"{{ core = host; {change}")
    library = compile_library(tmp_path, "odd", source, "-DKEY=0x41", '-DNAME="odd"')
    code = f"""
import rabbet
try:
    rabbet._C.load_plugin({str(library)!r})
    if {what!r} == "no times": rabbet.Event("odd", enable_timing=True)
    rabbet.Event("odd").record()
    rabbet.Stream("odd")
except RuntimeError as error: print(error)
"""
    assert words in run(tmp_path, code)
