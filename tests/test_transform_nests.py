"""Transforms of functions nest in any order: grad, vjp, jvp and vmap against each other and the plain tape."""

import threading

import pytest
import rabbet
from rabbet.autograd import _C, no_grad
from rabbet_testing import assert_close

func = pytest.importorskip("rabbet.func._differential")
grad, jvp, vjp = func.grad, func.jvp, func.vjp


@pytest.fixture
def vmap():
    return pytest.importorskip("rabbet.vmap").vmap


def f(x):
    return (x.sin() * x.exp()).sum()


def at(*values):
    return rabbet.tensor(values, dtype=rabbet.float64)


X, T, U = at(0.3, -0.7, 1.1), at(1.0, 0.5, -2.0), at(-0.4, 2.0, 0.6)
# f' = e (s + c), f'' = 2 e c, f''' = 2 e (c - s), elementwise
E, S, C = X.exp(), X.sin(), X.cos()


# ---- derivatives of derivatives


def test_grad():
    assert_close(grad(f)(X), E * (S + C))


def test_grad_of_grad():
    assert_close(grad(lambda x: (grad(f)(x) * T).sum())(X), 2 * E * C * T)


def test_grad_three_deep():
    def second(x):
        return (grad(lambda y: (grad(f)(y) * T).sum())(x) * U).sum()

    assert_close(grad(second)(X), 2 * E * (C - S) * T * U)


def test_jvp():
    value, slope = jvp(f, (X,), (T,))
    assert_close(value, f(X))
    assert_close(slope, (E * (S + C) * T).sum())


def test_jvp_of_grad():
    value, slope = jvp(grad(f), (X,), (T,))
    assert_close(value, E * (S + C))
    assert_close(slope, 2 * E * C * T)


def test_grad_of_jvp():
    assert_close(grad(lambda x: jvp(f, (x,), (T,))[1])(X), 2 * E * C * T)


def test_jvp_of_jvp():
    def inner(x):
        return jvp(f, (x,), (T,))[1]

    assert_close(jvp(inner, (X,), (U,))[1], (2 * E * C * T * U).sum())


def test_jvp_of_grad_of_jvp():
    def inner(x):
        return jvp(f, (x,), (T,))[1]

    assert_close(jvp(grad(inner), (X,), (U,))[1], 2 * E * (C - S) * T * U)


def test_grad_of_jvp_of_grad():
    def inner(x):
        return (jvp(grad(f), (x,), (T,))[1] * U).sum()

    assert_close(grad(inner)(X), 2 * E * (C - S) * T * U)


def test_gradient_with_respect_to_the_direction():
    assert_close(grad(lambda t: jvp(f, (X,), (t,))[1])(T), E * (S + C))


def test_vjp_and_its_transpose():
    out, pull = vjp(lambda x: x.sin() * x.exp(), X)
    assert_close(out, S * E)
    assert_close(pull(T)[0], E * (S + C) * T)
    assert_close(pull(U)[0], E * (S + C) * U)
    assert_close(grad(lambda c: (pull(c)[0] * U).sum())(T), E * (S + C) * U)


def test_linearize():
    out, push = func.linearize(lambda x: x.sin() * x.exp(), X)
    assert_close(out, S * E)
    assert_close(push(T), E * (S + C) * T)
    assert_close(push(U), E * (S + C) * U)
    with pytest.raises(RuntimeError, match="same argspec as the primals"):
        push(T, T)


# ---- perturbation confusion: the inner derivative is 1 whatever the outer variable is


@pytest.mark.parametrize("outer", ["grad", "jvp"])
@pytest.mark.parametrize("inner", ["grad", "jvp"])
def test_perturbations_are_told_apart(outer, inner):
    def slope(kind, g, x):
        return grad(g)(x) if kind == "grad" else jvp(g, (x,), (at(1.0)[0],))[1]

    def whole(x):
        return x * slope(inner, lambda y: x + y, at(5.0)[0])

    assert slope(outer, whole, at(3.0)[0]).item() == 1.0

    def product(x):
        return x * slope(inner, lambda y: x * y, at(5.0)[0])

    assert slope(outer, product, at(3.0)[0]).item() == 6.0


