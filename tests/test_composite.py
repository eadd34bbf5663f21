"""Composite tensors: what core does with tensors that are made of parts, for every layer that has them."""

import re

import pytest
import rabbet
from plugin_wheels import build, process_with, run


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """Runs code after composite_prelude.py in a process of its own; returns what it prints."""
    execute = process_with(
        tmp_path_factory.mktemp("composite"), "composite_plugin.cpp", "composite_prelude"
    )
    return lambda code: execute("import rabbet.composite as composite\n" + code)


A = "a, b = rabbet.arange(6.).reshape(2, 3), rabbet.ones(2, 3)\n"
PLAIN = A + "t = compose(a, b)\n"
READABLE = A + "t = compose(a, b, ALL)\n"


def test_it_shows_shape_dtype_device_and_parts(process):
    process(PLAIN + """
assert composite.is_composite(t) and not composite.is_composite(a)
assert t.shape == (2, 3) and t.dtype is rabbet.float32 and t.is_cpu and t.is_contiguous() and t.stride() == (3, 1)
first, second = composite.parts(t)
assert first is a and second is b and composite.blob(t) == b"sum\\0" and composite.layer(t) == "parts"
assert error(lambda: composite.parts(a)) == "ValueError: parts: expected a composite tensor, got a plain one of shape (2, 3)"
assert error(lambda: composite.blob(3)) == "TypeError: blob: expected a Tensor, got int"
""")  # fmt: skip


def test_its_layers_kernel_runs(process):
    process(
        PLAIN
        + """
u = t + 2
assert composite.parts(u)[0].equal(a + 2) and composite.parts(u)[1] is b
"""
    )


def test_an_operator_without_a_kernel_names_operator_and_layer(process):
    text = process(
        PLAIN + "print(error(lambda: rabbet.exp(t)))\nprint(error(lambda: rabbet.matmul(a.T, t)))"
    )
    exp, matmul = text.splitlines()
    assert exp.startswith(
        "NotImplementedForError: exp: the layer 'parts' [parts 1.0] of a composite tensor has no kernel for this operator; "
        'add one (RbHost.add_kernel with op "exp" and backend "parts"), give the layer a fallback'
    )
    assert matmul.startswith("NotImplementedForError: matmul: the layer 'parts'")


def test_an_operator_that_is_made_of_others_runs_as_those(process):
    text = process(
        PLAIN
        + "print(error(lambda: rabbet.softplus(t)))\nprint(error(lambda: rabbet.nn.functional.silu(t)))"
    )
    said, where = text.splitlines()[::2], text.splitlines()[1::2]
    assert all("the layer 'parts'" in line for line in said)
    assert where == ["while running softplus", "while running silu"]


def test_the_fallback_gets_what_core_does_not_do(process):
    process(
        READABLE
        + """
assert rabbet.exp(t).equal(rabbet.exp(a + b)) and lib.count_of(1) == 1
assert composite.parts(t.clone())[0].equal(a) and lib.count_of(1) == 1  # part by part
assert rabbet.cat([a, a]).shape == (4, 3)
"""
    )


def test_copies_are_made_part_by_part(process):
    process(
        PLAIN
        + """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    made = rabbet.tensor(t)
assert "recommended to use sourceTensor.detach().clone()" in str(caught[0].message)
for copy in (t.clone(), made):
    first, second = composite.parts(copy)
    assert first.equal(a) and second.equal(b) and first.data_ptr() != a.data_ptr()
    assert composite.blob(copy) == composite.blob(t) and copy._storage_id() != t._storage_id()
assert t.contiguous() is t and t.to("cpu") is t
moved = t.to("meta")
assert moved.is_meta and composite.parts(moved)[1].is_meta and composite.layer(moved) == "parts"
"""
    )


def test_a_memory_format_is_the_layers(process):
    process("""
a = rabbet.arange(24.).reshape(1, 2, 3, 4)
t, last = compose(a, a), rabbet.channels_last
assert composite.parts(t.clone())[0].equal(a) and t.contiguous() is t
assert "contiguous_clone: the layer 'parts'" in error(lambda: t.contiguous(memory_format=last))
given = compose(a, a, ALL).contiguous(memory_format=last)
assert given.equal(a + a) and given.is_contiguous(memory_format=last)
""")


