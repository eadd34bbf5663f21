"""What authors of plugins meet: missing wheels and kernels, errors of formulas, decompositions, what a device lacks."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rabbet
from plugin_wheels import KERNEL, MANIFEST, build, build_backend, install, run
from rabbet import _C, _doctor, library
from rabbet_testing.cases import cases
from rabbet_testing.judges.calls import tensors
from rabbet_testing.judges.reference import array

PACKAGE = Path(rabbet.__file__).parent
DOCTOR = "from rabbet._doctor import main\nraise SystemExit(main({}))"


# ---- missing wheels


@pytest.fixture
def core_alone(tmp_path):
    """Runs code where rabbet-core is installed and no other wheel of rabbet."""
    others = {"nn", "optim", "autograd", "func", "vmap", "amp"}

    def execute(code, *present):
        folder = tmp_path / "rabbet"
        folder.mkdir()
        for entry in PACKAGE.iterdir():
            if entry.name not in others - set(present):
                (folder / entry.name).symlink_to(entry)
        pluggy = Path(sys.modules.get("pluggy", __import__("pluggy")).__file__).parent
        (tmp_path / "pluggy").symlink_to(pluggy)
        done = subprocess.run(
            [sys.executable, "-S", "-c", code], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path), "RABBET_PLUGINS": "0"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return execute


FORMS = [
    "import rabbet.{0}", "from rabbet import {0}", "import rabbet; rabbet.{0}", "import rabbet.{0} as other",
    "import rabbet.{0}.inner", "from rabbet.{0} import inner", "import importlib; importlib.import_module('rabbet.{0}')",
]  # fmt: skip
TRY = """
for code in {}:
    try:
        exec(code)
    except ImportError as error:
        print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("module", "wheel"),
    [("nn", "rabbet-nn"), ("optim", "rabbet-optim"), ("autograd", "rabbet-autograd"),
     ("func", "rabbet-vmap"), ("amp", "rabbet-autocast")],
)  # fmt: skip
def test_every_form_of_import_names_the_wheel(module, wheel, core_alone):
    lines = core_alone(TRY.format([form.format(module) for form in FORMS]))
    said = f"ModuleNotFoundError rabbet.{module} needs the wheel '{wheel}': pip install {wheel}"
    assert lines == [said] * len(FORMS)


@pytest.mark.parametrize("module", ["nn", "optim"])
def test_a_module_names_the_wheel_that_it_needs(module, core_alone):
    forms = [form.format(module) for form in FORMS]
    lines = core_alone(TRY.format(forms), module)
    said = "ModuleNotFoundError rabbet.autograd needs the wheel 'rabbet-autograd': pip install rabbet-autograd"
    assert lines == [said] * len(forms)


def test_without_a_wheel_its_names_are_no_attributes(core_alone):
    """`hasattr` answers, and an access still says which wheel to install."""
    code = """
import rabbet
for name in ("no_grad", "autocast", "conv1d"):
    print(hasattr(rabbet, name))
for name in ("no_grad", "conv1d"):
    try:
        getattr(rabbet, name)
    except AttributeError as error:
        print(error)
"""
    has, said = (
        "module 'rabbet' has no attribute",
        "needs the wheel 'rabbet-{0}': pip install rabbet-{0}",
    )
    assert core_alone(code) == [
        *["False"] * 3,
        f"{has} 'no_grad': rabbet.autograd {said.format('autograd')}",
        f"{has} 'conv1d': rabbet.nn {said.format('nn')}",
    ]


