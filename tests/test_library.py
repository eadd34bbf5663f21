"""Operators made in Python: definitions, kernels in Python and C, what is refused and how it is said."""

import gc
import pickle
import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest
import rabbet
from library_ops import SCALE, clean, scale_op  # noqa: F401
from rabbet import library

# ---- definitions


def test_the_decorated_function_is_the_operator():
    scale = scale_op()
    x = rabbet.tensor([1.0, 2.0])

    assert scale(x, 3.0).tolist() == [3, 6] and scale(x, a=0.5).tolist() == [0.5, 1]
    assert scale(x).tolist() == [2, 4]
    assert rabbet.ops.mine.scale is scale and rabbet.ops("mine::scale") is scale
    assert repr(scale) == "<operator rabbet.ops.mine.scale>"
    assert "The tensor times a number." in scale.__doc__ and SCALE in scale.__doc__
    assert pickle.loads(pickle.dumps(scale)) is scale
    assert "scale" in dir(rabbet.ops.mine) and "scale" in repr(rabbet.ops.mine)


def test_out_and_several_results():
    scale = scale_op()
    out = rabbet.zeros(2)
    assert scale(rabbet.tensor([1.0, 2.0]), 3.0, out=out) is out and out.tolist() == [3, 6]

    @library.op("mine::both(Tensor x) -> (Tensor plus, Tensor minus)")
    def both(x):
        return x + 1, x - 1

    result = both(rabbet.zeros(1))
    assert result.plus.tolist() == [1] and result.minus.tolist() == [-1]

    @library.op("mine::halves(Tensor x) -> Tensor[]", kind="opaque")
    def halves(x):
        return [x[:1].clone(), x[1:].clone()]

    assert [t.tolist() for t in halves(rabbet.tensor([1.0, 2.0]))] == [[1], [2]]


def test_arguments_come_as_the_schema_says():
    seen = []

    @library.op(
        "mine::all(Tensor x, Tensor[] ts, int[] n, *, bool flag=True, str mode='a', dtype? dtype=None) -> Tensor"
    )
    def everything(x, ts, n, *, flag, mode, dtype):
        seen.append((len(ts), n, flag, mode, dtype))
        return x + 1

    x = rabbet.zeros(1)
    everything(x, [x, x], [1, 2], mode="b", dtype=rabbet.float64)
    assert seen == [(2, [1, 2], True, "b", rabbet.float64)]


def test_a_composite_is_differentiated_batched_and_cast_through_what_it_is_made_of():
    @library.op("mine::mlp(Tensor x, Tensor w) -> Tensor")
    def mlp(x, w):
        return rabbet.tanh(x @ w)

    x = rabbet.randn(3, 4, dtype=rabbet.float64, requires_grad=True)
    w = rabbet.randn(4, 2, dtype=rabbet.float64, requires_grad=True)
    assert rabbet.autograd.gradcheck(mlp, (x, w))
    assert rabbet.autograd.gradgradcheck(mlp, (x, w))
    batched = rabbet.vmap(mlp, in_dims=(0, None))(x.detach()[:, None], w.detach())
    assert rabbet.allclose(batched[:, 0], rabbet.tanh(x @ w))
    _, tangent = rabbet.func.jvp(lambda v: mlp(v, w), (x,), (rabbet.ones_like(x),))
    _, expected = rabbet.func.jvp(lambda v: rabbet.tanh(v @ w), (x,), (rabbet.ones_like(x),))
    assert rabbet.allclose(tangent, expected)
    with rabbet.autocast("cpu"):
        assert mlp(x.detach().float(), w.detach().float()).dtype == rabbet.bfloat16


def test_record_fields_make_it_elementwise():
    @library.op("mine::softsign(Tensor x) -> Tensor", kind="elementwise", dtype="float(x)",
                vjp={"x": "grad / (1 + abs(x)) ** 2"})  # fmt: skip
    def softsign(x):
        return x / (1 + x.abs())

    x = rabbet.randn(5, dtype=rabbet.float64, requires_grad=True)
    assert rabbet.autograd.gradcheck(softsign, x) and rabbet.autograd.gradgradcheck(softsign, x)
    assert "Softsign" in type(softsign(x).grad_fn).__name__ or "Softsign" in repr(
        softsign(x).grad_fn
    )
    meta = softsign(rabbet.zeros(2, 3, dtype=rabbet.int32, device="meta"))
    assert meta.shape == (2, 3) and meta.dtype == rabbet.float32


