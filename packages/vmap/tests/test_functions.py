"""Functions of users in every transform and nest, against the same functions made of operators."""

import itertools
import warnings

import numpy as np
import pytest
import rabbet
from rabbet.autograd import Function, gradcheck, gradgradcheck
from rabbet.autograd import forward_ad as fwd
from rabbet.func import functionalize, grad, jacfwd, jacrev, jvp, vjp
from rabbet.testing import assert_close, make_tensor
from rabbet.vmap import vmap

F64 = rabbet.float64


def of_numpy(array):
    return rabbet.tensor(np.asarray(array))


class Wave(Function):
    """sin, or cos a quarter period later, by NumPy; its derivative is itself, moved by a quarter."""

    @staticmethod
    def forward(x, quarters=0):
        return of_numpy(np.sin(x.numpy() + quarters * np.pi / 2))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.quarters = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * Wave.apply(x, ctx.quarters + 1), None

    @staticmethod
    def jvp(ctx, t, nothing):
        assert nothing is None
        (x,) = ctx.saved_tensors
        return t * Wave.apply(x, ctx.quarters + 1)

    @staticmethod
    def vmap(info, in_dims, x, quarters):
        assert info.batch_size == x.shape[in_dims[0]] and in_dims[1] is None
        return Wave.apply(x, quarters), in_dims[0]


class Times(Function):
    """A product by NumPy with broadcasting; gradients for what needs them only."""

    @staticmethod
    def forward(x, y):
        return of_numpy(x.numpy() * y.numpy())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        needs_x, needs_y = ctx.needs_input_grad
        return (Times.apply(g, y) if needs_x else None), (Times.apply(g, x) if needs_y else None)

    @staticmethod
    def jvp(ctx, tx, ty):
        x, y = ctx.saved_tensors
        return Times.apply(tx, y) + Times.apply(x, ty)

    @staticmethod
    def vmap(info, in_dims, x, y):
        last = [
            t.unsqueeze(-1) if d is None else t.movedim(d, -1)
            for t, d in zip((x, y), in_dims, strict=True)
        ]
        return Times.apply(*last), -1


class ExpInPlace(Function):
    """Writes its argument by NumPy and saves what it has become."""

    @staticmethod
    def forward(x):
        values = x.numpy()
        np.exp(values, out=values)
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(*inputs)
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, g):
        return Times.apply(g, ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx, t):
        return t.mul_(ctx.saved_tensors[0])

    @staticmethod
    def vmap(info, in_dims, x):
        return ExpInPlace.apply(x), in_dims[0]


class Ordered(Function):
    """Sorted values, and places that carry no gradient."""

    @staticmethod
    def forward(x, dim):
        places = np.argsort(x.numpy(), axis=dim)
        back = np.argsort(places, axis=dim)
        return of_numpy(np.take_along_axis(x.numpy(), places, dim)), *map(of_numpy, (places, back))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim = inputs[1]
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output[1:])
        ctx.save_for_forward(*output[1:])

    @staticmethod
    def backward(ctx, g, *others):
        return rabbet.gather(g, ctx.dim, ctx.saved_tensors[1]), None

    @staticmethod
    def jvp(ctx, t, _):
        return rabbet.gather(t, ctx.dim, ctx.saved_tensors[0]), None, None

    @staticmethod
    def vmap(info, in_dims, x, dim):
        dim = dim % (x.ndim - 1) + 1
        return Ordered.apply(x.movedim(in_dims[0], 0), dim), (0, 0, 0)


class Generated(Function):
    """A rule for vmap is made of functions that use operators only."""

    generate_vmap_rule = True


class Powers(Generated):
    """x cubed and 3 x squared, which both carry gradients, and one is saved."""

    @staticmethod
    def forward(x):
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output[1])
        ctx.save_for_forward(inputs[0], output[1])

    @staticmethod
    def backward(ctx, g, h):
        x, slope = ctx.saved_tensors
        return g * slope + 6 * h * x

    @staticmethod
    def jvp(ctx, t):
        x, slope = ctx.saved_tensors
        return t * slope, 6 * t * x


