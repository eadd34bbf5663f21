"""Forward mode: tangents through every differentiable record, in place, through views, and misuse."""

import pytest
import rabbet
import rabbet.autograd.forward_ad as fwd
from rabbet import _C, library
from rabbet.autograd import Function, grad, no_grad
from rabbet_testing import assert_close, cases, differentiable_ops, differentiable_part


def ramp(x, start=0.3):
    """A fixed direction: unequal entries of both signs, so that errors do not cancel."""
    n = x.numel()
    values = rabbet.linspace(start, 1.7, max(n, 1), dtype=rabbet.float64)[:n].reshape(x.shape)
    values = values * (1 - 2 * (rabbet.arange(n).reshape(x.shape) % 2))
    if x.is_complex():
        values = values + 0.5j * values.flip(list(range(x.ndim)))
    return values.to(x.dtype)


def checked_cases(name, dtype=None):
    if dtype is None:
        of_complex = _C.op_info(name)["dtypes"] == "complex"
        dtype = rabbet.complex128 if of_complex else rabbet.float64
    for case in cases(name, dtype, requires_grad=True):
        call, inputs = differentiable_part(case)
        try:
            results = call(*inputs) if inputs else ()
        except (
            NotImplementedError
        ):  # no derivative, or not in this dtype: the conformance kit counts those
            continue
        if results and all(r.isfinite().all().item() for r in results):  # has finite differences
            yield case, call, inputs


# Operators whose results are no floating numbers, one that reads the memory below its argument, those of complex
# numbers only, and one whose mean and deviation carry no gradient, as in PyTorch.
NOT_DIFFERENTIABLE = {"as_strided_copy", "count_nonzero", "mask_indices", "signbit", "argsort",
                      "view_as_real", "view_as_real_scatter", "native_layer_norm"}  # fmt: skip
DIFFERENTIABLE = [name for name in differentiable_ops() if name not in NOT_DIFFERENTIABLE]


def tangents(call, inputs, directions):
    with fwd.dual_level():
        duals = [x if t is None else fwd.make_dual(x, t) for x, t in zip(inputs, directions)]
        pairs = [fwd.unpack_dual(y) for y in call(*duals)]
    return [rabbet.zeros_like(p) if t is None else t for p, t in pairs]


def numerical(call, inputs, directions, eps=1e-6):
    def at(step):
        moved = [x if t is None else x + step * t for x, t in zip(inputs, directions)]
        return [y.detach() for y in call(*moved)]

    return [(a - b) / (2 * eps) for a, b in zip(at(eps), at(-eps))]


def inner(a, b):
    product = (a * b.conj()).sum()
    return (product.real if product.is_complex() else product).item()


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_tangents_match_finite_differences_and_the_vjp(name):
    checked = 0
    for case, call, inputs in checked_cases(name):
        values = [x.detach() for x in inputs]
        directions = [ramp(x) for x in inputs]
        found = tangents(call, values, directions)
        for got, want in zip(found, numerical(call, inputs, directions)):
            assert_close(got, want, atol=1e-5, rtol=1e-3, message=str(case))
        outputs = call(*inputs)
        cotangents = [ramp(y, 0.4) for y in outputs]
        pairs = [(y, c) for y, c in zip(outputs, cotangents) if y.requires_grad]
        if pairs:
            grads = grad([y for y, _ in pairs], inputs, [c for _, c in pairs], allow_unused=True)
            reverse = sum(inner(t, g) for t, g in zip(directions, grads) if g is not None)
            forward = sum(inner(t, c) for t, c in zip(found, cotangents))
            assert forward == pytest.approx(reverse, rel=1e-8, abs=1e-8), str(case)
        checked += 1
    assert checked, f"{name}: no example was checked"


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_one_tangent_at_a_time(name):
    for case, call, inputs in checked_cases(name):
        values = [x.detach() for x in inputs]
        for k, x in enumerate(values):
            directions = [ramp(x) if i == k else None for i in range(len(values))]
            found = tangents(call, values, directions)
            for got, want in zip(found, numerical(call, inputs, directions)):
                assert_close(got, want, atol=1e-5, rtol=1e-3, message=f"{case}, argument {k}")


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_forward_over_reverse_matches_reverse_over_reverse(name):
    for case, call, inputs in checked_cases(name):
        directions = [ramp(x) for x in inputs]

        def loss(*xs, call=call):
            parts = [(y * ramp(y, 0.4)).sum() for y in call(*xs) if y.requires_grad]
            return sum(p.real + p.imag if p.is_complex() else p for p in parts)

        if not isinstance(loss(*inputs), rabbet.Tensor):
            continue
        first = grad(loss(*inputs), inputs, create_graph=True, materialize_grads=True)
        total = sum((g * t).sum().real for g, t in zip(first, directions))
        if total.requires_grad:
            want = grad(total, inputs, materialize_grads=True)
        else:
            want = [rabbet.zeros_like(x) for x in inputs]
        with fwd.dual_level():
            duals = [fwd.make_dual(x, t) for x, t in zip(inputs, directions)]
            found = grad(loss(*duals), duals, create_graph=True, materialize_grads=True)
            parts = [fwd.unpack_dual(g) for g in found]
        for (g, t), w, f in zip(parts, want, first):
            assert_close(g, f, atol=1e-8, rtol=1e-6, message=str(case))
            t = rabbet.zeros_like(g) if t is None else t
            assert_close(t, w, atol=1e-7, rtol=1e-5, message=str(case))


