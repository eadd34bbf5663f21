"""Plugins: which are used, what they add, and what the doctor says of them; broken ones: test_broken_plugins."""

import pytest
import rabbet
from plugin_wheels import BACKEND, KERNEL, MANIFEST, build, compile_library, install, run


def test_plugins_can_be_chosen_by_the_environment(tmp_path):
    code = "import rabbet\ntry:\n    rabbet.zeros(1)\nexcept RuntimeError as e:\n    print(e)\n"
    assert "pip install rabbet-backend-cpu" in run(tmp_path, code, RABBET_PLUGINS="0")
    assert run(tmp_path, code, RABBET_PLUGINS="cpu") == ""


def test_an_operator_of_a_plugin_gets_python_names(tmp_path):
    init = (
        'RbKernel k = kernel("odd::twice", 0); k.backend = "cpu"; k.flags = RB_K_CONTIGUOUS; k.fn = twice; '
        'if (host->add_ops(txn, "odd::twice(Tensor x) -> Tensor\\n  kind elementwise\\n  linear x\\n  vjp x  2 * grad\\n")) '
        "return 1; return host->add_kernel(txn, &k);"
    )
    extra = (
        KERNEL
        + """
static int32_t twice(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; (void)c; (void)n; (void)m;
  for (int64_t i = 0; i < a[0].v.t->numel; ++i) ((float*)r[0].v.t->data)[i] = 2 * ((float*)a[0].v.t->data)[i];
  return RB_OK; }
"""
    )
    library = build(tmp_path, "twice", init=init, extra=extra)
    code = f"""
import rabbet
rabbet._C.load_plugin({str(library)!r})
x = rabbet.tensor([1.0, 2.0], requires_grad=True)
y = rabbet.ops("odd::twice")(x)
y.sum().backward()
print(y.tolist(), x.grad.tolist())
"""
    assert run(tmp_path, code) == "[2.0, 4.0] [2.0, 2.0]\n"


FORMULA_KERNELS = r"""
#define SIGNATURE "odd::f(Tensor x, Tensor y) -> Tensor"
static int32_t fill(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)c; (void)n; (void)m;
  if (a[1].tag != RB_TENSOR || ((float*)a[1].v.t->data)[0] < 0) return RB_E_NOTIMPL;
  for (int64_t i = 0; i < r[0].v.t->numel; ++i) ((float*)r[0].v.t->data)[i] = *(float*)s;
  return RB_OK; }
static float forward = 100, backward = 200;
static int32_t add(const RbHost* host, RbTxn* txn, const char* op, int32_t argument, const char* text, float* self)
{ RbFormulaKernel k; memset(&k, 0, sizeof k); k.struct_size = sizeof k; k.op = op; k.argument = argument;
  k.backend = "cpu"; k.formula = text; k.fn = fill; k.self = self; return host->add_formula_kernel(txn, &k); }
"""


def test_kernels_of_whole_formulas_of_a_plugin(tmp_path):
    """Core uses one where its text is that of the record, nothing is recorded and it does not decline."""
    init = (
        r'return host->add_ops(txn, SIGNATURE "\n  kind composite\n  decomp x + y\n  vjp x  grad * y\n  vjp y  grad * x\n")'
        r' || add(host, txn, "odd::f", -1, SIGNATURE "\ndecomp x + y\n", &forward)'
        r' || add(host, txn, "odd::f", 0, SIGNATURE "\nvjp x grad * y\n", &backward)'
        r' || add(host, txn, "odd::f", 1, SIGNATURE "\nvjp y grad / x\n", &backward)'
        r' || add(host, txn, "odd::f", 2, SIGNATURE "\nvjp z grad\n", &backward)'
        r' || add(host, txn, "odd::g", -1, "odd::g(Tensor x) -> Tensor\ndecomp x\n", &backward);'
    )
    library = build(tmp_path, "formula", extra=FORMULA_KERNELS, init=init)
    code = f"""
import rabbet
rabbet._C.load_plugin({str(library)!r})
f = rabbet.ops("odd::f")
x, y = rabbet.tensor([1.0, 2.0]), rabbet.tensor([3.0, 4.0])
info = rabbet._C.op_info("odd::f")
print(info["kernels"], info["formula_kernels"])
print(f(x, y).tolist(), f(x.double(), y.double()).tolist() == f(x, y).double().tolist())
print(f(x, -y).tolist(), f(x.int(), y.int()).tolist(), f(x, y.double()).tolist())
out = rabbet.zeros(2)
f(x, -y, out=out)
print(out.tolist(), f(x[:1], y).tolist())
x.requires_grad = y.requires_grad = True
f(x, y).backward(rabbet.ones(2))
print(x.grad.tolist(), y.grad.tolist())
g, = rabbet.autograd.grad(f(x, y).sum(), x, create_graph=True)
print(g.tolist(), g.requires_grad)
rabbet._C.use_formula_kernels(False)
print(f(x, y).tolist(), rabbet.autograd.grad(f(x, y).sum(), x)[0].tolist())
"""
    assert run(tmp_path, code).splitlines() == [
        "{'cpu': 'odd 1.0'} {'decomp': {'cpu': 'odd 1.0'}, 'vjp x': {'cpu': 'odd 1.0'}}",
        "[100.0, 100.0] False",
        "[-2.0, -2.0] [4, 6] [4.0, 6.0]",
        "[-2.0, -2.0] [100.0, 100.0]",
        "[200.0, 200.0] [1.0, 2.0]",
        "[3.0, 4.0] True",
        "[4.0, 6.0] [3.0, 4.0]",
    ]