@pytest.mark.parametrize("shape", ["(2, 3)", "(100, 100)"])
def test_calls_of_equal_tensors_come_to_the_layer(process, shape):
    process(f"""
x, out = rabbet.ones{shape}, rabbet.empty{shape}
t, u = compose(x, x), compose(x, x, ALL)
for call in (lambda: t * t, lambda: x * t, lambda: t * x, lambda: rabbet.mul(x, t, out=out), lambda: x.mul_(t)):
    assert "mul: the layer 'parts'" in error(call), error(call)
assert "composite" in error(lambda: rabbet.mul(x, x, out=t)), error(lambda: rabbet.mul(x, x, out=t))
assert x.equal(rabbet.ones{shape})
assert (u * u).equal(4 * x) and (x * u).equal(2 * x) and (-u).equal(-2 * x) and lib.count_of(1) == 3
""")


def test_records_of_anybody_say_what_happens_to_parts(process):
    process(
        READABLE
        + """
from rabbet import library
@library.op("mine::twice(Tensor x, int turns=1) -> Tensor", kind="opaque", shape="x.shape", fields={"parts": "copy"})
def twice(x, turns):
    return x.detach() * 2 ** turns
u = twice(t)
assert composite.parts(u)[0].equal(a * 2) and composite.parts(u)[1].equal(b * 2) and lib.count_of(1) == 0
assert composite.blob(u) == composite.blob(t) and "part by part" in library.explain("mine::twice", t)
assert twice(t, turns=3).equal((a + b) * 8) and lib.count_of(1) == 1  # an option is the layer's
"""
    )


@pytest.mark.parametrize(
    "record,message",
    [
        ("odd(Tensor x) -> Tensor\n  parts none", "parts: expected copy, share or write, got 'none'"),
        ("odd(Tensor x) -> Tensor\n  parts", "parts: expected copy, share or write, got ''"),
        ("odd(int n) -> Tensor\n  parts copy", "parts: argument 0 must be a Tensor"),
        ("odd(Tensor x, float y) -> Tensor\n  parts write", "parts: argument 1 must be a Tensor"),
        ("odd(Tensor x) -> (Tensor a, Tensor b)\n  parts copy", "parts: the operator must have one result"),
        ("odd(Tensor x) -> Tensor[]\n  parts copy", "parts: the operator must have one result"),
        ("odd(Tensor x) -> Tensor\n  parts share", r"parts: 'share' is for operators whose result is view\("),
        ("odd(Tensor x) -> Tensor view(x)\n  parts copy", r"parts: 'share' is for operators whose result is view\("),
    ],
)  # fmt: skip
def test_wrong_rules_for_parts_are_refused(record, message):
    with pytest.raises(rabbet.PluginError, match=message):
        rabbet.library.register_records(f"{record}\n")


def test_detach_shares_parts_and_version(process):
    process(
        PLAIN
        + """
d = t.detach()
assert d is not t and d._storage_id() == t._storage_id() and composite.parts(d)[0].data_ptr() == a.data_ptr()
before = t._version
d.copy_(compose(b, b))
assert t._version > before and t._version == d._version and a.equal(b) and composite.parts(t)[0].equal(b)
"""
    )


def test_copy_wants_a_composite_of_the_same_kind(process):
    process(
        PLAIN
        + READABLE.replace("t =", "other =").replace(A, "")
        + """
for source in (other, a):
    assert "copy: the layer 'parts'" in error(lambda: t.copy_(source))
wide = compose(rabbet.zeros(2, 3), rabbet.zeros(2, 3, dtype=rabbet.float64))
assert "copy: the layer" in error(lambda: t.copy_(wide)) and a.equal(rabbet.arange(6.).reshape(2, 3))
"""
    )


def test_creation_reads_shape_dtype_and_device_alone(process):
    process(
        PLAIN
        + """
for made in (rabbet.empty_like(t), rabbet.zeros_like(t), rabbet.ones_like(t), t.new_zeros(2, 3)):
    assert not composite.is_composite(made) and made.shape == (2, 3) and made.is_cpu and made.dtype is t.dtype
assert rabbet.zeros_like(t, dtype=rabbet.int8).dtype is rabbet.int8
"""
    )


