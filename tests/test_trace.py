"""Seeing calls: results without running, stubs, source lines, the ring of events, what op_info says; view(dtype)."""

import re
import threading

import pytest
import rabbet
from plugin_wheels import build, run
from rabbet import func, library
from rabbet_testing.cases import cases, op_names
from rabbet_testing.judges.calls import takes_integers_only
from test_composite import process  # noqa: F401


def cases_of(name):
    return list(cases(name, rabbet.int64 if takes_integers_only(name) else None))


# ---- infer


def shown(tensor):
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


def flat(result):
    return [result] if isinstance(result, rabbet.Tensor) else list(result)


@pytest.mark.parametrize("name", op_names())
def test_infer_gives_what_a_call_gives(name):
    info = rabbet._C.op_info(name)
    for case in cases_of(name):
        try:
            inferred = library.infer(rabbet._C.op(name), *case.args, **case.kwargs)
        except NotImplementedError as error:
            assert info["data_shape"] or re.search(
                "depends on the data|meta|infer: |no kernel", str(error)
            ), error
            continue
        except RuntimeError as error:
            if "meta tensor has no data" in str(error):  # made of others, one of which reads values
                continue
            with pytest.raises(type(error)):
                rabbet._C.op(name)(*case.args, **case.kwargs)
            continue
        if inferred is None:
            continue
        given = rabbet._C.op(name)(*case.args, **case.kwargs)
        for seen, real in zip(flat(inferred), flat(given), strict=True):
            assert seen.is_meta and shown(seen) == shown(real), case


def test_infer_runs_nothing():
    state = rabbet.get_rng_state()
    assert library.infer("bernoulli", rabbet.ones(2, 3)).shape == (2, 3)
    assert rabbet.get_rng_state().equal(state)
    momentum = [rabbet.ones(3)]
    library.infer(
        "fused_sgd",
        [rabbet.ones(3)],
        [rabbet.ones(3)],
        momentum,
        0.1,
        0.9,
        0,
        0,
        False,
        False,
        True,
    )
    assert momentum[0].equal(rabbet.ones(3)) and momentum[0]._version == 0
    with library.events() as seen:
        huge = library.infer("zeros", (1 << 20, 1 << 20))
    assert huge.shape == (1 << 20, 1 << 20) and not [e for e in seen if e["kind"] == "alloc"]


def test_infer_says_where():
    made, device = rabbet._C.infer(rabbet._C.op("zeros"), ((2,),), {"device": "meta"})
    assert device == rabbet.device("meta") and made.is_meta
    _, device = rabbet._C.infer(rabbet._C.op("exp"), (rabbet.zeros(2),), {})
    assert device.type == "cpu"


def test_infer_sees_views_lists_and_records_nothing():
    x = rabbet.zeros(4, 6, requires_grad=True)
    assert library.infer("transpose", x, 0, 1).stride() == (1, 6)
    assert [part.shape for part in library.infer("split", x, 3, 1)] == [(4, 3), (4, 3)]
    assert not library.infer("exp", x).requires_grad
    assert rabbet.vmap(lambda v: v * library.infer("exp", v).ndim)(rabbet.ones(2, 3)).equal(
        rabbet.ones(2, 3)
    )


@pytest.mark.parametrize(
    "call,message",
    [
        (
            lambda: library.infer("nonzero", rabbet.ones(3)),
            "nonzero: the result's shape depends on the data",
        ),
        (lambda: library.infer("matmul", rabbet.ones(2, 3), rabbet.ones(2, 3)), "matmul"),
        (lambda: library.infer("add", rabbet.ones(2)), "infer: no signature takes"),
        (lambda: library.infer("no_such"), "no operator 'no_such'"),
    ],
)
def test_infer_refuses_in_words(call, message):
    with pytest.raises(Exception, match=message):
        call()


# ---- stubs


