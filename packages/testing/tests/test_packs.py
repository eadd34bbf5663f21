"""--ops of the kit: a sound pack is conformant, one that is wrong in one way fails where it should and says why."""

import re

import pytest
import rabbet
from kit_runs import failures, kit
from plugin_wheels import MANIFEST, compile_library, install

SOUND = r"""
#include "rabbet/abi.h"
#include <stdlib.h>
#include <string.h>
static const char records[] =
  "odd::scale(Tensor x, float factor) -> Tensor\n"
  "  kind elementwise\n"
  "  dtype float(x)\n"
  "  ref numpy.multiply\n"
  "  vjp x grad * factor\n"
  "odd::double_scale(Tensor x, float factor) -> Tensor\n"
  "  kind composite\n"
  "  decomp odd::scale(odd::scale(x, factor), factor)\n"
  "odd::plain(Tensor x, Tensor y) -> Tensor\n"
  "  kind opaque\n"
  "  dtype x\n"
  "  shape x.shape\n";
static const RbHost* core;
static int32_t scale(void* self, const RbCall* call, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ float* x = (float*)a[0].v.t->data; float* y = (float*)r[0].v.t->data; float factor = (float)a[1].v.f;
  (void)self; (void)call; (void)n; (void)m;
  for (int64_t i = 0; i < r[0].v.t->numel; ++i) { /*BEFORE*/ y[i] = x[i] * factor; }
  return RB_OK; }
static int32_t wide(void* self, const RbCall* call, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ if (a[0].v.t->dtype_id == RB_F32) return scale(self, call, a, n, r, m);
  /*WIDE*/
  for (int64_t i = 0; i < r[0].v.t->numel; ++i)
    ((double*)r[0].v.t->data)[i] = ((double*)a[0].v.t->data)[i] * a[1].v.f;
  return RB_OK; }
static int32_t plain(void* self, const RbCall* call, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)self; (void)call; (void)n; (void)m;
  if (a[0].v.t->numel != a[1].v.t->numel) return core->err_set(RB_E_ARG, "plain: two tensors of one size");
  memcpy(r[0].v.t->data, a[0].v.t->data, r[0].v.t->numel * 4); return RB_OK; }
static int32_t init(const RbHost* host, RbTxn* txn)
{ RbKernel k; int32_t code; core = host; memset(&k, 0, sizeof k);
  k.struct_size = RB_SIZE(RbKernel, reserved); k.backend = "cpu"; k.flags = RB_K_CONTIGUOUS;
  code = host->add_ops(txn, records);
  if (code) return code;
  k.op = "odd::scale"; k.fn = wide; k.dtype_mask = 1ull << RB_F32 | 1ull << RB_F64;
  code = host->add_kernel(txn, &k);
  if (code) return code; /*SECOND*/
  k.op = "odd::plain"; k.fn = plain; k.dtype_mask = 1ull << RB_F32;
  return host->add_kernel(txn, &k); }
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0, "odd-plugin", "1.0", init, 0};
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &plugin; }
"""
CALL_OF_PLAIN = """
import rabbet
def rabbet_conformance_params(level):
    return {"cases": {"odd::plain": [(rabbet.ones(2), rabbet.ones(2))]}} if level == "ops" else {}
"""


def pack(folder, *changes, code=CALL_OF_PLAIN):
    """The wheel of the sound pack in C, with changes."""
    text = SOUND
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    options = (
        "-fvisibility=hidden",
        "-Wno-unused-parameter",
        "-DRB_ABI_NEEDED=6",
    )  # as MANIFEST says
    library = compile_library(folder, "odd", text, *options)
    install(folder, "odd", MANIFEST.format("odd", "ops"), library, code)


def outcomes(data, op):
    return {(r["test"], r["dtype"]): r["outcome"] for r in data["results"] if r["op"] == op}


