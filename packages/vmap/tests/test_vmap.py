"""The function itself: which dimensions, structures, nesting, views and writes, chunks."""

import re
import warnings
from collections import namedtuple

import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from rabbet import vmap
from rabbet_testing.compare import assert_close
from rabbet_testing.judges.batching import OPS, Batched, calls, choices, compare, tensor_places


def t(*shape, seed=0):
    rabbet.manual_seed(seed)
    return rabbet.randn(*shape, dtype=rabbet.float64)


def looped(f, *xs, dims=None):
    dims = dims or [0] * len(xs)
    n = next(x.shape[d] for x, d in zip(xs, dims, strict=True) if d is not None)
    calls = [
        [x if d is None else x.select(d, b) for x, d in zip(xs, dims, strict=True)]
        for b in range(n)
    ]
    return rabbet.stack([f(*call) for call in calls])


def test_it_is_a_function_and_a_module():
    assert rabbet.vmap is rabbet.func.vmap or callable(rabbet.vmap)
    assert rabbet.vmap(lambda x: x + 1)(rabbet.zeros(2)).tolist() == [1, 1]

    @rabbet.vmap
    def double(x):
        """Twice."""
        return x + x

    assert double(rabbet.ones(3)).tolist() == [2, 2, 2] and double.__doc__ == "Twice."


def test_dims_of_arguments_and_results():
    x, y = t(4, 2, 3), t(3, seed=1)
    assert_close(vmap(lambda a, b: a * b, (1, None))(x, y), looped(lambda a: a * y, x, dims=[1]))
    assert vmap(lambda a: a, in_dims=-1, out_dims=-1)(x).shape == x.shape
    assert vmap(lambda a: a, in_dims=0, out_dims=2)(x).shape == (2, 3, 4)
    assert vmap(lambda a: (a, a.sum()), out_dims=(1, 0))(x)[0].shape == (2, 4, 3)


def test_structures():
    Pair = namedtuple("Pair", "left right")
    x, y = t(4, 2), t(2, 4, seed=1)
    out = vmap(lambda d: {"sum": d["p"].left + d["p"].right}, ({"p": Pair(0, 1)},))(
        {"p": Pair(x, y)}
    )
    assert_close(out["sum"], x + y.t())
    both = vmap(lambda d, k: d["a"] * k, in_dims=({"a": 1}, 0))({"a": y}, x)
    assert_close(both, x * y.t())
    pair = vmap(lambda a: Pair(a, [a, a]), out_dims=Pair(0, 1))(x)
    assert pair.left.shape == (4, 2) and pair.right[1].shape == (2, 4)


def test_a_result_that_is_the_same_for_all_examples_is_repeated():
    assert vmap(lambda x: rabbet.ones(2))(rabbet.zeros(3)).shape == (3, 2)
    assert vmap(lambda x: rabbet.ones(2), out_dims=None)(rabbet.zeros(3)).shape == (2,)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
def test_chunks(chunk):
    x, y = t(3, 7), t(7, 2, seed=1)
    f = lambda a, b: (a.sum() * b, a)  # noqa: E731
    whole = vmap(f, (1, 0), (0, 1))(x, y)
    parts = vmap(f, (1, 0), (0, 1), chunk_size=chunk)(x, y)
    for a, b in zip(whole, parts, strict=True):
        assert_close(a, b)


# The parts are stacked in the last dimension, whose stride matters to view_as_complex.
NESTED = [name for i, name in enumerate(OPS) if i % 3 == 0 and name != "view_as_complex"]


@pytest.mark.parametrize("name", NESTED)
def test_two_levels(name):
    for case in list(calls(name))[:2]:
        places = tensor_places(case)
        for dims in list(choices(case))[:: max(1, len(places))]:
            inner = Batched(case, dims)
            parts = [
                rabbet.stack(
                    [x, x.flip(tuple(range(x.ndim)))] if x.dtype.is_floating_point else [x, x], -1
                )
                for x in inner.inputs()
            ]
            if not parts:
                continue
            f = vmap(inner.call, inner.in_dims())
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "vmap: ", UserWarning)
                got = vmap(f, -1)(*parts)
                if not dims:
                    continue
                want = [_loop(inner, [p.select(-1, k) for p in parts]) for k in range(2)]
            compare(got, _stack_trees(want), f"{case} {inner.in_dims()}")