# ---- together with the tape


def test_closed_over_weights_get_gradients():
    w = at(2.0, 3.0, 4.0).requires_grad_()
    g = grad(lambda x: (w * x * x).sum())(X)
    assert g.requires_grad
    g.sum().backward()
    assert_close(w.grad, 2 * X)


def test_an_input_that_requires_grad():
    x = X.clone().requires_grad_()
    g = grad(f)(x)
    g.sum().backward()
    assert_close(x.grad, 2 * E * C)
    assert not grad(f)(X).requires_grad


def test_grad_records_under_no_grad():
    w = at(2.0, 3.0, 4.0).requires_grad_()
    with no_grad():
        g = grad(lambda x: (w * x * x).sum())(X)
        assert not rabbet.autograd.is_grad_enabled()
    assert not g.requires_grad
    assert_close(g, 2 * w.detach() * X)


def test_no_grad_inside_hides_from_the_gradient():
    def partly(x):
        with no_grad():
            kept = x * x
        return (x * kept).sum()

    assert_close(grad(partly)(X), X * X)


def test_no_graph_stays_alive():
    before = _C.live_nodes()
    for _ in range(3):
        g = grad(f)(X)
        h = grad(lambda x: (grad(f)(x) * T).sum())(X)
        j = jvp(grad(f), (X,), (T,))
        k = grad(lambda x: jvp(f, (x,), (T,))[1])(X)
        v, aux = grad(lambda x: (f(x), x * 2), has_aux=True)(X)
        assert _C.live_nodes() == before
        assert not any(r.requires_grad for r in (g, h, *j, k, v, aux))
    out, pull = vjp(f, X)
    assert _C.live_nodes() > before and not out.requires_grad
    assert not pull(at(1.0)[0])[0].requires_grad
    held = grad(lambda c, pull=pull: (pull(c)[0] * T).sum())(at(1.0)[0])
    assert not held.requires_grad
    del pull
    assert _C.live_nodes() == before


def test_no_graph_stays_alive_in_training():
    w = at(2.0, 3.0, 4.0).requires_grad_()

    def weighted(x):
        return (w * x * x).sum()

    before = _C.live_nodes()
    for _ in range(3):
        loss = (grad(weighted)(X) ** 2).sum()
        loss.backward()
        with no_grad():
            w -= 0.01 * w.grad
            w.grad = None
        del loss
        # the accumulator of a leaf stays with it
        assert _C.live_nodes() <= before + 1


def test_errors_leave_no_level_behind():
    for broken in (lambda x: x.no_such_attribute, lambda x: 1 / 0):
        with pytest.raises((AttributeError, ZeroDivisionError)):
            grad(broken)(X)
        with pytest.raises((AttributeError, ZeroDivisionError)):
            jvp(broken, (X,), (T,))
    assert_close(grad(f)(X), E * (S + C))
    assert_close(jvp(f, (X,), (T,))[1], (E * (S + C) * T).sum())


# ---- writes in place


def test_in_place_inside_grad():
    def written(x):
        y = x * 2
        y.mul_(y)
        y[0].mul_(x[1])
        y[1:].add_(x[0])
        return y.sum()

    def plain(x):
        y = 4 * x * x
        return y[0] * x[1] + (y[1:] + x[0]).sum()

    assert_close(grad(written)(X), grad(plain)(X))
    assert_close(jvp(written, (X,), (T,))[1], jvp(plain, (X,), (T,))[1])
    assert_close(jvp(grad(written), (X,), (T,))[1], jvp(grad(plain), (X,), (T,))[1])
    both = grad(lambda x: jvp(written, (x,), (T,))[1])(X)
    assert_close(both, grad(lambda x: jvp(plain, (x,), (T,))[1])(X))