def test_a_sound_pack_is_conformant(tmp_path):
    pack(tmp_path)
    files = [
        f"--conformance-table={tmp_path}/table.md",
        f"--conformance-badge={tmp_path}/badge.svg",
    ]
    done, data = kit(tmp_path, "--ops=odd", "-n", "2", *files)
    assert done.returncode == 0 and data["conformant"], done.stdout[-3000:]
    assert "ops odd: conformant" in done.stdout
    subject = data["subject"]
    assert (subject["kind"], subject["name"], subject["wheel"]) == ("ops", "odd", "odd-plugin")
    assert subject["library"].endswith("libodd.so")
    assert data["levels"]["L0"]["passed"] >= 12 + len(rabbet._C.abi_host_sizes) and set(
        data["levels"]
    ) == {"L0", "ops"}
    assert set(outcomes(data, "odd::scale").values()) == {"passed"}
    assert outcomes(data, "odd::scale")["test_its_shape_rule", "float64"] == "passed"
    assert outcomes(data, "odd::double_scale")["test_its_derivative", ""] == "passed"
    assert outcomes(data, "odd::plain") == {
        ("test_it_keeps_its_schema", "float32"): "passed",
        ("test_it_agrees_with_its_reference", "float32"): "not implemented",  # it names none
        ("test_its_shape_rule", "float32"): "passed",
        ("test_its_derivative", ""): "not implemented",  # there is none, and no kernel in float64
        ("test_vmap_is_the_loop", ""): "passed",
        ("test_its_dtype_under_autocast", ""): "passed",
    }
    assert data["declared"]["ops"]["cases"] == {"odd::plain": [["rabbet.float32 (2,)"] * 2]}
    table = (tmp_path / "table.md").read_text()
    assert "# Conformance of the operators `odd`" in table
    assert "| `odd::scale` | yes | yes | yes | yes | yes |" in table
    assert "rabbet ops odd: L0 ops" in (tmp_path / "badge.svg").read_text()