def test_a_stub_is_traced_and_has_no_values(process):  # noqa: F811
    process(
        """
x = rabbet.zeros(2, 3)
s = stub(x)
y = rabbet.nn.functional.linear(s * 2 + 1, rabbet.zeros(4, 3)).relu().sum(0)
assert y.shape == (4,) and composite.layer(y) == "parts_stub" and composite.parts(y) == () and lib.count_of(1) == 5
assert y.is_cpu and (s == s).dtype is rabbet.bool and s.t().stride() == (1, 3)
for read in (s.tolist, s.numpy, lambda: bool(s.sum()), s.data_ptr, lambda: memoryview(s), s.sum().item):
    assert re.search("composite", error(read)), error(read)
assert s.clone() is not s and lib.count_of(1) > 5  # the layer sees copies too
assert (x + s).shape == (2, 3)
""".replace("x = ", "import re\nx = ", 1)
    )


def test_a_layer_can_trace_every_call(process):  # noqa: F811
    process("""
import rabbet.nn.functional as F
x = rabbet.ones(2, 3)
lib.trace_all(1)
traced = [x + 1, F.gelu(x), F.layer_norm(x, (3,)), F.mse_loss(x, x), rabbet.zeros(4), rabbet.rand(2), rabbet.logspace(0, 1, 3)]
lib.trace_all(0)
assert all(composite.layer(t) == "parts_stub" for t in traced) and lib.count_of(1) >= len(traced)
assert [tuple(t.shape) for t in traced] == [(2, 3)] * 3 + [(), (4,), (2,), (3,)]
assert (x + 1).tolist() == [[2] * 3] * 2
""")


# ---- source lines


def test_the_line_of_the_program():
    here = rabbet._C.source()
    assert re.fullmatch(r".*test_trace\.py:\d+ in test_the_line_of_the_program", here)

    def inner():
        return rabbet.vmap(lambda x: (lines.append(rabbet._C.source()), x)[1])(rabbet.ones(2))

    lines = []
    inner()
    assert re.search(r"test_trace\.py:\d+ in <lambda>", lines[0])
    rabbet._C.set_source("model.py:3 in forward")
    try:
        assert rabbet._C.source() == "model.py:3 in forward"
        seen = []
        thread = threading.Thread(target=lambda: seen.append(rabbet._C.source()))
        thread.start()
        thread.join()
        assert "model.py" not in seen[0]
    finally:
        rabbet._C.set_source(None)
    assert "test_trace.py" in rabbet._C.source()


# ---- events


def test_events_tell_calls_and_memory():
    x = rabbet.ones(2, 3)
    with library.events() as seen:
        x + x
        big = rabbet.empty(100, 1000)
        del big
    kinds = [(e["kind"], e.get("op")) for e in seen]
    assert kinds[:2] == [("begin", "add"), ("end", "add")]
    assert seen[0]["arguments"] == "float32(2, 3), float32(2, 3)" and not seen[1]["failed"]
    assert seen[0]["time"] < seen[1]["time"] and seen[0]["thread"] == seen[1]["thread"]
    alloc, free = (next(e for e in seen if e["kind"] == kind) for kind in ("alloc", "free"))
    assert alloc["nbytes"] == free["nbytes"] == 400000 and alloc["address"] == free["address"]
    assert alloc["device"] == "cpu"


def test_kernels_of_derivatives_are_calls():
    x = rabbet.randn(2, 3, requires_grad=True)
    y = rabbet.nn.functional.gelu(x)
    with library.events() as seen:
        y.backward(rabbet.ones(2, 3))
    assert ("begin", "gelu.vjp.input") in [(e["kind"], e.get("op")) for e in seen]


def test_calls_nest():
    with library.events(memory=False) as seen:
        rabbet.nn.functional.mse_loss(rabbet.ones(3), rabbet.zeros(3))
    depth = 0
    for event in seen:
        if event["kind"] == "end":
            depth -= 1
        assert event["depth"] == depth
        if event["kind"] == "begin":
            depth += 1
    assert depth == 0 and max(e["depth"] for e in seen) >= 0


def test_a_failed_call_ends_too():
    with library.events(memory=False) as seen, pytest.raises(RuntimeError):
        rabbet.matmul(rabbet.ones(2, 3), rabbet.ones(2, 3))
    (end,) = [e for e in seen if e["kind"] == "end" and e["op"] == "matmul"]
    assert end["failed"]


