"""Rules of operators as functions: derivatives, shapes, batching, autocast."""

import pytest
import rabbet
from library_ops import CELL, clean, opaque_op, run_cell, scale_op  # noqa: F401
from rabbet import library

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


def test_gradients_that_would_be_lost_are_refused():
    @library.op("mine::halves(Tensor x) -> Tensor[]", kind="opaque")
    def halves(x):
        return [x[:1].clone(), x[1:].clone()]

    @library.op("mine::bump(Tensor(a!) x) -> ()", kind="opaque")
    def bump(x):
        x.numpy()[...] += 1

    x = rabbet.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match=r"mine::halves: .* with a list of results"):
        halves(x)
    with pytest.raises(
        RuntimeError, match="mine::bump writes its argument 'x' in place, which requires grad"
    ):
        bump(x)
    with rabbet.no_grad():
        assert len(halves(x)) == 2
    with pytest.raises(NotImplementedError, match="with a list of results cannot be a function"):
        library.vjp(halves, lambda ctx, *grads: None)


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize(
    ("formula", "x_grad"),
    [
        ("mine::slow(grad_a) + 3 * mine::slow(grad_b)", (2, 6)),
        ("mine::slow(grad_a) - mine::slow(grad_b)", (2, -2)),
        ("mine::slow(grad_a) - -mine::slow(grad_b) / 2", (2, 1)),
        ("mine::slow(where(x > 0, grad_a, 0.0)) + mine::slow(grad_b * x)", (2, 2)),
    ],
)
def test_a_derivative_runs_each_operator_once_and_none_on_zeros(formula, x_grad, which):
    calls = []
    slow = library.define("mine::slow(Tensor x) -> Tensor", kind="opaque", shape="x.shape")
    library.impl(slow, "cpu", lambda x: calls.append(x.tolist()) or x * 2)
    pair = library.op(
        "mine::pair(Tensor x) -> (Tensor a, Tensor b)", kind="opaque", vjp={"x": formula}
    )(lambda x: (x.clone(), x.clone()))
    x = rabbet.ones(3, requires_grad=True)
    results = pair(x)
    sum(results[i].sum() for i in which).backward()
    assert x.grad.tolist() == [sum(x_grad[i] for i in which)] * 3
    assert calls == [[1.0] * 3] * len(which)


def test_rules_of_others_survive_a_new_definition():
    scope = {"__name__": "__main__"}
    run_cell(CELL.format(more="", names="", value=1), scope)
    library.vjp("mine::cell", lambda ctx, grad: grad * 7)
    run_cell(CELL.format(more="", names="", value=2), scope)
    x = rabbet.zeros(1, requires_grad=True)
    y = scope["cell"](x)
    y.backward()
    assert y.item() == 2 and x.grad.item() == 7
    with pytest.raises(rabbet.PluginError, match="takes"):
        run_cell(CELL.format(more=", int n", names="", value=2), scope)
    with pytest.raises(AttributeError):
        rabbet.ops.mine.cell  # noqa: B018
    run_cell(CELL.format(more="", names="", value=3), {"__name__": "other"}, __file__)
    assert rabbet.ops.mine.cell(x).item() == 3


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
        (lambda grad: (rabbet.zeros(5), None), rabbet.PluginError, r"a gradient of shape \(5,\), expected \(3,\)"),
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


def test_a_shape_under_pytorchs_name_may_come_before_its_operator():
    @library.register_fake("mine::early")
    def fake(x, n):
        return x.new_empty((n, *x.shape))

    f = library.define("mine::early(Tensor x, int n) -> Tensor")
    assert f(rabbet.empty(2, device="meta"), 3).shape == (3, 2)
    assert fake(rabbet.ones(2), 4).shape == (4, 2)  # the function itself
    g = opaque_op()
    library.register_fake(g, lambda x: x.new_empty(x.shape))
    assert g(rabbet.empty(2, device="meta")).shape == (2,)
    with pytest.raises(TypeError, match="register_fake: expected a function, got int"):
        library.register_fake("mine::late", 3)
    with pytest.raises(RuntimeError, match="there is no operator 'late'"):
        library.register_fake("late", len)