def test_a_formula_in_place_of_the_function():
    @library.op("mine::gelu(Tensor x) -> Tensor", decomp="x * sigmoid(1.702 * x)")
    def gelu(x):
        raise AssertionError("the formula runs")

    x = rabbet.tensor([1.0])
    assert rabbet.allclose(gelu(x), x * rabbet.sigmoid(1.702 * x))


SCHEMAS = {
    "mine::f(Tensor x -> Tensor": r"is not closed\n  mine::f\(Tensor x -> Tensor\n         \^",
    "mine::f(Tensr x) -> Tensor": r"unknown type 'Tensr'.*\n  mine::f\(Tensr x\) -> Tensor\n          \^",
    "mine::f(Tensor) -> Tensor": r"expected 'type name', got 'Tensor'",
    "mine::f(Tensor x)": r"expected 'name\(parameters\) -> result'",
    "mine::f(Tensor x) -> int": r"expected a result 'Tensor'.*got 'int'\n.*\n +\^",
    "mine::f(Tensor x, Tensor x) -> Tensor": r"two parameters are called 'x'",
    "mine::f(Tensor x, int a=) -> Tensor": r"the default value of 'a' is missing",
    "mine::f(Tensor x, int a=b) -> Tensor": r"cannot read the default value 'b' of 'a'",
    "mine::f(Tensor x) -> (Tensor a, b)": r"expected 'Tensor name' among several results, got 'b'",
    "mine::f(Tensor x) -> (Tensor a": r"results is not closed",
    "mine::f() -> (Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, Tensor f, Tensor g, Tensor h, Tensor i)": r"more than 8 results",
    "f(Tensor x) -> Tensor": r"expected 'namespace::name\(arguments\) -> result', got\n  f\(Tensor",
    "": r"expected 'namespace::name",
}  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_malformed_schema_is_shown_with_the_place(schema):
    with pytest.raises(rabbet.PluginError, match=SCHEMAS[schema]):
        library.op(schema)(lambda x: x)
    assert not any(n.startswith("mine::") for n in rabbet._C.record_names())


@pytest.mark.parametrize(
    "fields,message",
    [
        ({"vjp": {"x": "grad * b"}}, "unknown name 'b'"),
        ({"vjp": {"y": "grad"}}, "has no argument 'y'"),
        ({"kind": "nonsense"}, "unknown kind 'nonsense'"),
        ({"autocast": "int8"}, "expected low, fp32, promote, pass"),
        ({"fields": {"kond": "x"}}, "unknown field 'kond'"),
        ({"decomp": "nowhere(x)"}, "nowhere"),
    ],
)
def test_wrong_fields_are_refused_and_leave_nothing(fields, message):
    with pytest.raises(rabbet.PluginError, match=message):
        scale_op(**fields)
    assert "mine::scale" not in rabbet._C.record_names()


def test_a_function_with_other_arguments_is_refused():
    with pytest.raises(
        rabbet.PluginError, match=r"takes \(x\), but the schema says\n  mine::scale"
    ):
        library.op(SCALE)(lambda x: x)
    assert "mine::scale" not in rabbet._C.record_names()
    scale = scale_op()
    with pytest.raises(rabbet.PluginError, match=r"the kernel of 'mine::scale' takes \(\)"):
        library.impl(scale, "cpu")(lambda: None)


def test_wrong_calls_show_the_schema():
    with pytest.raises(TypeError, match=r"argument 'x' must be Tensor, not str\n  mine::scale"):
        scale_op()("text")


# ---- results that do not fit the schema


def returns(result):
    @library.op("mine::f(Tensor x) -> Tensor")
    def f(x):
        return result(x)

    return f


@pytest.mark.parametrize(
    "result,error,message",
    [
        (lambda x: None, TypeError, "must return a Tensor, got None"),
        (lambda x: 3, TypeError, "must return a Tensor, got int"),
        (lambda x: (x + 1, x + 1), TypeError, "must return a Tensor, got a tuple of 2"),
        (lambda x: x, ValueError, "shares memory with the argument 'x'"),
        (lambda x: x[1:], ValueError, r"shares memory.*return a copy \(clone\(\)\)"),
        (lambda x: x.detach(), ValueError, "shares memory"),
    ],
)
def test_a_wrong_result_is_refused(result, error, message):
    f = returns(result)
    x = rabbet.ones(2, requires_grad=True)
    for arg in (x, x.detach()):
        with pytest.raises(error, match=f"mine::f: .*{message}") as caught:
            f(arg)
        assert __file__ in str(caught.value)
    f.handle.revoke()


