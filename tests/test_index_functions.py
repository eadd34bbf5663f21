"""Functions that write and read at indices beside NumPy, with repeated indices, gradients and refusals."""

import numpy as np
import pytest
import rabbet
from rabbet.nn import functional as F

REDUCERS = {
    "sum": lambda x: x.sum(),
    "prod": lambda x: x.prod(),
    "mean": lambda x: x.mean(),
    "amax": lambda x: x.max(),
    "amin": lambda x: x.min(),
}


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", REDUCERS)
@pytest.mark.parametrize("dim", [0, 1])
def test_scattered_reductions(reduce, dim, include_self):
    a, src = numbers(4, 5), numbers(6, 7, seed=1)
    shape = (6, 5) if dim == 0 else (4, 7)
    index = np.random.RandomState(2).randint(0, a.shape[dim], shape)
    want = a.copy()
    for place in np.ndindex(a.shape):
        line = tuple(slice(None) if d == dim else place[d] for d in (0, 1))
        sources = src[: shape[0], : shape[1]][line][index[line] == place[dim]]
        if sources.size:
            want[place] = REDUCERS[reduce](np.append(sources, [a[place]] * include_self))
    x, s = rabbet.tensor(a), rabbet.tensor(src)
    got = x.scatter_reduce(dim, rabbet.tensor(index), s, reduce, include_self=include_self)
    np.testing.assert_allclose(got.numpy(), want, 1e-12)
    assert x.scatter_reduce_(dim, rabbet.tensor(index), s, reduce, include_self=include_self) is x
    np.testing.assert_allclose(x.numpy(), want, 1e-12)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_slices_are_reduced_at_repeated_indices(reduce):
    a, src = numbers(3, 4), numbers(5, 4, seed=1)
    index = np.array([2, 0, 2, 2, 0])
    want = a.copy()
    for row in (0, 2):
        both = np.concatenate([a[row : row + 1], src[index == row]])
        want[row] = [REDUCERS[reduce](column) for column in both.T]
    got = rabbet.tensor(a).index_reduce(0, rabbet.tensor(index), rabbet.tensor(src), reduce)
    np.testing.assert_allclose(got.numpy(), want, 1e-12)
    integers = rabbet.tensor([5, 7]).index_reduce(
        0, rabbet.tensor([0, 0]), rabbet.tensor([1, 2]), "mean"
    )
    assert integers.tolist() == [2, 7]


def test_nan_wins_in_scattered_extremes():
    x, nan = rabbet.tensor([1.0, 2.0]), float("nan")
    src = rabbet.tensor([nan, 3.0, 0.0])
    for reduce in ("amax", "amin"):
        got = x.scatter_reduce(0, rabbet.tensor([0, 0, 1]), src, reduce)
        assert got[0].isnan() and got[1] == (2 if reduce == "amax" else 0)


def test_ties_share_the_gradient_of_a_scattered_maximum():
    x = rabbet.tensor([3.0, 0.0], requires_grad=True)
    src = rabbet.tensor([3.0, 1.0, 3.0], requires_grad=True)
    x.scatter_reduce(0, rabbet.tensor([0, 0, 0]), src, "amax").sum().backward()
    third = np.float32(1 / 3)
    np.testing.assert_allclose(x.grad.numpy(), [third, 1])
    np.testing.assert_allclose(src.grad.numpy(), [third, 0, third])


def test_the_gradient_of_a_scattered_product_with_zeros():
    x = rabbet.tensor([0.0, 2.0], requires_grad=True)
    src = rabbet.tensor([3.0, 4.0], requires_grad=True)
    x.scatter_reduce(0, rabbet.tensor([0, 0]), src, "prod").sum().backward()
    assert x.grad.tolist() == [12, 1] and src.grad.tolist() == [0, 0]


def test_scatter_with_a_reduction():
    x, index = rabbet.ones(3), rabbet.tensor([0, 0, 2])
    src = rabbet.tensor([2.0, 3.0, 4.0])
    assert x.scatter(0, index, src, reduce="add").tolist() == [6, 1, 5]
    assert x.scatter(0, index, src, reduce="multiply").tolist() == [6, 1, 4]
    assert rabbet.scatter(x, 0, index, 2.0, reduce="multiply").tolist() == [4, 1, 2]
    assert x.scatter_(0, index.int(), 2.0, reduce="add") is x and x.tolist() == [5, 1, 3]