def test_a_module_that_no_wheel_has_is_missing_as_ever():
    for name in ("rabbet.nonsense", "rabbet.nn.nonsense"):
        with pytest.raises(ModuleNotFoundError, match=re.escape(f"No module named '{name}'")):
            importlib.import_module(name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        rabbet.nonsense  # noqa: B018


# ---- namespaces


def test_a_namespace_loads_its_pack_when_first_asked_for(tmp_path):
    records = '"odd::g(Tensor x) -> Tensor\\n  kind composite\\n  decomp x + x\\n"'
    init = f"return host->add_ops(txn, {records});"
    install(tmp_path, "odd", MANIFEST.format("odd", "ops"), build(tmp_path, "odd", init=init))
    for way in ("rabbet.ops.odd.g", "rabbet.ops('odd::g')", "getattr(rabbet.ops, 'odd').g"):
        code = f"import rabbet\nx = rabbet.ones(2)\nprint({way}(x).tolist(), 'g' in dir(rabbet.ops.odd))"
        assert run(tmp_path, code) == "[2.0, 2.0] True\n"


def test_a_namespace_whose_pack_fails_says_why(tmp_path):
    init = '(void)txn; return host->err_set(RB_E_DEVICE, "no licence");'
    install(tmp_path, "odd", MANIFEST.format("odd", "ops"), build(tmp_path, "odd", init=init))
    code = """
import rabbet
for ask in (lambda: rabbet.ops.odd, lambda: rabbet.ops("odd::g")):
    try:
        ask()
    except rabbet.PluginError as error:
        print("no licence" in str(error), "odd::" in str(error))
try:
    rabbet.ops.nobodys
except AttributeError as error:
    print(error)
"""
    assert run(tmp_path, code).splitlines() == ["True True", "True True", "there is no operator and no namespace 'nobodys'"]  # fmt: skip


# ---- missing kernels


def test_a_missing_kernel_names_the_composites_that_called_it(tmp_path):
    install(tmp_path, "far", MANIFEST.format("far", "backend"), build_backend(tmp_path, "far"))
    code = """
import rabbet
x, y = rabbet.ones(2, 3).to("far"), rabbet.tensor([0, 1]).to("far")
try:
    rabbet.nn.functional.cross_entropy(x, y)
except NotImplementedError as error:
    print(error)
"""
    lines = run(tmp_path, code).splitlines()
    assert "no kernel for 'far'" in lines[0]
    assert lines[-1].startswith("while running cross_entropy")


def test_errors_of_arguments_name_no_composite_of_core():
    with pytest.raises(rabbet.ArgumentError) as caught:
        rabbet.lerp(rabbet.ones(2), rabbet.ones(3), rabbet.ones(2))
    assert "while running" not in str(caught.value)


# ---- formulas


BAD = {
    "decomp x.shape": "mine.rec:1: bad::f: a formula gave no tensor",
    "decomp x[0]": "mine.rec:1: bad::f: a formula expected a list",
    "decomp x * (1 // 0)": "mine.rec:1: bad::f: // and % need integers, and no division by 0",
    "decomp x if x else x": "mine.rec:1: bad::f: a condition must be host data, not a tensor",
    "decomp zero": "mine.rec:1: bad::f: a formula gave no tensor",
    "decomp x + nothing": "mine.rec:1: bad::f: unknown name 'nothing'",
    "check x : no\n  decomp x": "mine.rec:1: bad::f: a condition must be host data, not a tensor",
    "vjp x grad.shape\n  decomp x * 2": "mine.rec:1: bad::f: a formula gave no tensor",
}


@pytest.fixture
def clean():
    yield
    for name in _C.record_names():
        if name.startswith(("bad::", "badf")):
            _C.remove_op(name)


@pytest.mark.parametrize("space", ["bad::f", "badf"])
@pytest.mark.parametrize("body", BAD)
def test_bad_formulas_are_errors_of_their_author(body, space, clean):
    x = rabbet.ones(2, 3, requires_grad=True)
    with pytest.raises(rabbet.PluginError) as caught:
        text = f"{space}(Tensor x) -> Tensor\n  kind composite\n  expose none\n  {body}\n"
        library.register_records(text, "mine.rec")
        rabbet.ops(space)(x).sum().backward()
    assert BAD[body].replace("bad::f", space) in str(caught.value)


@pytest.mark.parametrize(("shape", "said"), [
    ("x", "must give a list of ints"), ("[x]", "must give a list of ints, but entry 0 is none"),
    ("function nope", "no shape function 'nope'"), ("3", "must give a list of ints"),
])  # fmt: skip
def test_bad_shapes_are_errors_of_their_author(shape, said, clean):
    text = f"bad::f(Tensor x) -> Tensor\n  kind opaque\n  shape {shape}\n"
    library.register_records(text, "mine.rec")
    with pytest.raises(rabbet.PluginError, match=r"mine\.rec:1: bad::f") as caught:
        rabbet.ops("bad::f")(rabbet.empty(2, device="meta"))
    assert said in str(caught.value)


def test_an_operator_that_a_formula_calls_wrongly_is_named_with_the_formula(clean):
    library.register_records(
        "bad::f(Tensor x) -> Tensor\n  kind composite\n  decomp x + x.shape\n", "mine.rec"
    )
    with pytest.raises(TypeError) as caught:
        rabbet.ops("bad::f")(rabbet.ones(2))
    assert str(caught.value).splitlines() == [
        "add: the argument 'other' cannot be ints",
        "while running bad::f (mine.rec:1)",
    ]


# ---- decompositions


ONE_LINE = [
    "sub",
    "maximum",
    "minimum",
    "masked_fill",
    "clamp",
    "sign",
    "log2",
    "log10",
    "tan",
    "ceil",
    "trunc",
    "relu",
    "relu_vjp",
    "gelu",
    "ne",
    "gt",
    "ge",
    "isnan",
    "isinf",
    "isfinite",
    "logical_not",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_not",
    "bitwise_xor",
    "conj",
    "mean",
    "amin",
    "argmin",
    "max.dim",
    "min.dim",
    "softmax",
    "log_softmax",
    "tril",
    "triu",
    "zeros",
    "ones",
    "zeros_like",
    "ones_like",
    "full_like",
    "eye",
]
TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 2e-2, "float16": 3e-3, "complex64": 1e-5}  # fmt: skip


