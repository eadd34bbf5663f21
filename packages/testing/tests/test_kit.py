"""The kit itself: a small backend is conformant, one that is wrong in one way fails where it should and says why."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import rabbet
from kit_runs import failures, kit
from plugin_wheels import MANIFEST, build, install
from rabbet import _C
from rabbet_testing.cases import differentiable_ops
from rabbet_testing.conformance.report import Outcome
from rabbet_testing.judges.batching import OPS
from rabbet_testing.judges.reasons import Reason, tagged

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of the backend `three`, as pip would have left it."""
    folder = tmp_path_factory.mktemp("three")
    library = folder / "libthree.so"
    command = [
        "g++",
        "-std=c++17",
        "-O1",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-Wall",
        "-Werror",
    ]
    subprocess.run(
        [*command, "-I", rabbet.get_include(), HERE / "three_ops.cpp", "-o", library], check=True
    )
    install(folder, "three", MANIFEST.format("three", "backend"), library)
    return folder


# ---- devices


SOME = ["-k", "not test_l3 or [neg] or [exp]"]


def test_a_backend_of_three_operators_is_conformant(wheel):
    files = [f"--conformance-table={wheel}/table.md", f"--conformance-badge={wheel}/badge.svg"]
    done, data = kit(wheel, "--device=three", "--level=L1,L2,L3,L4", "-n", "2", *SOME, *files)
    assert done.returncode == 0, done.stdout[-3000:]
    assert data["conformant"] and data["schema"] == 1 and data["declared"] == {}
    assert data["subject"]["kind"] == "device" and data["subject"]["library"].endswith(
        "libthree.so"
    )
    assert (
        data["subject"]["wheel"] == "three-plugin"
        and data["versions"]["rabbet-core"] == _C.__version__
    )
    found = {
        (r["op"], r["dtype"]): r["outcome"]
        for r in data["results"]
        if r["level"] == "L2" and r["dtype"]
    }
    assert found["add", "float32"] == found["mul", "int64"] == found["neg", "float64"] == "passed"
    assert found["mul", "float64"] == found["exp", "float32"] == "not declared"
    assert {d for _, d in found} == {"float32", "float64", "int64"}
    passed = {r["test"] for r in data["results"] if r["level"] == "L3" and r["outcome"] == "passed"}
    assert (
        "test_gradient_matches_finite_differences" in passed
    )  # of neg, whose gradient needs no more
    assert "device three: conformant" in done.stdout
    table = (wheel / "table.md").read_text()
    assert (
        "| operator | int64 | float32 | float64 |" in table and "| `mul` | part | yes |  |" in table
    )
    assert ElementTree.parse(wheel / "badge.svg").getroot().tag.endswith("svg")


MISCHIEF = {  # what goes wrong: level, operator, dtype, what the message has to say
    "value": ("L2", "mul", "int64", ("mul[(3,4), (4)] in int64 on three", "expected", "got", "at [1, 1]")),
    "refuse": ("L2", "neg", "float64", ("neg[(3,4)] in float64 on three", "declares neg", "not in float64 after all")),
    "strides": ("L2", "neg", "float32", ("neg[(3,4)] in float32 on three, strided", "expected a contiguous tensor")),
    "copy": ("L1", "", "int16", ("copy of int16", "to three and back", "expected", "got")),
    "leak": ("L1", "", "", ("three: 200 cycles of calls leave", "bytes in use")),
    "random": ("L1", "", "float32", ("uniform in float32 on three", "not the numbers of Philox")),
    "slow": ("L4", "", "", ("add on three", "for a call, the bound is 200000 ns")),
}  # fmt: skip


@pytest.mark.parametrize("mischief", MISCHIEF)
def test_a_backend_that_is_wrong_fails_where_it_should(mischief, wheel):
    level, op, dtype, said = MISCHIEF[mischief]
    only = ["-k", op] if op else []
    done, data = kit(
        wheel, "--device=three", f"--level={level}", *only, THREE_OPS_MISCHIEF=mischief
    )
    assert done.returncode == 1 and not data["conformant"]
    assert "device three: NOT conformant" in done.stdout
    found = [r for r in failures(data) if (r["op"], r["dtype"]) == (op, dtype)]
    text = "\n".join(note for r in found for note in r["notes"])
    for part in said:
        assert part in text, text