class Scaled(Generated):
    """A product whose derivative calls the Function again; one argument may be the same for all."""

    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return Scaled.apply(g, y), Scaled.apply(g, x)

    @staticmethod
    def jvp(ctx, tx, ty):
        x, y = ctx.saved_tensors
        return tx * y + x * ty


class Row(Generated):
    """Part of a tensor, by an argument with a default, which may be a tuple."""

    @staticmethod
    def forward(x, at=(1,)):
        return x[at].clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.at = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx, g):
        whole = g.new_zeros(ctx.shape)
        whole[ctx.at] = g
        return whole, None

    @staticmethod
    def jvp(ctx, t, _):
        return Row.apply(t, ctx.at)


class Through(Generated):
    """The identity whose derivative is 2: gradients are scaled."""

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * 2

    @staticmethod
    def jvp(ctx, t):
        return t * 2


class Nothing(Generated):
    """Copies with derivative 0, as zeros that are too large, or none."""

    @staticmethod
    def forward(x, y):
        return x.clone(), y.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g, h):
        return rabbet.zeros(2, 5, *g.shape, dtype=g.dtype), None

    @staticmethod
    def jvp(ctx, tx, ty):
        return rabbet.zeros(tx.shape, dtype=tx.dtype), None


def values(*shapes):
    rabbet.manual_seed(5)
    return [make_tensor(s, dtype=F64, device="cpu", low=0.5, high=2) for s in shapes]


# name: the Function, the same of operators, its arguments, whether its derivative is the true one
SAMPLES = {
    "Wave": (lambda x: Wave.apply(x), lambda x: x.sin(), values((3,)), True),
    "Wave by keyword": (
        lambda x: Wave.apply(x, quarters=1),
        lambda x: x.cos(),
        values((2, 2)),
        True,
    ),
    "Times": (Times.apply, lambda x, y: x * y, values((3,), (2, 3)), True),
    "ExpInPlace": (lambda x: ExpInPlace.apply(x * 1), lambda x: x.exp(), values((3,)), True),
    "Ordered": (lambda x: Ordered.apply(x, -1)[0], lambda x: x.sort(-1)[0], values((2, 3)), True),
    "Powers": (Powers.apply, lambda x: (x**3, 3 * x**2), values((3,)), True),
    "Scaled": (Scaled.apply, lambda x, y: x * y, values((3,), (3,)), True),
    "Row": (lambda x: Row.apply(x), lambda x: x[1].clone(), values((3, 2)), True),
    "Row by tuple": (
        lambda x: Row.apply(x, (0, 1)),
        lambda x: x[0, 1].clone(),
        values((2, 2)),
        True,
    ),
    "Through": (Through.apply, lambda x: x * 2 - x.detach(), values((3,)), False),
    "Nothing": (
        Nothing.apply,
        lambda x, y: (x.detach() + 0 * x, y.detach() + 0 * y),
        values((3,), (2,)),
        False,
    ),
}


def outputs(f):
    def tupled(*xs):
        result = f(*xs)
        return result if isinstance(result, tuple) else (result,)

    return tupled


def pulled(f):
    """The product of the Jacobian with ones, as a function again."""

    def back(*xs):
        ys, product = vjp(f, *xs)
        return product(tuple(rabbet.full_like(y, 0.5 + k) for k, y in enumerate(ys)))

    return back


def pushed(f):
    def forward(*xs):
        return jvp(f, xs, tuple(rabbet.full_like(x, 0.5 + k) for k, x in enumerate(xs)))[1]

    return forward


def mapped(f):
    def examples(*xs):
        stacked = [rabbet.stack([x, x * 1.5], -1) for x in xs]
        return vmap(f, in_dims=-1)(*stacked)

    return examples