def test_readers_are_independent_and_see_all_threads():
    x = rabbet.ones(2)
    with library.events(memory=False) as outer:
        x + x
        with library.events(memory=False) as inner:
            thread = threading.Thread(target=lambda: x * x)
            thread.start()
            thread.join()
    assert {e["op"] for e in inner} == {"mul"} and {e["op"] for e in outer} == {"add", "mul"}
    assert len({e["thread"] for e in outer}) == 2


def test_who_reads_late_loses_the_oldest():
    x = rabbet.ones(2)
    with library.events(memory=False) as seen:
        for _ in range(20_000):
            x + x
    lost = seen[0]
    assert lost == {"kind": "lost", "count": 40_000 - (1 << 15)} and len(seen) == 1 + (1 << 15)


def test_long_arguments_are_cut():
    x = rabbet.ones(1, 2, 3, 1, 2, 3)
    with library.events(memory=False) as seen:
        rabbet.cat([x] * 9)
    assert (
        seen[0]["arguments"].startswith("float32(1, 2, 3, 1, 2, 3), ")
        and len(seen[0]["arguments"]) == 79
    )


def test_events_of_nothing_are_refused():
    with (
        pytest.raises(ValueError, match="expected calls or memory"),
        library.events(calls=False, memory=False),
    ):
        pass
    for kinds in (0, 16, 99):
        with pytest.raises(ValueError, match="expected a mask of RB_EVENT_"):
            rabbet._C.EventReader(kinds)
    reader = rabbet._C.EventReader(1)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read()


# ---- the table: what is wrong is an error in words; what op_info says

