"""What plugins hand to calls is converted as calls from Python are, or refused; C++ packs are checked as Python ones."""

import re

import pytest
import rabbet
from plugin_wheels import KERNEL, MANIFEST, build, install, run

CALLS = r"""
static const RbHost* host;
static void keep(const RbHost* h) { host = h; }
static RbValue value(uint32_t tag) { RbValue v; memset(&v, 0, sizeof v); v.tag = tag; return v; }
static RbValue whole(int64_t i) { RbValue v = value(RB_INT); v.v.i = i; return v; }
static RbValue truth(int64_t i) { RbValue v = value(RB_BOOL); v.v.i = i; return v; }
static RbValue real(double f) { RbValue v = value(RB_FLOAT); v.v.f = f; return v; }
static RbValue list(const int64_t* is, uint32_t n) { RbValue v = value(RB_INTS); v.len = n; v.v.is = is; return v; }
static const int64_t two[] = {1, 2}, three[] = {1, 1, 1};
RB_EXPORT int32_t try_one(int32_t which, RbTensor* t, RbTensor** made)
{ RbValue a[16], r = value(RB_NONE); int32_t n = 2; const char* name = "?"; int32_t rc;
  for (int i = 0; i < 16; ++i) a[i] = value(RB_NONE);
  a[0].tag = RB_TENSOR; a[0].v.t = t;
  switch (which) { %s }
  rc = host->call(host->find_op(name), a, n, &r, 1, 0);
  *made = rc == RB_OK ? r.v.t : 0;
  return rc; }
"""
# The statements that choose an operator and its arguments, beside the tensor of shape (1, 1, 3, 4); the shape of the
# result, or what the message says.
VALUES = {
    "an int for dims": ('name = "squeeze"; a[1] = whole(1);', [1, 3, 4]),
    "an int for a permutation": ('name = "permute"; a[1] = whole(1);', "permute"),
    "a bool for a dim": ('name = "unsqueeze"; a[1] = truth(1);', [1, 1, 1, 3, 4]),
    "a float for a dim": ('name = "unsqueeze"; a[1] = real(1);', "unsqueeze: the argument 'dim' cannot be a float"),
    "a float for dims": ('name = "squeeze"; a[1] = real(1);', "squeeze: the argument 'dim' cannot be a float"),
    "a bool for dims": ('name = "squeeze"; a[1] = truth(1);', "squeeze: the argument 'dim' cannot be a bool"),
    "ints for a dim": ('name = "unsqueeze"; a[1] = list(two, 2);', "unsqueeze: the argument 'dim' cannot be ints"),
    "too many ints": ('name = "odd::two"; a[1] = list(three, 3);', "odd::two: the argument 'n' must have 2 ints, got 3"),
    "too few ints": ('name = "odd::two"; a[1] = list(three, 0);', "odd::two: the argument 'n' must have 2 ints, got 0"),
    "one int of two": ('name = "odd::two"; a[1] = list(two, 1);', [1, 1, 3, 4]),
    "an int for two": ('name = "odd::two"; a[1] = whole(2);', [1, 1, 3, 4]),
    "an int for a float": ('name = "leaky_relu"; a[1] = whole(1);', [1, 1, 3, 4]),
    "a str for a float": ('name = "leaky_relu"; a[1] = value(RB_STR); a[1].v.s = "x";', "leaky_relu: the argument '.*' cannot be a str"),
    "an int for a size": ('name = "expand"; a[1] = whole(4);', "expand"),
    "an int for a bool": ('name = "amax"; n = 3; a[1] = whole(2); a[2] = whole(1);', [1, 1, 1, 4]),
    "a large int for a bool": ('name = "amax"; n = 3; a[1] = whole(2); a[2] = whole(7);', "amax: the argument 'keepdim' cannot be an int"),
    "a float for a bool": ('name = "amax"; n = 3; a[1] = whole(2); a[2] = real(1);', "amax: the argument 'keepdim' cannot be a float"),
}  # fmt: skip
INIT = r'keep(host); return host->add_ops(txn, "odd::two(Tensor x, int[2] n) -> Tensor\n  kind composite\n  decomp x * n[0] + n[1]\n");'
WORK = """
import ctypes, rabbet
from rabbet import _C
_C.load_plugin({library!r})
library = ctypes.CDLL({library!r})
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
table = (ctypes.c_void_p * 7).from_address(get(_C.python_v0, b"rabbet._C.python_v0"))
address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(table[4])
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("values")
    cases = "".join(f"case {i}: {body} break;\n" for i, (body, _) in enumerate(VALUES.values()))
    extra = KERNEL + CALLS % cases + SHAPES
    library = str(build(folder, "odd", extra=extra, init=INIT))
    code = (
        WORK.format(library=library)
        + f"""
