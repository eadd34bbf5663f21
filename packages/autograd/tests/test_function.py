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


# ---- what is refused


def made(forward, backward=lambda ctx, g: g, **attributes):
    functions = {"forward": forward, "backward": backward, **attributes}
    return type(
        "Made",
        (Function,),
        {k: staticmethod(f) if callable(f) else f for k, f in functions.items()},
    )


def run(function, *args):
    """The gradient that reaches a leaf behind the first argument."""
    x = leaf(1.0, 2.0)
    return grad(function.apply(x * 1, *args).sum(), x, allow_unused=True)[0]


def double(ctx, x, *others):
    return x * 2


def after(call):
    """forward that misuses its ctx."""

    def forward(ctx, x):
        call(ctx, x)
        return x * 2

    return made(forward)


ONES = rabbet.ones(2, dtype=F64)
REFUSED = [
    (
        lambda: run(made(double), 3),
        r"MadeBackward returned an incorrect number of gradients \(expected 2",
    ),
    (lambda: run(made(double, lambda ctx, g: (g, g))), r"\(expected 1, got 2\)"),
    (lambda: run(made(double, lambda ctx, g: [g, None]), 3), r"\(expected 2, got 1\)"),
    (
        lambda: run(made(double, lambda ctx, g: (g, g)), 3),
        "different than None at position 2, but the",
    ),
    (
        lambda: run(made(double, lambda ctx, g: 3)),
        r"expected Variable or None \(got int\) at position 1",
    ),
    (
        lambda: run(made(double, lambda ctx, g: g[:1].expand(3))),
        r"index 0 - got \(3,\) but expected shape",
    ),
    (lambda: run(made(double, lambda ctx, g: g.to("meta"))), "expected device cpu but got meta"),
    (
        lambda: run(made(double, lambda ctx, g: g * 1j)),
        "expected a real gradient but got .*complex128",
    ),
    (lambda: run(made(double, Function.backward)), "implement either the backward or vjp method"),
    (
        lambda: run(made(double, vjp=lambda ctx, g: g)),
        "both 'backward' and 'vjp' for a custom Function",
    ),
    (lambda: Function.apply(ONES), "must implement the forward function"),
    (lambda: run(after(lambda ctx, x: ctx.save_for_backward(x, 3))), "argument 1 is of type int"),
    (
        lambda: run(after(lambda ctx, x: ctx.save_for_forward("x"))),
        "save_for_forward can only save var",
    ),
    (
        lambda: run(after(lambda ctx, x: ctx.mark_dirty(3))),
        "mark_dirty can only accept variables, but",
    ),
    (lambda: run(after(lambda ctx, x: ctx.mark_dirty(x))), "were not returned as output"),
    (
        lambda: run(after(lambda ctx, x: ctx.mark_non_differentiable(3))),
        "mark_non_differentiable can",
    ),
    (lambda: viewed(), "is a view and it is being modified inplace"),
    (lambda: base_written(), "is a view and its base is being modified inplace"),
]


def viewed():
    x = leaf(1.0, 2.0) * 1
    made(lambda ctx, x: x.view(2, 1)).apply(x).add_(1)


def base_written():
    x = leaf(1.0, 2.0) * 1
    y = made(lambda ctx, x: x.view(2, 1)).apply(x)
    x.add_(1)
    y.sum().backward()


@pytest.mark.parametrize("call,message", REFUSED, ids=range(len(REFUSED)))
def test_misuse_is_explained(call, message):
    with pytest.raises((RuntimeError, TypeError), match=message):
        call()


def test_gradients_of_other_real_dtypes_and_larger_ones_are_fitted():
    for change in (lambda g: g.float(), lambda g: g.long()):
        got = run(made(double, lambda ctx, g, change=change: change(g)))
        assert got.dtype == F64 and got.tolist() == [1, 1]
    assert run(made(double, lambda ctx, g: g.expand(4, 2))).tolist() == [4, 4]
    assert run(made(double, lambda ctx, g: None)) is None
    assert run(made(double, lambda ctx, g: (g, None, None))).tolist() == [1, 1]
    assert run(made(double, lambda ctx, g: (g, g)), ONES).tolist() == [1, 1]