COMPLEX = ["add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "reciprocal", "sin", "cos", "tanh", "abs", "sgn",
           "conj", "real", "imag", "sum", "mean", "matmul", "clone", "sigmoid", "cumprod", "pow"]  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_tangents_match_finite_differences(name):
    for case, call, inputs in checked_cases(name, rabbet.complex128):
        values = [x.detach() for x in inputs]
        directions = [ramp(x) for x in inputs]
        found = tangents(call, values, directions)
        for got, want in zip(found, numerical(call, inputs, directions)):
            assert_close(got, want, atol=1e-5, rtol=1e-3, message=str(case))


def test_complex_of_two_real_parts():
    a, b, t = rabbet.tensor([1.0, 2.0]), rabbet.tensor([3.0, 4.0]), rabbet.tensor([0.5, -1.0])
    for first, second, want in [(t, None, t + 0j), (None, t, 1j * t), (t, t, t + 1j * t)]:
        got = tangents(lambda x, y: [rabbet.complex(x, y)], [a, b], [first, second])[0]
        assert_close(got, want.to(got.dtype))


# ---- the interface


def test_make_and_unpack():
    x, t = rabbet.tensor([1.0, 2.0]), rabbet.tensor([3.0, 5.0])
    with fwd.dual_level() as level:
        dual = fwd.make_dual(x, t, level=level)
        assert isinstance(fwd.unpack_dual(dual), fwd.UnpackedDualTensor)
        assert_close(fwd.unpack_dual(dual).primal, x)
        assert_close(fwd.unpack_dual(dual * dual).tangent, 2 * x * t)
        assert fwd.unpack_dual(x) == (x, None)
        assert dual.shape == (2,) and (dual > 1.5).tolist() == [False, True]
        assert dual.sum().item() == 3.0


def test_levels_nest_and_are_told_apart():
    x = rabbet.tensor(2.0)
    one = rabbet.tensor(1.0)
    with fwd.dual_level():
        a = fwd.make_dual(x, one)
        with fwd.dual_level():
            b = fwd.make_dual(a, one)
            inside = fwd.unpack_dual(b * b * a)
            assert fwd.unpack_dual(inside.tangent, level=1).primal.item() == 8.0  # d/db b*b*a
        second = fwd.unpack_dual(inside.tangent).tangent
        assert second.item() == 8.0  # d/dx of 2*x*x: b stands for a too


def test_no_perturbation_confusion():
    # d/dx (x * d/dy (x + y)) = 1
    one = rabbet.tensor(1.0)
    with fwd.dual_level():
        x = fwd.make_dual(rabbet.tensor(3.0), one)
        with fwd.dual_level():
            y = fwd.make_dual(rabbet.tensor(5.0), one)
            slope = fwd.unpack_dual(x + y).tangent
        assert fwd.unpack_dual(x * slope).tangent.item() == 1.0


def test_integer_and_detached_results_have_no_tangent():
    with fwd.dual_level():
        x = fwd.make_dual(rabbet.tensor([1.0, 3.0, 2.0]), rabbet.ones(3))
        assert x.argmax().item() == 1
        assert fwd.unpack_dual(x.detach()).tangent is None
        assert fwd.unpack_dual(rabbet.zeros_like(x)).tangent is None
        assert_close(fwd.unpack_dual(x.detach() * x).tangent, rabbet.tensor([1.0, 3.0, 2.0]))
        values, indices = x.sort()
        assert indices.tolist() == [0, 2, 1]
        assert_close(fwd.unpack_dual(values).tangent, rabbet.ones(3))