@pytest.mark.parametrize(
    "call",
    [
        "t[0, 0].item()", "t.item()", "t.tolist()", "t.numpy()", "memoryview(t)", "rabbet.from_dlpack(t)", "t.data_ptr()",
        "bool(compose(a[0, 0], b[0, 0]))", "float(compose(a[0, 0], b[0, 0]))", "rabbet.add(a, b, out=t)",
        "rabbet.ops.fill_(t, 1.0)", "t.add_(1)", "[0][compose(rabbet.tensor(0), rabbet.tensor(0))]", "composite.values(t)",
    ],
)  # fmt: skip
def test_nobody_reads_or_writes_what_is_not_there(process, call):
    text = process(PLAIN + f"print(error(lambda: {call}))")
    assert re.search(
        r"composite|layer 'parts'|parts are not added in place|only one-element|elements has no one value|only integer|indices must be",
        text,
    ), text


def test_the_data_hook_makes_it_readable(process):
    process(
        READABLE
        + """
total = a + b
assert t.tolist() == total.tolist() and lib.count_of(0) == 1
assert t[1, 2].item() == 6 and composite.values(t).equal(total)
assert composite.values(a) is a
one = compose(a[0, 0], b[0, 0], ALL)
assert one.item() == 1 and bool(one) and float(one) == 1
assert memoryview(t).readonly and memoryview(t).tolist() == total.tolist()
array = t.numpy()
assert not array.flags.writeable and array.tolist() == total.tolist()
assert rabbet.from_dlpack(t).equal(total)
assert "makes its values anew each time" in error(t.data_ptr)
lib.set_give_itself(1)
assert "the data hook of the layer 'parts_all' [parts 1.0] gave the tensor itself" in error(t.tolist)
"""
    )


def test_a_view_shares_the_version_of_its_base(process):
    process(
        PLAIN
        + """
row = compose(a[0], b[0], base=t)
assert row.shape == (3,) and row._storage_id() == t._storage_id() and row._version == t._version
before = t._version
row.copy_(compose(b[0], b[0]))
assert t._version > before and a[0].equal(b[0])
del t
assert composite.parts(row)[1].equal(b[0])
"""
    )


def test_the_data_hook_serves_transforms(process):
    process(
        A
        + """
with level() as wrapped:
    w = wrapped(a)
    assert (w + 1).equal(a + 1) and w.tolist() == (10 * a).tolist() and wrapped(a[0, 1]).item() == 10
    assert lib.level_told(address(w), address(a)) and not composite.is_composite(w)
    both = wrapped(compose(a, b, ALL))  # a wrapper of a composite
    assert both.tolist() == (10 * (a + b)).tolist() and (both * 2).equal(2 * (a + b))
assert "must not leave the function" in error(w.tolist)
"""
    )


def test_printing(process):
    text = process(READABLE + "print(t)\nprint(compose(a, b))\nprint(stub(a))")
    values, parts, no_values = text.split("composite(")
    assert values == "tensor([[1., 2., 3.],\n        [4., 5., 6.]])\n"
    assert (
        parts
        == "layer='parts', shape=(2, 3), dtype=rabbet.float32, parts=[float32(2, 3), float32(2, 3)])\n"
    )
    assert no_values == "layer='parts_stub', shape=(2, 3), dtype=rabbet.float32, parts=[])\n"


def test_gradients_flow_through_what_the_layer_does(process):
    process(
        READABLE
        + """
import rabbet.autograd
w, x = rabbet.nn.Parameter(t), rabbet.randn(4, 3, requires_grad=True)
assert composite.is_composite(w) and w.requires_grad and w.is_leaf
rabbet.nn.functional.linear(x, w).sum().backward()
assert w.grad.allclose(x.detach().sum(0).expand(2, 3)) and x.grad.allclose((a + b).sum(0).expand(4, 3))
assert rabbet.autograd.grad((w * w).sum(), w)[0].equal(2 * (a + b))
y = w * 1
loss = (y * w).sum()
with rabbet.no_grad():
    w.copy_(compose(b, b, ALL))
assert "modified" in error(loss.backward) or "version" in error(loss.backward)
"""
    )


def test_transforms_take_it_as_it_is(process):
    process(
        READABLE
        + """
import rabbet.func as func
x = rabbet.randn(4, 5, 3)
assert rabbet.vmap(lambda v: rabbet.nn.functional.linear(v, t))(x).allclose(x @ (a + b).T)
value, tangent = func.jvp(lambda v: rabbet.nn.functional.linear(v, t), (x[0],), (x[1],))
assert tangent.allclose(x[1] @ (a + b).T)
"""
    )


