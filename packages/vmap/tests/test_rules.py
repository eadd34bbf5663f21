"""How records are batched: which way each goes, and cases that they do not draw.

That vmap is the loop for every record is L3 of the conformance kit.
"""

import warnings

import numpy as np
import pytest
import rabbet
from rabbet import library
from rabbet._pytree import tree_map
from rabbet.func import vmap
from rabbet.vmap import _C
from rabbet_testing.cases import Maker, differentiable_ops
from rabbet_testing.compare import assert_close
from rabbet_testing.judges.batching import OPS, Batched, calls, choices, compare


def routes() -> dict[str, int]:
    """How each operator with cases was batched, over all ways to batch it."""
    found = {}
    for name in OPS:
        _C.record_routes(True)
        for case in calls(name):
            for dims in choices(case):
                Batched(case, dims).mapped()()
        found[name] = _C.routes().get(name, 0)
    _C.record_routes(False)
    return found


def test_few_operators_run_example_by_example(capsys):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "vmap: ", UserWarning)
        found = routes()
    tested = {n: r for n, r in found.items() if r}
    slow = {n for n, r in tested.items() if r & _C.LOOP}
    differentiable = set(differentiable_ops()) & tested.keys()
    with capsys.disabled():
        rules = sum(bool(r & _C.RULE) for r in tested.values())
        decompositions = sum(r & _C.DECOMPOSITION == r for r in tested.values())
        print(
            f"\nvmap: of {len(tested)} operators {rules} have a rule, {decompositions} their "
            f"decomposition, {len(slow)} a loop: {sorted(slow)}"
        )
    assert len(slow & differentiable) < 0.05 * len(differentiable), sorted(slow & differentiable)


@pytest.mark.parametrize(
    "dims", [(0, 0, 0, 0), (0, None, None, None), (None, 0, None, 0), (None, None, 0, None)]
)
def test_the_gradient_of_cross_entropy(dims):
    def f(g, x, target, weight):
        options = ["mean", 1, 0.2]
        _, lse, total = rabbet.ops.cross_entropy_loss(x, target, weight, *options)
        return rabbet.ops.cross_entropy_backward(g, x, target, weight, lse, total, *options)

    m = Maker(0, rabbet.float64, False)
    check(f, [m.tensor(3), m.tensor(3, 4, 3), m.index(3, 3, 4), m.positive(3, 3)], dims)


@pytest.mark.parametrize("dims", [(0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0)])
def test_the_gradient_of_batch_norm(dims):
    def f(g, x, weight):
        mean, var = x.mean([0, 2]), x.var([0, 2], correction=0)
        train = rabbet.ops.batch_norm_backward(g, x, mean, var, weight, 1e-5, True)
        return *train, *rabbet.ops.batch_norm_backward(
            g, x, weight, weight * weight, None, 1e-5, False
        )

    m = Maker(0, rabbet.float64, False)
    check(f, [m.tensor(3, 4, 2, 3), m.tensor(3, 4, 2, 3), m.tensor(3, 2)], dims)


def check(f, inputs, dims):
    given = [x if d == 0 else x[0] for x, d in zip(inputs, dims, strict=True)]
    each = [f(*(x[b] if d == 0 else x for x, d in zip(given, dims, strict=True))) for b in range(3)]
    compare(rabbet.vmap(f, dims)(*given), tree_map(lambda *p: rabbet.stack(list(p)), *each))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dims", [(0, 1, 0), (None, 0, 1), (0, 0, None), (None, 2, None)])
def test_linear_with_weights_of_each_example(rank, dims):
    """One batch of products, whatever the strides; the gradients too."""
    linear = rabbet.nn.functional.linear
    m = Maker(0, rabbet.float64, True)
    whole = [(6, *(2, 3, 4)[3 - rank :]), (6, 5, 4), (6, 5)]
    inputs = [m.tensor(*(s if d is not None else s[1:])) for s, d in zip(whole, dims, strict=True)]
    placed = [x if not d else x.movedim(0, d) for x, d in zip(inputs, dims, strict=True)]
    _C.record_routes(True)
    found = rabbet.vmap(linear, dims)(*placed)
    _C.record_routes(False)
    assert _C.routes()["linear"] == _C.RULE
    loop = [
        linear(*(x if d is None else x[i] for x, d in zip(inputs, dims, strict=True)))
        for i in range(6)
    ]
    compare(found, rabbet.stack(loop))
    squares = [(y**2).sum() for y in (found, rabbet.stack(loop))]
    mine, theirs = (rabbet.autograd.grad(square, inputs) for square in squares)
    for got, want in zip(mine, theirs, strict=True):
        assert_close(got, want)


