"""Operators made in Python: definitions, kernels, derivatives, shapes; what is refused and how it is said."""

import gc
import os
import pickle
import re
import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest
import rabbet
from rabbet import library

SCALE = "mine::scale(Tensor x, float a=2.0) -> Tensor"


@pytest.fixture(autouse=True)
def clean():
    """Operators of a test are gone after it."""
    before = set(rabbet._C.record_names())
    yield
    from rabbet import _registrations

    for registration in reversed(list(_registrations._registered.values())):
        if registration.name not in before or registration.target != "operator":
            registration.revoke()
    assert set(rabbet._C.record_names()) == before


def scale_op(**fields):
    @library.op(SCALE, **fields)
    def scale(x, a):
        """The tensor times a number."""
        return x * a

    return scale


def opaque_op(**fields):
    """One that the transforms do not look into."""

    @library.op("mine::opaque(Tensor x) -> Tensor", kind="opaque", **fields)
    def opaque(x):
        return rabbet.tensor(np.exp(x.numpy()))

    return opaque


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
    "mine::f() -> (Tensor a, Tensor b, Tensor c, Tensor d, Tensor e, Tensor f)": r"more than 5 results",
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
        TypeError, match=r"returned out of shape \(1,\) and dtype int32; by the record .* float32"
    ):
        f(rabbet.zeros(1), 1)
    with pytest.raises(
        ValueError, match=r"shape \(5,\) and dtype float32; by the record it has shape \(1,\)"
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
    assert f(rabbet.zeros(2), out=given) is given and given[1].tolist() == [2, 2]

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


# ---- derivatives


def test_a_derivative_as_function():
    scale = scale_op()

    @library.vjp("mine::scale")
    def backward(ctx, grad):
        x, a = ctx.inputs
        assert ctx.needs_input_grad == (True, False) and ctx.output.shape == x.shape
        return grad * a, None

    x = rabbet.randn(3, dtype=rabbet.float64, requires_grad=True)
    assert "MineScaleBackward" in repr(scale(x, 3.0).grad_fn)
    assert rabbet.autograd.gradcheck(lambda v: scale(v, 3.0), x)
    assert rabbet.autograd.gradgradcheck(lambda v: scale(v, 3.0), x)
    grads = rabbet.vmap(rabbet.func.grad(lambda v: scale(v, 3.0).sum()))(rabbet.ones(2, 3))
    assert grads.tolist() == [[3.0] * 3] * 2
    _, tangent = rabbet.func.jvp(lambda v: scale(v, 3.0), (x.detach(),), (rabbet.ones_like(x),))
    assert tangent.tolist() == [3, 3, 3]
    backward.revoke()
    assert "MulBackward" in repr(scale(x, 3.0).grad_fn)


def test_the_setup_context_idiom():
    exp = opaque_op()

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    library.vjp(exp, lambda ctx, grad: grad * ctx.saved_tensors[0], setup_context=setup_context)
    x = rabbet.randn(3, dtype=rabbet.float64, requires_grad=True)
    assert rabbet.autograd.gradcheck(exp, x) and rabbet.autograd.gradgradcheck(exp, x)


def test_only_what_is_read_is_saved():
    scale = scale_op()

    @library.vjp(scale, saves=())
    def backward(ctx, grad):
        assert ctx.inputs[0].device.type == "meta" and ctx.output.device.type == "meta"
        return grad * ctx.inputs[1], None

    x = rabbet.ones(3, requires_grad=True)
    y = scale(x * 1, 2.0)
    before = rabbet._C.live_counts()["bytes"]
    z = x * 1
    w = scale(z, 2.0)
    held = rabbet._C.live_counts()["bytes"] - before
    del z
    assert rabbet._C.live_counts()["bytes"] - before < held  # the argument is not kept
    z = x * 1
    w = scale(z, 2.0)
    z += 1  # nor is its value: it may be written
    (w + y).sum().backward()
    assert x.grad.tolist() == [4, 4, 4]
    with pytest.raises(
        rabbet.ArgumentError, match=r"saves names 'q', which is no argument \(x, a\)"
    ):
        library.vjp(scale, lambda ctx, grad: None, saves=("q",))


def test_gradients_that_are_missing_become_zeros_or_none():
    seen = []

    @library.op("mine::both(Tensor x) -> (Tensor a, Tensor b)", kind="opaque")
    def both(x):
        return x * 2, x * 3

    @library.vjp(both)
    def backward(ctx, a, b):
        seen.append(b.tolist())
        return a * 2 + b * 3

    x = rabbet.ones(2, requires_grad=True)
    both(x).a.sum().backward()
    assert seen == [[0, 0]] and x.grad.tolist() == [2, 2]
    backward.revoke()
    library.vjp(
        both,
        lambda ctx, a, b: seen.append(b) or a * 2,
        setup_context=lambda ctx, inputs, output: ctx.set_materialize_grads(False),
    )
    both(x).a.sum().backward()
    assert seen[1] is None


@pytest.mark.parametrize(
    "gradient,error,message",
    [
        (lambda grad: grad, RuntimeError, "must return 2 values, a gradient .or None. for each of the arguments x, a"),
        (lambda grad: (grad, None, None), RuntimeError, "got 3 values"),
        (lambda grad: (3.0, None), TypeError, "must return Tensors or None, got float for 'x'"),
        (lambda grad: (rabbet.zeros(5), None), ValueError, r"has shape \(5,\), but the tensor has shape \(3,\)"),
    ],
)  # fmt: skip
def test_wrong_gradients_are_refused(gradient, error, message):
    scale = scale_op()
    library.vjp(scale, lambda ctx, grad: gradient(grad))
    x = rabbet.ones(3, requires_grad=True)
    with pytest.raises(error, match=message):
        scale(x, 2.0).sum().backward()
    assert x.grad is None


def test_a_derivative_of_a_list_argument():
    @library.op("mine::total(Tensor[] ts) -> Tensor", kind="opaque")
    def total(ts):
        return sum(t * (i + 1) for i, t in enumerate(ts))

    library.vjp(total, lambda ctx, grad: ([grad * (i + 1) for i in range(len(ctx.inputs[0]))],))
    ts = [rabbet.ones(2, requires_grad=True) for _ in range(3)]
    total(ts).sum().backward()
    assert [t.grad.tolist() for t in ts] == [[1, 1], [2, 2], [3, 3]]
    total.handle.revoke()


def test_an_opaque_operator_without_derivative_says_so_in_backward():
    x = rabbet.zeros(2, requires_grad=True)
    y = opaque_op()(x)
    with pytest.raises(NotImplementedError, match="mine::opaque"):
        y.sum().backward()


def test_derivatives_that_the_record_has_cannot_be_functions_too():
    scale_op(vjp={"x": "grad * a"})
    with pytest.raises(rabbet.PluginError, match="its record says it already: vjp x grad"):
        library.vjp("mine::scale", lambda ctx, grad: (grad, None))
    with pytest.raises(rabbet.PluginError, match="'add' takes no vjp function"):
        library.vjp("add", lambda ctx, grad: (grad, None, None))


def test_a_tangent_as_function():
    exp = opaque_op()
    library.jvp(exp, lambda ctx, t: ctx.output * t)
    x = rabbet.randn(3)
    y, tangent = rabbet.func.jvp(exp, (x,), (rabbet.full((3,), 2.0),))
    assert rabbet.allclose(y, x.exp()) and rabbet.allclose(tangent, 2 * x.exp())


# ---- shapes


@pytest.mark.parametrize(
    "shape",
    [
        lambda x, n: (n, *x.shape),
        lambda x, n: ((n, *x.shape), rabbet.float32),
        lambda x, n: x.new_empty((n, *x.shape)),
        "[n] + x.shape",
    ],
)
def test_shapes_by_function_and_formula(shape):
    f = library.define("mine::rows(Tensor x, int n) -> Tensor", shape=shape)
    library.impl(f, "cpu", lambda x, n, out: out.copy_(x))
    meta = f(rabbet.empty(2, device="meta"), 3)
    assert meta.shape == (3, 2) and meta.device.type == "meta" and meta.dtype == rabbet.float32
    assert f(rabbet.tensor([1.0, 2.0]), 2).tolist() == [[1, 2], [1, 2]]


def test_shape_as_decorator_and_dtype_by_function():
    f = library.define(
        "mine::f(Tensor x) -> (Tensor a, Tensor b)",
        shape=lambda x: (x.shape, (1,)),
        dtype=lambda x: (x.dtype, rabbet.int64),
    )
    a, b = f(rabbet.empty(4, dtype=rabbet.float64, device="meta"))
    assert (a.shape, a.dtype, b.shape, b.dtype) == ((4,), rabbet.float64, (1,), rabbet.int64)

    g = opaque_op()
    with pytest.raises(NotImplementedError, match="does not say what shape"):
        g(rabbet.empty(2, device="meta"))

    @library.shape(g)
    def shape(x):
        assert x.device.type == "meta"
        return x.shape

    assert g(rabbet.empty(2, device="meta")).shape == (2,)
    shape.revoke()
    with pytest.raises(NotImplementedError):
        g(rabbet.empty(2, device="meta"))


@pytest.mark.parametrize("returned", [None, 3, "ab", (1, "x"), (1, 2.5)])
def test_a_wrong_shape_is_refused(returned):
    f = library.define("mine::f(Tensor x) -> Tensor", shape=lambda x: returned)
    with pytest.raises(TypeError, match="mine::f: its shape function must return"):
        f(rabbet.empty(2, device="meta"))


def test_a_shape_that_follows_from_the_kind_cannot_be_a_function():
    scale_op(kind="elementwise")
    with pytest.raises(
        rabbet.PluginError, match=r"takes no shape function: .*it follows from its kind"
    ):
        library.shape("mine::scale", lambda x, a: x.shape)


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
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()
    with library.impl(f, "cpu", ffi.cast("int32_t(*)(void*)", address)):
        assert f(rabbet.ones(1), 2.0).tolist() == [2]


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
    with pytest.raises(AttributeError, match="there is no operator and no namespace 'mine'"):
        rabbet.ops.mine  # noqa: B018
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


def run_cell(source, scope, name="<ipython-input-1>"):
    exec(compile(source, name, "exec"), scope)


CELL = """
from rabbet import library
@library.op("mine::cell(Tensor x{more}) -> Tensor")
def cell(x{names}):
    return x + {value}
"""


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
    assert f"other ({other}:2)" in str(caught.value) and __file__ in str(caught.value)
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
    assert f"'mine::w' for 'quantum'  [waiting ({tmp_path / 'waiting.py'}:5)]" in done.stdout


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
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_MINOR, 0, 0, "odd", "1.0", init, 0};
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &plugin; }
"""


# ---- batching and autocast


def test_a_batching_rule():
    exp = opaque_op()
    seen = []

    @library.batch(exp)
    def rule(info, in_dims, x):
        seen.append((info.batch_size, info.randomness, in_dims, x.shape))
        return exp(x), in_dims[0]

    x = rabbet.randn(2, 3)
    assert rabbet.allclose(rabbet.vmap(exp, in_dims=1, out_dims=1)(x), x.exp())
    assert seen == [(3, "error", (1,), (2, 3))]
    nested = rabbet.vmap(rabbet.vmap(exp))(x)
    assert rabbet.allclose(nested, x.exp()) and len(seen) == 3
    rule.revoke()
    with pytest.warns(UserWarning, match="mine::opaque"):
        assert rabbet.allclose(rabbet.vmap(exp)(x), x.exp())


@pytest.mark.parametrize(
    "returned,error,message",
    [
        (lambda x: x, ValueError, "must return a pair"),
        (lambda x: (x + 1, 7), ValueError, r"lie in dim 7 of a result of shape \(2, 3\)"),
        (lambda x: (x + 1, 1), ValueError, r"whose dim 1 does not hold 2 examples"),
        (lambda x: (3, None), TypeError, "must return a Tensor, got int"),
    ],
)
def test_wrong_batching_rules_are_refused(returned, error, message):
    exp = opaque_op()
    library.batch(exp, lambda info, in_dims, x: returned(x))
    with pytest.raises(error, match=message):
        rabbet.vmap(exp)(rabbet.ones(2, 3))


@pytest.mark.parametrize("policy,dtype", [("low", "bfloat16"), ("fp32", "float32"), ("float16", "float16"),
                                          ("promote", "float32"), ("pass", "float32")])  # fmt: skip
def test_autocast_policies(policy, dtype):
    seen = []

    @library.op("mine::f(Tensor x) -> Tensor", kind="opaque", vjp={"x": "grad"})
    def f(x):
        seen.append(x.dtype)
        return x + 1

    handle = library.autocast(f, getattr(rabbet, policy, policy))
    x = rabbet.ones(2, requires_grad=True)
    with rabbet.autocast("cpu"):
        f(x).sum().backward()
    assert seen == [getattr(rabbet, dtype)] and x.grad.dtype == rabbet.float32
    handle.revoke()
    with rabbet.autocast("cpu"):
        f(x)
    assert seen[1] == rabbet.float32
    with pytest.raises(ValueError, match="expected low, fp32, promote, pass, float16"):
        library.autocast(f, "int8")


# ---- explain


def test_explain_follows_the_dispatcher():
    scale = scale_op()
    x = rabbet.ones(2, requires_grad=True)
    text = library.explain(scale, x, 2.0)
    assert text.startswith(SCALE) and f"registered by {__name__}" in text
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
    return rabbet.ones(3)


WRONG = {
    "test_schema": [
        (lambda: bad("mine::b(Tensor x) -> Tensor", _writes, shape="x.shape"), "wrote to its argument 'x', which the schema does not mark"),
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x[:2], shape="x.shape"), "shares memory with the argument 'x'"),
    ],
    "test_shape": [
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x + 1), "there is no shape rule"),
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x + 1, shape=lambda x: (1,)), r"has shape \(3,\) .* by the shape rule it has shape \(1,\)"),
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x > 1, shape=lambda x: x.shape), "dtype rabbet.bool; by the shape rule .*float64"),
    ],
    "test_derivative": [
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x * x, shape="x.shape"), "there is no derivative"),
        (lambda: bad("mine::b(Tensor x) -> Tensor", lambda x: x * x, shape="x.shape", vjp={"x": "grad * x"}), "gradient for input 0 .* is wrong"),
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
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_MINOR, 0, 0, "pack", "1.0", init, 0};
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &plugin; }
"""
