"""Registrations that are taken back, replaced or waiting; explain; opcheck."""

import os
import pickle
import re
import subprocess
import sys

import pytest
import rabbet
from library_ops import CELL, SCALE, clean, opaque_op, run_cell, scale_op  # noqa: F401
from rabbet import library

# ---- handles, definitions again, what waits


def test_handles_take_back_what_they_stand_for():
    scale = scale_op()
    x = rabbet.ones(1)
    with library.impl(scale, "cpu", lambda x, a: x + 100) as handle:
        assert scale(x).tolist() == [101] and handle.active
        assert repr(handle).startswith(
            "<kernel for 'cpu' of 'mine::scale' by"
        ) and __file__ in repr(handle)
    assert scale(x).tolist() == [2] and not handle.active and "revoked" in repr(handle)
    handle.revoke()  # the second time nothing happens
    newer = library.impl(scale, "cpu", lambda x, a: x + 7)
    handle.revoke()
    assert scale(x).tolist() == [8]

    own = scale.handle
    own.revoke()
    with pytest.raises(rabbet.StateError, match="was taken back"):
        scale(x)
    with pytest.raises(AttributeError, match="there is no operator"):  # others may be in 'mine'
        rabbet.ops.mine.scale  # noqa: B018
    with pytest.raises(AttributeError, match="there is no operator and no namespace 'nobodys'"):
        rabbet.ops.nobodys  # noqa: B018
    with pytest.raises(KeyError):
        pickle.loads(pickle.dumps(scale))
    waiting = [
        k for k in rabbet._C.registered_kernels() if k["op"] == "mine::scale" and k["pending"]
    ]
    assert [k["target"] for k in waiting] == ["cpu"]  # of somebody else: it waits for the name
    assert scale_op()(x).tolist() == [8]
    newer.revoke()
    assert rabbet.ops.mine.scale(x).tolist() == [2]


def test_a_graph_outlives_the_derivative():
    scale = scale_op()
    handle = library.vjp(scale, lambda ctx, grad: (grad * 5, None))
    x = rabbet.ones(1, requires_grad=True)
    y = scale(x)
    handle.revoke()
    with pytest.raises(NotImplementedError, match="mine::scale"):
        y.sum().backward()


def test_a_cell_that_runs_again_replaces_its_operator():
    scope = {"__name__": "__main__"}
    run_cell(CELL.format(more="", names="", value=1), scope)
    first = scope["cell"]
    x = rabbet.zeros(1)
    assert first(x).tolist() == [1]
    run_cell(CELL.format(more="", names="", value=2), scope, "<ipython-input-2>")
    assert scope["cell"](x).tolist() == [2] and first(x).tolist() == [2]
    run_cell(CELL.format(more=", int n=3", names=", n", value="n"), scope)
    assert scope["cell"](x, 5).tolist() == [5] and first(x).tolist() == [3]
    assert rabbet.ops.mine.cell(x).tolist() == [3]


def test_a_replaced_operator_is_replaced_in_formulas_too():
    scope = {"__name__": "__main__"}
    run_cell(CELL.format(more="", names="", value=1), scope)
    library.register_records(
        "mine::user(Tensor x) -> Tensor\n  kind composite\n  decomp mine::cell(x) * 10\n"
    )
    x = rabbet.zeros(1)
    try:
        assert rabbet.ops.mine.user(x).tolist() == [10]
        run_cell(CELL.format(more="", names="", value=2), scope)
        assert rabbet.ops.mine.user(x).tolist() == [20]
    finally:
        rabbet._C.remove_op("mine::user")


def test_a_module_that_is_imported_again_replaces_its_operators(tmp_path):
    text = 'from rabbet import library\n@library.op("mine::m(Tensor x) -> Tensor")\ndef m(x):\n    return x + {}\n'
    path = tmp_path / "mod.py"
    for value in (1, 2):
        path.write_text("\n" * value + text.format(value))
        exec(compile(path.read_text(), str(path), "exec"), {"__name__": "mod"})
        assert rabbet.ops.mine.m(rabbet.zeros(1)).tolist() == [value]


