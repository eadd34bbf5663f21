"""Faults planted one by one into operators, a backend and a layer: the kit finds each, and says what is wrong."""

from pathlib import Path

import pytest
from kit_runs import failures, kit
from plugin_wheels import MANIFEST, build, compile_library, install

# Each operator is wrong in the way that its name says; `right` is not.
OPERATORS = """
import threading, time
import rabbet
from rabbet import library

def op(name, function, example="(3,4); (); (0,3)", ref="numpy.negative", shape="x.shape", schema="Tensor x", **more):
    fields = {"example": example, **({"ref": ref} if ref else {}), **more.pop("fields", {})}
    options = {"kind": "opaque", "shape": shape, **more}
    return library.op(f"odd::{name}({schema}) -> Tensor", fields=fields, **options)(function)

def contiguous(x):
    return -x.detach().as_strided([x.numel()], [1], x.storage_offset()).reshape(x.shape)

def late(x):
    out, given = rabbet.zeros(x.shape, dtype=x.dtype), x.detach().clone()
    def write():
        time.sleep(0.05)
        out.copy_(-given)
    threading.Thread(target=write).start()
    return out

def overwrites(x):
    result = -x.detach()
    x.detach().numpy()[...] = 0
    return result

def refuses(x):
    if x.numel() == 0:
        raise ValueError("refuses: there is nothing to do")
    return -x.detach()

op("right", lambda x: -x.detach())
op("strides", contiguous)
op("broadcast", lambda x, y: x.detach() + y.detach().reshape(-1)[0], "(3,4), (4)", "numpy.add",
   "broadcast_shape(x.shape, y.shape)", "Tensor x, Tensor y")
op("dtype", lambda x: (-x.detach()).to(rabbet.int64), dtype="int64")
op("shape", lambda x: x.detach().sum().reshape(1), "(3,4)", "numpy.sum", "[1]")
op("late", late)
op("nan", lambda x: x.detach().nan_to_num().amax(), "(3,4); nan(3,4)", "numpy.max", "[]")
op("aliasing", lambda x: x, ref="numpy.positive")
op("overwrites", overwrites)
op("off_by_one", lambda x: x.detach().cumsum(0) - x.detach(), "(5)", "numpy.cumsum")
op("identity", lambda x: x.detach().prod() if x.numel() else x.new_zeros([]), "(3,4); (0,3)", "numpy.prod", "[]")
op("refuses", refuses)
op("inexact", lambda x: x.detach().exp() * 1.0001, ref="numpy.exp")
op("number", lambda x: -x.detach() if x.ndim else x.detach() * 1, "(3,4); ()")
op("gradient", lambda x: x.detach() ** 3, ref=None, example="(3,4)", vjp={"x": "grad * 2 * x * x"})
op("tangent", lambda x: x.detach() ** 2, ref="numpy.square", example="(3,4)", vjp={"x": "grad * 2 * x"},
   jvp="dot_x * x")
op("batch", lambda x: x.detach() - x.detach().sum(), ref=None, example="(3,4)", batch="leading x")
library.op("odd::decomposed(Tensor x) -> Tensor", decomp="x + 2", fields={"example": "(3,4)"})(lambda x: x + 2)
library.impl("odd::decomposed", "cpu")(lambda x: x.detach() + 1)
"""
REFERENCE = "test_operator_agrees_with_the_reference"
FOUND = {  # by operator: the test that fails, and what it says
    "strides": (REFERENCE, ", strided: expected"),
    "broadcast": (REFERENCE, "expected"),
    "dtype": (REFERENCE, "expected a dtype of class float, got int64"),
    "shape": (REFERENCE, "expected shape (), got (1,)"),
    "late": (REFERENCE, "got 0.0"),
    "nan": (REFERENCE, "expected nan, got"),
    "aliasing": (REFERENCE, "its own"),
    "overwrites": (REFERENCE, "it writes to tensor 0 of its arguments"),
    "off_by_one": (REFERENCE, "at [0]"),
    "identity": (REFERENCE, "expected 1.0, got 0.0"),
    "refuses": (REFERENCE, "raised ValueError: refuses: there is nothing to do"),
    "inexact": (REFERENCE, "differ"),
    "number": (REFERENCE, "odd::number[()]"),
    "gradient": (
        "test_gradient_matches_finite_differences",
        "Jacobian mismatch for output 0 with respect to input 0",
    ),
    "tangent": ("test_forward_mode_agrees_with_backward_mode", "jvp against vjp of odd::tangent"),
    "batch": ("test_vmap_is_the_loop", "in_dims=(0,)"),
    "decomposed": (REFERENCE, "expected"),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Of one run over all operators."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd_ops.py").write_text(OPERATORS)
    arguments = ["-p", "odd_ops", "-k", "odd and (float64 or L3 or l3)", "-n", "2"]
    done, data = kit(folder, "--device=cpu", "--level=L2,L3", *arguments)
    assert done.returncode == 1, done.stdout[-3000:]
    return data


@pytest.mark.parametrize("fault", FOUND)
def test_a_fault_is_found_where_it_is(fault, report):
    test, said = FOUND[fault]
    found = [r for r in failures(report) if (r["op"], r["test"]) == (f"odd::{fault}", test)]
    notes = "\n".join(note for r in found for note in r["notes"])
    assert said in notes, (notes, failures(report))


def test_what_is_right_passes(report):
    outcomes = {r["outcome"] for r in report["results"] if r["op"] == "odd::right"}
    assert "passed" in outcomes and "failed" not in outcomes
    assert {r["op"].removeprefix("odd::") for r in failures(report)} == set(FOUND)