def test_a_crash_is_a_failure_of_the_call_that_made_it(wheel):
    some = ["-k", "neg- and not resolve", "-n", "1", "--level=L2"]
    done, data = kit(wheel, "--device=three", *some, THREE_OPS_MISCHIEF="crash")
    assert done.returncode == 1 and not data["conformant"]
    found = [(r["level"], r["op"], r["dtype"]) for r in failures(data)]
    assert found == [("L2", "neg", "float64")] and "crashed" in str(failures(data))
    passed = {r["dtype"] for r in data["results"] if r["outcome"] == "passed"}
    assert passed == {"float32"}  # the others were judged all the same


def test_a_run_in_which_nothing_passed_is_no_verdict(wheel):
    done, data = kit(wheel, "--device=three", "--level=L2", "-k", "exp-")
    assert done.returncode == 0 and not data["conformant"]


def test_what_the_plugin_declares_is_part_of_the_report(wheel, tmp_path):
    library = next((wheel / "three_plugin").glob("*.so"))
    (tmp_path / "libthree.so").write_bytes(library.read_bytes())
    code = """
def rabbet_conformance_params(level):
    return {"partial": {"neg": "not yet in float64"}} if level == "L2" else {}
"""
    install(tmp_path, "three", MANIFEST.format("three", "backend"), tmp_path / "libthree.so", code)
    done, data = kit(
        tmp_path, "--device=three", "--level=L2", "-k", "neg-", THREE_OPS_MISCHIEF="refuse"
    )
    assert done.returncode == 0, done.stdout
    assert data["declared"] == {"L2": {"partial": {"neg": "not yet in float64"}}}
    outcomes = {r["dtype"]: r["outcome"] for r in data["results"] if r["op"] == "neg"}
    assert outcomes["float64"] == "not declared" and outcomes["float32"] == "passed"
    assert "neg is partial: not yet in float64" in str(data["results"])


def test_declared_ulps_are_held_to(wheel, tmp_path):
    library = next((wheel / "three_plugin").glob("*.so"))
    (tmp_path / "libthree.so").write_bytes(library.read_bytes())
    code = """
def rabbet_conformance_params(level):
    return {"ulps": {"float32": {"mul": 0, "add": None}}} if level == "L2" else {}
"""
    install(tmp_path, "three", MANIFEST.format("three", "backend"), tmp_path / "libthree.so", code)
    some = ["--device=three", "--level=L2", "-k", "agrees and mul-"]
    for mischief, ok in (("", True), ("ulp", False)):
        done, data = kit(tmp_path, *some, THREE_OPS_MISCHIEF=mischief)
        assert (done.returncode == 0) == ok, done.stdout
    (found,) = failures(data)
    assert (found["op"], found["dtype"]) == ("mul", "float32")
    assert "units in the last place, at most 0 are declared" in str(found["notes"])


WRONG_RULES = """
from rabbet import library

@library.op("odd::cube(Tensor x) -> Tensor", kind="opaque", shape="x.shape", vjp={"x": "grad * 2 * x * x"})
def cube(x):
    return (x.detach() ** 3).to(x.dtype)

@library.op("odd::needs(Tensor x, str what) -> Tensor", kind="opaque", shape="x.shape")
def needs(x, what):
    return x.detach() * 1
"""


def test_a_wrong_derivative_fails_in_l3(tmp_path):
    """Operators that others have registered are judged, too, where their schema says what fits."""
    (tmp_path / "odd_ops.py").write_text(WRONG_RULES)
    only = ["-p", "odd_ops", "-k", "odd"]
    done, data = kit(tmp_path, "--device=cpu", "--level=L2,L3", *only)
    assert done.returncode == 1, done.stdout
    found = {(r["level"], r["test"]) for r in failures(data)}
    assert ("L3", "test_gradient_matches_finite_differences") in found and not [
        f for f in found if f[0] == "L2"
    ]
    assert {r["op"] for r in failures(data)} == {"odd::cube"}
    assert "Jacobian mismatch for output 0 with respect to input 0" in str(failures(data))


# ---- layers