def _loop(inner, tensors):
    dims = inner.in_dims()
    return _stack_trees(
        [
            inner.call(
                *(x if d is None else x.select(d, b) for x, d in zip(tensors, dims, strict=True))
            )
            for b in range(inner.size)
        ]
    )


def _stack_trees(trees):
    from rabbet._pytree import tree_map

    return tree_map(lambda *each: rabbet.stack(list(each)), *trees)


def test_levels_with_closed_over_values():
    x, y = t(3, 2), t(4, 2, seed=1)
    got = vmap(lambda a: vmap(lambda b: (a * b).sum() + x.sum())(y))(x)
    assert_close(got, x @ y.t() + x.sum())


def test_broadcasting_of_different_ranks():
    for a, b in [((3,), (2, 3)), ((2, 3), (3,)), ((), (2, 3)), ((4, 1), (5,)), ((), ())]:
        x, y = t(2, *a), t(2, *b, seed=1)
        assert_close(vmap(lambda p, q: p * q + q)(x, y), looped(lambda p, q: p * q + q, x, y))
        for one, f in ((y[0], rabbet.sub), (x[0], rabbet.div)):
            assert_close(vmap(f, (0, None))(x, one), looped(f, x, one, dims=[0, None]))
            assert_close(vmap(f, (None, 0))(one, y), looped(f, one, y, dims=[None, 0]))


@pytest.mark.parametrize(
    "first", ["bool", "int32", "int64", "float32", "float64", "complex64", "complex128"]
)
@pytest.mark.parametrize("second", ["bool", "int32", "int64", "float32", "float64", "complex64"])
@pytest.mark.parametrize("shapes", [((), (3,)), ((3,), ()), ((), ()), ((3,), (3,))], ids=str)
def test_promotion_is_that_of_one_example(first, second, shapes):
    x = rabbet.ones(2, *shapes[0], dtype=getattr(rabbet, first))
    y = rabbet.ones(2, *shapes[1], dtype=getattr(rabbet, second))
    for f in (rabbet.add, rabbet.mul, rabbet.eq):
        want = f(x[0], y[0]).dtype
        assert vmap(f)(x, y).dtype is want
        assert vmap(f, (0, None))(x, y[0]).dtype is want
        assert vmap(f, (None, 0))(x[0], y).dtype is want
    assert vmap(lambda a: a + 1.5)(x).dtype is (x[0] + 1.5).dtype
    mask = rabbet.ones(2, dtype=rabbet.bool)
    assert vmap(rabbet.where)(mask, x, y).dtype is rabbet.where(mask[0], x[0], y[0]).dtype


@pytest.mark.parametrize(
    ("first", "second", "number"),
    [
        ("float16", "float64", 0.1),
        ("float16", "bfloat16", 1.0 + 2.0**-10),
        ("uint8", "int8", 300),
        ("int32", "uint8", 70000),
        ("complex64", "complex128", 0.1),
    ],
)
def test_batched_numbers_keep_their_digits_beside_several_dtypes(first, second, number):
    x = rabbet.ones(3, dtype=getattr(rabbet, first))
    y = rabbet.ones(3, dtype=getattr(rabbet, second))
    wide = rabbet.tensor([number, number], dtype=rabbet.promote_types(rabbet.float64, x.dtype))
    z = wide if not isinstance(number, int) else wide.to(rabbet.int64)
    want = rabbet.addcmul(x, y, z[0])
    for dims, args in (((None, None, 0), (x, y, z)), ((0, None, 0), (x.expand(2, 3), y, z))):
        got = vmap(rabbet.addcmul, dims)(*args)
        assert got.dtype is want.dtype and bool((got == want).all())


def test_writes():
    def f(x, y):
        z = x.clone()
        z.mul_(2).add_(y)
        z[0] = y[1]
        z[:1] += 1
        z.t_() if z.ndim == 2 and hasattr(z, "t_") else None
        return z

    x, y = t(4, 3), t(4, 3, seed=1)
    assert_close(vmap(f)(x, y), looped(f, x, y))