def test_assigning_data_takes_over_the_parts(process):
    process(
        READABLE
        + """
p, plain = rabbet.nn.Parameter(rabbet.zeros(3)), rabbet.nn.Parameter(t)
p.data = t
assert composite.is_composite(p) and composite.parts(p)[0] is a and rabbet.exp(p).equal(rabbet.exp(a + b))
p.data = b
assert not composite.is_composite(p) and p.equal(b) and (p * 2).tolist()
before = rabbet._C.live_counts()["tensors"]
for _ in range(10):
    q = compose(a, b, ALL); q.data = a; q.data = t; q.data = q; del q
assert rabbet._C.live_counts()["tensors"] == before
"""
    )


def test_modules_move_copy_and_load(process):
    process(
        READABLE
        + """
import copy
layer = rabbet.nn.Linear(3, 2)
layer.weight = rabbet.nn.Parameter(t, requires_grad=False)
x, twin = rabbet.randn(4, 3), copy.deepcopy(layer)
assert composite.parts(twin.weight)[0].data_ptr() != a.data_ptr() and twin(x).equal(layer(x))
with rabbet.no_grad():
    composite.parts(twin.weight)[0].zero_()
twin.load_state_dict(layer.state_dict())
assert twin(x).equal(layer(x)) and composite.parts(twin.weight)[0].equal(a)
layer.to("meta")
assert layer.weight.is_meta and composite.is_composite(layer.weight)
"""
    )


def test_files_and_pickles(process):
    process(
        PLAIN
        + """
import io, pickle
nested = compose(compose(a, b, ALL), b)
again = pickle.loads(pickle.dumps({"t": t, "p": rabbet.nn.Parameter(t, requires_grad=False)}))
for found in again.values():
    assert composite.parts(found)[0].equal(a) and composite.blob(found) == composite.blob(t)
assert type(again["p"]) is rabbet.nn.Parameter
file = io.BytesIO()
rabbet.save({"t": t, "list": [nested, a]}, file)
file.seek(0)
loaded = rabbet.load(file)
assert composite.parts(loaded["t"])[1].equal(b) and loaded["t"].dtype is t.dtype
assert composite.layer(composite.parts(loaded["list"][0])[0]) == "parts_all"
file.seek(0)
assert rabbet.load(file, map_location="meta")["t"].is_meta
assert "is a stub of the layer 'parts_stub'" in error(lambda: rabbet.save({"s": stub(a)}, io.BytesIO()))
"""
    )


def test_a_file_whose_layer_is_missing_names_the_wheel(process, tmp_path):
    process(PLAIN + f"import pickle\nrabbet.save({{'w': t}}, {str(tmp_path / 'f')!r})\n"
            f"open({str(tmp_path / 'p')!r}, 'wb').write(pickle.dumps(t))")  # fmt: skip
    code = """
import pickle, rabbet
for read in (lambda: rabbet.load({0!r}), lambda: pickle.load(open({1!r}, "rb"))):
    try:
        read()
    except RuntimeError as error:
        print(type(error).__name__, error)
"""
    for line in run(tmp_path, code.format(str(tmp_path / "f"), str(tmp_path / "p"))).splitlines():
        if line.startswith(("SerializationError", "PluginError")):
            assert (
                "needs the layer 'parts', which the wheel 'parts' provides (parts 1.0 wrote it): pip install parts"
                in line
            )
            break
    else:
        raise AssertionError("nothing was raised")