@pytest.mark.parametrize("dtype", [*TOLERANCE, "int64", "int32", "uint8", "int8", "bool"])
@pytest.mark.parametrize("name", ONE_LINE)
def test_the_decomposition_is_what_the_kernel_computes(name, dtype):
    """And refuses what it refuses; the record's other classes of dtypes aside."""
    op, compared = rabbet.ops(name), 0
    for case in cases(name, getattr(rabbet, dtype)):
        try:
            want = [t.detach() for t in tensors(op(*case.args, **case.kwargs))]
        except (TypeError, NotImplementedError):
            with pytest.raises((TypeError, NotImplementedError)):
                _C.decomposed(op, tuple(case.args), case.kwargs)
            continue
        got = [t.detach() for t in tensors(_C.decomposed(op, tuple(case.args), case.kwargs))]
        for w, g in zip(want, got, strict=True):
            assert (w.dtype, w.shape) == (g.dtype, g.shape)
            exact = not (w.dtype.is_floating_point or w.dtype.is_complex)
            tolerance = 0 if exact else TOLERANCE.get(dtype, 1e-5)
            np.testing.assert_allclose(array(g), array(w), rtol=tolerance, atol=tolerance)
        compared += 1
    integers_only = ("bitwise_not", "bitwise_xor")
    floats_only = ("gelu", "softmax", "log_softmax")
    assert compared or {"float32": name in integers_only, "int64": name in floats_only}.get(
        dtype, True
    )


@pytest.mark.parametrize("name", ONE_LINE)
def test_kernels_stay_in_use(name):
    rabbet.zeros(1)  # loads the backend
    info = _C.op_info(name)
    assert info["has_decomp"] and "cpu" in info["kernels"]
    assert "decomp" not in info["formula_kernels"] and "kernel for cpu" in library.explain(name)


def test_a_device_with_a_handful_of_kernels_runs_them(tmp_path):
    """Of relu, softmax and their like it has none: only where, comparisons and arithmetic."""
    handful = ["where", "le", "lt", "eq", "add", "mul", "div", "exp", "log", "sum", "amax", "fill", "floor", "erf",
               "neg", "cast", "abs", "argmax", "gather", "bitwise_or"]  # fmt: skip
    folder = tmp_path
    install(folder, "far", MANIFEST.format("far", "backend"), build_backend(folder, "far"))
    code = f"""
import rabbet
from rabbet import library
def here(a):
    if not isinstance(a, rabbet.Tensor):
        return a
    shape = a.shape
    for d, stride in enumerate(a.stride()):
        a = a.narrow(d, 0, 1) if stride == 0 and shape[d] else a  # not broadcast: that needs no kernel to copy
    return a.cpu().expand(shape)
def kernel(name):
    op = rabbet.ops(name)
    def run(*args, **kwargs):
        kwargs = {{k: "cpu" if k == "device" else here(v) for k, v in kwargs.items()}}
        return op(*map(here, args), **kwargs).contiguous().to("far")
    return run
for name in {handful}:
    def outer(f=kernel(name)):
        return f
    library.impl(name, "far", outer())
x = rabbet.tensor([[-1.5, 0.0, 2.5], [3.0, -0.5, float("nan")]])
far = x.to("far")
calls = [
    lambda t: t.relu(), lambda t: rabbet.softmax(t, 1), lambda t: rabbet.log_softmax(t, 1), lambda t: t.isfinite(),
    lambda t: t.isnan(), lambda t: rabbet.maximum(t, t * 0.5), lambda t: t.clamp(-1, 1), lambda t: t > 0,
    lambda t: t.mean(1), lambda t: t.max(1)[0], lambda t: rabbet.nn.functional.gelu(t), lambda t: t.trunc(),
    lambda t: t - 1, lambda t: t.masked_fill(t < 0, 7.0),
]
for call in calls:
    assert rabbet.allclose(call(far).cpu().float(), call(x).float(), equal_nan=True)
w = rabbet.ones(3).to("far").requires_grad_()
w.relu().sum().backward()
print(w.grad.cpu().tolist())
"""
    assert run(folder, code) == "[1.0, 1.0, 1.0]\n"