def test_a_write_reaches_the_tensor_that_was_mapped_over():
    x = rabbet.zeros(2, 3)
    vmap(lambda row: row.add_(1), in_dims=1)(x)
    assert x.tolist() == [[1, 1, 1], [1, 1, 1]]
    vmap(lambda row: row[0].fill_(5), in_dims=0)(x)
    assert x[:, 0].tolist() == [5, 5] and x[:, 1].tolist() == [1, 1]


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_views_share_memory(dim):
    x = t(3, 4, 5)
    views = [
        lambda a: a.t(), lambda a: a[1], lambda a: a[:, 1:], lambda a: a.unsqueeze(1), lambda a: a.view(-1),
        lambda a: a.expand(2, *a.shape), lambda a: a.diagonal(), lambda a: a.mT, lambda a: a.movedim(0, 1),
    ]  # fmt: skip
    for view in views:
        y = x.clone()
        if dim != 0 and view is views[4]:
            y = y.movedim(dim, 0).contiguous().movedim(0, dim)
        shown = vmap(view, in_dims=dim)(y)
        assert_close(shown, looped(view, y, dims=[dim]))
        y.add_(1)
        assert_close(shown, looped(view, y, dims=[dim]))


def test_writes_to_views():
    def f(x):
        z = x.clone()
        v = z.t()[1:]
        v.mul_(3)
        v[0].add_(x[:, 0])
        return z

    x = t(3, 4, 4)
    for dim in (0, 1, 2):
        assert_close(vmap(f, in_dims=dim)(x), looped(f, x, dims=[dim]))


def test_a_target_of_lower_rank_broadcasts_the_argument():
    x, y = t(2, 3, 4), t(2, 4, seed=1)
    got = vmap(lambda a, b: a.clone().add_(b))(x, y)
    assert_close(got, x + y.unsqueeze(1))
    assert_close(vmap(lambda a, b: a.clone().copy_(b))(x, y), (x * 0 + y.unsqueeze(1)))


def test_out_arguments():
    x, y = t(3, 2), rabbet.zeros(3, 2, dtype=rabbet.float64)
    vmap(lambda a, o: rabbet.ops.exp(a, out=o))(x, y)
    assert_close(y, x.exp())
    vmap(lambda a, o: rabbet.ops.cumsum(a, 0, out=o))(x, y)
    assert_close(y, x.cumsum(1))


def test_a_storage_offset_is_relative_to_each_example():
    storage = rabbet.arange(14.0)
    x = storage[2:].reshape(3, 4)
    y = vmap(lambda a: a.as_strided((2,), (2,), a.storage_offset() + 1))(x)
    assert y.tolist() == [[3, 5], [7, 9], [11, 13]]
    y[0, 0] = -1
    assert storage[3] == -1
    source = rabbet.zeros(3, 2)
    y = vmap(lambda a, b: a.as_strided_scatter(b, (2,), (2,), a.storage_offset() + 1))(x, source)
    assert y[:, ::2].equal(x[:, ::2]) and not y[:, 1::2].any()


@pytest.mark.parametrize(
    ("f", "numbers"),
    [
        (lambda a: rabbet.nn.functional.one_hot(a, 4), [[0, 3], [2, 1]]),
        (lambda a: rabbet.linspace(a, 2 * a + 1, 5), [1.0, -2.0]),
        (lambda a: rabbet.linspace(0.5, a, 1), [1.0, -2.0]),
        (lambda a: rabbet.logspace(a, 2, 4, base=2.0), [1.0, -2.0]),
        (lambda a: rabbet.nn.functional.binary_cross_entropy(a, a / 2), [[0.25, 1.0], [0.5, 0.0]]),
        (lambda a: rabbet.nn.functional.gaussian_nll_loss(a, a - 1, a * a), [[1.0, 2], [3, 4]]),
    ],
)
def test_functions_that_check_their_values(f, numbers):
    x = rabbet.tensor(numbers)
    assert_close(vmap(f)(x), looped(f, x))


def test_labels_and_indices_are_checked_where_they_are_used():
    scores, labels = t(2, 3, 4), rabbet.tensor([[1, 3, -1, 0], [2, 0, 1, -1], [3, -1, 2, 2]])
    loss = rabbet.nn.functional.multilabel_margin_loss
    assert_close(
        vmap(loss, (0, None))(scores, labels), looped(loss, scores, labels, dims=[0, None])
    )
    with pytest.raises(RuntimeError, match="expected labels from -1 to 3"):
        vmap(loss, (0, None))(scores, labels + 1)
    pooled, places = rabbet.nn.functional.max_pool1d(t(2, 3, 6), 2, return_indices=True)

    def unpool(a, i):
        return rabbet.nn.functional.max_unpool1d(a, i, 2)

    assert_close(vmap(unpool)(pooled, places), looped(unpool, pooled, places))