def first_mapped(f):
    """Over the first argument only; the others are the same for all."""

    def examples(x, *others):
        return vmap(f, in_dims=(0, *[None] * len(others)))(rabbet.stack([x, x * 1.5]), *others)

    return examples


TRANSFORMS = {"vjp": pulled, "jvp": pushed, "vmap": mapped, "vmap of one": first_mapped}
NESTS = [n for r in (1, 2, 3) for n in itertools.product(TRANSFORMS, repeat=r)]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_nest_gives_what_operators_give(name):
    function, operators, inputs, _ = SAMPLES[name]
    for nest in NESTS:
        got, want = outputs(function), outputs(operators)
        for transform in nest:
            got, want = (TRANSFORMS[transform](f) for f in (got, want))
        pairs = zip(got(*inputs), want(*inputs), strict=True)
        for k, (g, w) in enumerate(pairs):
            assert_close(g, w, rtol=1e-9, atol=1e-9, msg=f"{name} in {nest}, result {k}")


@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if s[3]])
def test_derivatives_of_all_kinds_are_right(name):
    function, _, inputs, _ = SAMPLES[name]
    recorded = [x.requires_grad_() for x in inputs]
    kinds = {"check_batched_grad": True, "check_grad_dtypes": True}
    assert gradcheck(
        function, recorded, check_forward_ad=True, check_batched_forward_grad=True, **kinds
    )
    assert gradgradcheck(function, recorded, check_fwd_over_rev=True, **kinds)


@pytest.mark.parametrize("name", SAMPLES)
def test_both_jacobians_agree(name):
    function, operators, inputs, _ = SAMPLES[name]
    inputs = [x.detach() for x in inputs]
    every = tuple(range(len(inputs)))
    want = jacrev(outputs(operators), every)(*inputs)
    for transform in (jacrev, jacfwd):
        for got_row, row in zip(transform(outputs(function), every)(*inputs), want, strict=True):
            for g, w in zip(got_row, row, strict=True):
                assert_close(g, w, rtol=1e-9, atol=1e-9, msg=name)


def test_a_dual_of_forward_ad_and_the_tape_share_a_function():
    x = rabbet.tensor([0.3, 0.4], dtype=F64, requires_grad=True)
    with fwd.dual_level():
        y = Powers.apply(fwd.make_dual(x, rabbet.ones(2, dtype=F64)))[0]
        tangent = fwd.unpack_dual(y).tangent
        (again,) = rabbet.autograd.grad(tangent.sum(), x, retain_graph=True)
        (plain,) = rabbet.autograd.grad(fwd.unpack_dual(y).primal.sum(), x)
    assert_close(tangent, 3 * x.detach() ** 2)
    assert_close(again, 6 * x.detach())
    assert_close(plain, 3 * x.detach() ** 2)


def test_a_tensor_without_tangent_gets_zeros_or_none():
    seen = []

    class Sum(Function):
        @staticmethod
        def forward(x, y, n, k):
            return x + y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.set_materialize_grads(inputs[3])

        @staticmethod
        def jvp(ctx, *tangents):
            seen.append(tangents)
            return tangents[0]

    for zeros in (True, False):
        with fwd.dual_level():
            x = fwd.make_dual(rabbet.ones(2), rabbet.ones(2))
            Sum.apply(x, rabbet.ones(2), rabbet.arange(2), zeros)
    assert [t is not None for t in seen[0]] == [True, True, False, False]
    assert seen[0][1].tolist() == [0, 0]
    assert [t is not None for t in seen[1]] == [True, False, False, False]


def test_a_written_argument_takes_a_tangent_that_it_had_not():
    class Add_(Function):
        @staticmethod
        def forward(x, y):
            return x.add_(y)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_dirty(inputs[0])

        @staticmethod
        def jvp(ctx, tx, ty):
            return tx.add_(ty)

    def f(y):
        x = rabbet.zeros_like(y) + 2
        assert Add_.apply(x, y) is x
        return x * x

    y, t = rabbet.tensor([1.0, 3.0]), rabbet.tensor([1.0, 10.0])
    value, tangent = jvp(f, (y,), (t,))
    assert value.tolist() == [9, 25] and tangent.tolist() == [6, 100]


