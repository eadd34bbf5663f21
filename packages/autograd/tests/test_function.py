"""User functions: dirty inputs, outputs of all kinds, saved outputs, once_differentiable."""

import gc

import pytest
import rabbet
from rabbet.autograd import _C, Function, grad, gradcheck, gradgradcheck, no_grad
from rabbet.autograd.function import once_differentiable

F64 = rabbet.float64


def leaf(*values):
    return rabbet.tensor(values, dtype=F64, requires_grad=True)


class Scale(Function):
    """x *= factor, in place."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.mark_dirty(x)
        ctx.factor = factor
        return x.mul_(factor)

    @staticmethod
    def backward(ctx, g):
        assert ctx.needs_input_grad == (True, False)
        return g * ctx.factor, None


def test_a_dirty_input_is_the_output_and_has_its_history():
    x = leaf(1.0, 2.0)
    y = x * 1
    z = Scale.apply(y, 3.0)
    assert z is y and z.grad_fn.name() == "ScaleBackward"
    (z * z).sum().backward()
    assert x.grad.tolist() == [2 * 9 * 1, 2 * 9 * 2]


def test_a_dirty_view_changes_the_history_of_its_base():
    x = leaf(1.0, 2.0, 3.0)
    base = x * 1
    other = base[:2]
    Scale.apply(base[1:], 10.0)
    assert base.tolist() == [1, 20, 30]
    (base.sum() + 100 * other.sum()).backward()
    assert x.grad.tolist() == [101, 10 + 1000, 10]


def test_dirty_inputs_that_are_leaves_or_no_outputs_are_refused():
    with pytest.raises(
        RuntimeError, match="a leaf Variable that requires grad has been used in an in-place"
    ):
        Scale.apply(leaf(1.0), 2.0)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        Scale.apply(leaf(1.0, 2.0)[:1], 2.0)

    class Hidden(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.clone()

    with pytest.raises(RuntimeError, match="must all be outputs of the Function"):
        Hidden.apply(leaf(1.0) * 1)


class Several(Function):
    """A product, what is no tensor, a tensor without gradient, and a second product."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        order = rabbet.argsort(x)
        double = x * 2
        ctx.mark_non_differentiable(double)
        return x * y, "text", order, double, x + y

    @staticmethod
    def backward(ctx, g, text, order, double, h):
        assert text is None
        x, y = ctx.saved_tensors
        ctx.got = (g, order, double, h)
        Several.got = ctx.got
        h = 0 if h is None else h
        return g * y + h, g * x + h


def test_outputs_that_are_no_tensors_or_have_no_gradient():
    x, y = leaf(2.0, 1.0), leaf(3.0, 4.0)
    product, text, order, double, total = Several.apply(x, y)
    assert text == "text" and order.tolist() == [1, 0] and not order.requires_grad
    assert not double.requires_grad and product.requires_grad and total.requires_grad
    product.sum().backward(retain_graph=True)
    _, order, double, h = Several.got
    assert h.tolist() == [0, 0] and double.tolist() == [0, 0]  # materialized
    assert x.grad.tolist() == [3, 4] and y.grad.tolist() == [2, 1]
    total.sum().backward()
    assert x.grad.tolist() == [4, 5]


def test_gradients_that_are_not_materialized_are_none():
    class Pair(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            assert b is None
            return a * 2

    x = leaf(1.0)
    Pair.apply(x)[0].sum().backward()
    assert x.grad.item() == 2


class Exp(Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


def test_a_saved_output_does_not_keep_the_graph_alive_and_has_second_derivatives():
    before = _C.live_nodes()
    x = leaf(0.5, 0.25)
    y = Exp.apply(x)
    del y
    gc.collect()
    assert _C.live_nodes() <= before + 1  # the accumulator of x
    assert gradcheck(Exp.apply, (x,)) and gradgradcheck(Exp.apply, (x,))
    y = Exp.apply(x)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


class Kept(Function):
    """Keeps its outputs as attributes, as one should not."""

    @staticmethod
    def forward(ctx, x):
        y, z = x.exp(), x.clone()
        ctx.y, ctx.all, ctx.named, ctx.x = y, [y, z, 3], {"z": z}, x
        ctx.mark_non_differentiable(z)
        return y, z

    @staticmethod
    def backward(ctx, g, _):
        y, z, three = ctx.all
        assert three == 3 and z.tolist() == ctx.named["z"].tolist() == ctx.x.tolist()
        with pytest.raises(AttributeError, match="has no attribute 'other'"):
            ctx.other  # noqa: B018
        return g * (ctx.y + y) / 2


def test_outputs_kept_as_attributes_do_not_keep_the_graph_alive():
    before, x = _C.live_nodes(), leaf(0.5, 0.25)
    gc.disable()
    try:
        Kept.apply(x)
        Scale.apply(x * 1, 2)
        assert _C.live_nodes() <= before + 1  # the accumulator of x
    finally:
        gc.enable()
    assert gradcheck(lambda x: Kept.apply(x)[0], (x,))
    assert gradgradcheck(lambda x: Kept.apply(x)[0], (x,))


def test_a_gradient_on_another_device_is_refused():
    class Away(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g.to("meta")

    with pytest.raises(
        RuntimeError, match=r"AwayBackward .* index 0 - expected device cpu but got meta"
    ):
        Away.apply(leaf(1.0)).sum().backward()


def test_once_differentiable_refuses_a_second_derivative():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    x = leaf(3.0)
    assert grad(Square.apply(x), x)[0].item() == 6
    w = leaf(2.0)
    (g,) = grad(Square.apply(x) * w, x, create_graph=True)
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        g.backward()


def test_nothing_is_recorded_without_grad():
    x = leaf(1.0)
    with no_grad():
        assert not Exp.apply(x).requires_grad
    assert not Exp.apply(x.detach()).requires_grad


def test_a_function_may_run_backward_inside_its_backward():
    class Checkpoint(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x * x).sin()

        @staticmethod
        def backward(ctx, g):
            with rabbet.autograd.enable_grad():
                x = ctx.saved_tensors[0].detach().requires_grad_()
                y = (x * x).sin()
            y.backward(g)
            return x.grad

    x, plain = leaf(0.3, 0.4), leaf(0.3, 0.4)
    (Checkpoint.apply(x * 2) * 3).sum().backward()
    (((plain * 2) ** 2).sin() * 3).sum().backward()
    assert x.grad.tolist() == pytest.approx(plain.grad.tolist())