LAYER = """
static int32_t layer;
static int32_t pass(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; return c->host->redispatch(c, layer, a, n, r, m); }
static const RbHost* the_host;
RB_EXPORT void odd_switch(int on) { the_host->layer_mode(layer, on, -1); }
RB_EXPORT void odd_exclude(void) { for (int id = 17; id < 64; ++id) the_host->layer_mode(id, -1, 1); }
"""
INIT = """
the_host = host;
RbLayer l; memset(&l, 0, sizeof l); l.struct_size = sizeof l; l.name = "odd"; l.phase = 700;
l.on_missing = RB_L_FALLBACK; l.fallback = pass; return host->add_layer(txn, &l, &layer);
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
HOOKS = {
    "right": ("{'enter': on}", None, ()),
    "value": ("{'call': lambda f, *xs: tuple(r * 1.001 if r.is_floating_point() else r for r in f(*xs))}",
              "test_results_are_kept", ("exp[(3,4)] with the layer odd on", "expected", "got")),
    "dtype": ("{'call': lambda f, *xs: tuple(r.float() if r.is_floating_point() else r for r in f(*xs))}",
              "test_results_are_kept", ("exp[(3,4)] with the layer odd on", "expected dtype rabbet.float64")),
    "stays on": ("{'call': lambda f, *xs: (lib.odd_switch(1), f(*xs), lib.odd_switch(0))[1]}",
                 "test_exceptions_leave_nothing_behind", ("odd", "acts on calls outside of its context")),
    "stays excluded": ("{'call': excluding}", "test_exceptions_leave_nothing_behind", ("odd", "it leaves layers of the thread on or off: a call goes through")),
    "swallows": ("{'call': swallow}", "test_an_exception_of_a_kernel_comes_through", ("expected Boom, got",)),
}  # fmt: skip
SWALLOW = """
def swallow(f, *xs):
    try:
        return f(*xs)
    except Exception as error:
        raise RuntimeError("something failed") from None

def excluding(f, *xs):
    lib.odd_exclude()  # all layers: calls of the thread are not recorded any more
    return f(*xs)
