"""What the functions do that the host table has since version 0.7."""

import ctypes
import signal
import threading
import time
import warnings

import numpy as np
import pytest
import rabbet
from host_table import Members, host_of, message
from plugin_wheels import build, load_lazy

_get = ctypes.pythonapi.PyCapsule_GetPointer
_get.restype, _get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
PYTHON = (ctypes.c_void_p * 8).from_address(_get(rabbet._C.python_v0, b"rabbet._C.python_v0"))
HOST = host_of(PYTHON[1])
READY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
OK, TIMING = 0, 1
WRITES, DRAWS, FAILS = 1, 2, 4
RANDOM, CHECKS_DATA = 128, 256


class Slice(ctypes.Structure):
    """RbRngSlice."""

    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("seed", ctypes.c_uint64), ("offset", ctypes.c_uint64)]  # fmt: skip


def checked(code):
    assert code == OK, message(HOST)


def backend(name):
    found = ctypes.c_int32()
    checked(HOST.find_backend(name.encode(), ctypes.byref(found)))
    return found.value


def info(name):
    return Members("RbOpInfo", HOST.op_info(ctypes.c_void_p(HOST.find_op(name.encode()))))


def signed(word):
    return ctypes.c_int32(word).value


# ---- backends, streams, events


def test_backends_are_found_by_name():
    cpu = backend("cpu")
    assert HOST.backend_name(cpu) == b"cpu" and HOST.backend_name(0) == b"meta"
    count = ctypes.c_int32()
    checked(HOST.device_count(cpu, ctypes.byref(count)))
    assert count.value == 1 and backend("meta") == 0


@pytest.fixture(scope="module")
def lazy(tmp_path_factory):
    load_lazy(tmp_path_factory)
    return backend("lazy")


def test_an_event_has_passed_when_its_stream_has_done_its_work(lazy):
    stream, event, done = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int32(7)
    checked(HOST.stream_new(lazy, 0, 0, ctypes.byref(stream)))
    checked(HOST.event_new(lazy, 0, TIMING, ctypes.byref(event)))
    assert stream.value and event.value
    made = rabbet.Stream(device="lazy")
    with made:
        x = rabbet.ones(4, device="lazy") + 1
    checked(HOST.event_record(lazy, 0, stream, event))
    checked(HOST.event_wait(lazy, 0, ctypes.c_void_p(), event))
    checked(HOST.stream_sync(lazy, 0, stream))
    checked(HOST.event_query(lazy, 0, event, ctypes.byref(done)))
    assert done.value == 1
    checked(HOST.event_free(lazy, 0, event))
    made.synchronize()
    assert x.cpu().tolist() == [2, 2, 2, 2]


# ---- waiting


def test_a_wait_ends_when_there_is_something():
    asked = []
    done = ctypes.c_int32()
    checked(HOST.wait(READY(lambda _: asked.append(1) or len(asked) == 5), None, ctypes.c_double(-1), ctypes.byref(done)))  # fmt: skip
    assert done.value == 1 and len(asked) == 5


def test_a_wait_ends_when_its_time_is_up():
    done, begin = ctypes.c_int32(9), time.monotonic()
    checked(HOST.wait(READY(lambda _: 0), None, ctypes.c_double(0.05), ctypes.byref(done)))
    assert done.value == 0 and 0.05 <= time.monotonic() - begin < 5


def locked(name, *types):
    """The function of the host table, called with Python's lock, as plugins are."""
    return ctypes.PYFUNCTYPE(ctypes.c_int32, *types)(HOST.word(name))


def test_other_threads_run_while_one_waits():
    release = threading.Event()
    wait = locked("wait", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double, ctypes.c_void_p)
    ready, done = READY(lambda _: int(release.is_set())), ctypes.c_int32()
    threading.Timer(0.05, release.set).start()
    checked(wait(ctypes.cast(ready, ctypes.c_void_p), None, 20.0, ctypes.addressof(done)))
    assert done.value == 1


