"""The tape: graphs, writes in place, views, hooks, modes, functions, threads; finite differences are the oracle."""

import gc
import math

import numpy as np
import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from rabbet import library
from rabbet.autograd import _C, Function, detect_anomaly, grad, gradcheck, gradgradcheck, graph
from rabbet.autograd.function import once_differentiable
from rabbet.autograd.gradcheck import GradcheckError

F64 = rabbet.float64


def leaf(*values, shape=None):
    x = rabbet.tensor(values, dtype=F64)
    return (x if shape is None else x.reshape(shape)).requires_grad_()


# ---- graphs


def test_backward_adds_to_the_leaves():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    (3 * x).sum().backward()
    assert x.grad.tolist() == [5, 7] and x.is_leaf and (x * 1).grad_fn.name() == "MulBackward0"


def test_branches_meet():
    x = leaf(2.0)
    y = x * x
    (y * y + y).sum().backward()
    assert x.grad.item() == 4 * 8 + 4


def test_broadcast_gradients_are_summed_to_the_shape_of_the_input():
    x, y = leaf(1.0, 2.0), rabbet.ones(3, 2, dtype=F64)
    (x * y).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_mixed_dtypes_cast_gradients_back():
    x = rabbet.ones(2, dtype=rabbet.float16, requires_grad=True)
    (x * rabbet.ones(2, dtype=rabbet.float32)).sum().backward()
    assert x.grad.dtype is rabbet.float16


def test_third_derivatives():
    x = leaf(2.0)
    y = (x**4).sum()
    for factor in (32.0, 48.0, 48.0):
        (y,) = grad(y, x, create_graph=True)
        assert y.item() == pytest.approx(factor)


def test_grad_leaves_dot_grad_alone_and_serves_inner_tensors():
    x = leaf(3.0)
    y = x * x
    z = (y * x).sum()
    gy, gx = grad(z, (y, x))
    assert gy.item() == 3 and gx.item() == 27 and x.grad is None


def test_unused_inputs():
    x, y = leaf(1.0), leaf(1.0)
    with pytest.raises(RuntimeError, match="Tensor at index 1 appears to not have been used"):
        grad((x * 2).sum(), (x, y))
    assert grad((x * 2).sum(), (x, y), allow_unused=True)[1] is None
    assert grad((x * 2).sum(), (x, y), materialize_grads=True)[1].item() == 0


def test_backward_with_inputs_fills_only_those():
    x, y = leaf(1.0), leaf(2.0)
    (x * y).sum().backward(inputs=[x])
    assert x.grad.item() == 2 and y.grad is None


ERRORS = [
    (lambda: rabbet.ones(2).sum().backward(), "does not require grad"),
    (lambda: (leaf(1.0, 2.0) * 2).backward(), "implicitly created only for scalar outputs"),
    (
        lambda: (leaf(1.0, 2.0) * 2).backward(rabbet.ones(3, dtype=F64)),
        r"grad_output\[0\] has a shape of \(3,\) and output\[0\] has a shape of \(2,\)",
    ),
    (
        lambda: rabbet.ones(2, dtype=rabbet.int64, requires_grad=True),
        "floating point and complex dtype can require gradients, got rabbet.int64",
    ),
    (
        lambda: setattr(leaf(1.0), "grad", rabbet.ones(1)),
        "with dtype 'rabbet.float32' to a tensor with dtype",
    ),
    (
        lambda: setattr(leaf(1.0) * 1, "requires_grad", False),
        "only change requires_grad flags of leaf variables",
    ),
    (lambda: rabbet.ones(2).register_hook(print), "does not require grad"),
    (lambda: leaf(1.0).add_(1), "leaf Variable that requires grad is being used in an in-place"),
    (lambda: leaf(1.0, 2.0)[0].add_(1), "view of a leaf"),
    (lambda: rabbet.ones(4)[1:].requires_grad_().mul_(2), "a leaf Variable that requires grad"),
    (lambda: rabbet.ones(4)[1:].requires_grad_().normal_(), "a leaf Variable that requires grad"),
    (lambda: (leaf(1.0, 2.0) * 2).backward(rabbet.ones(2, device="meta")), "another device"),
    (lambda: hooked(lambda g: g.to("meta")), "another device"),
    (lambda: hooked(lambda g: g.float()), "another dtype"),
    (lambda: hooked(lambda g: g[:1]), "another shape"),
    (
        lambda: node_hooked(lambda gs, _: (gs[0].to("meta"),)),
        "Function MulBackward0 returned an invalid gradient at index 0",
    ),
    (
        lambda: rabbet.add(leaf(1.0), 1, out=rabbet.empty(1, dtype=F64)),
        "out= does not support gradients",
    ),
    (lambda: leaf(1.0, 2.0).numpy(), "requires grad"),
    (lambda: np.asarray(leaf(1.0, 2.0)), "Can't call numpy"),
    (lambda: np.sin(leaf(1.0, 2.0)), "Can't call numpy"),
]