"""


def layer_wheel(folder, params):
    library = build(folder, "odd", extra=LAYER, init=INIT, wheel="odd-plugin")
    hook = f"def rabbet_conformance_params(level):\n    return {params} if level == 'layer' else {{}}\n"
    install(folder, "odd", MANIFEST.format("odd", "transform"), library, SWITCH + SWALLOW + hook)


# The layer of a plugin that means to change one operator, and one that only says so.
CHANGED = """
static int32_t twice(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m) {
  (void)s;
  const char* name = c->host->op_info(c->op)->name;
  int32_t code = c->host->redispatch(c, layer, a, n, r, m);
  if (code || strcmp(name, "exp") || r[0].v.t->dtype_id != RB_F64) return code;
  double* data = (double*)r[0].v.t->data;
  for (int64_t i = 0; i < r[0].v.t->numel; ++i) data[i] *= 2;
  return RB_OK;
}
"""


@pytest.mark.parametrize("declared,fails", [("exp", ""), ("", "exp"), ("exp sin", "sin")])
def test_an_operator_that_a_layer_changes_is_declared(declared, fails, tmp_path):
    library = build(
        tmp_path,
        "odd",
        extra=LAYER + CHANGED,
        init=INIT.replace("= pass", "= twice"),
        wheel="odd-plugin",
    )
    replaces = dict.fromkeys(declared.split(), "twice as much")
    params = f"{{'enter': on, 'replaces': {replaces}}}"
    hook = f"def rabbet_conformance_params(level):\n    return {params} if level == 'layer' else {{}}\n"
    install(tmp_path, "odd", MANIFEST.format("odd", "transform"), library, SWITCH + hook)
    done, data = kit(tmp_path, "--layer=odd", "-k", "[exp] or [sin] or [cos]")
    assert data["conformant"] == (not fails), done.stdout[-3000:]
    assert {r["op"] for r in failures(data)} == {fails} - {""}
    if "exp" in declared:
        assert data["reasons"]["layer"]["CHANGED_BY_LAYER"] >= 1
        assert "exp: twice as much" in str(data["results"])
    if fails == "sin":
        assert "sin is declared as changed by odd (twice as much)" in str(failures(data))


@pytest.mark.parametrize("kind", HOOKS)
def test_a_layer_is_judged(kind, tmp_path):
    params, test, said = HOOKS[kind]
    layer_wheel(tmp_path, params)
    some = "exp] or not [" if kind == "right" else "(exp] or not [) and not costs"
    done, data = kit(tmp_path, "--layer=odd", "-k", some)
    if test is None:
        assert done.returncode == 0 and data["conformant"], done.stdout[-3000:]
        return
    assert done.returncode == 1 and not data["conformant"], done.stdout[-3000:]
    text = "\n".join(note for r in failures(data) if r["test"] == test for note in r["notes"])
    for part in said:
        assert part in text, text


# ---- options


@pytest.mark.parametrize(
    "arguments,message",
    [
        ([], "give what to judge:\n  pytest --pyargs rabbet_testing --device=NAME"),
        (["--device=cpu", "--ops=mine"], "--device and --ops exclude each other"),
        (["--ops=mine"], "--ops=mine: no plugin for 'mine' is installed"),
        (
            ["--ops=cpu"],
            "--ops=cpu: the plugin for 'cpu' is loaded, but registers no operator 'cpu::...'",
        ),
        (["--device=cpu", "--layer=vmap"], "--device and --layer exclude each other"),
        (
            ["--device=npu"],
            "--device=npu: no backend for device 'npu' is installed; installed devices: cpu, cuda, meta",
        ),
        (["--layer=mytape"], "--layer=mytape: no plugin for 'mytape' is installed"),
        (["--device=cpu:7"], "--device=cpu:7: there is no device cpu:7: 'cpu' has 1 device, cpu:0"),
        (["--device=cpu", "--level=L7"], "--level takes L0, L1, L2, L3, L4, got 'L7'"),
    ],
)
def test_a_wrong_use_is_told(arguments, message, tmp_path):
    done, data = kit(tmp_path, *arguments)
    assert done.returncode == 4 and data is None
    assert message in done.stderr and "Traceback" not in done.stderr + done.stdout


def test_a_plugin_that_fails_to_load_is_explained(tmp_path):
    changes = {"init": 'return host->err_set(RB_E_DEVICE, "the board is not plugged in");'}
    install(tmp_path, "odd", MANIFEST.format("odd", "backend"), build(tmp_path, "odd", **changes))
    done, _ = kit(tmp_path, "--device=odd")
    assert done.returncode == 4
    assert "failed at stage load" in done.stderr and "the board is not plugged in" in done.stderr


@pytest.mark.parametrize("params,message", [
    ("{}", "say how it is switched on by a function in the plugin's package"),
    ("{'enter': on, 'call': swallow}", "give one of 'enter' and 'call'"),
    ("{'enter': on, 'changes': 'all'}", "'changes' must be one of nothing, rounding, dtype, got 'all'"),
    ("{'enter': on, 'colour': 1}", "unknown key 'colour'"),
    ("{'enter': on, 'replaces': {'expp': 'why'}}", "'replaces' names 'expp', which is no operator"),
])  # fmt: skip
def test_a_layer_has_to_say_how_it_is_switched_on(params, message, tmp_path):
    layer_wheel(tmp_path, params)
    done, _ = kit(tmp_path, "--layer=odd")
    assert done.returncode == 4 and message in done.stderr, done.stderr


def test_other_runs_of_pytest_are_left_alone(tmp_path):
    """Not even the option's name is taken: here another plugin has a `--device` of its own."""
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--device')\n"
    )
    (tmp_path / "test_mine.py").write_text(
        "import sys\ndef test_mine(request):\n    assert request.config.getoption('--device') == 'x'\n"
        "    assert 'rabbet' not in sys.modules\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--device=x", "-p", "no:cacheprovider", "."]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout


# ---- what the kit covers


def test_most_operators_are_batched_and_differentiated():
    assert len(OPS) > 200 and len(differentiable_ops()) > 150


def test_a_skip_for_no_written_reason_is_a_failure():
    report = pytest.TestReport(
        "conformance/test_l2_ops.py::test_x", ("", 0, ""), {}, "skipped", ("", 0, "Skipped: later"), "call",
        user_properties=[("rabbet", {"level": "L2", "test": "test_x", "op": "", "dtype": ""})],
    )  # fmt: skip
    outcome = Outcome.of(report)
    assert outcome.outcome == "failed" and "none of the written reasons: later" in outcome.notes[0]
    report.longrepr = ("", 0, "Skipped: " + tagged(Reason.NO_TOOL, "nm"))
    assert (Outcome.of(report).outcome, Outcome.of(report).reason) == ("not implemented", "NO_TOOL")