def test_a_tensor_marked_dirty_that_is_no_input_warns():
    def forward(ctx, x):
        other = x.clone()
        ctx.mark_dirty(other)
        return other

    with pytest.warns(UserWarning, match="received a tensor that was not an input"):
        assert run(made(forward)).tolist() == [1, 1]


def test_instances_are_of_no_use():
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        instance = made(double)()
    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward"):
        instance(ONES)


def test_forward_may_return_anything():
    for value in (None, "text", [ONES], {"a": ONES}, 3):
        assert made(lambda ctx, x, value=value: value).apply(leaf(1.0)) is value
    y, nothing = made(lambda ctx, x: (x * 2, None), lambda ctx, g, h: g).apply(leaf(1.0))
    assert nothing is None and y.requires_grad


def test_vjp_is_another_name_of_backward():
    assert run(made(double, Function.backward, vjp=lambda ctx, g: g * 7)).tolist() == [7, 7]


def test_an_input_that_is_returned_as_it_is_becomes_a_tensor_of_its_own():
    same, x, plain = made(lambda ctx, x: x), leaf(1.0), rabbet.ones(1)
    y = same.apply(x)
    assert y is not x and y.grad_fn.name() == "MadeBackward" and y.data_ptr() == x.data_ptr()
    assert same.apply(plain) is not plain


class Keeps(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.power = 2
        return x * x

    @staticmethod
    def backward(ctx, g):
        return ctx.power * g * ctx.saved_tensors[0]


def test_saved_tensors_are_checked_and_freed():
    x = leaf(1.0, 2.0) * 1
    y = Keeps.apply(x)
    x.add_(1)
    with pytest.raises(
        RuntimeError, match=r"KeepsBackward saved a tensor of shape \(2,\) at version 0"
    ):
        y.sum().backward()
    y = Keeps.apply(leaf(3.0))
    assert y.grad_fn.saved_tensors[0].item() == 3 and y.grad_fn.power == 2
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = y.grad_fn.nothing
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    for again in (y.sum().backward, lambda: y.grad_fn.saved_tensors):
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            again()


def test_saved_tensors_may_be_cleared_at_the_first_access():
    class Clears(Keeps):
        clear_saved_tensors_on_access = True

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with pytest.raises(RuntimeError, match="already been freed"):
                _ = ctx.saved_tensors
            return 2 * g * x

    x = leaf(3.0)
    Clears.apply(x).backward()
    assert x.grad.item() == 6


def test_gradients_may_come_as_a_list_that_backward_empties():
    class Boxed(Function):
        boxed_grads_call = True

        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, grads):
            second = grads.pop()
            return 2 * grads.pop() + 3 * second

    x = leaf(1.0)
    a, b = Boxed.apply(x)
    (a + 10 * b).sum().backward()
    assert x.grad.item() == 32


def test_arguments_may_have_defaults_and_names():
    class Power(Function):
        @staticmethod
        def forward(x, n=2, *, scale=1):
            return x**n * scale

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.n = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            assert ctx.needs_input_grad == (True, False)
            return g * ctx.n * x ** (ctx.n - 1), None

    x = leaf(3.0)
    assert grad(Power.apply(x).sum(), x)[0].item() == 6
    assert grad(Power.apply(x, n=3).sum(), x)[0].item() == 27
    assert Power.apply(x, scale=2).item() == 18
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        Power.apply()
    assert gradcheck(lambda x: Power.apply(x, 3), (x,)) and gradgradcheck(Power.apply, (x,))


def test_more_outputs_than_an_integer_has_bits():
    def forward(ctx, x):
        outs = [x * i for i in range(70)]
        ctx.mark_non_differentiable(outs[69])
        return tuple(outs)

    x = leaf(1.0)
    outs = made(forward, lambda ctx, *gs: sum(g * i for i, g in enumerate(gs))).apply(x)
    assert outs[68].requires_grad and not outs[69].requires_grad
    (outs[68] + outs[3]).sum().backward()
    assert x.grad.item() == 71


def test_inference_tensors_are_not_saved():
    with rabbet.inference_mode():
        made_inside = rabbet.ones(2, dtype=F64)

    class Times(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

    for y in (made_inside, made_inside[:], made_inside.view(2)):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            Times.apply(leaf(1.0, 2.0), y)