def test_library_registers_operators_in_python():
    from rabbet import library

    @library.op(
        "mine::cube(Tensor x) -> Tensor", vjp={"x": "grad * 3 * x * x"}, fields={"shape": "x.shape"}
    )
    def cube(x):
        """The third power."""
        return x.detach() ** 3

    x = rabbet.tensor([2.0], requires_grad=True)
    y = cube(x)
    y.sum().backward()
    assert y.item() == 8 and x.grad.item() == 12
    assert "decomposition" not in library.explain(
        "mine::cube", x
    ) and "layer autograd" in library.explain("mine::cube", x)
    with pytest.raises(RuntimeError, match="no argument 'z'"):
        library.register_records("mine::bad(Tensor x) -> Tensor\n  vjp z  grad\n")
    with pytest.raises(RuntimeError, match="unknown operator 'gard'"):
        library.register_records("mine::bad(Tensor x) -> Tensor\n  vjp x  gard(x)\n")


def test_doctor_says_what_works(tmp_path):
    text = run(tmp_path, "from rabbet._doctor import main\nraise SystemExit(main([]))")
    assert "rabbet-backend-cpu" in text and "phase 400" in text and "live tensors" in text


REQUIRE_OPS = """
from rabbet import library
try:
    library.require_ops("odd")
except RuntimeError as error:
    print(error)
"""


def test_a_pack_of_operators_is_loaded_by_name(tmp_path):
    init = 'return host->add_ops(txn, "odd::g(Tensor x) -> Tensor\\n  kind composite\\n  decomp x + x\\n");'
    library = build(tmp_path, "odd", init=init)
    install(tmp_path, "odd", MANIFEST.format("odd", "ops"), library)
    code = REQUIRE_OPS + "import rabbet\nprint(rabbet.ops('odd::g')(rabbet.ones(2)).tolist())"
    assert run(tmp_path, code) == "[2.0, 2.0]\n"


def test_a_pack_that_is_missing_or_broken_is_explained(tmp_path):
    said = "no plugin for 'odd' is installed; installed namespaces of operators: none"
    assert said in run(tmp_path, REQUIRE_OPS)
    init = '(void)txn; return host->err_set(RB_E_DEVICE, "no licence");'
    install(tmp_path, "odd", MANIFEST.format("odd", "ops"), build(tmp_path, "odd", init=init))
    text = run(tmp_path, REQUIRE_OPS)
    assert "no licence" in text and "failed at stage load" in text and "Fix:" in text


def test_a_module_that_users_import_has_its_hooks_then(tmp_path):
    code = """
import sys
from rabbet import library
library.require_ops("odd")
def rabbet_tensor_attributes():
    return {"oddness": property(lambda t: 3)}
library.module_imported(sys.modules[__name__])
"""
    manifest = MANIFEST.format("odd", "ops") + 'attributes = ["oddness"]\n'
    install(tmp_path, "odd", manifest, build(tmp_path, "odd"), code)
    user = "import odd_plugin, rabbet\nprint(rabbet.ones(1).oddness)\n"
    assert run(tmp_path, user) == "3\n"


@pytest.mark.parametrize("content", [None, "no library"])
def test_a_library_that_the_environment_names_and_that_does_not_load(content, tmp_path):
    path = tmp_path / "odd.so"
    if content:
        path.write_text(content)
    code = "import rabbet\nprint(rabbet.ones(2).tolist())\nfrom rabbet._doctor import main\nassert main([]) == 1"
    text = " ".join(run(tmp_path, code, RABBET_PLUGINS=f"cpu,{path}").split())
    assert "[1.0, 1.0]" in text and "FAILED(load)" in text
    assert f"fix: correct RABBET_PLUGINS, which names it, or build {path} again" in text


def test_threads_that_first_use_an_attribute_together(tmp_path):
    code = """
import threading
import rabbet
start, done = threading.Barrier(8), []
def work():
    start.wait()
    x = rabbet.ones(2, requires_grad=True)
    (x * x).sum().backward()
    done.append(x.grad.tolist())
threads = [threading.Thread(target=work) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(done.count([2.0, 2.0]))
"""
    assert run(tmp_path, code) == "8\n"


def test_a_thread_waits_for_the_kernels_of_a_backend_that_another_one_loads(tmp_path):
    """`init` takes its time between the backend and the kernels."""
    source = BACKEND.replace(
        "static int32_t init(", KERNEL + "#include <time.h>\nstatic int32_t init("
    )
    source = source.replace(
        "return host->add_backend(txn, &backend, &self_id);",
        'RbKernel k = kernel("neg", 0); int32_t rc = host->add_backend(txn, &backend, &self_id); struct timespec t = {0, 400000000}; nanosleep(&t, 0);'
        "return rc ? rc : host->add_kernel(txn, &k);",
    )
    library = compile_library(
        tmp_path, "odd", source, "-D_DEFAULT_SOURCE", "-DKEY=0x41", '-DNAME="odd"'
    )
    install(tmp_path, "odd", MANIFEST.format("odd", "backend"), library)
    code = """
import threading, time, rabbet
said = []
def use(pause):
    time.sleep(pause)
    try:
        said.append(rabbet.empty(3, device="odd").neg().device.type)
    except Exception as error:
        said.append(str(error))
threads = [threading.Thread(target=use, args=(k / 10,)) for k in range(3)]
for t in threads: t.start()
for t in threads: t.join()
print(said)
"""
    assert run(tmp_path, code) == "['odd', 'odd', 'odd']\n"