def test_in_place_on_the_argument_itself():
    assert_close(grad(lambda x: x.mul_(x).sum())(X.clone()), 2 * X)
    assert_close(jvp(lambda x: x.mul_(x), (X.clone(),), (T.clone(),))[1], 2 * X * T)


def test_a_view_of_a_written_base():
    w = at(0.5, 1.5, 2.5)

    def written(a):
        b = a * w
        v = b[0]
        v *= w[0]
        return b.sum()

    assert_close(grad(written)(X), at(0.25, 1.5, 2.5))


# ---- signatures


def test_trees_and_argnums():
    def loss(p, x, scale=1.0):
        return (p["w"] * x + p["b"][0]).sum() * scale

    p = {"w": at(1.0, 2.0, 3.0), "b": (at(0.5)[0],)}
    g = grad(loss)(p, X, scale=2.0)
    assert_close(g["w"], 2 * X)
    assert g["b"][0].item() == 6.0
    gp, gx = grad(loss, argnums=(0, 1))(p, X)
    assert_close(gx, p["w"])
    assert_close(gp["w"], X)
    assert_close(grad(loss, argnums=-1)(p, X), p["w"])
    gradient, (value, aux) = func.grad_and_value(lambda x: (f(x), {"x": x}), has_aux=True)(X)
    assert_close(value, f(X))
    assert_close(aux["x"], X)
    assert_close(gradient, grad(f)(X))


def test_independent_outputs_give_zeros():
    assert_close(grad(lambda x: at(1.0)[0])(X), rabbet.zeros_like(X))
    assert_close(jvp(lambda x: (x > 0).double(), (X,), (T,))[1], rabbet.zeros_like(X))
    with pytest.raises(RuntimeError, match="strict=True"):
        jvp(lambda x: at(1.0), (X,), (T,), strict=True)
    assert_close(grad(lambda x, y: (x * x).sum(), argnums=1)(X, T), rabbet.zeros_like(T))