def test_slices_are_copied_and_filled():
    a, src = numbers(4, 3), numbers(4, 2, seed=1)
    want = a.copy()
    want[:, [2, 0]] = src
    index = rabbet.tensor([2, 0])
    got = rabbet.index_copy(rabbet.tensor(a), 1, index, rabbet.tensor(src))
    np.testing.assert_array_equal(got.numpy(), want)
    x = rabbet.tensor(a)
    assert x.index_copy_(1, index, rabbet.tensor(src)) is x
    np.testing.assert_array_equal(x.numpy(), want)
    want[:, [2, 0]] = 7
    np.testing.assert_array_equal(x.index_fill(1, index, 7).numpy(), want)
    value = rabbet.tensor(7.0, requires_grad=True)
    rabbet.zeros(2, 3).index_fill(1, rabbet.tensor([1, 1]), value).sum().backward()
    assert value.grad == 2  # repeated indices count once


def test_what_a_mask_chooses_is_replaced_in_order():
    a, mask = numbers(3, 4), np.random.RandomState(1).rand(3, 4) > 0.5
    source = numbers(20, seed=2)
    want = a.copy()
    want[mask] = source[: mask.sum()]
    x, s = rabbet.tensor(a), rabbet.tensor(source).requires_grad_()
    out = x.masked_scatter(rabbet.tensor(mask), s)
    np.testing.assert_array_equal(out.detach().numpy(), want)
    out.sum().backward()
    assert s.grad.tolist() == [1] * mask.sum() + [0] * (20 - mask.sum())
    assert rabbet.zeros(2).masked_scatter(rabbet.zeros(2).bool(), rabbet.empty(0)).tolist() == [
        0,
        0,
    ]


def test_places_of_the_flattened_tensor():
    a = numbers(3, 4)
    index = np.array([[0, 11], [-1, 5]])
    np.testing.assert_array_equal(
        rabbet.take(rabbet.tensor(a), rabbet.tensor(index)).numpy(), np.take(a, index)
    )
    want = a.copy()
    np.put(want, [3, -2], [8, 9])
    x = rabbet.tensor(a)
    assert x.put_(rabbet.tensor([3, -2]), rabbet.tensor([8, 9.0]).double()) is x
    np.testing.assert_array_equal(x.numpy(), want)
    sums = rabbet.zeros(2).put(rabbet.tensor([1, 1]), rabbet.tensor([2.0, 3.0]), accumulate=True)
    assert sums.tolist() == [0, 5]