# Faults of kernels, planted.cpp: the operator and dtype that fail, and what is said of them.
KERNELS = {
    "alpha": ("add", "float32", ("add[(3,4), (4), alpha=3] in float32 on planted: expected",)),
    "columns": ("add", "float64", ("expected", "got")),
    "add by double": ("add", "int64", ("add[exact] in int64 on planted: expected 3602879701896",)),
    "4-d strides": ("neg", "float32", ("neg[4-d] in float32 on planted",)),
    "first 4096": ("neg", "float32", ("neg[many] in float32 on planted: expected", "at [3, 1003]")),
    "overwrites": ("neg", "int64", ("it writes to tensor 0 of its arguments",)),
    "relu of nan": ("relu", "float64", ("relu[nan(5)] in float64 on planted: expected nan, got 0.0",)),
    "amax of nan": ("amax", "float32", ("amax[nan(3,4), 1] in float32 on planted: expected nan",)),
    "cast rounds": ("cast", "float64", ("cast[(3,4), int64] in float64 on planted: expected",)),
    "cast to bool": ("cast", "int64", ("cast[(3,4), bool] in int64 on planted: expected",)),
    "sum by float": ("sum", "int64", ("sum[exact] in int64 on planted: expected",)),
    "stride 0": ("neg", "float32", ("neg[4-d] in float32 on planted, rows of stride 0: expected", "got -0.0 at [1, 0, 0, 0]")),
    "first 65536": ("neg", "int64", ("neg[large] in int64 on planted: expected", "at [2, 21530]")),
    "sign of zero": ("neg", "float64", ("neg[signed zeros] in float64 on planted: expected -0.0, got 0.0",)),
    "toward zero": ("cast", "float64", ("cast[to float32] in float64 on planted: expected",)),
    "square": ("mm", "float32", ("mm[(4,4), (4,4)] in float32 on planted: expected",)),
    "duplicates": ("scatter_add", "int64", ("scatter_add[(4,3), 0, index(4; 5,3), (5,3)] in int64 on planted: expected",)),
}  # fmt: skip
SOME = "neg- or sign- or relu- or cast- or sum- or amax- or add- or mm-"


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The wheel of the backend `planted`, as pip would have left it."""
    folder = tmp_path_factory.mktemp("planted")
    here = Path(__file__).parent
    source = (here / "planted.cpp").read_text()
    library = compile_library(
        folder, "planted", source, "-O1", "-fvisibility=hidden", f"-I{here}", language="cpp"
    )
    install(folder, "planted", MANIFEST.format("planted", "backend"), library)
    return folder


def test_kernels_without_a_fault_pass(planted):
    done, data = kit(planted, "--device=planted", "--level=L2", "-k", SOME, "-n", "2")
    assert done.returncode == 0 and data["conformant"], done.stdout[-3000:]
    passed = {(r["op"], r["dtype"]) for r in data["results"] if r["outcome"] == "passed"}
    assert {(op, dtype) for op, dtype, _ in KERNELS.values()} <= passed


@pytest.mark.parametrize("fault", KERNELS)
def test_a_fault_of_a_kernel_is_found(fault, planted):
    op, dtype, said = KERNELS[fault]
    done, data = kit(planted, "--device=planted", "--level=L2", "-k", f"{op}-", PLANTED=fault)
    assert done.returncode == 1 and not data["conformant"], done.stdout[-3000:]
    found = [r for r in failures(data) if (r["op"], r["dtype"]) == (op, dtype)]
    notes = "\n".join(note for r in found for note in r["notes"])
    for part in said:
        assert part in notes, (notes, failures(data))


# A layer that writes results of its own into the tensor of a call in place: nobody counts the write.
LAYER = """
static int32_t layer;
static const RbHost* the_host;
static int32_t around(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m) {
  (void)s;
  if (!(c->flags & RB_CALL_OUT) || m != 1) return c->host->redispatch(c, layer, a, n, r, m);
  RbTensor* to = r[0].v.t;
  RbCall plain = *c;
  plain.flags &= ~(uint32_t)RB_CALL_OUT;
  RbValue made;
  memset(&made, 0, sizeof made);
  int32_t code = c->host->redispatch(&plain, layer, a, n, &made, 1);
  if (code) return code;
  memcpy(to->data, made.v.t->data, (size_t)to->numel * (to->dtype.bits / 8));
  c->host->release(made.v.t);
  return RB_OK;
}
RB_EXPORT void odd_switch(int on) { the_host->layer_mode(layer, on, -1); }
"""
INIT = """
the_host = host;
RbLayer l; memset(&l, 0, sizeof l); l.struct_size = sizeof l; l.name = "odd"; l.phase = 700;
l.on_missing = RB_L_FALLBACK; l.fallback = around; return host->add_layer(txn, &l, &layer);
"""
SWITCH = """
import ctypes
from contextlib import contextmanager
from pathlib import Path
import rabbet
from rabbet.library import require_layer
require_layer("odd")
lib = ctypes.CDLL(str(Path(__file__).with_name("libodd.so")))
@contextmanager
def on():
    lib.odd_switch(1)
    try:
        yield
    finally:
        lib.odd_switch(0)
"""


def test_a_write_that_is_not_counted_is_found(tmp_path):
    library = build(
        tmp_path,
        "odd",
        extra=LAYER,
        init=INIT,
        wheel="odd-plugin",
    )
    hook = "def rabbet_conformance_params(level):\n    return {'enter': on} if level == 'layer' else {}\n"
    install(tmp_path, "odd", MANIFEST.format("odd", "transform"), library, SWITCH + hook)
    done, data = kit(tmp_path, "--layer=odd", "-k", "neg] and in_place")
    assert done.returncode == 1, done.stdout[-3000:]
    assert "the version of what it writes is 0 before and after" in str(failures(data))