def test_a_function_of_ctx_nests_in_grad_and_jvp():
    class Old(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(x, y)
            ctx.also = [y]
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[1]

        @staticmethod
        def jvp(ctx, t):
            return t * ctx.also[0]

    x = values((3,))[0]
    for nest in itertools.product(("vjp", "jvp"), repeat=3):
        got, want = outputs(Old.apply), outputs(lambda x: x.exp())
        for transform in nest:
            got, want = TRANSFORMS[transform](got), TRANSFORMS[transform](want)
        assert_close(got(x)[0], want(x)[0], msg=str(nest))
    with pytest.raises(
        RuntimeError, match="must override the setup_context staticmethod; Old does"
    ):
        vmap(Old.apply)(x)


def test_functionalize_sees_the_operators_of_forward():
    x = values((3,))[0]
    assert_close(functionalize(Powers.apply)(x)[0], x**3)
    with pytest.raises(NotImplementedError, match="inside this transform cannot be differentiated"):
        grad(lambda x: functionalize(Powers.apply)(x)[0].sum())(x)


def test_arguments_that_are_no_tensors_may_hold_some():
    class Total(Function):
        @staticmethod
        def forward(xs, scale):
            return sum(xs) * scale

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, xs, scale):
            assert in_dims == ([0, None], None)
            return (xs[0] + xs[1]) * scale, 0

    x, y = rabbet.ones(2, 3), rabbet.ones(3)
    assert vmap(lambda x: Total.apply([x, y], 2.0))(x).tolist() == [[4, 4, 4]] * 2


def test_what_is_not_batched_skips_the_level():
    assert vmap(lambda x: x + Wave.apply(rabbet.zeros(1, dtype=F64)))(rabbet.ones(2)).shape == (
        2,
        1,
    )


def made(vmap_rule=None, jvp_rule=None, **attributes):
    rules = {"vmap": vmap_rule, "jvp": jvp_rule}
    functions = {
        "forward": lambda x: x * 2,
        "setup_context": lambda ctx, inputs, output: None,
        "backward": lambda ctx, g: g,
        **{name: f for name, f in rules.items() if f is not None},
    }
    return type(
        "Made", (Function,), {k: staticmethod(f) for k, f in functions.items()} | attributes
    )


WRONG_RULES = [
    (made(), RuntimeError, "it does not have vmap support"),
    (
        made(lambda i, d, x: (x, 0), generate_vmap_rule=True),
        RuntimeError,
        "both generate_vmap_rule=True and an overridden vmap",
    ),
    (made(lambda i, d, x: x), RuntimeError, r"to have two returns.* Got a <class '.*Tensor'>"),
    (made(lambda i, d, x: (x, 0, 0)), RuntimeError, "Got 3 returns instead"),
    (made(lambda i, d, x: (x, (0, 0))), RuntimeError, r"out_dims=\(0, 0\) to be compatible"),
    (made(lambda i, d, x: (x * 1, 3)), ValueError, "Made: .* dim 3 of a result of shape"),
    (made(lambda i, d, x: (x[:1], 0)), ValueError, "does not hold 3 examples"),
]


@pytest.mark.parametrize("function,error,message", WRONG_RULES, ids=range(len(WRONG_RULES)))
def test_wrong_batching_rules_are_explained(function, error, message):
    with pytest.raises(error, match=message):
        vmap(function.apply)(rabbet.ones(3))