x, i = rabbet.ones(3), rabbet.tensor([0, 1])
REFUSED = {
    "index_copy range": lambda: x.index_copy(0, rabbet.tensor([3]), x[:1]),
    "index_copy source": lambda: x.index_copy(0, i, x),
    "index_copy index": lambda: x.index_copy(0, x[:2], x[:2]),
    "index_copy dtype": lambda: x.index_copy(0, i, x[:2].double()),
    "index_fill index": lambda: x.index_fill(0, i.int(), 1),
    "index_fill value": lambda: x.index_fill(0, i, rabbet.ones(2)),
    "index_fill complex": lambda: x.index_fill(0, i, 1j),
    "index_reduce": lambda: x.index_reduce(0, i, x, "prod"),
    "scatter_reduce index": lambda: x.scatter_reduce(0, i.int(), x, "sum"),
    "scatter_reduce dtype": lambda: x.scatter_reduce(0, i, x.double(), "sum"),
    "scatter_reduce shape": lambda: x.scatter_reduce(0, i, x[:1], "sum"),
    "masked_scatter mask": lambda: x.masked_scatter(i, x),
    "masked_scatter count": lambda: x.masked_scatter(x.bool(), x[:2]),
    "masked_scatter dtype": lambda: x.masked_scatter(x.bool(), x.double()),
    "take index": lambda: x.take(x),
    "take empty": lambda: rabbet.empty(0).take(i),
    "put count": lambda: x.put(i, x),
    "put dtype": lambda: x.put(i, x[:2].double()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    with pytest.raises((RuntimeError, IndexError, TypeError)) as error:
        REFUSED[name]()
    assert name.split()[0].replace("index_copy", "") in str(error.value)


@pytest.mark.parametrize("function", ["scatter_reduce", "index_reduce"])
def test_reductions_have_names(function):
    with pytest.raises((RuntimeError, ValueError), match="median"):
        getattr(x, function)(0, i, x[:2], "median")


@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
@pytest.mark.parametrize(
    ("shape", "dim", "values", "places"),
    [
        ((0,), None, (0,), (0,)),
        ((0, 3), None, (0,), (0, 3)),
        ((2, 0, 4), None, (0,), (2, 0, 4)),
        ((0,), 0, (0,), (0,)),
        ((0, 3), 0, (0, 3), (0,)),
        ((3, 0), -1, (3, 0), (0,)),
    ],
)
def test_nothing_has_no_different_elements(name, shape, dim, values, places):
    output, inverse, counts = getattr(rabbet, name)(
        rabbet.zeros(shape), return_inverse=True, return_counts=True, dim=dim
    )
    assert (output.shape, inverse.shape, counts.shape) == (values, places, (0,))
    assert inverse.dtype is rabbet.int64 and counts.dtype is rabbet.int64
    assert getattr(rabbet, name)(rabbet.zeros(shape), dim=dim).shape == values


@pytest.mark.parametrize(("shape", "dim"), [((0, 3), 1), ((3, 0), 0), ((2, 0, 0), 1)])
def test_slices_without_elements_cannot_be_compared(shape, dim):
    for function in (rabbet.unique, rabbet.unique_consecutive):
        with pytest.raises(ValueError, match="has no elements beside dim"):
            function(rabbet.zeros(shape), dim=dim)


LAST_WINS = {
    "scatter": lambda x, y: x.scatter(0, rabbet.tensor([1, 1, 2]), y),
    "index_copy": lambda x, y: x.index_copy(0, rabbet.tensor([1, 1, 2]), y),
    "index_put": lambda x, y: x.index_put([rabbet.tensor([1, 1, 2])], y),
    "put": lambda x, y: x.put(rabbet.tensor([1, 1, 2]), y),
    "max_unpool1d": lambda x, y: F.max_unpool1d(y.reshape(1, 1, 3), PLACES, 2, output_size=[6]),
    "max_unpool2d": lambda x, y: F.max_unpool2d(
        y.reshape(1, 1, 1, 3), PLACES.unsqueeze(2), (1, 2), output_size=[1, 6]
    ),
    "max_unpool3d": lambda x, y: F.max_unpool3d(
        y.reshape(1, 1, 1, 1, 3), PLACES.reshape(1, 1, 1, 1, 3), (1, 1, 2), output_size=[1, 1, 6]
    ),
}
PLACES = rabbet.tensor([[[1, 1, 2]]])


@pytest.mark.parametrize("name", LAST_WINS)
def test_the_tangent_of_what_is_written_twice_is_that_of_the_number_that_stays(name):
    x, y = rabbet.arange(4.0), rabbet.tensor([5.0, 6.0, 7.0])
    out, tangent = rabbet.func.jvp(LAST_WINS[name], (x, y), (x * 10, y * 10))
    assert tangent.tolist() == (out * 10).tolist()


def test_a_gather_of_nothing_has_a_gradient_of_zeros_at_any_rank():
    x = rabbet.arange(5.0, requires_grad=True)
    out = x.gather(0, rabbet.zeros(2, 0, dtype=rabbet.int64))
    assert out.shape == (2, 0)
    (grad,) = rabbet.autograd.grad(out.sum(), x)
    assert grad.tolist() == [0.0] * 5


@pytest.mark.parametrize("size", [0, 1, 3, 9])
@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 0), (2, 3, 2)])
def test_places_of_nonzero_elements_in_a_given_number_of_rows(shape, size):
    x = np.random.RandomState(3).randint(0, 2, (2, *shape))
    want = np.full((2, size, len(shape)), -5)
    for i, example in enumerate(x):
        rows = np.argwhere(example)[:size]
        want[i, : len(rows)] = rows

    def call(t):
        return rabbet.nonzero_static(t, size=size, fill_value=-5)

    np.testing.assert_array_equal(call(rabbet.tensor(x[0])).numpy(), want[0])
    np.testing.assert_array_equal(rabbet.vmap(call)(rabbet.tensor(x)).numpy(), want)
    assert call(rabbet.tensor(x[0]).to("meta")).shape == (size, len(shape))


INDICES, STARTS = [4, 1, 1, 2, 0, 3, 2], [0, 3, 3, 5]


def bags_by_loop(table, mode, padding_idx):
    """Bags of NumPy rows, one after another."""
    out = []
    for low, high in zip(STARTS, [*STARTS[1:], len(INDICES)], strict=True):
        rows = table[[i for i in INDICES[low:high] if i != padding_idx]]
        if len(rows) == 0:
            out.append(np.zeros(table.shape[1]))
        else:
            out.append({"sum": np.sum, "mean": np.mean, "max": np.max}[mode](rows, 0))
    return np.stack(out)