WRONG = {  # what is changed in C: the test that fails, of which operator and dtype, and the words
    "derivative": (
        [("vjp x grad * factor", "vjp x grad * factor * 2")], "test_its_derivative", "odd::scale", "",
        "test_derivative of odd::scale: odd::scale in float64: .*Jacobian mismatch for output 0 with respect to input 0"),
    "reference": (
        [("ref numpy.multiply", "ref numpy.add")], "test_it_agrees_with_its_reference",
        "odd::scale", "float32", "odd::scale in float32 on cpu: expected .*, got"),
    "mutation": (
        [("/*BEFORE*/ y[i] = x[i] * factor;", "y[i] = x[i] * factor; x[i] = 0;")], "test_it_keeps_its_schema", "odd::scale", "float32",
        r"the call wrote to its argument 'x', which the schema does not mark: write `Tensor\(a!\) x`"),
    "batching": (
        [("vjp x grad * factor", "vjp x grad * factor"), ("((double*)a[0].v.t->data)[i] * a[1].v.f",
          "((double*)a[0].v.t->data)[i] * a[1].v.f + (a[0].v.t->ndim == 3)")], "test_vmap_is_the_loop", "odd::scale", "",
        "result 0 under vmap over x differs from the loop"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_in_a_library_is_found_and_named(kind, tmp_path):
    changes, test, op, dtype, words = WRONG[kind]
    pack(tmp_path, *changes)
    done, data = kit(tmp_path, "--ops=odd", "--level=L3")
    assert done.returncode == 1 and not data["conformant"], done.stdout[-3000:]
    found = [r for r in failures(data) if (r["test"], r["op"], r["dtype"]) == (test, op, dtype)]
    assert found and re.search(words, "\n".join(found[0]["notes"]), flags=re.S), failures(data)
    assert {r["op"] for r in failures(data)} <= {"odd::scale", "odd::double_scale"}


def test_a_crash_is_a_failure_of_the_operator_that_made_it(tmp_path):
    pack(tmp_path, ("/*WIDE*/", "abort();"))
    done, data = kit(
        tmp_path, "--ops=odd", "--level=L3", "-n", "1", "-k", "test_ops and odd::scale"
    )
    assert done.returncode == 1 and not data["conformant"]
    found = {(r["level"], r["test"], r["op"], r["dtype"]) for r in failures(data)}
    assert ("ops", "test_it_keeps_its_schema", "odd::scale", "float64") in found
    assert all("crashed" in str(r["notes"]) for r in failures(data))
    assert outcomes(data, "odd::scale")["test_it_keeps_its_schema", "float32"] == "passed"
    done, data = kit(tmp_path, "--ops=odd", "--level=L0", "-k", "exiting or bad_calls")
    text = str(failures(data))
    assert done.returncode == 1 and "SIGABRT" in text and "call odd::" in text, text


def test_the_boundary_of_a_pack_is_judged(tmp_path):
    pack(tmp_path, ("if (code) return code; /*SECOND*/", ""))
    done, data = kit(tmp_path, "--ops=odd", "--level=L0", "-k", "init")
    words = "registration 2 of 3, add_kernel 'odd::scale', failed with 10, but init returned 0"
    assert done.returncode == 1 and words in str(failures(data)), done.stdout


# ---- packs in Python

PYTHON = 'name = "odd-plugin"\nkind = "ops"\nprovides = ["odd"]\nhooks = true\n'
PACK = """
import rabbet
def rabbet_register_ops(lib):
    @lib.op("odd::cube(Tensor x) -> Tensor", kind="opaque", shape="{shape}", vjp={{"x": "{vjp}"}})
    def cube(x):
        {before}
        return {result}

    @lib.op("odd::bare(Tensor x) -> Tensor", kind="opaque")
    def bare(x):
        return x * 2

    @lib.op("odd::named(Tensor x, *, str how) -> Tensor")
    def named(x, how):
        return {{"tanh": rabbet.tanh, "exp": rabbet.exp}}[how](x)

{params}
"""
RIGHT = {"shape": "x.shape", "vjp": "grad * 3 * x * x", "before": "", "result": "x * x * x", "params": ""}  # fmt: skip
PARAMS = """
def rabbet_conformance_params(level):
    return {} if level == "ops" else {{}}
"""
WRONG_IN_PYTHON = {
    "derivative": ({"vjp": "grad * 2 * x * x"}, "test_its_derivative", "Jacobian mismatch for output 0 with respect to input 0"),
    "shape rule": ({"shape": "[x.shape[0]]"}, "test_its_shape_rule", r"returned out of shape \(3, 4\) .*; by the record it has shape \(3,\)"),
    "mutation": ({"before": "x.mul_(2)"}, "test_it_keeps_its_schema", "wrote to its argument 'x'"),
    "alias": ({"result": "x"}, "test_it_keeps_its_schema", "odd::cube in float32: .*the result shares memory with the argument 'x'"),
}  # fmt: skip


def python_pack(folder, **changes):
    install(folder, "odd", PYTHON, code=PACK.format(**{**RIGHT, **changes}))


def test_a_pack_in_python_is_judged_and_what_it_lacks_is_no_failure(tmp_path):
    python_pack(tmp_path)
    done, data = kit(tmp_path, "--ops=odd")
    assert done.returncode == 0 and data["conformant"], done.stdout[-3000:]
    assert data["subject"]["library"] == "" and data["levels"]["L0"]["passed"] >= 6
    found = outcomes(data, "odd::cube")
    assert {o for (test, _), o in found.items() if "reference" not in test} == {"passed"}
    bare = outcomes(data, "odd::bare")
    assert bare["test_its_derivative", ""] == "not implemented"
    assert bare["test_its_shape_rule", "float64"] == "not implemented"
    assert bare["test_vmap_is_the_loop", ""] == "passed"
    assert set(outcomes(data, "odd::named").values()) == {"not implemented"}
    assert re.search(
        "nothing says how to call odd::named .*: say what fits by a function", str(data)
    )


@pytest.mark.parametrize("kind", WRONG_IN_PYTHON)
def test_what_is_wrong_in_python_is_found_and_named(kind, tmp_path):
    changes, test, words = WRONG_IN_PYTHON[kind]
    python_pack(tmp_path, **changes)
    done, data = kit(tmp_path, "--ops=odd", "--level=L3", "-k", "cube")
    assert done.returncode == 1 and not data["conformant"], done.stdout[-3000:]
    found = [r for r in failures(data) if (r["test"], r["op"]) == (test, "odd::cube")]
    assert found and re.search(words, "\n".join(found[0]["notes"]), flags=re.S), failures(data)


def test_the_plugin_gives_calls_that_the_schema_does_not_say(tmp_path):
    given = '{"cases": {"odd::named": [{"args": (rabbet.ones(2, 2),), "kwargs": {"how": "exp"}}]}}'
    python_pack(tmp_path, params=PARAMS.format(given))
    done, data = kit(tmp_path, "--ops=odd", "--level=L3", "-k", "named")
    assert done.returncode == 0, done.stdout[-3000:]
    found = outcomes(data, "odd::named")
    assert {o for (test, _), o in found.items() if "reference" not in test} == {"passed"}


def test_a_given_call_that_is_refused_is_a_failure(tmp_path):
    given = '{"cases": {"odd::cube": [(rabbet.ones(2), 3)]}}'
    python_pack(tmp_path, params=PARAMS.format(given))
    done, _ = kit(tmp_path, "--ops=odd", "--level=L3", "-k", "cube and schema")
    assert (
        done.returncode == 1 and "[call 0 of the plugin] in float64: it is refused" in done.stdout
    )


@pytest.mark.parametrize("given,message", [
    ('{"case": {}}', "rabbet_conformance_params('ops'): unknown key 'case'"),
    ('{"cases": []}', "'cases' must be a dict by operator, got list"),
    ('{"cases": {"odd::cub": [(1,)]}}', "there is no operator 'odd::cub'"),
    ('{"cases": {"odd::cube": []}}', "'odd::cube' must have a list of calls, got []"),
    ('{"cases": {"odd::cube": [3]}}', "call 0 of 'odd::cube' must be a tuple of arguments, or a dict of 'args' and 'kwargs', got int"),
])  # fmt: skip
def test_what_the_plugin_says_is_checked(given, message, tmp_path):
    python_pack(tmp_path, params=PARAMS.format(given))
    done, data = kit(tmp_path, "--ops=odd")
    assert done.returncode == 4 and data is None
    assert message in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_pack_that_fails_to_load_is_explained(tmp_path):
    install(
        tmp_path,
        "odd",
        PYTHON,
        code="def rabbet_register_ops(lib):\n    raise OSError('no disk')\n",
    )
    done, _ = kit(tmp_path, "--ops=odd")
    assert done.returncode == 4 and "raised OSError: no disk" in done.stderr


FROM_PYTHON = """
import numpy as np
import rabbet
from rabbet import library

@library.op('mine::twice(Tensor x) -> Tensor')
def twice(x):
    return x + x

@library.op("mine::swish(Tensor x) -> Tensor", kind="elementwise", dtype="float(x)",
            vjp={"x": "grad * (sigmoid(x) + out * (1 - sigmoid(x)))"})
def swish(x):
    return x * rabbet.sigmoid(x)

@library.op("mine::sorted_rows(Tensor x) -> Tensor", kind="opaque", fields={"example": "(4,3)"})
def sorted_rows(x):
    rows = x.numpy()
    return rabbet.tensor(rows[np.argsort((rows**2).sum(1))])
@library.shape(sorted_rows)
def _(x):
    return x.shape
@library.vjp(sorted_rows, saves=["x"])
def backward(ctx, grad):
    return grad[(ctx.inputs[0] ** 2).sum(1).argsort().argsort()]

@library.op("mine::total(Tensor[] xs) -> Tensor", fields={"example": "[(2,3), (2,3)]"})
def total(xs):
    return rabbet.stack(xs).sum(0)
@library.op("mine::halves(Tensor x) -> (Tensor a, Tensor b)")
def halves(x):
    return x / 2, x / 2
@library.op("mine::bump(Tensor(a!) x, float by=1.0) -> ()")
def bump(x, by):
    x.add_(by)
@library.op("mine::turned(Tensor x) -> Tensor view(x)", fields={"example": "(4,3)"})
def turned(x):
    return x.transpose(0, 1)
@library.op("mine::noisy(Tensor x) -> Tensor")
def noisy(x):
    return x + rabbet.rand_like(x)

library.define("mine::cube(Tensor x) -> Tensor", decomp="x * x * x")
library.register_records("mine::fourth(Tensor x) -> Tensor\\n  kind composite\\n  decomp x * mine::cube(x)\\n")
"""


def test_operators_of_no_plugin_are_judged_as_well(tmp_path):
    """By all levels: the processes of L0 import the module that registered them."""
    (tmp_path / "mine_ops.py").write_text(FROM_PYTHON)
    done, data = kit(tmp_path, "-p", "mine_ops", "--ops=mine")
    assert done.returncode == 0 and data["conformant"], done.stdout[-3000:]