def test_a_signal_ends_a_wait():
    def interrupt(*_):
        raise KeyboardInterrupt("enough")

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        raise_error = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int32)(PYTHON[5])
        wait = locked("wait", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double, ctypes.c_void_p)
        # A function of the C library that returns 0: one in Python would see the signal itself.
        never = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p)
        done = ctypes.c_int32()
        with pytest.raises(KeyboardInterrupt, match="enough"):
            raise_error(wait(never, None, 20.0, ctypes.addressof(done)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- generators


def generator_at(seed, offset):
    made = ctypes.c_void_p()
    checked(HOST.generator_at(ctypes.c_uint64(seed), ctypes.c_uint64(offset), ctypes.byref(made)))
    return made


def state_of(generator, device=0):
    state = Slice(struct_size=ctypes.sizeof(Slice))
    checked(HOST.generator_state(generator, backend("cpu"), device, ctypes.byref(state)))
    return state.seed, state.offset


def test_a_generator_at_a_place_draws_what_the_default_one_draws_there():
    rabbet.manual_seed(7)
    rabbet.rand(10)
    seed, offset = state_of(None)
    expected = rabbet.rand(100)
    generator = generator_at(seed, offset)
    assert state_of(generator) == (seed, offset)
    checked(HOST.generator_set(generator))
    try:
        drawn = rabbet.rand(100)
        assert state_of(None) == state_of(generator) != (seed, offset)
    finally:
        checked(HOST.generator_set(None))
    assert drawn.tolist() == expected.tolist()
    assert state_of(None) == state_of(generator)  # both have drawn a hundred numbers
    HOST.generator_free(generator)


def test_the_generator_of_a_thread_is_that_of_the_thread_alone():
    rabbet.manual_seed(3)
    before = state_of(None)
    seen = []

    def draw():
        generator = generator_at(11, 0)
        checked(HOST.generator_set(generator))
        rabbet.rand(5)
        seen.append(state_of(generator))
        HOST.generator_free(generator)  # which also takes it back
        seen.append(state_of(None))

    thread = threading.Thread(target=draw)
    thread.start()
    thread.join()
    assert seen[0][0] == 11 and seen[0][1] > 0
    assert seen[1] == before == state_of(None)


# ---- facts about operators


def test_effects_and_flags_say_what_a_call_does():
    for name, effects, flags in [
        ("add", 0, 0), ("rand", DRAWS, RANDOM), ("dropout", DRAWS, RANDOM), ("bernoulli", DRAWS, RANDOM),
        ("embedding", FAILS, CHECKS_DATA), ("zeros", 0, 0), ("fused_adam", WRITES, 0),
    ]:  # fmt: skip
        got = info(name)
        assert got.word("effects") & effects == effects, name
        assert bool(got.word("effects")) == bool(effects), name
        assert got.word("flags") & (RANDOM | CHECKS_DATA) == flags, name


def test_every_operator_with_a_generator_is_random():
    for name in rabbet._C.record_names():
        described = rabbet._C.op_info(name)
        takes = any(p["type"] == "Generator" for p in described["params"])
        if takes or described["kind"] == "random":
            assert info(name).word("flags") & RANDOM, name
            assert info(name).word("effects") & DRAWS, name
        writes = any(p.get("mutated") for p in described["params"])
        if writes:
            assert info(name).word("effects") & WRITES, name


def test_the_core_line_and_the_shape_argument_are_those_of_the_record():
    assert info("matmul").text("core") is None or "->" in info("matmul").text("core")
    with_core = [n for n in rabbet._C.record_names() if info(n).text("core")]
    assert "linear" in with_core and len(with_core) > 20 and "add" not in with_core
    assert signed(info("zeros").word("shape_arg")) == 0
    assert signed(info("add").word("shape_arg")) == -1


JOINS = {
    "sum": lambda parts, sizes: sum(parts),
    "mean": lambda parts, sizes: sum(p * n for p, n in zip(parts, sizes, strict=True)) / sum(sizes),
    "product": lambda parts, sizes: np.prod(parts, axis=0),
    "max": lambda parts, sizes: np.max(parts, axis=0),
    "min": lambda parts, sizes: np.min(parts, axis=0),
    "and": lambda parts, sizes: np.all(parts, axis=0),
    "or": lambda parts, sizes: np.any(parts, axis=0),
}
JOINED = [n for n in rabbet._C.record_names() if rabbet._C.op_info(n)["join"]]


@pytest.mark.parametrize("name", JOINED)
def test_parts_are_joined_as_the_record_says(name):
    described = rabbet._C.op_info(name)
    x = np.random.default_rng(5).standard_normal((7, 3)).round(1)
    if described["join"] in ("and", "or"):
        x = x > 0.4
    op = rabbet.ops(name)
    along = any(p["name"] == "dim" for p in described["params"])
    reduce = lambda t: np.asarray((op(t, 0) if along else op(t)).tolist())  # noqa: E731
    parts = [x[:2], x[2:3], x[3:]]
    results = [reduce(rabbet.tensor(part.tolist())) for part in parts]
    joined = JOINS[described["join"]](results, [len(part) for part in parts])
    np.testing.assert_allclose(joined, reduce(rabbet.tensor(x.tolist())), rtol=1e-5, atol=1e-6)


def test_the_reductions_of_numpy_say_how_parts_are_joined():
    assert {"sum", "mean", "prod", "amax", "amin", "max", "min", "any", "all"} <= set(JOINED)


# ---- checks of calls, and the gate of generators

TRACE = Members("RbTrace", HOST.get_ext(b"rabbet.trace", 1))
UNWRAP = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(PYTHON[4])
INT, TENSOR = 2, 8


class Value(ctypes.Structure):
    """RbValue."""

    _fields_ = [("tag", ctypes.c_uint32), ("len", ctypes.c_uint32), ("v", ctypes.c_int64)]


def values(*given):
    made = (Value * len(given))()
    for value, what in zip(made, given, strict=True):
        if isinstance(what, rabbet.Tensor):
            value.tag, value.v = TENSOR, UNWRAP(what)
        elif isinstance(what, int):
            value.tag, value.v = INT, what
    return made


def refusal(name, *args, out=None):
    """What a call would be refused with; "" if nothing."""
    given, rets = values(*args), values(*([out] if out is not None else [None]))
    count = signed(info(name).word("nrets"))
    code = TRACE.check(ctypes.c_void_p(HOST.find_op(name.encode())), given, len(args), rets, count,
                       int(out is not None))  # fmt: skip
    return "" if code == OK else message(HOST)


def raised(call):
    with pytest.raises(Exception) as error:  # whatever the call itself raises
        call()
    return str(error.value).splitlines()[0]


X = rabbet.ones(2, 3)


def test_a_check_runs_nothing():
    x, out = rabbet.ones(2, 3), rabbet.zeros(2, 3)
    before = state_of(None)
    for name, *args in (
        ("exp", x),
        ("add", x, x),
        ("sum", x),
        ("matmul", x, x.t()),
        ("bernoulli", x),
        ("nonzero", x),
    ):
        assert refusal(name, *args) == "", name
    assert refusal("exp", x, out=out) == ""
    assert (
        state_of(None) == before
        and out.tolist() == [[0] * 3] * 2
        and x._version == out._version == 0
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f("matmul", X, X),
        lambda f: f("add", X, rabbet.ones(4)),
        lambda f: f("bitwise_not", X),
        lambda f: f("sum", X, 5),
        lambda f: f("softmax", X, -3),
        lambda f: f("cumsum", X, 7),
        lambda f: f("embedding", X, X),
    ],
)  # fmt: skip
def test_a_check_says_what_the_call_says(call):
    said = call(refusal)
    assert said and said == raised(lambda: call(lambda name, *args: rabbet.ops(name)(*args)))


@pytest.mark.parametrize(
    "out",
    [
        lambda: rabbet.from_numpy(np.broadcast_to(np.float32(1), (2, 3))),
        lambda: rabbet.ones(2, 3, dtype=rabbet.int64),
        lambda: rabbet.ones(1, 3).expand(2, 3),
    ],
)  # fmt: skip
def test_a_check_refuses_destinations_that_cannot_be_written(out):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the array is read-only
        target = out()
    said = refusal("exp", X, out=target)
    assert said and said == raised(lambda: rabbet.exp(X, out=target))


def test_a_check_refuses_an_overlap():
    x = rabbet.ones(9)
    assert "exp" in refusal("exp", x[:-1], out=x[1:])
    with pytest.raises(RuntimeError):
        rabbet.exp(x[:-1], out=x[1:])


GATE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)