DAMAGE = {
    "its blob": ("c3VtAA==", "c3VtAAA=", "parts: expected 2 parts and 4 bytes, got 2 and 5"),
    "its blob's text": ("c3VtAA==", "c3VtAA=!", "the skeleton|base64|padding|Only base64"),
    "its dtype": ("float32", "float31", "the skeleton of a composite tensor is damaged"),
    "its shape": ("[2,3]}", "[-23]}", "the skeleton of a composite tensor is damaged"),
    "its name": ("name", "nome", "the skeleton of a composite tensor is damaged"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_file_is_refused(process, what):
    before, after, message = DAMAGE[what]
    text = process(
        PLAIN
        + f"""
import io
file = io.BytesIO()
rabbet.save({{"t": t}}, file)
data = file.getvalue()
damaged = data.replace({before!r}.encode(), {after!r}.encode())
assert damaged != data and len(damaged) == len(data), data[:600]
print(error(lambda: rabbet.load(io.BytesIO(damaged), verify=False)))
"""
    )
    assert "SerializationError" in text and re.search(message, text), text


def test_explain_says_what_happens(process):
    text = process(
        READABLE
        + """
plain = compose(a, b)
for call in (("add", plain, 1), ("exp", plain), ("clone", t), ("exp", t)):
    print(rabbet.library.explain(*call).splitlines()[-2])
"""
    )
    kernel, nothing, parts, fallback = text.splitlines()
    assert kernel.endswith("'input' carries its key: a handler of its own [parts 1.0]")
    assert nothing.endswith("nothing: the call raises") and parts.endswith(
        "core does it part by part"
    )
    assert fallback.endswith("the layer's fallback")


def test_nothing_leaks(process):
    process(
        READABLE
        + """
import gc, io, pickle
def work():
    u = compose(a, b, ALL)
    v = u.clone().detach().to("meta")
    u.copy_(compose(b, a, ALL)); u.tolist(); rabbet.exp(u); repr(u); repr(v); pickle.loads(pickle.dumps(u))
    error(lambda: rabbet.add(a, b, out=u))
work(); gc.collect()
before = rabbet._C.live_counts()
for _ in range(20):
    work()
gc.collect()
assert rabbet._C.live_counts() == before, (rabbet._C.live_counts(), before)
"""
    )


# ---- the table itself: what is wrong is an error in words

# Layers whose callbacks are wrong, each in the way that its name says.
CALLBACKS = r"""
#include "rabbet/composite.h"
#include "rabbet/trace.h"
#include <string.h>
static const RbHost* host;
static int32_t ids[9];
static const RbComposites* composites(void) { return host->get_ext(RB_COMPOSITE_EXT, RB_COMPOSITE_VERSION); }
static const RbTrace* trace(void) { return host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION); }
static int32_t load_fails(void* s, const RbComposite* c, RbTensor** out)
{ (void)s; (void)c; (void)out; return host->err_set(RB_E_ARG, "loading failed on purpose"); }
static int32_t load_nothing(void* s, const RbComposite* c, RbTensor** out) { (void)s; (void)c; (void)out; return RB_OK; }
static int32_t load_whole(void* s, const RbComposite* c, RbTensor** out) { (void)s; return composites()->compose(c, out); }
static int32_t text_fails(void* s, const RbTensor* t, char* text, uint32_t size)
{ (void)s; (void)t; (void)text; (void)size; return host->err_set(RB_E_STATE, "no text on purpose"); }
static int32_t text_without_end(void* s, const RbTensor* t, char* text, uint32_t size)
{ (void)s; (void)t; memset(text, 'x', size); return RB_OK; }
static int32_t hook_fails(void* s, void* f, RbTensor* t, const char* what, RbTensor** out)
{ (void)s; (void)f; (void)t; (void)what; (void)out; return host->err_set(RB_E_STATE, "no values on purpose"); }
static int32_t hook_nothing(void* s, void* f, RbTensor* t, const char* what, RbTensor** out)
{ (void)s; (void)f; (void)t; (void)what; (void)out; return RB_OK; }
static int32_t give(RbTensor* t, int32_t dtype, int32_t ndim, RbTensor** out)
{ int64_t shape[] = {t->numel}; return host->tensor_new(t->backend, t->device.id, dtype, ndim, ndim == 1 ? shape : t->shape, 0, out); }
static int32_t hook_dtype(void* s, void* f, RbTensor* t, const char* what, RbTensor** out)
{ (void)s; (void)f; (void)what; return give(t, RB_I32, t->ndim, out); }
static int32_t hook_shape(void* s, void* f, RbTensor* t, const char* what, RbTensor** out)
{ (void)s; (void)f; (void)what; return give(t, t->dtype_id, 1, out); }
static int32_t add(RbTxn* txn, int32_t at, const char* name, int32_t (*load)(void*, const RbComposite*, RbTensor**),
                   int32_t (*text)(void*, const RbTensor*, char*, uint32_t), RbRealFn hook)
{ RbLayer l; memset(&l, 0, sizeof l); l.struct_size = sizeof l; l.name = name; l.phase = at < 4 ? 650 : 750;
  RbCompositeLayer d = {sizeof d, 0, 0, 0, load, text};
  int32_t rc = host->add_layer(txn, &l, &ids[at]);
  if (!rc) rc = composites()->describe(ids[at], &d);
  return rc || !hook ? rc : trace()->data_hook(ids[at], hook, 0); }
"""
CALLBACK_LAYERS = """
host = host_; return add(txn, 0, "load_fails", load_fails, 0, 0) || add(txn, 1, "load_nothing", load_nothing, 0, 0)
|| add(txn, 2, "text_fails", load_whole, text_fails, 0) || add(txn, 3, "text_without_end", 0, text_without_end, 0)
|| add(txn, 4, "hook_fails", 0, 0, hook_fails) || add(txn, 5, "hook_nothing", 0, 0, hook_nothing)
|| add(txn, 6, "hook_dtype", 0, 0, hook_dtype) || add(txn, 7, "hook_shape", 0, 0, hook_shape) ? RB_E_PLUGIN : RB_OK;
"""


def test_what_callbacks_get_wrong_is_told(tmp_path):
    init = CALLBACK_LAYERS.replace("host = host_;", "keep(host);")
    extra = CALLBACKS + "static void keep(const RbHost* h) { host = h; }\n"
    library = build(tmp_path, "odd", extra=extra, init=init, minor="6")
    text = run(
        tmp_path,
        f"""
import rabbet
from rabbet import composite
x = rabbet.zeros(2, 3)
rabbet._C.load_plugin({str(library)!r})
def said(name, use=lambda t: t):
    try:
        return str(use(composite.compose(name, (2, 3), rabbet.float32, (x,), b"b")))
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
for name in ("load_fails", "load_nothing"):
    print(said(name))
for name in ("text_fails", "text_without_end"):
    print(said(name, repr))
for name in ("hook_fails", "hook_nothing", "hook_dtype", "hook_shape"):
    print(said(name, lambda t: t.tolist()))
""",
    )
    load_fails, load_nothing, text_fails, endless, fails, nothing, dtype, shape = text.splitlines()
    assert "loading failed on purpose" in load_fails
    assert "load: the layer 'load_nothing' returned no tensor" in load_nothing
    assert "no text on purpose" in text_fails and endless == "x" * 1023
    assert "no values on purpose" in fails
    assert (
        "tolist(): the data hook of the layer 'hook_nothing' [odd 1.0] gave nothing where"
        in nothing
    )
    for line in (dtype, shape):
        assert (
            "gave another shape or dtype where the values of a tensor of 2 dimensions and 6 elements of float32"
            in line
        )


TABLE = r"""
#include "rabbet/composite.h"
#include "rabbet/trace.h"
#include <string.h>
static const RbHost* host;
static int32_t layer_id, transform_id, bare_id;
static int32_t up(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; return c->host->redispatch(c, layer_id, a, n, r, m); }
static const RbComposites* table(void) { return host->get_ext(RB_COMPOSITE_EXT, RB_COMPOSITE_VERSION); }
static int64_t sizes[] = {2, 3}, negative[] = {2, -3}, huge[] = {1ll << 62, 1ll << 62};
static RbComposite good(void)
{ RbComposite c; memset(&c, 0, sizeof c); c.struct_size = sizeof c; c.layer = layer_id; c.backend = 1; c.dtype = RB_F32;
  c.ndim = 2; c.shape = sizes; return c; }
static RbTensor* made;
static RbTensor* list[2];
static int32_t composed(RbComposite c) { return table()->compose(&c, &made); }
static int32_t newer(RbTensor* t)
{ struct { RbComposite c; int64_t later[4]; } big; int i; memset(&big, 7, sizeof big); big.c = good(); big.c.struct_size = sizeof big;
  list[0] = t; big.c.nparts = 1; big.c.parts = list; big.c.blob = 0; big.c.nbytes = 0; big.c.base = 0;
  if (table()->compose(&big.c, &made)) return 1;
  memset(&big, 7, sizeof big); big.c.struct_size = sizeof big;
  if (table()->get(made, &big.c) || big.c.struct_size != sizeof big || big.c.nparts != 1 || big.c.base) return 1;
  for (i = 0; i < 4; ++i) if (big.later[i]) return host->err_set(RB_E_INTERNAL, "rubbish behind");
  return host->err_set(RB_E_STATE, "zeros behind"); }
static int32_t add(RbTxn* txn, const char* name, uint32_t phase, int32_t* id)
{ RbLayer l; memset(&l, 0, sizeof l); l.struct_size = sizeof l; l.name = name; l.phase = phase; l.fallback = up;
  return host->add_layer(txn, &l, id); }
RB_EXPORT int32_t mistake(int32_t which, RbTensor* t)
{ RbComposite c = good(); RbCompositeLayer d = {sizeof d, 0, 0, 0, 0, 0}; list[0] = t; list[1] = 0;
  switch (which) { %s } return 0; }
"""
MISTAKES = {
    "describe nothing": ("table()->describe(layer_id, 0)", "describe: the description is null"),
    "describe briefly": ("(d.struct_size = 8, table()->describe(layer_id, &d))", "describe: the struct_size is 8, expected at least"),
    "describe no layer": ("table()->describe(99, &d)", "describe: 99 is not the id of a registered layer"),
    "describe a backend": ("table()->describe(1, &d)", "describe: 1 is not the id of a registered layer"),
    "describe a transform": ("table()->describe(transform_id, &d)", "describe: 'odd_t' is no layer that tensors carry"),
    "describe core's own": ("table()->describe(16, &d)", "describe: 'composites' is no layer that tensors carry"),
    "describe twice": ("table()->describe(layer_id, &d)", "describe: the layer 'odd' has described its composites"),
    "describe by a name that is taken": ('(d.name = "odd", table()->describe(bare_id, &d))',
                                         "the layer 'odd' of odd 1.0 has composites named 'odd' already"),
    "compose nothing": ("table()->compose(0, &made)", "compose: the description is null"),
    "compose to nowhere": ("table()->compose(&c, 0)", "compose: where the tensor goes is null"),
    "compose briefly": ("(c.struct_size = RB_SIZE(RbComposite, parts), composed(c))", r"compose: the struct_size is \d+, expected at least"),
    "compose for no layer": ("(c.layer = 77, composed(c))", "compose: 77 is not the id of a registered layer"),
    "compose for a transform": ("(c.layer = transform_id, composed(c))", "compose: 'odd_t' is no layer that tensors carry"),
    "compose before describing": ("(c.layer = bare_id, c.nparts = 1, c.parts = list, composed(c))",
                                  "compose: the layer 'odd_bare' has not described its composites"),
    "compose on no backend": ("(c.backend = 9, composed(c))", "compose: 9 is not the id of a backend"),
    "compose on no device": ("(c.device = 5, composed(c))", "there is no device cpu:5"),
    "compose of no dtype": ("(c.dtype = 88, composed(c))", "compose: 88 is not the id of a dtype"),
    "compose of fewer than no dimensions": ("(c.ndim = -1, composed(c))", "compose: a tensor has at most .* got -1"),
    "compose of more elements than there are": ("(c.shape = huge, composed(c))", "too large|too many|overflow"),
    "compose of far strides": ("(c.strides = huge, composed(c))", "compose: the strides reach too far"),
    "compose of a far too long blob": ("(c.blob = sizes, c.nbytes = 1ull << 40, composed(c))", "compose: at most .* a blob of"),
    "compose for a backend's key": ("(c.layer = 1, composed(c))", "compose: 1 is not the id of a registered layer"),
    "compose for core's own": ("(c.layer = 16, composed(c))", "compose: 'composites' is no layer that tensors carry"),
    "compose on another backend than any": ("(c.backend = -1, composed(c))", "compose: -1 is not the id of a backend"),
    "compose of too many dimensions": ("(c.ndim = 99, composed(c))", "compose: a tensor has at most"),
    "compose without a shape": ("(c.shape = 0, composed(c))", "compose: the shape is null"),
    "compose of a negative size": ("(c.shape = negative, composed(c))", "must not be negative, got -3"),
    "compose without parts": ("(c.nparts = 2, composed(c))", "compose: the list of parts is null"),
    "compose without a blob": ("(c.nbytes = 2, composed(c))", "compose: the blob is null"),
    "compose of far too many parts": ("(c.nparts = 1u << 31, c.parts = list, composed(c))", "compose: at most 65536 parts"),
    "compose of no layout": ("(c.layout = 7, composed(c))", "compose: 7 is not a layout"),
    "compose of a negative layout": ("(c.layout = -1, composed(c))", "compose: -1 is not a layout"),
    "compose by an older struct": ("(c.struct_size = RB_SIZE(RbComposite, base), c.layout = 99, composed(c)) || made->layout ? RB_E_INTERNAL "
                                   ": host->err_set(RB_E_STATE, \"as strided\")", "as strided"),
    "replace parts of nothing": ("table()->replace(0, &c)", "replace: the tensor is null"),
    "replace by nothing": ("table()->replace(t, 0)", "replace: the description is null"),
    "replace briefly": ("(c.struct_size = 8, table()->replace(t, &c))", "replace: the struct_size is 8, expected at least"),
    "replace parts of a plain tensor": ("table()->replace(t, &c)", "replace: the tensor is no composite of the layer 'odd'"),
    "replace for no layer": ("(c.layer = 77, table()->replace(t, &c))", "replace: 77 is not the id of a registered layer"),
    "replace for another layer": ("(c.nparts = 2, c.parts = list, composed(c)) || (c.layer = bare_id, table()->replace(made, &c))",
                                  "replace: the tensor is no composite of the layer 'odd_bare'"),
    "replace by a stub": ("(c.nparts = 2, c.parts = list, composed(c)) || (c.nparts = 0, table()->replace(made, &c))", "replace: a stub has no parts"),
    "replace parts of a stub": ("composed(c) || (c.nparts = 2, c.parts = list, table()->replace(made, &c))", "replace: a stub has no parts"),
    "replace without a list": ("(c.nparts = 2, c.parts = list, composed(c)) || (c.parts = 0, table()->replace(made, &c))", "replace: the list of parts is null"),
    "replace by another shape": ("(c.nparts = 2, c.parts = list, composed(c)) || (c.ndim = 1, table()->replace(made, &c))",
                                 r"replace: a composite of shape \(2, 3\) and dtype float32 on cpu keeps them, and its layout; got shape \(2,\)"),
    "replace by another dtype": ("(c.nparts = 2, c.parts = list, composed(c)) || (c.dtype = RB_F64, table()->replace(made, &c))", "got .* dtype float64"),
    "replace by another layout": ("(c.nparts = 2, c.parts = list, composed(c)) || (c.layout = 1, table()->replace(made, &c))", "and layout 1"),
    "replace by far too many parts": ("(c.nparts = 2, c.parts = list, composed(c)) || (c.nparts = 1u << 31, table()->replace(made, &c))",
                                      "replace: at most 65536 parts"),
    "get of nothing": ("table()->get(0, &c)", "get: the tensor is null"),
    "get to nowhere": ("table()->get(t, 0)", "get: where the description goes is null"),
    "get briefly": ("composed(c) || (c.struct_size = 4, table()->get(made, &c))", "get: the struct_size is 4, expected at least"),
    "get of a plain tensor": ("table()->get(t, &c)", "the tensor has memory of its own: it is no composite"),
    "describe with a name of nothing": ('(d.name = "", table()->describe(bare_id, &d)) ? 0 : host->err_set(RB_E_STATE, "the layer\'s name")', "the layer's name"),
    "a newer struct is cut": ("newer(t)", "zeros behind"),
    "an older struct is enough": ("(c.nparts = 2, c.parts = list, composed(c) || (memset(&c, 7, sizeof c), c.struct_size = RB_SIZE(RbComposite, nparts), "
                                  "table()->get(made, &c)) || c.nparts != 2 || c.layer != layer_id || c.shape != (void*)0x0707070707070707 ? RB_E_INTERNAL "
                                  ": host->err_set(RB_E_STATE, \"as it should\"))", "as it should"),
    "a layer that refuses no bits": ("(host->layer_mode(16, -1, 1), c.nparts = 2, c.parts = list, composed(c)) ? 1 : host->err_set(RB_E_STATE, \"still there\")",
                                     "still there"),
}  # fmt: skip


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    cases = "".join(f"case {i}: return {body};\n" for i, (body, _) in enumerate(MISTAKES.values()))
    init = (
        'host_(host); int32_t rc = add(txn, "odd", 650, &layer_id) || add(txn, "odd_t", 460, &transform_id) '
        '|| add(txn, "odd_bare", 650, &bare_id); '
        "RbCompositeLayer d = {sizeof d, 0, 0, 0, 0, 0}; return rc ? 1 : table()->describe(layer_id, &d);"
    )
    extra = TABLE % cases + "static void host_(const RbHost* h) { host = h; }\n"
    library = build(folder, "odd", extra=extra, init=init, minor="6")
    code = f"""
import ctypes, rabbet
x = rabbet.zeros(2, 3)
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
table = (ctypes.c_void_p * 8).from_address(get(rabbet._C.python_v0, b"rabbet._C.python_v0"))
address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(table[4])
fail = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int32)(table[5])
rabbet._C.load_plugin({str(library)!r})
mistake = ctypes.CDLL({str(library)!r}).mistake
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