def test_lists_of_tensors():
    x, y = t(3, 2), t(2, seed=1)
    for f in (
        lambda a: rabbet.cat([a, y]),
        lambda a: rabbet.stack([y, a], 1),
        lambda a: rabbet.cat([a, rabbet.zeros(0, dtype=a.dtype)]),
    ):
        assert_close(vmap(f)(x), looped(f, x))
    assert [p.shape for p in vmap(lambda a: a.split(1))(x)] == [(3, 1), (3, 1)]


def test_indices():
    x, i, j = t(3, 4, 5), rabbet.tensor([[0, 1], [2, 3], [1, 0]]), rabbet.tensor([1, 0, 4])
    functions = [
        (lambda a, b: a[b], (x, i)), (lambda a, b: a[:, b], (x, i)), (lambda a, b: a[b, b + 1], (x, i)),
        (lambda a, b: a[b][:, 0], (x, i)), (lambda a, b: a[0, b], (x, j)), (lambda a, b: a[b, 0], (x, j.clamp(max=3))),
        (lambda a, b: a.unsqueeze(0)[:, b, :, None], (x, i)),
        (lambda a, b: a.unsqueeze(1)[b, :, b], (x, i)),
        (lambda a, b: a[rabbet.tensor([1, 2]), b], (x, i)),
        (lambda a, b: a[rabbet.tensor([[1], [2]]), b], (x, i)),
    ]  # fmt: skip
    for f, inputs in functions:
        assert_close(vmap(f)(*inputs), looped(f, *inputs))
        assert_close(
            vmap(f, (None, 0))(inputs[0][0], inputs[1]),
            looped(f, inputs[0][0], inputs[1], dims=[None, 0]),
        )
        assert_close(
            vmap(f, (0, None))(inputs[0], inputs[1][0]),
            looped(f, inputs[0], inputs[1][0], dims=[0, None]),
        )


@pytest.mark.parametrize(
    ("shape", "mask"),
    [((3,), (3,)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1), (3,)), ((), (3,)), ((3,), ()), ((), ()), ((0,), (0,))],
)  # fmt: skip
def test_one_mask_for_all_examples(shape, mask):
    x, m = rabbet.randn(4, *shape), rabbet.randint(0, 2, mask).bool()
    loop = rabbet.stack([rabbet.masked_select(one, m) for one in x])
    assert_close(vmap(lambda one: rabbet.masked_select(one, m))(x), loop)
    assert_close(vmap(lambda one: rabbet.masked_select(one, m), -1)(x.movedim(0, -1)), loop)
    x.requires_grad_()
    (grad,) = rabbet.autograd.grad(vmap(lambda one: one.masked_select(m))(x).sum(), x)
    (want,) = rabbet.autograd.grad(rabbet.stack([o.masked_select(m) for o in x]).sum(), x)
    assert_close(grad, want)


def test_a_mask_that_does_not_fit_is_refused_as_for_one_example():
    mask = rabbet.ones(2).bool()
    with pytest.raises(ValueError) as one:
        rabbet.masked_select(rabbet.ones(3), mask)
    with pytest.raises(ValueError, match=re.escape(str(one.value).splitlines()[0])):
        vmap(lambda x: x.masked_select(mask))(rabbet.ones(4, 3))


def test_writes_at_indices():
    def put(a, b, v):
        z = a.clone()
        z[b] = v
        w = a.clone()
        w[:, b] = v[:4].unsqueeze(-1) if v.ndim else v
        u = a.unsqueeze(1).clone()
        u[b, :, b] = 1.5
        return z.sum() + (w * w).sum() + (u * u).sum(), z

    x, i = t(3, 4, 5), rabbet.tensor([[0, 1], [2, 3], [1, 0]])
    for v in (t(3, 5, seed=2), t(3, seed=3)):
        got = vmap(put)(x, i, v)
        for k in (0, 1):
            assert_close(got[k], looped(lambda *a, k=k: put(*a)[k], x, i, v))


def test_new_tensors_of_a_batched_one_are_batched():
    def f(x):
        z = x.new_zeros(2)
        z += x
        y = rabbet.zeros_like(x)
        y[0] = x[1]
        return z + y

    x = t(3, 2)
    assert_close(vmap(f)(x), looped(f, x))


sizes = st.lists(st.integers(1, 3), max_size=3).map(tuple)