# ---- explain


def test_explain_tells_the_dtype_and_compute_rules():
    assert library.explain("softmax").splitlines()[2:4] == [
        "  dtype `floating(input) if dtype is None else dtype`",
        "  computes in the dtype of the result: casts input",
    ]
    lines = library.explain("masked_fill", rabbet.ones(2), rabbet.tensor([True, False]), 1)
    assert "  dtype `input`\n  computes in `input`: casts input, value\n" in lines
    assert "computes in the dtypes that come: casts nothing" in library.explain("gather")
    assert "dtype `int64`" in library.explain("argmax")


# ---- what a device lacks


def doctor(folder, *arguments):
    code = f"import sys\nfrom rabbet._doctor import main\nprint(main({list(arguments)}), file=sys.stderr)"
    return run(folder, code)


def test_the_cpu_lacks_nothing():
    from rabbet import _needs

    for purpose in _needs.PURPOSES:
        found = _needs.needs("cpu", purpose)
        assert {"MLP", "CNN", "transformer"} <= set(found)
        assert all(ways["missing"] == [] and ways["kernels"] for ways in found.values())
    assert "optimizer Adam" in found and "convolution_dw" in found["CNN"]["kernels"]


def test_the_page_lists_what_a_device_needs_at_least():
    """Of a device without any kernel."""
    from rabbet import _needs

    page = (Path(__file__).resolve().parent.parent / "docs/reference/doctor.md").read_text()
    rows = {r[0]: set(re.findall(r"`([\w.]+)`", r[1])) for r in re.findall(r"^\| (.+?) \| (.+) \|$", page, re.M)}  # fmt: skip
    for name, make in _needs._MODELS.items():
        for purpose in _needs.PURPOSES:
            found = _needs._sort("none", _needs._run_model(make, purpose))
            assert set(found["missing"]) == rows[f"{name}, {purpose}"] and not found["kernels"]
    steps = [_needs._sort("none", _needs._run_optimizer(o)) for o in _needs._OPTIMIZERS]
    assert {op for step in steps for op in step["missing"]} == rows["optimizers"]


def test_the_doctor_lists_what_a_device_lacks_for_what(tmp_path):
    init = 'RbKernel k = kernel("matmul", 0); k.backend = "odd"; return host->add_kernel(txn, &k);'
    install(tmp_path, "odd", MANIFEST.format("odd", "backend"), build_backend(tmp_path, "odd"))
    kernels = build(tmp_path, "kernels", extra=KERNEL, init=init, wheel="kernels")
    install(tmp_path, "kernels", MANIFEST.format("kernels", "ops"), kernels)
    load = "import rabbet\nfrom rabbet import library\nlibrary.require_ops('kernels')\n"
    inference = json.loads(run(tmp_path, load + "from rabbet._doctor import main\nmain(['--device', 'odd', '--for', 'inference', '--json'])"))  # fmt: skip
    assert inference["MLP"] == {
        "kernels": ["matmul"], "decomposed": inference["MLP"]["decomposed"], "missing": inference["MLP"]["missing"],
    }  # fmt: skip
    assert {"linear", "relu"} <= set(inference["MLP"]["decomposed"])
    assert {"add", "where", "le"} <= set(inference["MLP"]["missing"])
    assert "convolution" in inference["CNN"]["missing"]
    assert "convolution" not in inference["MLP"]["missing"]
    training = doctor(tmp_path, "--device", "odd", "--for", "training")
    assert "optimizer Adam: cannot run" in training and "fused_adam" in training
    assert "convolution_dw" in training and max(map(len, training.splitlines())) <= 100


def test_a_device_that_runs_everything_ends_well(capsys):
    assert _doctor.main(["--device", "cpu", "--for", "inference"]) == 0
    assert "MLP: runs" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "said"), [
    (["--device", "cpu"], "expected --device NAME --for PURPOSE, got --device cpu"),
    (["--for", "training"], "expected --device NAME --for PURPOSE, got --for training"),
    (["--device", "cpu", "--for", "fun"], "--for is one of inference, training, got 'fun'"),
    (["--device", "nope", "--for", "training"], "no backend for device 'nope' is installed"),
])  # fmt: skip
def test_bad_options_of_the_doctor(arguments, said, capsys):
    assert _doctor.main(arguments) == 2
    assert said in capsys.readouterr().err