x, made, shape = rabbet.ones(1, 1, 3, 4), ctypes.c_void_p(), (ctypes.c_int64 * 8)()
for which in range({len(VALUES)}):
    if library.try_one(which, ctypes.c_void_p(address_of(x)), ctypes.byref(made)):
        library.message.restype = ctypes.c_char_p
        print(library.message().decode().splitlines()[0])
    else:
        n = library.shape_of(made, shape)
        print(list(shape[:n]))
"""
    )
    return run(folder, code).splitlines()


SHAPES = """
RB_EXPORT const char* message(void) { return host->err_get()->message; }
RB_EXPORT int32_t shape_of(RbTensor* t, int64_t* shape)
{ int32_t n = t->ndim; for (int32_t i = 0; i < n; ++i) shape[i] = t->shape[i]; host->release(t); return n; }
"""


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_another_type(kind, answers):
    answer, expected = answers[list(VALUES).index(kind)], VALUES[kind][1]
    if isinstance(expected, list):
        assert answer == str(expected)
    else:
        assert re.match(expected, answer), answer


WRONG_FORMULAS = {
    "an unknown name": "odd::w(Tensor x) -> Tensor\\n  kind composite\\n  decomp nowhere(x)\\n",
    "an unknown argument": "odd::w(Tensor x) -> Tensor\\n  kind composite\\n  decomp x + y\\n",
    "no expression": "odd::w(Tensor x) -> Tensor\\n  kind composite\\n  decomp x +\\n",
    "a wrong derivative": "odd::w(Tensor x) -> Tensor\\n  dtypes float\\n  decomp x * 2\\n  vjp x  grad * z\\n",
}


@pytest.mark.parametrize("kind", WRONG_FORMULAS)
def test_a_wrong_formula_of_a_pack_in_c_is_refused_at_registration(kind, tmp_path):
    record = WRONG_FORMULAS[kind]
    library = build(tmp_path, "odd", init=f'return host->add_ops(txn, "{record}");')
    with pytest.raises(rabbet.PluginError) as of_c:
        rabbet._C.load_plugin(str(library))
    with pytest.raises(rabbet.PluginError) as of_python:
        rabbet.library.register_records(record.replace("\\n", "\n"), "odd 1.0")
    assert str(of_c.value) == str(of_python.value)
    assert "odd::w" not in rabbet._C.record_names()


def test_a_right_formula_of_a_pack_in_c_is_taken(tmp_path):
    record = "oddly::w(Tensor x) -> Tensor\\n  kind composite\\n  decomp oddly::v(x) + x\\noddly::v(Tensor x) -> Tensor\\n  kind composite\\n  decomp x * 3\\n"
    library = build(tmp_path, "oddly", init=f'return host->add_ops(txn, "{record}");')
    code = f"import rabbet\nrabbet._C.load_plugin({str(library)!r})\nprint(rabbet.ops.oddly.w(rabbet.ones(2)).tolist())"
    assert run(tmp_path, code) == "[4.0, 4.0]\n"


@pytest.mark.parametrize(("wheel", "space"), [("odd", "odd"), ("even", "odd")])
def test_a_broken_manifest_is_named_when_a_namespace_is_asked_for(wheel, space, tmp_path):
    install(tmp_path, wheel, "garbage [")
    code = f"""
import rabbet
for ask in (lambda: rabbet.ops.{space}, lambda: rabbet.ops("{space}::f")):
    try:
        ask()
    except Exception as error:
        print(error)
"""
    first, second = run(tmp_path, code).splitlines()
    assert f"{wheel}-plugin" in first and f"{wheel}-plugin" in second
    assert "manifest" in first and "manifest" in second


def test_a_backend_that_cannot_count_its_devices_leaves_the_others_alone(tmp_path):
    from plugin_wheels import BACKEND, compile_library

    source = BACKEND.replace("*n = 1; return RB_OK;", "(void)n; return RB_E_DEVICE;")
    library = compile_library(tmp_path, "odd", source, "-DKEY=0x77", '-DNAME="odd"')
    install(tmp_path, "odd", MANIFEST.format("odd", "backend"), library)
    code = """
import contextlib, io
import rabbet
try:
    rabbet.ones(2, device="odd:1")
except RuntimeError as error:
    print(str(error).splitlines()[0])
rabbet.ones(1)
assert {b["name"]: b["devices"] for b in rabbet._C.backends()}["cpu"] == 1
with rabbet.random.fork_rng():
    rabbet.manual_seed(3)
    x = rabbet.rand(2, requires_grad=True)
x.sum().backward()
rabbet.accelerator.is_available(), rabbet.accelerator.device_count(), repr(x), x.numpy(force=True), rabbet.load, rabbet.from_dlpack(x.detach())
from rabbet._doctor import main
text = io.StringIO()
with contextlib.redirect_stdout(text):
    main([])
assert "`count` of the backend 'odd' [odd 1]" in " ".join(text.getvalue().split()), text.getvalue()
"""
    assert "the function `count` of the backend 'odd' [odd 1] returned code" in run(tmp_path, code)