@pytest.mark.parametrize("padding_idx", [None, 1, 3])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows(mode, padding_idx):
    tables = numbers(2, 5, 3)
    index, starts = rabbet.tensor(INDICES), rabbet.tensor(STARTS)

    def call(t):
        return F.embedding_bag(index, t, starts, mode=mode, padding_idx=padding_idx)

    want = np.stack([bags_by_loop(t, mode, padding_idx) for t in tables])
    x = rabbet.tensor(tables, requires_grad=True)
    np.testing.assert_allclose(call(x[0]).detach().numpy(), want[0], 1e-12)
    np.testing.assert_allclose(rabbet.vmap(call)(x).detach().numpy(), want, 1e-12)
    far = [t.to("meta") for t in (index, x[0], starts)]
    assert F.embedding_bag(*far, mode=mode, padding_idx=padding_idx).shape == (4, 3)
    assert rabbet.autograd.gradcheck(call, (x[0].detach().requires_grad_(),))


@pytest.mark.parametrize("padding_idx", [None, 1, -1])
@pytest.mark.parametrize("mode", ["sum", "mean", "weighted"])
def test_bags_of_one_size(mode, padding_idx):
    tables = numbers(2, 5, 3)
    index = np.array([[0, 1, 2, 3], [4, 4, 1, 0], [1, 4, 1, 4]])
    factors = numbers(3, 4) if mode == "weighted" else np.ones((3, 4))

    def call(t, w=None):
        chosen = {"mode": "sum" if mode == "weighted" else mode, "padding_idx": padding_idx}
        return F.embedding_bag(rabbet.tensor(index), t, per_sample_weights=w, **chosen)

    counted = np.ones_like(index) if padding_idx is None else index != padding_idx % 5
    given = (rabbet.tensor(factors, requires_grad=True),) if mode == "weighted" else ()
    want = np.stack([np.einsum("bi,bij->bj", factors * counted, t[index]) for t in tables])
    if mode == "mean":
        want = want / np.maximum(counted.sum(1), 1)[:, None]
    x = rabbet.tensor(tables, requires_grad=True)
    np.testing.assert_allclose(call(x[0], *given).detach().numpy(), want[0], 1e-12)
    np.testing.assert_allclose(
        rabbet.vmap(lambda t: call(t, *given))(x).detach().numpy(), want, 1e-12
    )
    assert rabbet.autograd.gradcheck(call, (x[0].detach().requires_grad_(), *given))
    none = F.embedding_bag(rabbet.zeros(2, 0, dtype=rabbet.int64), x[0], mode="mean")
    assert none.tolist() == [[0] * 3] * 2


def test_bags_that_differ_between_examples():
    table = rabbet.tensor(numbers(5, 3))
    index = rabbet.tensor([[0, 1, 2, 3], [4, 4, 1, 0]])
    starts = rabbet.tensor([[0, 2], [0, 4]])
    for mode in ("sum", "mean", "max"):

        def call(i, s, mode=mode):
            return F.embedding_bag(i, table, s, mode=mode)

        want = rabbet.stack([call(i, s) for i, s in zip(index, starts, strict=True)])
        assert rabbet.allclose(rabbet.vmap(call)(index, starts), want)


def test_of_equal_elements_in_a_bag_the_first_has_the_gradient():
    table = rabbet.ones(4, 2, requires_grad=True)
    F.embedding_bag(rabbet.tensor([[2, 1, 3]]), table, mode="max").sum().backward()
    assert table.grad.tolist() == [[0, 0], [0, 0], [1, 1], [0, 0]]


def test_embeddings_on_meta_and_with_sparse_gradients_that_nobody_asks_for():
    index = rabbet.tensor([1, 0])
    assert F.one_hot(index.to("meta"), 4).shape == (2, 4)
    assert F.embedding(index.to("meta"), rabbet.ones(3, 2, device="meta"), max_norm=1).shape == (
        2,
        2,
    )
    table = rabbet.tensor(numbers(3, 2))
    assert F.embedding(index, table, sparse=True).tolist() == table[[1, 0]].tolist()
    with pytest.raises(NotImplementedError, match=r"embedding: sparse=True .* requires grad"):
        F.embedding_bag(index.unsqueeze(0), table.requires_grad_(), sparse=True)
    with rabbet.no_grad():
        assert F.embedding(index, table, sparse=True).shape == (2, 2)