def test_a_second_definition_from_elsewhere_names_both_places(tmp_path):
    scale_op()
    source = f'from rabbet import library\n@library.op("{SCALE}")\ndef scale(x, a):\n    return x\n'
    other = tmp_path / "other.py"
    with pytest.raises(rabbet.PluginError) as caught:
        exec(compile(source, str(other), "exec"), {"__name__": "other"})
    assert f"other ({other}:2)" in str(caught.value)
    assert scale_op.__code__.co_filename in str(caught.value)
    assert rabbet.ops.mine.scale(rabbet.ones(1)).tolist() == [2]

    def first(x, a):
        return x + 1

    def second(x, a):
        return x + 2

    library.impl("mine::scale", "cpu", first)
    with pytest.raises(
        rabbet.PluginError,
        match=r"the kernel for 'cpu' of 'mine::scale' is registered already, by .*test_library",
    ):
        library.impl("mine::scale", "cpu", second)
    with pytest.raises(rabbet.PluginError, match="by rabbet-core"):
        library.register_records("add(Tensor x) -> Tensor\n")
    with pytest.raises(rabbet.PluginError, match="registered already, by rabbet-backend-cpu"):
        library.impl("add", "cpu", lambda input, other, *, alpha: input)


def test_what_waits_for_a_device_is_listed(tmp_path):
    (tmp_path / "waiting.py").write_text(
        'from rabbet import library\n@library.op("mine::w(Tensor x) -> Tensor")\ndef w(x):\n    return x + 1\n'
        'library.impl(w, "quantum", lambda x: x)\n'
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "rabbet", "doctor", "--import=waiting"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Waiting for a device" in done.stdout
    words = " ".join(done.stdout.split())  # long lines are wrapped
    assert f"'mine::w' for 'quantum' [waiting ({tmp_path / 'waiting.py'}:5)]" in words


def test_what_waits_becomes_active_with_its_backend(tmp_path):
    source, target = tmp_path / "odd.c", tmp_path / "libodd.so"
    source.write_text(BACKEND)
    command = ["gcc", "-std=c11", "-shared", "-fPIC", f"-I{rabbet.get_include()}", str(source)]
    subprocess.run([*command, "-o", str(target)], check=True)
    code = f"""
import rabbet
from rabbet import library
@library.op("mine::f(Tensor x) -> Tensor")
def f(x):
    return x + 1
handle = library.impl(f, "odd", lambda x: rabbet.empty(3, device="odd"))
print([k["target"] for k in rabbet._C.registered_kernels() if k["pending"]])
print("waiting: a kernel for 'odd'" in library.explain(f))
rabbet._C.load_plugin({str(target)!r})
print([k["target"] for k in rabbet._C.registered_kernels() if k["pending"]])
print(f(rabbet.empty(2, device="odd")).shape, rabbet._C.op_info("mine::f")["kernels"].keys())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "['odd']",
        "True",
        "[]",
        "rabbet.Size([3]) dict_keys(['odd'])",
    ]


BACKEND = r"""
#include "rabbet/abi.h"
#include <stdlib.h>
#include <string.h>
static int32_t take(void* s, int32_t d, uint64_t n, void* stream, RbBuffer* out)
{ (void)s; (void)stream; memset(out, 0, sizeof *out); out->data = malloc(n); out->nbytes = n; out->device_index = d;
  return RB_OK; }
static void give(void* s, RbBuffer* b, void* stream) { (void)s; (void)stream; free(b->data); }
static const RbAllocator allocator = {RB_SIZE(RbAllocator, free), 0, 0, take, give};
static const RbBackend backend = {RB_SIZE(RbBackend, allocator), RB_B_HOST_MEMORY, "odd", 12, 0, 0, &allocator};
static int32_t init(const RbHost* host, RbTxn* txn) { int32_t id; return host->add_backend(txn, &backend, &id); }
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0, "odd", "1.0", init, 0};
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &plugin; }
"""


# ---- explain


def test_explain_follows_the_dispatcher():
    scale = scale_op()
    x = rabbet.ones(2, requires_grad=True)
    text = library.explain(scale, x, 2.0)
    assert text.startswith(SCALE) and "registered by library_ops (" in text
    assert (
        "layer autograd [rabbet-autograd" in text
        and "'x' requires grad: the operators that it is made of" in text
    )
    assert text.index("autograd") < text.index("the call ends there")
    plain = library.explain("mine::scale", x.detach(), a=2.0)
    assert (
        "skipped, no argument requires grad" in plain
        and "no kernel for cpu: the operator's function" in plain
    )
    with rabbet.no_grad():
        assert "skipped, it is switched off in this thread" in library.explain(scale, x)
    library.impl(scale, "cpu", lambda x, a: x + 1)
    library.vjp(scale, lambda ctx, grad: (grad, None))
    text = library.explain(scale, x)
    assert (
        "recorded with its derivative" in text
        and "kernel in Python for cpu [" in text
        and "vjp function [" in text
    )
    assert "meta: only shapes" in library.explain("add", x.detach().to("meta"), 1)
    assert "kernel for cpu [rabbet-backend-cpu" in library.explain(
        "matmul", rabbet.ones(2, 2), rabbet.ones(2, 2)
    )
    assert "a view" in library.explain("transpose", rabbet.ones(2, 2), 0, 1)


def test_explain_inside_transforms():
    exp = opaque_op()
    texts = []

    def f(x):
        texts.append(library.explain(exp, x))
        return x

    rabbet.vmap(f)(rabbet.ones(2, 3))
    assert "level 1 is of vmap: 'x' of that level: example by example" in texts[0]
    library.batch(exp, lambda info, in_dims, x: (x, 0))
    rabbet.vmap(f)(rabbet.ones(2, 3))
    assert "a rule of its own [" in texts[1]


def test_explain_refuses_what_is_no_call():
    with pytest.raises(ValueError, match="there is no operator 'nowhere'"):
        library.explain("nowhere", 1)
    with pytest.raises(TypeError, match=r"no signature takes \(str\)"):
        library.explain("exp", "x")
    with pytest.raises(TypeError, match="expected the name of an operator"):
        library.explain(3)


# ---- opcheck


def test_opcheck_of_a_good_operator():
    scale = scale_op(kind="opaque", shape="x.shape", vjp={"x": "grad * a"})
    x = rabbet.randn(3, dtype=rabbet.float64, requires_grad=True)
    report = library.opcheck(scale, (x, 2.0))
    assert report == {"test_schema": "SUCCESS", "test_shape": "SUCCESS", "test_derivative": "SUCCESS",
                      "test_vmap": "SUCCESS", "test_autocast": "SKIPPED: no argument is a float32 tensor"}  # fmt: skip
    assert set(library.opcheck("mine::scale", (x.detach().float(),)).values()) == {
        "SUCCESS",
        "SKIPPED: no argument requires grad",
    }
    assert library.opcheck("add", (x, x), {"alpha": 2})["test_derivative"] == "SUCCESS"


def bad(schema, function, **fields):
    return library.op(schema, kind="opaque", **fields)(function)


def _writes(x):
    x.numpy()[...] = 3
    return rabbet.ones(3, dtype=x.dtype)


WRONG = {
    "test_schema": [
        (lambda: bad("mine::b(Tensor x) -> Tensor", _writes, shape="x.shape"), "wrote to its argument 'x', which the schema does not mark"),
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x[:2], shape="x.shape"), "shares memory with the argument 'x'"),
    ],
    "test_shape": [
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x + 1), "there is no shape rule"),
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x + 1, shape=lambda x: (1,)), r"returned out of shape \(3,\) .* by the record it has shape \(1,\)"),
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x > 1, shape=lambda x: x.shape), "dtype bool; by the record .*float64"),
    ],
    "test_derivative": [
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x * x, shape="x.shape"), "there is no derivative"),
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x * x, shape="x.shape", vjp={"x": "grad * x"}), "Jacobian mismatch for output 0 with respect to input 0"),
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x * x, shape="x.shape", vjp=lambda ctx, grad: (grad, None)), "must return 1 values"),
    ],
    "test_vmap": [
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x + x.sum(), shape="x.shape", batch=lambda info, dims, x: (x + x.sum(), dims[0])), "result 0 under vmap over x differs from the loop"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "test,case", [(test, i) for test, cases in WRONG.items() for i in range(len(cases))]
)
def test_opcheck_finds_what_is_wrong(test, case):
    make, message = WRONG[test][case]
    op = make()
    x = rabbet.randn(3, dtype=rabbet.float64, requires_grad=True)
    with pytest.raises(AssertionError, match="(?s)opcheck of 'mine::b' failed:.*" + message):
        library.opcheck(op, (x,), test_utils=test)
    report = library.opcheck(op, (x,), test_utils=[test], raise_exception=False)
    assert list(report) == [test] and re.search(message, report[test], flags=re.S)


def test_opcheck_of_autocast():
    def careless(x):
        return x.double() if x.dtype == rabbet.bfloat16 else x + 1

    f = bad("mine::b(Tensor x) -> Tensor", careless, autocast="low")
    x = rabbet.ones(3)
    assert library.opcheck(f, (x,), test_utils="test_autocast") == {"test_autocast": "SUCCESS"}


def test_opcheck_refuses_bad_input():
    with pytest.raises(ValueError, match="there is no test 'test_x'; the tests are test_schema"):
        library.opcheck("exp", (rabbet.ones(1),), test_utils="test_x")
    with pytest.raises(TypeError, match="args must be a tuple, got Tensor"):
        library.opcheck("exp", rabbet.ones(1))
    with pytest.raises(ValueError, match="there is no operator"):
        library.opcheck("mine::nowhere", ())


def test_op_packs_in_c_are_seen(tmp_path):
    source, target = tmp_path / "pack.c", tmp_path / "libpack.so"
    source.write_text(PACK)
    command = ["gcc", "-std=c11", "-shared", "-fPIC", f"-I{rabbet.get_include()}", str(source)]
    subprocess.run([*command, "-o", str(target)], check=True)
    code = f"""