TABLE = r"""
#include "rabbet/trace.h"
#include <stdio.h>
#include <string.h>
static const RbHost* host;
static void keep(const RbHost* h) { host = h; }
static int32_t layer_id;
static const RbTrace* table(void) { return host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION); }
static int64_t sizes[] = {2, 3}, negative[] = {2, -3}, far[] = {1ll << 62, 1ll << 62};
static int32_t ok(const char* message) { return host->err_set(RB_E_STATE, message); }
static int32_t events_in_short_elements(void)
{ RbEvents* r; uint32_t n; uint64_t lost; struct { uint32_t kind, thread; uint64_t time; const RbOp* op; } e[4]; RbValue a[3], out;
  memset(a, 0, sizeof a); memset(&out, 0, sizeof out);
  int64_t shape = 1; RbTensor* t; host->tensor_new(1, 0, RB_F32, 1, &shape, 0, &t);
  if (table()->events_open(RB_EVENT_OP_BEGIN | RB_EVENT_OP_END, &r)) return 1;
  a[0].tag = RB_TENSOR; a[0].v.t = t;
  const RbOp* op = host->find_op("exp");
  if (host->call(op, a, 1, &out, 1, 0) || table()->events_read(r, e, sizeof e[0], 4, &n, &lost)) return 1;
  host->value_release(&out); host->release(t);
  if (n != 2 || lost || e[0].kind != RB_EVENT_OP_BEGIN || e[1].op != op || e[1].time < e[0].time) return 0;
  return table()->events_close(r) ? 1 : ok("two events"); }
static int32_t events_in_long_elements(void)
{ RbEvents* r; uint32_t n; int i; struct { RbEvent e; int64_t later[2]; } e[2]; int64_t shape = 100000; RbTensor* t;
  memset(e, 7, sizeof e);
  if (table()->events_open(RB_EVENT_ALLOC | RB_EVENT_FREE, &r) || host->tensor_new(1, 0, RB_F32, 1, &shape, 0, &t)) return 1;
  host->release(t);
  for (i = 0; i < 2; ++i) if (table()->events_read(r, &e[i], sizeof e[0], 1, &n, 0) || n != 1) return 0;
  if (table()->events_close(r)) return 1;
  return e[0].e.kind == RB_EVENT_ALLOC && e[1].e.kind == RB_EVENT_FREE && e[0].e.data == e[1].e.data &&
         !e[0].later[0] && !e[1].later[1] ? ok("zeros behind") : 0; }
static int32_t info_of(const char* name, const char* schema, uint64_t mutated, uint64_t aliased)
{ const RbOpInfo* i = host->op_info(host->find_op(name));
  return RB_HAS(i, schema) && !strcmp(i->schema, schema) && i->mutated_args == mutated && i->aliased_args == aliased ? ok("as it should") : 0; }
static char seen[512];
static const char* state_of(void) { return "one"; }
static void note(void* self, const RbObserved* e)
{ char* to = seen + strlen(seen); size_t room = sizeof seen - strlen(seen); if (self != (void*)seen) return;
  if (e->op) snprintf(to, room, "%%s %%u %%d %%d;", host->op_info(e->op)->name, e->kind, e->nvalues, e->status);
  else if (e->data) snprintf(to, room, "memory %%u %%d;", e->kind, e->nbytes >= 400000);
  else snprintf(to, room, "%%s %%u %%u %%d;", e->text ? e->text : "-", e->kind, e->flags, (int)e->id); }
static RbObserved range(uint32_t kind, const char* text, uint64_t id)
{ RbObserved e; memset(&e, 0, sizeof e); e.struct_size = sizeof e; e.kind = kind; e.text = text; e.id = id; return e; }
static int32_t observed_events(RbTensor* t)
{ int64_t shape = 100000; RbTensor* made; RbValue a[3], out; const RbTrace* trace = table();
  RbObserved begin = range(RB_EVENT_RANGE_BEGIN, state_of(), 7), end = range(RB_EVENT_RANGE_END, 0, 7);
  int64_t before, during, devices;
  trace->thread_bytes(&before, &devices);
  memset(a, 0, sizeof a); memset(&out, 0, sizeof out); seen[0] = 0;
  if (trace->observe(127, note, seen) || !(*trace->observed & RB_EVENT_NODE)) return 1;
  trace->emit(&begin);
  a[0].tag = a[1].tag = RB_TENSOR; a[0].v.t = a[1].v.t = t; a[2].tag = RB_INT; a[2].v.i = 1;
  if (host->call(host->find_op("add"), a, 3, &out, 1, 0)) return 1;
  trace->thread_bytes(&during, &devices);
  if (during != before + 24 || devices) return 0;
  host->value_release(&out);
  a[2].tag = RB_STR; a[2].v.s = "x"; a[2].len = 1;
  if (!host->call(host->find_op("add"), a, 3, &out, 1, 0)) return 1;
  if (host->tensor_new(1, 0, RB_F32, 1, &shape, 0, &made)) return 1;
  host->release(made);
  trace->emit(&end);
  if (trace->observe(0, note, seen)) return 1;
  trace->emit(&begin);
  trace->thread_bytes(&during, &devices);
  return during == before ? ok(seen) : 0; }
static int32_t too_many_observers(void)
{ static char selves[8]; int i; for (i = 0; i < 8; ++i) if (table()->observe(1, note, selves + i)) break;
  { int32_t rc = i < 8; int k; for (k = 0; k < i; ++k) table()->observe(0, note, selves + k); return rc; } }
RB_EXPORT int32_t mistake(int32_t which, RbTensor* t)
{ RbValue a[3], r; int32_t backend, device; RbTensor* made; RbEvents* reader = 0; uint32_t n; char space[400]; (void)space; (void)n; (void)reader; (void)made;
  memset(a, 0, sizeof a); memset(&r, 0, sizeof r); a[0].tag = a[1].tag = RB_TENSOR; a[0].v.t = a[1].v.t = t; a[2].tag = RB_INT; a[2].v.i = 1;
  const RbOp* add = host->find_op("add"); (void)add;
  switch (which) { %s } return 0; }
"""
MISTAKES = {
    "infer no operator": ("table()->infer(0, a, 2, &r, 1, &backend, &device)", "operator is null"),
    "infer to no device": ("table()->infer(add, a, 2, &r, 1, 0, &device)", "infer: where the backend goes is null"),
    "infer to no index": ("table()->infer(add, a, 2, &r, 1, &backend, 0)", "infer: where the device goes is null"),
    "infer without arguments": ("table()->infer(add, 0, 2, &r, 1, &backend, &device)", "add"),
    "infer with too few arguments": ("table()->infer(add, a, 1, &r, 1, &backend, &device)", "add: .*other"),
    "infer to no results": ("table()->infer(add, a, 2, 0, 1, &backend, &device)", "add: it has 1 results"),
    "infer with too many arguments": ("table()->infer(add, a, 9, &r, 1, &backend, &device)", "add"),
    "infer with fewer than no arguments": ("table()->infer(add, a, -1, &r, 1, &backend, &device)", "add"),
    "infer to too few results": ("table()->infer(add, a, 2, &r, 0, &backend, &device)", "add: it has 1 results"),
    "infer of what is no tensor": ("(a[0].tag = 77, table()->infer(add, a, 2, &r, 1, &backend, &device))", "add: .*input"),
    "infer from a null tensor": ("(a[1].v.t = 0, table()->infer(add, a, 2, &r, 1, &backend, &device))", "cannot be a tensor .null"),
    "stub of no layer": ("table()->stub(99, 1, 0, RB_F32, 2, sizes, 0, &made)", "stub: 99 is not the id of a registered layer"),
    "stub of a backend": ("table()->stub(1, 1, 0, RB_F32, 2, sizes, 0, &made)", "stub: 1 is not the id of a registered layer"),
    "stub to nowhere": ("table()->stub(layer_id, 1, 0, RB_F32, 2, sizes, 0, 0)", "stub: where the tensor goes is null"),
    "stub on no backend": ("table()->stub(layer_id, 15, 0, RB_F32, 2, sizes, 0, &made)", "stub: 15 is not the id of a backend"),
    "stub of no dtype": ("table()->stub(layer_id, 1, 0, 99, 2, sizes, 0, &made)", "stub: 99 is not the id of a dtype"),
    "stub on no device": ("table()->stub(layer_id, 1, 9, RB_F32, 2, sizes, 0, &made)", "there is no device cpu:9"),
    "stub of fewer than no dimensions": ("table()->stub(layer_id, 1, 0, RB_F32, -2, sizes, 0, &made)", "stub: a tensor has at most .* got -2"),
    "stub of too many dimensions": ("table()->stub(layer_id, 1, 0, RB_F32, 4096, sizes, 0, &made)", "stub: a tensor has at most .* got 4096"),
    "stub for core's own": ("table()->stub(16, 1, 0, RB_F32, 2, sizes, 0, &made)", "stub: 'composites' is no layer that tensors carry"),
    "stub without a shape": ("table()->stub(layer_id, 1, 0, RB_F32, 2, 0, 0, &made)", "stub: the shape is null"),
    "stub of a negative size": ("table()->stub(layer_id, 1, 0, RB_F32, 2, negative, 0, &made)", "must not be negative"),
    "stub of far strides": ("table()->stub(layer_id, 1, 0, RB_F32, 2, sizes, far, &made)", "stub: the strides reach too far"),
    "a hook of no layer": ("table()->data_hook(98, 0, 0)", "data_hook: 98 is not the id of a registered layer"),
    "a hook of core's own layer": ("table()->data_hook(16, 0, 0)", "data_hook: 'composites' is core's own"),
    "a hook of a backend": ("table()->data_hook(1, 0, 0)", "data_hook: 1 is not the id of a registered layer"),
    "a hook of core's levels": ("table()->data_hook(39, 0, 0)", "data_hook: .* is core's own"),
    "a hook that is taken back": ('table()->data_hook(layer_id, 0, 0) ? 0 : ok("taken back")', "taken back"),
    "events of no kind": ("table()->events_open(0, &reader)", "events_open: expected a mask of RB_EVENT_.*, got 0"),
    "events of a kind that is none": ("table()->events_open(1024, &reader)", "got 1024"),
    "events to nowhere": ("table()->events_open(1, 0)", "events_open: where the reader goes is null"),
    "a read of no reader": ("table()->events_read(0, space, 200, 1, &n, 0)", "events_read: the reader is not open"),
    "a read of a closed reader": ("(table()->events_open(1, &reader), table()->events_close(reader), table()->events_read(reader, space, 200, 1, &n, 0))",
                                  "events_read: the reader is not open"),
    "closed twice": ("(table()->events_open(1, &reader), table()->events_close(reader), table()->events_close(reader))",
                     "events_close: the reader is not open"),
    "a read to nowhere": ("(table()->events_open(1, &reader), table()->events_read(reader, 0, 200, 1, &n, 0))", "where the events go is null"),
    "a read without a count": ("(table()->events_open(1, &reader), table()->events_read(reader, space, 200, 1, 0, 0))", "where the number of events goes is null"),
    "a read into crumbs": ("(table()->events_open(1, &reader), table()->events_read(reader, space, 8, 1, &n, 0))", "elements of 8 bytes cannot hold an event"),
    "a close of no reader": ("table()->events_close(0)", "events_close: the reader is not open"),
    "a read of nothing": ('(table()->events_open(1, &reader), table()->events_read(reader, 0, 200, 0, &n, 0)) || n ? 0 : ok("no event")', "no event"),
    "a longer struct of events": ("events_in_long_elements()", "zeros behind"),
    "a shorter struct of events": ("events_in_short_elements()", "two events"),
    "an observer of all": ("observed_events(t)", "one 16 0 7;add 1 3 0;add 2 1 0;memory 4 1;memory 8 1;- 32 0 7;$"),
    "an observer of a kind that is none": ("table()->observe(256, note, seen)", "observe: expected a mask of RB_EVENT_.*, got 256"),
    "an observer without a function": ("table()->observe(1, 0, seen)", "observe: the function is null"),
    "a ninth observer": ("too_many_observers()", "observe: this process has had 8 observers"),
    "an emitted call": ("({ RbObserved e = range(RB_EVENT_OP_BEGIN, 0, 0); table()->emit(&e); })", "emit: expected an event of a range, a node or a launch, got kind 1"),
    "an emitted range without a name": ("({ RbObserved e = range(RB_EVENT_RANGE_BEGIN, 0, 0); table()->emit(&e); })", "emit: the name of a range is null"),
    "an emitted crumb": ("({ RbObserved e = range(RB_EVENT_RANGE_END, 0, 0); e.struct_size = 8; table()->emit(&e); })", "emit: 8 bytes cannot hold an event"),
    "a source of nothing": ("(table()->source_set(\"a:1\"), table()->source_set(0), ok(table()->source_get() ? \"somewhere\" : \"nowhere\"))", "where"),
    "what op_info says of add": ('info_of("add", "add(Tensor input, Tensor other, *, Scalar alpha=1) -> Tensor", 0, 0)', "as it should"),
    "what op_info says of a view": ('info_of("t", "t(Tensor input) -> Tensor view(input)", 0, 1)', "as it should"),
}  # fmt: skip


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    cases = "".join(f"case {i}: return {body};\n" for i, (body, _) in enumerate(MISTAKES.values()))
    init = (
        "keep(host); RbLayer l; memset(&l, 0, sizeof l); l.struct_size = sizeof l; "
        'l.name = "odd"; l.phase = 700; return host->add_layer(txn, &l, &layer_id);'
    )
    built = build(folder, "odd", extra=TABLE % cases, init=init, minor="6")
    code = f"""
import ctypes, rabbet
x = rabbet.zeros(2, 3)
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
table = (ctypes.c_void_p * 8).from_address(get(rabbet._C.python_v0, b"rabbet._C.python_v0"))
address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(table[4])
fail = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int32)(table[5])
rabbet._C.load_plugin({str(built)!r})
mistake = ctypes.CDLL({str(built)!r}).mistake
mistake.argtypes = [ctypes.c_int32, ctypes.c_void_p]
for i in range({len(MISTAKES)}):
    try:
        code = mistake(i, address(x))
        print("nothing") if code == 0 else fail(code)
    except Exception as error:
        print(str(error).splitlines()[0] if str(error) else "")
"""
    return run(folder, code).split("\n")


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_are_refused(what, mistakes):
    answer = mistakes[list(MISTAKES).index(what)]
    assert answer != "nothing" and re.search(MISTAKES[what][1], answer), answer