@pytest.fixture
def gate():
    """What asks about generators, in turn; the answer is `answers[what]`."""
    rabbet.ones(1).requires_grad_()  # loads the tape
    layer = next(b for b in range(17, 64) if TRACE.generator_gate(b, None, None) == OK)
    asked, answers = [], {}

    def ask(self, generator, what):
        asked.append((generator, what.decode()))
        text = answers.get(what.decode())
        return HOST.err_set(7, text.encode()) if text else OK

    function = GATE(ask)
    checked(TRACE.generator_gate(layer, function, None))
    yield asked, answers
    checked(TRACE.generator_gate(layer, None, None))


def test_the_gate_is_asked_before_a_state_is_set_or_read(gate):
    asked, _ = gate
    generator = rabbet.Generator()
    for use, what in (
        (lambda: generator.manual_seed(1), "Generator.manual_seed"),
        (generator.initial_seed, "Generator.initial_seed"),
        (generator.seed, "Generator.seed"),
        (generator.get_state, "Generator.get_state"),
        (lambda: generator.set_state(rabbet.default_generator.get_state()), "Generator.set_state"),
    ):
        asked.clear()
        use()
        assert asked[-1][1] == what and asked[-1][0]
    asked.clear()
    rabbet.manual_seed(2)
    assert (None, "manual_seed()") in asked
    asked.clear()
    rabbet.rand(3)
    assert not asked  # a draw is a call, which layers see