@settings(deadline=None, max_examples=60)
@given(shape=sizes, batch=st.integers(1, 4), at=st.integers(0, 3), data=st.data())
def test_shapes(shape, batch, at, data):
    at = min(at, len(shape))
    x = t(*shape[:at], batch, *shape[at:])
    functions = [
        lambda a: a.sum(), lambda a: a.reshape(-1).cumsum(0), lambda a: a.flatten(), lambda a: a.reshape(-1, 1) * a.flatten(),
        lambda a: a.squeeze(), lambda a: a.amax(), lambda a: a.argmax(), lambda a: a.contiguous().view(-1, 1),
        lambda a: a.roll(1), lambda a: a.var(correction=0), lambda a: a.expand(2, *a.shape), lambda a: a.argmax(keepdim=True),
        lambda a: a.mean(dim=list(range(a.ndim)), keepdim=True) if a.ndim else a.mean(keepdim=True),
    ]  # fmt: skip
    f = data.draw(st.sampled_from(functions))
    assert_close(vmap(f, in_dims=at)(x), looped(f, x, dims=[at]))


@settings(deadline=None, max_examples=60)
@given(
    left=sizes,
    right=sizes,
    core=st.tuples(*[st.integers(1, 3)] * 3),
    kinds=st.tuples(*[st.integers(1, 2)] * 2),
    data=st.data(),
)
def test_products(left, right, core, kinds, data):
    n = max(len(left), len(right))
    size = tuple(data.draw(st.integers(1, 3)) for _ in range(n))

    def shrink(shape):
        return tuple(1 if s == 1 else size[n - len(shape) + k] for k, s in enumerate(shape))

    a = (*shrink(left), core[0], core[1]) if kinds[0] == 2 else (core[1],)
    b = (*shrink(right), core[1], core[2]) if kinds[1] == 2 else (core[1],)
    x, y = t(2, *a), t(2, *b, seed=1)
    assert_close(vmap(rabbet.matmul)(x, y), looped(rabbet.matmul, x, y))
    assert_close(vmap(rabbet.matmul, (0, None))(x, y[0]), looped(lambda p: p @ y[0], x))
    assert_close(vmap(rabbet.matmul, (None, 0))(x[0], y), looped(lambda q: x[0] @ q, y))


def test_no_examples():
    x = rabbet.zeros(0, 3)
    assert vmap(lambda a: (a * 2).sum())(x).shape == (0,)
    assert vmap(lambda a: a.view(-1, 1).softmax(0))(x).shape == (0, 3, 1)


def test_gradients_of_what_was_written_in_place():
    def running_product(x):
        return x.clone().cumprod_(0)

    x = t(3, 4)
    got = rabbet.func.grad(lambda x: vmap(running_product)(x).sum())(x)
    assert_close(got, rabbet.func.grad(lambda x: x.cumprod(1).sum())(x))


def test_joining_with_empty_tensors_of_other_dtypes():
    empty, bools = rabbet.zeros(2, 0, dtype=rabbet.int16), rabbet.ones(2, 2, 3, dtype=rabbet.bool)
    for got in (
        vmap(lambda a, b: rabbet.cat([a, b]))(empty, bools),
        vmap(lambda b: rabbet.cat([empty[0], b, b]))(bools),
        vmap(lambda a: rabbet.cat([a, bools[0]]))(empty),
    ):
        assert got.dtype is rabbet.int16 and got.shape[0] == 2 and bool((got == 1).all())


def test_adding_bools_at_indices():
    x, at, source = (
        rabbet.zeros(2, 4, dtype=rabbet.bool),
        rabbet.tensor([[0], [3]]),
        rabbet.ones(2, 1).bool(),
    )
    got = vmap(lambda x, i, s: rabbet.index_add(x, 0, i, s, alpha=1.0))(x, at, source)
    assert got.dtype is rabbet.bool and got.nonzero().tolist() == [[0, 0], [1, 3]]


def test_lists_are_written_with_numbers_of_each_example():
    step = rabbet.ops("fused_sgd.tensors")
    x, g, rates = rabbet.ones(3, 2), rabbet.ones(3, 2), rabbet.tensor([[0.5], [1.0], [2.0]])

    def train(x, g, rate):
        x = x.clone()
        step([x], [g], [], 0.1, 0.0, 0.0, 0.0, False, False, False, rate)
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it runs once per example
        found = vmap(train)(x, g, rates)
    assert found.tolist() == [[0.5, 0.5], [0.0, 0.0], [-1.0, -1.0]]
    assert x.tolist() == [[1.0, 1.0]] * 3