# ---- view(dtype) and _make_subclass are ordinary calls


def test_view_as_another_dtype_shares_memory():
    x = rabbet.zeros(2, 4)
    for dtype, shape in (
        (rabbet.int32, (2, 4)),
        (rabbet.float64, (2, 2)),
        (rabbet.uint8, (2, 16)),
        (rabbet.complex64, (2, 2)),
    ):
        seen = x.view(dtype)
        assert seen.dtype is dtype and seen.shape == shape and seen._storage_id() == x._storage_id()
    before = x._version
    x.view(dtype=rabbet.int32).fill_(0x3F800000)
    assert x.equal(rabbet.ones(2, 4)) and x._version == before + 1
    assert (
        x[:, ::1].view(rabbet.int16).stride() == (8, 1)
        and not x.requires_grad_().view(rabbet.int32).requires_grad
    )
    assert x.view(8).shape == (8,) and x.view(2, -1).shape == (2, 4)


@pytest.mark.parametrize(
    "call,message",
    [
        (
            lambda: rabbet.tensor(1.0).view(rabbet.int8),
            "at least 1 dimension to view float32 as int8",
        ),
        (
            lambda: rabbet.zeros(2, 3).view(rabbet.float64),
            "last dimension must be divisible by 2 .*, got 3",
        ),
        (
            lambda: rabbet.zeros(4, 4).t().view(rabbet.float16),
            "stride of the last dimension must be 1 .*, got 4",
        ),
        (
            lambda: rabbet.zeros(2, 5)[:, :4].view(rabbet.float64),
            "stride of dimension 0 must be divisible by 2 .*, got 5",
        ),
        (
            lambda: rabbet.zeros(9)[1:].view(rabbet.float64),
            "storage offset must be divisible by 2 .*, got 1",
        ),
        (
            lambda: rabbet.vmap(lambda x: x.view(rabbet.int8))(rabbet.zeros(3)),
            "at least 1 dimension",
        ),
    ],
)
def test_view_as_another_dtype_refuses(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()


def test_transforms_see_view_as_another_dtype():
    x = rabbet.randn(3, 4)
    assert rabbet.vmap(lambda v: v.view(rabbet.int32))(x).equal(x.view(rabbet.int32))
    assert rabbet.vmap(lambda v: v.view(rabbet.uint8), in_dims=0)(x).equal(x.view(rabbet.uint8))
    value, tangent = func.jvp(lambda v: v.view(rabbet.int32), (x,), (x,))
    assert value.equal(x.view(rabbet.int32)) and not tangent.any()

    def written(v):
        y = v.clone()
        y.view(rabbet.int32).bitwise_and_(0x7FFFFFFF)
        return y

    assert func.functionalize(written)(x).equal(x.abs())
    assert func.functionalize(lambda v: v.view(rabbet.int32) + 0)(x).equal(x.view(rabbet.int32))
    changed = x.clone()
    func.functionalize(lambda v: v[1].view(rabbet.int32).fill_(0))(changed)
    assert not changed[1].any() and changed[0].equal(x[0])


def test_transforms_see_subclasses():
    class Mine(rabbet.Tensor):
        pass

    x = rabbet.randn(3, 4)

    def f(v):
        made = rabbet.Tensor._make_subclass(Mine, v)
        assert type(made) is Mine and made.shape == v.shape
        return made * 2

    assert rabbet.vmap(f)(x).equal(2 * x) and func.functionalize(f)(x).equal(2 * x)
    value, tangent = func.jvp(f, (x,), (x,))
    assert value.equal(2 * x) and not tangent.any()  # detached, as PyTorch's
    one = rabbet.Tensor._make_subclass(Mine, x, True)
    assert one.requires_grad and one._storage_id() == x._storage_id() and one.is_leaf
    assert func.grad(lambda v: (f(v) * v).sum())(x).equal(2 * x)