def test_wrong_numbers_of_results():
    @library.op("mine::both(Tensor x, int n) -> (Tensor a, Tensor b)")
    def both(x, n):
        return tuple(x + i for i in range(n)) if n != 2 else (x + 1,) * 2

    for n, message in (
        (1, "a tuple of 2 Tensors, got a tuple of 1"),
        (2, "two results share memory"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            both(rabbet.ones(1), n)

    @library.op("mine::none(Tensor x) -> ()")
    def none(x):
        return x

    with pytest.raises(TypeError, match=r"must return None, got rabbet\.Tensor"):
        none(rabbet.ones(1))


def test_a_view_may_be_returned_where_the_schema_says_so():
    @library.op("mine::tail(Tensor x) -> Tensor view?(x)")
    def tail(x):
        return x[1:]

    x = rabbet.tensor([1.0, 2.0], requires_grad=True)
    tail(x).sum().backward()
    assert x.grad.tolist() == [0, 1]


def test_shape_and_dtype_of_a_kernel_are_held_against_the_record():
    f = library.define("mine::f(Tensor x, int n) -> Tensor", shape="x.shape")
    library.impl(f, "cpu", lambda x, n: [x + 1, x.int(), rabbet.zeros(5)][n])
    assert f(rabbet.zeros(1), 0).tolist() == [1]
    with pytest.raises(
        rabbet.PluginError,
        match=r"returned out of shape \(1,\) and dtype int32; by the record .* float32",
    ):
        f(rabbet.zeros(1), 1)
    with pytest.raises(
        rabbet.PluginError,
        match=r"shape \(5,\) and dtype float32; by the record it has shape \(1,\)",
    ):
        f(rabbet.zeros(1), 2)


# ---- kernels


def test_a_kernel_is_used_on_its_device_and_gets_plain_tensors():
    scale = scale_op()
    seen = []

    @library.impl("mine::scale", "cpu")
    def kernel(x, a):
        seen.append(x.requires_grad)
        return rabbet.from_numpy(x.numpy() * a)

    x = rabbet.tensor([1.0], requires_grad=True)
    assert scale(x.detach(), 4.0).tolist() == [4] and seen == [False]
    library.vjp("mine::scale", lambda ctx, grad: (grad * ctx.inputs[1], None))
    y = scale(x, 4.0)
    y.sum().backward()
    assert seen == [False, False] and x.grad.tolist() == [4] and x.requires_grad
    assert scale(x.to("meta"), 1.0).device.type == "meta"
    assert kernel(x.detach(), 2.0).tolist() == [2]  # the registration is called as the function


def test_a_kernel_that_fills_its_results():
    f = library.define("mine::f(Tensor x) -> (Tensor a, Tensor b)", shape="x.shape")

    @library.impl(f, "cpu")
    def kernel(x, out):
        out[0].copy_(x + 1)
        out[1].copy_(x + 2)

    a, b = f(rabbet.zeros(2))
    assert a.tolist() == [1, 1] and b.tolist() == [2, 2]
    given = rabbet.zeros(2), rabbet.zeros(2)
    found = f(rabbet.zeros(2), out=given)
    assert found.a is given[0] and found.b is given[1] and given[1].tolist() == [2, 2]

    g = library.define("mine::g(Tensor x) -> Tensor")
    library.impl(g, "cpu", lambda x, out: None)
    with pytest.raises(NotImplementedError, match="does not say what shape the result has"):
        g(rabbet.zeros(2))


def test_a_result_that_somebody_else_holds_comes_out_as_a_tensor_of_its_own():
    f = library.define("mine::f(Tensor x) -> Tensor", shape="x.shape", vjp={"x": "grad"})
    kept = rabbet.ones(2)
    library.impl(f, "cpu", lambda x: kept)
    x = rabbet.zeros(2, requires_grad=True)
    assert f(x).requires_grad and not kept.requires_grad and f(x) is not kept


def test_what_an_operator_writes_is_counted_and_checked():
    @library.op("mine::bump(Tensor(a!) x) -> ()", kind="opaque")
    def bump(x):
        x += 1

    library.impl(bump, "cpu", _add_one)
    x = rabbet.zeros(2)
    version = x._version
    assert bump(x) is None and x.tolist() == [1, 1] and x._version > version
    frozen = np.zeros(2, dtype=np.float32)
    frozen.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        bump(rabbet.from_numpy(frozen))


def _add_one(x):
    x.numpy()[...] += 1


def test_exceptions_keep_their_type_and_traceback():
    def deep():
        raise ZeroDivisionError("by nothing")

    @library.op("mine::f(Tensor x) -> Tensor", kind="opaque", vjp=lambda ctx, grad: deep())
    def f(x):
        return deep() if x.sum() > 0 else x.clone()

    with pytest.raises(ZeroDivisionError, match="by nothing") as caught:
        f(rabbet.ones(1))
    assert "deep" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert any("mine::f" in note for note in caught.value.__notes__)
    x = rabbet.zeros(1, requires_grad=True)
    with pytest.raises(ZeroDivisionError):
        f(x).sum().backward()
    assert (x + 1).tolist() == [1]


def test_transforms_inside_a_kernel():
    @library.op("mine::inside(Tensor x) -> Tensor", kind="opaque")
    def inside(x):
        with rabbet.enable_grad():
            v = x.clone().requires_grad_()
            (v * v).sum().backward()
        noise = rabbet.rand(2)  # no random number of the levels outside
        return rabbet.vmap(lambda r, g: r * 2 + g)(x, v.grad) + 0 * noise.sum()

    x = rabbet.ones(2, 3)
    assert inside(x).tolist() == [[4.0] * 3] * 2

    @library.batch(inside)
    def rule(info, in_dims, x):
        return inside(x.reshape(-1, 3)).reshape(x.shape), 0

    assert rabbet.vmap(inside)(rabbet.ones(4, 2, 3)).tolist() == [[[4.0] * 3] * 2] * 4
    rule.revoke()
    with pytest.warns(UserWarning, match="mine::inside"):
        assert rabbet.vmap(inside)(rabbet.ones(4, 2, 3)).tolist() == [[[4.0] * 3] * 2] * 4


def test_a_result_on_another_device_is_refused():
    f = library.define("mine::f(Tensor x) -> Tensor", shape="x.shape")
    library.impl(f, "cpu", lambda x: rabbet.empty(2, device="meta"))
    with pytest.raises(
        rabbet.DeviceError, match="the kernel for 'cpu' returned a tensor on 'meta'"
    ):
        f(rabbet.ones(2))


def test_kernels_are_taken_back_while_they_run():
    f = library.define("mine::f(Tensor x) -> Tensor", shape="x.shape")
    x = rabbet.ones(70000)  # Python's lock is released around the call
    stop, errors = threading.Event(), []

    def work():
        while not stop.is_set():
            try:
                assert f(x)[0].item() == 2
            except (NotImplementedError, rabbet.StateError):
                pass  # there was none just then
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(200):
        with library.impl(f, "cpu", lambda x: x + 1):
            pass
    stop.set()
    for t in threads:
        t.join()
    assert not errors


def test_kernels_run_on_many_threads():
    scale = scale_op(kind="opaque", vjp={"x": "grad * a"})
    errors = []

    def work():
        try:
            for _ in range(50):
                x = rabbet.ones(70000, requires_grad=True)
                scale(x, 3.0).sum().backward()
                assert x.grad[0].item() == 3
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_nothing_leaks():
    def kernel(x, a):
        return x + a

    x = rabbet.ones(3)
    before = sys.getrefcount(kernel), sys.getrefcount(x)
    for _ in range(20):
        scale = scale_op()
        handle = library.impl(scale, "cpu", kernel)
        for _ in range(5):
            scale(x, 1.0)
        handle.revoke()
        scale.handle.revoke()
    del scale, handle
    gc.collect()
    assert (sys.getrefcount(kernel), sys.getrefcount(x)) == before

    scale = scale_op()
    library.impl(scale, "cpu", lambda x, a: (x + a, x)[2])  # raises
    bad = returns(lambda x: (x + 1, x + 2))
    live = rabbet._C.live_counts()["tensors"]
    for _ in range(20):
        with pytest.raises(IndexError):
            scale(x, 1.0)
        with pytest.raises(TypeError):
            bad(x)
    gc.collect()
    assert rabbet._C.live_counts()["tensors"] == live


# ---- kernels in C

KERNELS = r"""
#include "rabbet/abi.h"
#include <pthread.h>
int calls = 0;
int32_t twice(void* self, const RbCall* call, const RbValue* args, int32_t nargs, RbValue* rets, int32_t nrets) {
  (void)self; (void)nargs; (void)nrets;
  if (args[0].v.t->numel == 13) return call->host->err_set(RB_E_ARG, "thirteen elements");
  const float* x = (const float*)args[0].v.t->data;
  float* y = (float*)rets[0].v.t->data;
  for (int64_t i = 0; i < rets[0].v.t->numel; ++i) y[i] = (float)args[1].v.f * x[i];
  ++calls;
  return RB_OK;
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    import ctypes

    folder = tmp_path_factory.mktemp("kernels")
    source, target = folder / "kernels.c", folder / "libkernels.so"
    source.write_text(KERNELS)
    command = ["gcc", "-std=c11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        [*command, f"-I{rabbet.get_include()}", str(source), "-o", str(target)], check=True
    )
    return ctypes.CDLL(str(target))


def test_a_kernel_in_c_runs_without_python(kernels):
    import ctypes

    f = library.define(
        "mine::twice(Tensor x, float a) -> Tensor", shape="x.shape", vjp={"x": "grad * a"}
    )
    handle = library.impl(f, "cpu", kernels.twice, contiguous=True, dtypes=[rabbet.float32])
    assert f(rabbet.tensor([1.0, 2.0]), 2.0).tolist() == [2, 4]
    assert f(rabbet.arange(4.0).reshape(2, 2).t(), 2.0).tolist() == [[0, 4], [2, 6]]
    x = rabbet.ones(2, requires_grad=True)
    f(x, 3.0).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert f(rabbet.ones(2), 2.0, out=rabbet.zeros(2)).tolist() == [2, 2]
    with pytest.raises(
        NotImplementedError, match=r"mine::twice on 'cpu' supports float32; got float64"
    ):
        f(rabbet.ones(2).double(), 2.0)
    with pytest.raises(ValueError, match="thirteen elements") as caught:
        f(rabbet.ones(13), 1.0)
    assert __file__ in str(caught.value)
    handle.revoke()
    with pytest.raises(NotImplementedError, match="no kernel for 'cpu'"):
        f(rabbet.ones(2), 2.0)
    address = ctypes.cast(kernels.twice, ctypes.c_void_p).value
    library.impl(f, "cpu", address, keepalive=kernels)
    assert f(rabbet.ones(2), 4.0).tolist() == [4, 4]


def test_pointers_of_cffi_and_numba(kernels):
    import ctypes

    address = ctypes.cast(kernels.twice, ctypes.c_void_p).value
    f = library.define("mine::twice(Tensor x, float a) -> Tensor", shape="x.shape")

    class Compiled:  # as numba.cfunc makes them
        pass

    Compiled.address = address
    with library.impl(f, "cpu", Compiled()):
        assert f(rabbet.ones(1), 2.0).tolist() == [2]
    cffi = pytest.importorskip("cffi")  # not a dependency
    ffi = cffi.FFI()
    with library.impl(f, "cpu", ffi.cast("int32_t(*)(void*)", address)):
        assert f(rabbet.ones(1), 2.0).tolist() == [2]


def test_a_kernel_compiled_by_numba():
    numba = pytest.importorskip("numba")  # not a dependency
    pointer, int32 = numba.types.voidptr, numba.types.int32

    @numba.cfunc(int32(pointer, pointer, pointer, int32, pointer, int32))
    def kernel(self, call, args, nargs, rets, nrets):
        return 0 if nargs == 1 and nrets == 1 else 1

    f = library.define("mine::f(Tensor x) -> Tensor", shape="x.shape")
    library.impl(f, "cpu", kernel)
    assert f(rabbet.ones(2)).shape == (2,)


@pytest.mark.parametrize(
    "fn,options,error,message",
    [
        (0, {}, ValueError, "the address of the function is 0: it is null"),
        (True, {}, TypeError, "a C function pointer"),
        ("text", {}, TypeError, "expected a Python function"),
        (lambda x, a: x, {"contiguous": True}, TypeError, "are for functions in C"),
        (1 << 20, {"dtypes": ["float32"]}, TypeError, "dtypes must hold dtypes, got str"),
    ],
)
def test_wrong_kernels_are_refused(fn, options, error, message):
    scale_op()
    with pytest.raises(error, match=message):
        library.impl("mine::scale", "cpu", fn, **options)


@pytest.mark.parametrize(
    "name,device,error,message",
    [
        ("mine::scal", "cpu", ValueError, "there is no operator 'mine::scal'; did you mean 'mine::scale'"),
        (3, "cpu", TypeError, "expected the name of an operator or an Op, got int"),
        ("mine::scale", "cpu:0", ValueError, "without an index"),
        ("mine::scale", "vjp", ValueError, "use library.vjp"),
        ("mine::scale", "vmap", ValueError, "use library.batch"),
        ("mine::scale", None, TypeError, "expected a device type"),
        (rabbet.ops("max"), "cpu", ValueError, "has several overloads, name one: max"),
    ],
)  # fmt: skip
def test_kernels_for_wrong_operators_and_devices(name, device, error, message):
    scale_op()
    with pytest.raises(error, match=message):
        library.impl(name, device, lambda x, a: x)