def test_linear_without_bias_and_of_other_dtypes():
    linear = rabbet.nn.functional.linear
    x, w = rabbet.arange(12).reshape(2, 2, 3), rabbet.arange(30).reshape(2, 5, 3)
    assert_close(rabbet.vmap(linear)(x, w), rabbet.stack([linear(*p) for p in zip(x, w)]))
    x, w = rabbet.randn(2, 2, 3), rabbet.randn(2, 5, 3)
    with pytest.raises(RuntimeError, match="same dtype"):
        rabbet.vmap(linear)(x, w.double())
    none = rabbet.vmap(linear, (0, 0, None))(x[:0], w[:0], rabbet.zeros(5))
    assert none.shape == (0, 2, 5)
    empty = rabbet.vmap(linear)(x[:, :0], w, rabbet.zeros(2, 5))
    assert empty.shape == (2, 0, 5)


def test_layouts_in_which_the_examples_are_not_in_front():
    """The short way of aligned calls holds for what lies ready; everything else agrees with it."""
    x, y = rabbet.randn(4, 3, 2), rabbet.randn(3, 2)
    want = x * y + 2.0
    for dim in range(3):
        moved = x.movedim(0, dim)
        assert_close(rabbet.vmap(lambda a: a * y + 2.0, dim)(moved), want)
        assert_close(rabbet.vmap(lambda a: y * a + 2.0, dim, dim)(moved), want.movedim(0, dim))
    numbers = rabbet.arange(4)
    assert rabbet.vmap(lambda n: n + rabbet.tensor(1.5))(numbers).dtype == rabbet.float32
    assert_close(rabbet.vmap(lambda n, a: n * a)(numbers, x), x * numbers.reshape(4, 1, 1))
    assert_close(rabbet.vmap(lambda a: y[0] + a[0, 0])(x), y[0] + x[:, 0, :1])
    inside = x.clone()
    rabbet.vmap(lambda a: a.add_(y).mul_(a), 0)(inside)
    assert_close(inside, (x + y) ** 2)


# ---- operators of others that no rule fits


def test_an_opaque_operator_without_results_runs_for_each_example():
    seen = []

    @library.op("rules::note(Tensor x) -> ()", kind="opaque")
    def note(x):
        seen.append(x.tolist())

    with pytest.warns(UserWarning, match="rules::note.*once per example"):
        vmap(lambda x: (note(x), x)[1])(rabbet.tensor([[1.0, 2], [3, 4]]))
    assert seen == [[1, 2], [3, 4]]


def test_what_it_writes_must_be_batched():
    @library.op("rules::bump(Tensor(a!) x, Tensor y) -> ()", kind="opaque")
    def bump(x, y):
        x.add_(y)

    with pytest.warns(UserWarning, match="once per example"):
        x = rabbet.zeros(2, 3)
        vmap(lambda x, y: (bump(x, y), x)[1], (0, None))(x, rabbet.ones(3))
        assert x.tolist() == [[1, 1, 1], [1, 1, 1]]
    with pytest.raises(RuntimeError, match="rules::bump: vmap: it writes to its argument 'x'"):
        vmap(bump, (None, 0))(rabbet.zeros(3), rabbet.ones(2, 3))


@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0), (1, 0)])
def test_a_reduction_of_two_tensors(dims):
    schema = "rules::dot(Tensor x, Tensor y) -> Tensor"
    library.op(schema, kind="reduction")(lambda x, y: (x * y).sum())
    x, y = rabbet.randn(2, 2, 3), rabbet.randn(2, 2, 3)
    x, y = (t if d is not None else t[0] for t, d in zip((x, y), dims, strict=True))
    both = [t.unbind(d) if d is not None else [t, t] for t, d in zip((x, y), dims, strict=True)]
    made = vmap(lambda x, y: rabbet.ops.rules.dot(x, y), dims)(x, y)
    want = rabbet.stack([(a * b).sum() for a, b in zip(*both, strict=True)])
    assert np.allclose(made.numpy(), want.numpy(), atol=1e-6)