def test_a_function_inside_forward_mode_has_an_outer_gradient():
    class Square(rabbet.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

        @staticmethod
        def jvp(ctx, t):
            return 2 * ctx.saved_tensors[0] * t

    assert_close(jvp(Square.apply, (X,), (T,))[1], 2 * X * T)
    assert_close(jvp(grad(lambda x: Square.apply(x).sum()), (X,), (T,))[1], 2 * T)
    assert_close(grad(lambda x: jvp(Square.apply, (x,), (T,))[1].sum())(X), 2 * T)


def test_a_dual_that_leaks_is_an_error():
    kept = []
    jvp(lambda x: kept.append(x * 2) or x, (X,), (T,))
    with pytest.raises(RuntimeError, match="must not leave"):
        kept[0] + 1


# ---- threads


def test_two_threads_add_to_one_leaf():
    w = rabbet.zeros(64, dtype=rabbet.float64, requires_grad=True)
    rounds, workers = 200, 4
    errors = []

    def work(k):
        try:
            for _ in range(rounds):
                (w * float(k + 1)).sum().backward()
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert_close(w.grad, rabbet.full((64,), float(rounds * (1 + 2 + 3 + 4)), dtype=rabbet.float64))


def test_transforms_in_several_threads():
    results = [None] * 4

    def work(k):
        for _ in range(20):
            results[k] = jvp(grad(f), (X * (k + 1),), (T,))[1]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, got in enumerate(results):
        x = X * (k + 1)
        assert_close(got, 2 * x.exp() * x.cos() * T)


# ---- with vmap

ROWS = rabbet.stack([X, T, U])


def rows_of(g):
    return rabbet.stack([g(x) for x in ROWS.unbind(0)])


def test_vmap_of_grad(vmap):
    assert_close(vmap(grad(f))(ROWS), rows_of(grad(f)))


def test_grad_of_vmap(vmap):
    assert_close(grad(lambda r: vmap(f)(r).sum())(ROWS), rows_of(grad(f)))


def test_vmap_of_grad_of_grad(vmap):
    def second(x):
        return grad(lambda y: (grad(f)(y) * T).sum())(x)

    assert_close(vmap(second)(ROWS), rows_of(second))


def test_grad_of_vmap_of_grad(vmap):
    def loss(r):
        return (vmap(grad(f))(r) * ROWS).sum()

    assert_close(grad(loss)(ROWS), 2 * ROWS.exp() * ROWS.cos() * ROWS)


def test_vmap_of_jvp_of_grad(vmap):
    def hvp(x):
        return jvp(grad(f), (x,), (T,))[1]

    assert_close(vmap(hvp)(ROWS), rows_of(hvp))


def test_jvp_of_vmap_of_grad(vmap):
    slope = jvp(vmap(grad(f)), (ROWS,), (ROWS,))[1]
    assert_close(slope, 2 * ROWS.exp() * ROWS.cos() * ROWS)


def test_per_sample_gradients_of_shared_weights(vmap):
    w = at(2.0, 3.0, 4.0)

    def loss(w, x):
        return ((w * x).sum()) ** 2

    want = rabbet.stack([2 * (w * x).sum() * x for x in ROWS.unbind(0)])
    assert_close(vmap(grad(loss), in_dims=(None, 0))(w, ROWS), want)


def test_the_outer_tape_through_vmap_of_grad(vmap):
    w = at(2.0, 3.0, 4.0).requires_grad_()
    out = vmap(grad(lambda x: (w * x * x).sum()))(ROWS)
    out.sum().backward()
    assert_close(w.grad, 2 * ROWS.sum(0))


def test_no_graph_stays_alive_after_vmap_of_grad(vmap):
    w = at(2.0, 3.0, 4.0)

    def loss(w, x):
        return ((w * x).sum()) ** 2

    before = _C.live_nodes()
    for _ in range(3):
        got = vmap(grad(loss), in_dims=(None, 0))(w, ROWS)
        plain = vmap(grad(f))(ROWS)
        assert not got.requires_grad and not plain.requires_grad
        assert _C.live_nodes() == before


def test_jacobians(vmap):
    def g(x):
        return x.sin() * x.sum()

    want = rabbet.stack([jvp(g, (X,), (e,))[1] for e in rabbet.eye(3, dtype=X.dtype).unbind(0)], 1)
    assert_close(func.jacrev(g)(X), want)
    assert_close(func.jacfwd(g)(X), want)
    assert_close(func.jacrev(g, chunk_size=2)(X), want)
    assert_close(func.jacfwd(g, chunk_size=1)(X), want)
    assert_close(func.hessian(f)(X), rabbet.eye(3, dtype=X.dtype) * (2 * E * C))
    jac, aux = func.jacrev(lambda x: (g(x), x), has_aux=True)(X)
    assert_close(jac, want)
    assert_close(aux, X)


def test_jacobians_of_numbers(vmap):
    x = at(2.0)[0]
    for jacobian in (func.jacrev, func.jacfwd):
        assert_close(jacobian(lambda x: x**3)(x), at(12.0)[0])
        assert_close(jacobian(lambda x: x * X)(x), X)
        assert_close(jacobian(lambda x: x.sum())(X), rabbet.ones_like(X))
    assert_close(func.hessian(lambda x: x**3)(x), at(12.0)[0])


def test_jacobians_of_trees(vmap):
    def g(p, x):
        return {"y": p["a"] * x, "z": (p["a"] * x).sum()}

    p = {"a": T}
    for jacobian in (func.jacrev, func.jacfwd):
        j = jacobian(g, argnums=(0, 1))(p, X)
        assert j["y"][0]["a"].shape == (3, 3) and j["z"][1].shape == (3,)
        assert_close(j["z"][0]["a"], X)
        assert_close(j["z"][1], T)