def hooked(hook):
    x = leaf(1.0, 2.0)
    x.register_hook(hook)
    (x * 2).sum().backward()


def node_hooked(hook):
    y = leaf(1.0, 2.0) * 2
    y.grad_fn.register_hook(hook)
    y.sum().backward()


@pytest.mark.parametrize("call,message", ERRORS, ids=range(len(ERRORS)))
def test_misuse_is_explained(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()


def test_a_buffer_of_a_tensor_that_requires_grad_is_refused():
    with pytest.raises(BufferError, match="requires grad"):
        memoryview(leaf(1.0))
    assert memoryview(leaf(1.0).detach()).tolist() == [1.0]


def test_a_gradient_without_dimensions_comes_to_the_device_of_its_tensor():
    x = rabbet.ones((), device="meta", requires_grad=True)
    (x * 2).backward(rabbet.ones(()))
    assert x.grad.device.type == "meta"


def test_the_gradient_that_backward_gets_is_cast_before_hooks_see_it():
    x = leaf(1.0, 2.0)
    y, seen = x * 2, []
    y.register_hook(lambda g: seen.append(g.dtype))
    y.backward(rabbet.ones(2))
    assert seen == [F64] and x.grad.tolist() == [2, 2]


INTEGER_WRITES = {
    "copy_": lambda i, x: i.copy_(x),
    "item": lambda i, x: i.__setitem__(0, x[0]),
    "slice": lambda i, x: i.__setitem__(slice(1, 3), x[:2]),
    "mask": lambda i, x: i.__setitem__(i == 0, x),
    "fill_": lambda i, x: i.fill_(x[0]),
    "masked_fill_": lambda i, x: i.masked_fill_(i == 0, x[0]),
}


@pytest.mark.parametrize("write", INTEGER_WRITES)
def test_integers_that_are_written_do_not_require_grad(write):
    x, i = leaf(1.0, 2.0, 3.0), rabbet.zeros(3, dtype=rabbet.int64)
    INTEGER_WRITES[write](i, x)
    assert not i.requires_grad and i.grad_fn is None and i.sum() > 0


def test_an_unused_result_gives_no_zeros():
    x, y = leaf(1.0, 2.0), leaf(3.0)
    first, _ = Pair.apply(x, y)
    assert grad(first.sum(), (x, y), allow_unused=True)[1] is None


class Pair(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2, y * 2

    @staticmethod
    def backward(ctx, gx, gy):
        return tuple(None if g is None else g * 2 for g in (gx, gy))


def test_a_second_backward_needs_retain_graph():
    x = leaf(2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 8
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()


def test_nodes_that_save_nothing_run_twice_without_retain_graph():
    x = leaf(1.0, 2.0)
    y = x * 1
    y[0] = 5.0
    z = (y + 1).reshape(2, 1)
    z.sum().backward()
    z.sum().backward()
    assert x.grad.tolist() == [0, 2]


def test_a_saved_tensor_must_not_be_written():
    x = leaf(2.0)
    y = x.exp()
    y.add_(1)
    with pytest.raises(
        RuntimeError, match="modified by an inplace operation: ExpBackward0 saved 'out'"
    ):
        y.sum().backward()
    w = rabbet.ones(1, dtype=F64)
    z = x * w
    w.add_(1)
    with pytest.raises(RuntimeError, match="version 0, and it is at version 1"):
        z.sum().backward()


def test_an_operator_without_a_derivative_says_so():
    @library.op("autograd::opaque(Tensor x) -> Tensor", kind="opaque")
    def opaque(x):
        return x.clone()

    y = opaque(leaf(1.0, 2.0))
    with pytest.raises(NotImplementedError, match="autograd::opaque has no derivative"):
        y.sum().backward()


# ---- writes in place and views


def test_a_write_in_place_rebases_history():
    x = leaf(2.0)
    y = x * 3
    y *= x
    y.sum().backward()
    assert x.grad.item() == 12


def test_a_write_to_a_view_reaches_the_base():
    w = leaf(3.0)
    b = rabbet.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=F64) * w
    v = b[0]
    v *= w
    b.sum().backward()
    assert w.grad.item() == pytest.approx(2 * 3 * 0.3 + 0.7)


def test_other_views_see_the_write():
    w = leaf(2.0)
    base = rabbet.zeros(2, 2, dtype=F64)
    early = base[1]
    base[1, 0] = w[0] * 5
    assert early.requires_grad
    (g,) = grad(early.sum(), w)
    assert g.item() == 5


def test_assignment_by_index_is_differentiable():
    w = leaf(2.0, 3.0)
    x = rabbet.zeros(3, 2, dtype=F64)
    x[1] = w
    x[rabbet.tensor([0, 2])] = w * 2
    (x * x).sum().backward()
    assert w.grad.tolist() == [2 * 2 * 9, 2 * 3 * 9]


STEPS = {
    "row": lambda t: t[0],
    "column": lambda t: t[..., 0],
    "transpose": lambda t: t.transpose(0, -1),
    "slice": lambda t: t[1:],
    "flat": lambda t: t.reshape(-1),
    "unsqueeze": lambda t: t.unsqueeze(0),
}
WRITES = {
    "mul": lambda t, w: t.mul_(w),
    "add": lambda t, w: t.add_(w),
    "zero": lambda t, w: t.zero_(),
    "copy": lambda t, w: t.copy_(w * w),
}


@given(
    program=st.lists(
        st.tuples(st.lists(st.sampled_from(sorted(STEPS)), max_size=2), st.sampled_from(sorted(WRITES))),
        min_size=1, max_size=4,
    )
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_random_writes_to_views_have_right_gradients(program):
    def run(x, w):
        base = x * w
        kept = [base[1:], base.t()]
        for path, write in program:
            view = base
            for step in path:
                moved = STEPS[step](view) if view.ndim else view
                view = moved if moved.numel() else view
            if view._storage_id() == base._storage_id():
                WRITES[write](view, w)
        return (base * base).sum() + sum((k * k).sum() for k in kept)

    x = leaf(0.5, -0.4, 0.3, 0.2, 0.7, -0.6, shape=(3, 2))
    assert gradcheck(run, (x, leaf(1.3, shape=())), atol=1e-4)


def test_views_made_without_grad_refuse_recorded_writes():
    x = leaf(1.0, 2.0) * 1
    with rabbet.no_grad():
        v = x[0]
    for factor in (2.0, leaf(2.0)[0]):
        with pytest.raises(RuntimeError, match="mul_: A view was created in no_grad mode"):
            v.mul_(factor)
    with rabbet.no_grad():
        v.mul_(2.0)  # where nothing is recorded
    x.mul_(3.0)  # the view belongs to what is recorded now
    v.mul_(2.0)
    assert v.requires_grad


@pytest.mark.parametrize("mode", [rabbet.no_grad, rabbet.inference_mode])
def test_views_of_leaves_made_without_grad_refuse_writes(mode):
    x = leaf(1.0, 2.0)
    with mode():
        v = x[0]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        v.fill_(0.0)
    assert x.tolist() == [1.0, 2.0]
    plain = rabbet.ones(2)
    with mode():
        w = plain[0]
    w.mul_(leaf(2.0)[0])  # of a tensor without history it is the same as outside
    assert plain.requires_grad


def test_random_numbers_cut_history():
    x = leaf(1.0, 2.0) * 2
    x.normal_()
    assert not x.requires_grad


# ---- modes


def test_modes_nest_and_decorate():
    x = leaf(1.0)
    with rabbet.no_grad():
        assert not (x * 2).requires_grad
        with rabbet.enable_grad():
            assert (x * 2).requires_grad
        with rabbet.set_grad_enabled(True):
            assert rabbet.is_grad_enabled()
        assert not rabbet.is_grad_enabled()
    with rabbet.inference_mode():
        assert rabbet.is_inference_mode_enabled() and not (x * 2).requires_grad

    @rabbet.no_grad()
    def plain():
        return x * 2

    @rabbet.no_grad
    def bare():
        return x * 2

    @rabbet.no_grad()
    def many():
        yield x * 2

    assert not plain().requires_grad and not bare().requires_grad and not next(many()).requires_grad
    assert rabbet.is_grad_enabled()


def test_a_mode_ends_with_an_exception():
    with pytest.raises(KeyError), rabbet.no_grad():
        raise KeyError
    assert rabbet.is_grad_enabled()


def test_detach_and_leaf_updates():
    x = leaf(1.0)
    assert not x.detach().requires_grad and not x.data.requires_grad
    with rabbet.no_grad():
        x -= 0.5
    assert x.item() == 0.5 and x.requires_grad and x.is_leaf


# ---- hooks


def test_hooks_see_and_replace_gradients():
    x = leaf(1.0)
    seen = []
    y = x * 2
    handle = y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: seen.append(g.item()))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    y.sum().backward()
    assert x.grad.item() == 20 and seen == [20, 20]
    handle.remove()
    (x * 2).sum().backward()
    assert seen[-2:] == [2, 22]


def test_node_hooks():
    x = leaf(3.0)
    y = x * x
    y.grad_fn.register_prehook(lambda out: (out[0] * 2,))
    y.grad_fn.register_hook(lambda inputs, outputs: tuple(g + 1 for g in inputs))
    y.sum().backward()
    assert x.grad.item() == 2 * (6 + 1)


def test_an_exception_in_a_hook_comes_out_as_it_is():
    x = leaf(1.0)

    class Odd(Exception):
        pass

    def hook(g):
        raise Odd("mine")

    (x * 2).register_hook(hook)
    y = x * 2
    y.register_hook(hook)
    with pytest.raises(Odd, match="mine"):
        y.sum().backward()


def test_retain_grad():
    x = leaf(2.0)
    y = x * 3
    y.retain_grad()
    (y * y).sum().backward()
    assert y.retains_grad and y.grad.item() == 12


# ---- Function


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * x * g


def test_function_gradients():
    assert gradcheck(Cube.apply, leaf(0.5, -1.2)) and gradgradcheck(Cube.apply, leaf(0.5, -1.2))
    assert Cube.apply(leaf(1.0)).grad_fn.name() == "CubeBackward"


def test_function_with_setup_context_and_several_outputs():
    class Split(Function):
        @staticmethod
        def forward(x, k):
            return x * k, (x > 0).long()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        @once_differentiable
        def backward(ctx, g, _):
            return g * ctx.k, None

    x = leaf(1.0, -2.0)
    y, sign = Split.apply(x, 4.0)
    y.sum().backward()
    assert x.grad.tolist() == [4, 4] and not sign.requires_grad


def test_a_function_with_a_wrong_number_of_gradients_is_refused():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(
        RuntimeError,
        match=r"WrongBackward returned an incorrect number of gradients \(expected 2, got 1\)",
    ):
        Wrong.apply(leaf(1.0), leaf(2.0)).sum().backward()


def test_gradcheck_finds_a_wrong_derivative():
    class Wrong(Cube):
        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(
        GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"
    ):
        gradcheck(Wrong.apply, leaf(0.5))
    assert not gradcheck(Wrong.apply, leaf(0.5), raise_exception=False)


def test_anomaly_mode_names_the_node():
    x = leaf(0.0)
    with detect_anomaly(), pytest.raises(RuntimeError, match="SqrtBackward0 returned NaN"):
        (x.sqrt() * 0).sum().backward()


# ---- memory and threads


def test_the_graph_is_freed():
    gc.collect()
    before = _C.live_nodes()
    x = leaf(1.0, 2.0)
    for _ in range(3):
        y = (x.exp() * x).sum()
        (g,) = grad(y, x, create_graph=True)
        g.sum().backward()
        base = rabbet.zeros(2, dtype=F64)
        base[0] = y
        assert base.requires_grad
    del x, y, g, base
    gc.collect()
    assert _C.live_nodes() == before


def test_long_chains_run_and_are_released_without_recursion():
    x = leaf(1.0)
    y = x
    for _ in range(200_000):
        y = y + 1.0
    y.sum().backward()
    assert x.grad.item() == 1
    del y


def test_gradient_edges():
    x = leaf(1.0)
    y = x * 2
    node, output, _ = graph.get_gradient_edge(y)
    assert node == y.grad_fn and output == 0
    assert y.grad_fn.next_functions[0][0].variable is x


def test_functions_of_numbers_in_derivatives_are_exact_and_have_no_device():
    x = rabbet.tensor([1.0, 2.0], dtype=rabbet.float64, requires_grad=True)
    (2.5**x).sum().backward()
    expected = [2.5 * math.log(2.5), 2.5**2 * math.log(2.5)]
    assert x.grad.tolist() == pytest.approx(expected, rel=1e-15)
    meta = rabbet.empty(2, device="meta", requires_grad=True)
    (2.5**meta).sum().backward()
    assert meta.grad.device.type == "meta"


@pytest.mark.parametrize(
    "write, slope",
    [
        (lambda y: y.clamp_min_(0.5), lambda x: (x >= 0.5).double()),
        (lambda y: y.xlogy_(2.0), None),
        (lambda y: y.cumprod_(0), None),
        (lambda y: y.frac_(), lambda x: x * 0 + 1),
    ],
)  # fmt: skip
def test_writes_by_operators_made_of_others_have_gradients(write, slope):
    x = rabbet.tensor([-1.5, 0.3, 0.7, 2.0], dtype=rabbet.float64, requires_grad=True)
    y = x * 1
    assert write(y) is y
    (got,) = rabbet.autograd.grad(y.sum(), x)
    if slope is None:
        h = 1e-6
        with rabbet.no_grad():
            want = rabbet.stack([
                (write(x + h * e).sum() - write(x - h * e).sum()) / (2 * h)
                for e in rabbet.eye(4, dtype=rabbet.float64)
            ])  # fmt: skip
    else:
        want = slope(x.detach())
    assert rabbet.allclose(got, want, atol=1e-6)


def test_the_tangent_of_a_view_may_lie_otherwise():
    x = rabbet.ones(1).expand(4)
    _, tangent = rabbet.func.jvp(lambda t: t.expand(3, 4).reshape(-1), (x,), (rabbet.arange(4.0),))
    assert tangent.tolist() == [0.0, 1.0, 2.0, 3.0] * 3


def test_anomaly_mode_is_a_module_of_pytorchs_name():
    from rabbet.autograd import anomaly_mode

    assert anomaly_mode.detect_anomaly is detect_anomaly
    x = rabbet.tensor([0.0], requires_grad=True)
    with anomaly_mode.set_detect_anomaly(True), pytest.raises(RuntimeError, match="SqrtBackward0"):
        (rabbet.sqrt(x) * 0).backward()
    (rabbet.sqrt(x) * 0).backward()
    assert rabbet.isnan(x.grad).all()


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("into", ["zeros", "recorded"])
def test_writes_that_are_decomposed_keep_what_they_read(reduce, into):
    src = rabbet.tensor([3.0, -1.0, 2.0, 5.0, 4.0, 0.5], dtype=rabbet.float64, requires_grad=True)
    start = rabbet.tensor([1.0, 2.0, 3.0], dtype=rabbet.float64, requires_grad=into == "recorded")
    index = rabbet.tensor([0, 1, 0, 2, 1, 0])
    weight = rabbet.tensor([1.0, 10.0, 100.0], dtype=rabbet.float64)
    want = rabbet.scatter_reduce(start, 0, index, src, reduce)
    inputs = [src, start] if into == "recorded" else [src]
    grads = rabbet.autograd.grad((want * weight).sum(), inputs)
    got = start.clone() if into == "recorded" else start.detach().clone()
    got.scatter_reduce_(0, index, src, reduce)
    assert got.tolist() == want.tolist()
    for a, b in zip(rabbet.autograd.grad((got * weight).sum(), inputs), grads, strict=True):
        assert a.tolist() == b.tolist()