import rabbet
from rabbet import library
rabbet._C.load_plugin({str(target)!r})
x = rabbet.ones(3, requires_grad=True)
print(library.explain(rabbet.ops.pack.same, x))
print(library.opcheck(rabbet.ops.pack.same, (x.detach(),)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "registered by pack 1.0" in done.stdout and "kernel for cpu [pack 1.0]" in done.stdout
    assert "'test_schema': 'SUCCESS', 'test_shape': 'SUCCESS'" in done.stdout


PACK = r"""
#include "rabbet/abi.h"
#include <string.h>
static int32_t same(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; (void)c; (void)n; (void)m; memcpy(r[0].v.t->data, a[0].v.t->data, a[0].v.t->numel * 4); return RB_OK; }
static int32_t init(const RbHost* host, RbTxn* txn)
{ RbKernel k; memset(&k, 0, sizeof k); k.struct_size = sizeof k; k.op = "pack::same"; k.backend = "cpu";
  k.flags = RB_K_CONTIGUOUS; k.fn = same;
  return host->add_ops(txn, "pack::same(Tensor x) -> Tensor\n  shape x.shape\n  expose none\n  vjp x  grad\n") || host->add_kernel(txn, &k); }
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0, "pack", "1.0", init, 0};
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &plugin; }
"""