WRONG_TANGENTS = [
    (None, NotImplementedError, "must implement the jvp function"),
    (lambda ctx, t: (t, t), RuntimeError, r"invalid number of forward gradients \(expected 1 but"),
    (
        lambda ctx, t: 3,
        RuntimeError,
        r"Made.jvp: expected Variable or None \(got int\) for grad out",
    ),
    (lambda ctx, t: t[:2], RuntimeError, r"Tensor is of size \(3,\) while .* of size \(2,\)"),
    (lambda ctx, t: t.double(), RuntimeError, "expected a tangent of rabbet.float32 on cpu"),
    (lambda ctx, t: t.to("meta"), RuntimeError, "got rabbet.float32 on meta"),
]


@pytest.mark.parametrize("rule,error,message", WRONG_TANGENTS, ids=range(len(WRONG_TANGENTS)))
def test_wrong_tangents_are_explained(rule, error, message):
    with pytest.raises(error, match=message):
        jvp(made(jvp_rule=rule).apply, (rabbet.ones(3),), (rabbet.ones(3),))


def test_tangents_of_what_has_none_or_was_written_are_refused():
    class Marked(Generated):
        @staticmethod
        def forward(ctx, x, kind):
            if kind == "marked":
                y = x * 2
                ctx.mark_non_differentiable(y)
                return y
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx, t, _):
            return t * 2

    with fwd.dual_level():
        x = fwd.make_dual(rabbet.ones(2), rabbet.ones(2))
        with pytest.raises(RuntimeError, match="returned a gradient at position 0, but"):
            Marked.apply(x, "marked")
        with pytest.raises(RuntimeError, match="not modifying the forward mode gradients inplace"):
            Marked.apply(x, "dirty")


# ---- several gradients in one run


def test_batched_gradients_are_those_of_a_loop():
    x, z = values((3,), (2,))
    x.requires_grad_()
    z.requires_grad_()
    y, total = x.sin() * 2, (x * x).sum()
    g, h = values((4, 3), (4,))
    (got,) = rabbet.autograd.grad([y, total], x, [g, h], is_grads_batched=True, retain_graph=True)
    for i in range(4):
        (want,) = rabbet.autograd.grad([y, total], x, [g[i], h[i]], retain_graph=True)
        assert_close(got[i], want)
    both = rabbet.autograd.grad(
        y, (x, z), g, is_grads_batched=True, allow_unused=True, retain_graph=True
    )
    assert both[0].shape == (4, 3) and both[1] is None
    zeros = rabbet.autograd.grad(
        y, (x, z), g, is_grads_batched=True, materialize_grads=True, create_graph=True
    )[1]
    assert zeros.tolist() == [0, 0]
    (product,) = rabbet.autograd.grad(
        Wave.apply(x), x, rabbet.eye(3, dtype=F64), is_grads_batched=True, create_graph=True
    )
    (second,) = rabbet.autograd.grad(product.sum(), x)
    assert_close(second, -x.detach().sin())


def test_batched_gradients_refuse_what_does_not_fit():
    x = rabbet.ones(3, requires_grad=True)
    with pytest.raises(
        RuntimeError, match=r"grad_output\[0\] has a shape of \(2,\) and output\[0\]"
    ):
        rabbet.autograd.grad(x * 2, x, rabbet.ones(3, 2), is_grads_batched=True)
    with pytest.raises(ValueError, match="needs grad_outputs with a dimension of examples"):
        rabbet.autograd.grad((x * 2).sum(), x, is_grads_batched=True)
    with pytest.raises(RuntimeError, match="index 1 appears to not have been used"):
        z = rabbet.ones(1, requires_grad=True)
        rabbet.autograd.grad(x * 2, (x, z), rabbet.eye(3), is_grads_batched=True)


def test_levels_may_be_entered_inside_a_batching_rule():
    class Inner(Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            _, tangent = jvp(lambda x: x * x, (x,), (rabbet.ones_like(x),))
            return vmap(lambda t: t * 1)(tangent.movedim(in_dims[0], 0)), 0

    x = rabbet.arange(6.0).reshape(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(vmap(Inner.apply, in_dims=1, out_dims=1)(x), 2 * x)
        assert_close(vmap(vmap(Inner.apply))(x), 2 * x)