def test_fakes_of_a_library_go_with_it_and_may_be_replaced():
    g = opaque_op()
    lib = library.Library("mine", "FRAGMENT")
    library.register_fake(g, lambda x: x.new_empty(3), lib=lib)
    assert g(rabbet.empty(2, device="meta")).shape == (3,)
    lib._destroy()
    with pytest.raises(NotImplementedError):
        g(rabbet.empty(2, device="meta"))
    library.register_fake(g, lambda x: x.new_empty(3))
    library.register_fake(g, lambda x: x.new_empty(4), allow_override=True)
    assert g(rabbet.empty(2, device="meta")).shape == (4,)
    with pytest.warns(FutureWarning, match="register_fake"):
        library.impl_abstract("mine::not_yet", lambda x: x.new_empty(1))
    library.Library("mine", "IMPL").impl("g", library.fallthrough_kernel, "Autograd")
    with pytest.raises(NotImplementedError, match="get_kernel"):
        library.get_kernel("aten::sin", "CPU")
    with pytest.raises(NotImplementedError, match="should never be called"):
        library.fallthrough_kernel()


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


# ---- random numbers, recursion


def test_random_numbers_in_a_composite_follow_the_mode_of_vmap():
    @library.op("mine::noise(Tensor x) -> Tensor")
    def noise(x):
        return x + rabbet.rand(3)

    x = rabbet.zeros(2, 3)
    for function in (noise, lambda r: noise(rabbet.zeros(3)) + r):
        with pytest.raises(RuntimeError, match="randomness error mode"):
            rabbet.vmap(function)(x)
        a, b = rabbet.vmap(function, randomness="different")(x)
        assert a.tolist() != b.tolist()
        a, b = rabbet.vmap(function, randomness="same")(x)
        assert a.tolist() == b.tolist()
    assert library.opcheck(noise, (x[0],), test_utils="test_vmap") == {
        "test_vmap": "SKIPPED: its results differ from call to call"
    }


def test_a_composite_of_what_is_the_same_for_all_examples_runs_once():
    shapes = []

    @library.op("mine::once(Tensor x) -> Tensor")
    def once(x):
        shapes.append(x.shape)
        return x + 1

    w = rabbet.zeros(3)
    y, kept = rabbet.vmap(lambda r: (r + once(w), once(w)), out_dims=(0, None))(rabbet.zeros(2, 3))
    assert y.shape == (2, 3) and kept.shape == (3,) and shapes == [(3,), (3,)]


def test_transforms_inside_a_composite():
    @library.op("mine::rows(Tensor x) -> Tensor")
    def rows(x):
        return rabbet.vmap(lambda r: r * r.sum())(x)

    x = rabbet.ones(4, 2, 3, requires_grad=True)
    y = rabbet.vmap(rows)(x)
    assert y.shape == (4, 2, 3) and y[0, 0, 0].item() == 3
    y.sum().backward()
    assert x.grad[0, 0, 0].item() == 6


def test_operators_that_are_made_of_themselves():
    @library.op("mine::factorial(Tensor x, int n) -> Tensor")
    def factorial(x, n):
        return x + 0 if n == 0 else factorial(x, n - 1) * n

    assert factorial(rabbet.ones(1), 5).tolist() == [120]
    for arg in (rabbet.ones(1), rabbet.ones(1, requires_grad=True)):
        with pytest.raises(rabbet.StateError, match="run inside each other: is it made of itself"):
            factorial(arg, 10**6)
    itself = library.define("mine::itself(Tensor x) -> Tensor", decomp="mine::itself(x)")
    with pytest.raises(rabbet.StateError, match="is it made of itself"):
        itself(rabbet.ones(1))
    kernel = library.define("mine::kernel(Tensor x) -> Tensor", shape="x.shape")
    library.impl(kernel, "cpu", lambda x: kernel(x))
    with pytest.raises(rabbet.StateError, match="is it made of itself"):
        kernel(rabbet.ones(1))
    assert factorial(rabbet.ones(1), 3).tolist() == [6]