# ---- in place and views


def test_writes_in_place():
    x, t = rabbet.tensor([1.0, 2.0, 3.0]), rabbet.tensor([0.5, -1.0, 2.0])
    with fwd.dual_level():
        y = fwd.make_dual(x.clone(), t.clone())
        y.mul_(y)
        y.add_(1)
        value, tangent = fwd.unpack_dual(y)
        assert_close(value, x * x + 1)
        assert_close(tangent, 2 * x * t)
        y.fill_(0.0)
        assert_close(fwd.unpack_dual(y).tangent, rabbet.zeros(3))


def test_writes_in_place_leave_other_tangents_alone():
    x, t = rabbet.tensor([1.0, 2.0]), rabbet.tensor([3.0, 4.0])
    with fwd.dual_level():
        a = fwd.make_dual(x, t)
        b = a + 1
        c = a.clone()
        b.mul_(10)
        c.mul_(100)
        assert_close(fwd.unpack_dual(a).tangent, rabbet.tensor([3.0, 4.0]))
        assert_close(fwd.unpack_dual(b).tangent, 10 * t)
        assert_close(fwd.unpack_dual(c).tangent, 100 * t)


def test_a_write_through_a_view_reaches_the_base():
    x, t = rabbet.arange(6.0).reshape(2, 3), rabbet.ones(2, 3)
    with fwd.dual_level():
        base = fwd.make_dual(x, t) * 1.0
        base[0].mul_(3.0)
        base.t()[1].add_(base.t()[0])
        value, tangent = fwd.unpack_dual(base)
        assert_close(value, rabbet.tensor([[0.0, 3.0, 6.0], [3.0, 7.0, 5.0]]))
        assert_close(tangent, rabbet.tensor([[3.0, 6.0, 3.0], [1.0, 2.0, 1.0]]))


def test_a_tangent_written_through_a_view_of_a_tensor_that_had_none():
    x = rabbet.tensor([1.0, 2.0, 3.0])
    with fwd.dual_level():
        d = fwd.make_dual(x, rabbet.ones(3))
        out = rabbet.zeros_like(d)
        early, row = out[2], out[1]
        row.copy_(d[0] * 5)
        out[2] = d[1]
        assert_close(fwd.unpack_dual(out).primal, rabbet.tensor([0.0, 5.0, 2.0]))
        assert_close(fwd.unpack_dual(out).tangent, rabbet.tensor([0.0, 5.0, 1.0]))
        assert fwd.unpack_dual(early).tangent.item() == 1.0


def test_views_of_expanded_and_transposed_tangents():
    x = rabbet.arange(6.0).reshape(2, 3)
    with fwd.dual_level():
        d = fwd.make_dual(x, rabbet.ones(1).expand(2, 3))
        flat = d.view(6)
        assert_close(fwd.unpack_dual(flat).tangent, rabbet.ones(6))
        e = fwd.make_dual(x, rabbet.arange(6.0).reshape(3, 2).t())
        assert_close(
            fwd.unpack_dual(e.view(6)).tangent, rabbet.tensor([0.0, 2.0, 4.0, 1.0, 3.0, 5.0])
        )


# ---- with the tape


def test_gradients_flow_through_tangents():
    x = rabbet.tensor([1.0, 2.0], requires_grad=True)
    t = rabbet.tensor([3.0, 4.0], requires_grad=True)
    with fwd.dual_level():
        slope = fwd.unpack_dual(fwd.make_dual(x, t).sin()).tangent
    slope.sum().backward()
    assert_close(x.grad, -x.detach().sin() * t.detach())
    assert_close(t.grad, x.detach().cos())


def test_a_transposed_rule_is_differentiable_and_leaves_no_nodes():
    from rabbet.autograd import _C

    before = _C.live_nodes()
    x = rabbet.tensor([[1.0, 5.0], [4.0, 2.0]], dtype=rabbet.float64, requires_grad=True)
    t = rabbet.ones(2, 2, dtype=rabbet.float64)
    with fwd.dual_level():
        slope = fwd.unpack_dual(rabbet.cumprod(fwd.make_dual(x, t), 1)).tangent
    (g,) = grad(slope.sum(), x)
    assert_close(g, rabbet.ones(2, 2, dtype=rabbet.float64))
    with no_grad(), fwd.dual_level():
        slope = fwd.unpack_dual(rabbet.cumprod(fwd.make_dual(x, t), 1)).tangent
        assert not slope.requires_grad
    del slope, g, x
    assert _C.live_nodes() == before