def test_what_the_gate_refuses_leaves_the_state_as_it_was(gate):
    _, answers = gate
    rabbet.manual_seed(5)
    before = state_of(None)
    answers.update({"manual_seed()": "draws are waiting", "Generator.manual_seed": "not now"})
    with pytest.raises(RuntimeError, match="draws are waiting"):
        rabbet.manual_seed(6)
    with pytest.raises(RuntimeError, match="not now"):
        rabbet.default_generator.manual_seed(6)
    assert state_of(None) == before


# ---- keys that aliases and views keep

STICKY = """
#include "rabbet/trace.h"
static const RbHost* the_host;
static int32_t layer, slot, calls;
static int held;
static void drop(void* p) { (void)p; }
static int32_t pass(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; ++calls; return c->host->redispatch(c, layer, a, n, r, m); }
RB_EXPORT int32_t mark(RbTensor* t, int32_t on) { return the_host->slot_set(t, slot, on ? &held : 0, on); }
RB_EXPORT int32_t calls_seen(void) { const int32_t n = calls; calls = 0; return n; }
"""
STICKY_INIT = """
uint32_t offset; RbLayer l; memset(&l, 0, sizeof l); l.struct_size = sizeof l; l.name = "%s"; l.phase = 700;
l.flags = %s; l.fallback = pass; the_host = host;
if (host->add_layer(txn, &l, &layer)) return 1;
return host->slot_new("%s", layer, drop, &slot, &offset);
"""


@pytest.mark.parametrize("flags,seen", [("RB_L_STICKY", 1), ("0", 0)])
def test_aliases_keep_the_keys_of_sticky_layers(flags, seen, tmp_path):
    """Views have them in any case: calls see the keys of their bases."""
    name = f"sticky{seen}"
    library = build(
        tmp_path, name, extra=STICKY, init=STICKY_INIT % (name, flags, name), wheel=name
    )
    rabbet._C.load_plugin(str(library))
    lib = ctypes.CDLL(str(library))

    def count(x):
        lib.calls_seen()
        rabbet.exp(x)
        return lib.calls_seen()

    x = rabbet.ones(2, 3)
    before = x.detach()
    assert [count(v) for v in (x, x[0], before)] == [0, 0, 0]
    checked(lib.mark(ctypes.c_void_p(UNWRAP(x)), 1))
    assert [count(v) for v in (x, x[0], x.t(), x.view(6), x.expand(2, 3)[1:])] == [1] * 5
    assert [count(v) for v in (x.detach(), x.data, x[0].detach(), x.detach()[0])] == [seen] * 4
    assert count(before) == 0 == count(x + 1)  # an alias of earlier, and a new tensor
    checked(lib.mark(ctypes.c_void_p(UNWRAP(x)), 0))
    assert [count(v) for v in (x, x[0], x.detach())] == [0, 0, 0]