# ---- misuse


@pytest.mark.parametrize("order", [2, 1, 3, 0.5, -1, rabbet.inf, -rabbet.inf])
def test_the_derivative_of_a_norm_at_zero_is_zero(order):
    with fwd.dual_level():
        x = fwd.make_dual(rabbet.zeros(3), rabbet.ones(3))
        assert fwd.unpack_dual(rabbet.linalg.vector_norm(x, order)).tangent.item() == 0


def test_wrong_tangents_are_errors():
    x = rabbet.ones(2)
    with fwd.dual_level():
        with pytest.raises(ValueError, match=r"Tensor is of size \(2,\) while .* of size \(3,\)"):
            fwd.make_dual(x, rabbet.ones(3))
        with pytest.raises(TypeError, match="dtype and device"):
            fwd.make_dual(x, rabbet.ones(2, dtype=rabbet.float64))
        with pytest.raises(ValueError, match="Expected primal to be floating point or complex"):
            fwd.make_dual(rabbet.tensor([1, 2]), rabbet.tensor([1, 2]))
        with pytest.raises(TypeError, match="tangent must be a Tensor, got float"):
            fwd.make_dual(x, 1.0)
        with pytest.raises(RuntimeError, match="dual of level 1 already"):
            fwd.make_dual(fwd.make_dual(x, x), x)


def test_levels_out_of_place_are_errors():
    x = rabbet.ones(2)
    with pytest.raises(RuntimeError, match="no level is entered"):
        fwd.make_dual(x, x)
    assert fwd.unpack_dual(x) == (x, None)
    with pytest.raises(RuntimeError, match="no level is entered"):
        fwd.exit_dual_level()
    with fwd.dual_level() as outer:
        with pytest.raises(RuntimeError, match="no dual level 7"):
            fwd.make_dual(x, x, level=7)
        with pytest.raises(TypeError, match="level must be an int"):
            fwd.make_dual(x, x, level="1")
        with fwd.dual_level(), pytest.raises(RuntimeError, match="not the last one"):
            fwd.exit_dual_level(level=outer)


def test_a_dual_that_leaves_its_level_is_an_error():
    x = rabbet.ones(2)
    with fwd.dual_level():
        leaked = fwd.make_dual(x, x)
    with pytest.raises(RuntimeError, match="must not leave"):
        leaked + 1
    with fwd.dual_level():
        fwd.make_dual(x, x)
        with pytest.raises(RuntimeError, match="must not leave"):
            leaked * 2
        with pytest.raises(RuntimeError, match="level that was left"):
            fwd.unpack_dual(leaked)


def test_an_operator_without_a_derivative_is_named():
    @library.op("forward_mode::opaque(Tensor x) -> Tensor", kind="opaque")
    def opaque(x):
        return x.clone()

    with fwd.dual_level():
        x = fwd.make_dual(rabbet.ones(2, 2), rabbet.ones(2, 2))
        with pytest.raises(NotImplementedError, match="forward_mode::opaque has no derivative"):
            opaque(x)


def test_a_plain_tensor_cannot_take_a_tangent():
    with fwd.dual_level():
        x = fwd.make_dual(rabbet.ones(2), rabbet.ones(2))
        plain = rabbet.zeros(2)
        with pytest.raises(RuntimeError, match="from outside forward mode"):
            plain.add_(x)
        with pytest.raises(RuntimeError, match="out= does not support forward mode"):
            rabbet.add(x, x, out=plain)


def test_a_custom_function_needs_jvp():
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    class WithJvp(Cube):
        @staticmethod
        def jvp(ctx, t):
            (x,) = ctx.saved_tensors
            return 3 * x * x * t

    with fwd.dual_level():
        x = fwd.make_dual(rabbet.tensor(2.0), rabbet.tensor(1.0))
        with pytest.raises(NotImplementedError, match="must implement the jvp function"):
            Cube.apply(x)
        assert fwd.unpack_dual(WithJvp.apply(x)).tangent.item() == 12.0
