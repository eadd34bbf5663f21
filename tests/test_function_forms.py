"""Forms of calls that PyTorch's functions have beside the usual one; NumPy is the oracle."""

import numpy as np
import pytest
import rabbet
from rabbet.nn import functional as F


def test_places_of_what_is_not_zero():
    a = np.array([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])
    x = rabbet.tensor(a)
    for found in (x.nonzero(as_tuple=True), rabbet.nonzero(x, as_tuple=True), rabbet.where(x)):
        assert isinstance(found, tuple)
        for got, want in zip(found, np.nonzero(a), strict=True):
            np.testing.assert_array_equal(got.numpy(), want)
    assert x[x.nonzero(as_tuple=True)].tolist() == [1, 2, 3]
    assert [t.tolist() for t in rabbet.where(rabbet.tensor(4.0))] == [[0]]
    with pytest.raises(ValueError, match="'out' cannot be given"):
        rabbet.nonzero(x, as_tuple=True, out=rabbet.empty(0, dtype=rabbet.int64))
    with pytest.raises(TypeError, match="'out' must be Tensor, not tuple"):
        rabbet.nonzero(x, as_tuple=True, out=(rabbet.empty(0, dtype=rabbet.int64),))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_search_in_several_sequences(side, rows):
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 9, (rows, 7))
    wanted = rng.integers(-1, 10, (rows, 5))
    order = np.argsort(keys, -1, kind="stable")
    want = [np.searchsorted(np.sort(k), w, side) for k, w in zip(keys, wanted, strict=True)]
    got = rabbet.searchsorted(
        rabbet.tensor(keys),
        rabbet.tensor(wanted),
        side=side,
        out_int32=True,
        sorter=rabbet.tensor(order),
    )
    assert got.dtype is rabbet.int32
    np.testing.assert_array_equal(got.numpy().reshape(rows, 5), np.reshape(want, (rows, 5)))


def test_buckets():
    edges = rabbet.tensor([1.0, 3.0, 5.0])
    x = rabbet.tensor([[0.0, 1.0], [3.0, 9.0]])
    assert rabbet.bucketize(x, edges).tolist() == [[0, 0], [1, 3]]
    assert rabbet.bucketize(x, edges, right=True).tolist() == [[0, 1], [2, 3]]
    assert rabbet.bucketize(3, edges).item() == 1
    out = rabbet.empty(0, dtype=rabbet.int64)
    assert rabbet.bucketize(x, edges, out=out) is out and out.shape == (2, 2)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda s: rabbet.searchsorted(s, s, side="x"), "side can only be"),
        (lambda s: rabbet.searchsorted(s, s, side="left", right=True), "opposites"),
        (lambda s: rabbet.searchsorted(rabbet.zeros(2, 3), 1.0), "can be a scalar only"),
        (lambda s: rabbet.searchsorted(rabbet.zeros(2, 3), rabbet.zeros(3, 3)), "must match"),
        (lambda s: rabbet.searchsorted(s, s, sorter=rabbet.zeros(2).long()), "same shape"),
        (lambda s: rabbet.searchsorted(s, s, sorter=rabbet.zeros(3)), "must be int64"),
        (lambda s: rabbet.searchsorted(s, s, out=rabbet.zeros(3)), "dtype is wrong"),
        (lambda s: rabbet.bucketize(s, rabbet.zeros(2, 3)), "must be 1 dimension"),
    ],
)
def test_searches_that_are_refused(call, text):
    with pytest.raises(RuntimeError, match=text):
        call(rabbet.tensor([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("name", ["var", "std"])
def test_variances_by_every_form(name):
    a = np.random.default_rng(0).standard_normal((3, 4))
    x = rabbet.tensor(a)
    f, both, ref = getattr(rabbet, name), getattr(rabbet, f"{name}_mean"), getattr(np, name)
    np.testing.assert_allclose(f(x, correction=None).item(), ref(a, ddof=1))
    np.testing.assert_allclose(
        f(x, 1, correction=None, keepdim=True), ref(a, 1, ddof=1, keepdims=True)
    )
    for got, ddof in (
        (both(x, 0, unbiased=False), 0),
        (both(x, 0, True), 1),
        (both(x, 0, correction=None), 1),
    ):
        np.testing.assert_allclose(got[0].numpy(), ref(a, 0, ddof=ddof))
        np.testing.assert_allclose(got[1].numpy(), a.mean(0))
    np.testing.assert_allclose(both(x, False)[0].item(), ref(a))


def test_ranges_of_integers_cut_their_ends():
    assert rabbet.linspace(4.9, 0, 5, dtype=rabbet.int64).tolist() == [4, 3, 2, 1, 0]
    assert rabbet.logspace(1, 1.9, 3, dtype=rabbet.int64).tolist() == [10, 10, 10]


@pytest.mark.parametrize("dtype", [rabbet.complex64, rabbet.complex128])
def test_complex_random_numbers(dtype):
    rabbet.manual_seed(0)
    normal = rabbet.randn(20000, dtype=dtype).numpy()
    np.testing.assert_allclose([normal.real.std(), normal.imag.std()], 0.5**0.5, atol=0.02)
    np.testing.assert_allclose(normal.mean(), 0, atol=0.03)
    even = rabbet.rand_like(rabbet.zeros(20000, dtype=dtype)).numpy()
    assert even.dtype == normal.dtype and (even.real >= 0).all() and (even.imag < 1).all()
    np.testing.assert_allclose([even.real.mean(), even.imag.mean()], 0.5, atol=0.02)
    assert (
        rabbet.rand(2, 3, dtype=dtype).dtype is rabbet.randn_like(rabbet.rand(2), dtype=dtype).dtype
    )


@pytest.mark.parametrize(
    "name", ["float", "double", "half", "bfloat16", "long", "int", "short", "char", "byte", "bool"]
)
def test_conversions_take_a_memory_format(name):
    x = rabbet.ones(2, 3, 4, 5, dtype=rabbet.complex64).real
    y = getattr(x, name)(memory_format=rabbet.channels_last)
    assert (
        y.is_contiguous(memory_format=rabbet.channels_last) and y.dtype is getattr(x, name)().dtype
    )
    for bad in ({"memory": 1}, {"memory_format": 3}):
        with pytest.raises(TypeError, match="memory_format"):
            getattr(x, name)(**bad)
    with pytest.raises(TypeError):
        getattr(x, name)(1)


def test_factories_that_take_requires_grad():
    x = rabbet.empty_strided((2, 3), (1, 2), requires_grad=True)
    assert x.requires_grad and x.is_leaf and x.stride() == (1, 2)
    y = rabbet.scalar_tensor(2, requires_grad=True)
    assert y.requires_grad and y.dtype is rabbet.float32


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_output_padding_beyond_the_stride(padding):
    """The result is that of the sum over the window, cut or filled with zeros at the far end."""
    rng = np.random.default_rng(0)
    x, w, b = rng.standard_normal((1, 1, 5)), rng.standard_normal((1, 1, 3)), rng.standard_normal(1)
    stride, dilation, extra = 2, 4, 3
    whole = np.zeros(2 * 4 + 4 * 2 + 1)
    for i in range(5):
        for k in range(3):
            whole[i * stride + k * dilation] += x[0, 0, i] * w[0, 0, k]
    want = np.concatenate([whole, np.zeros(extra)])[
        padding : padding + whole.size - 2 * padding + extra
    ]
    given = [rabbet.tensor(v, requires_grad=True) for v in (x, w, b)]
    got = F.conv_transpose1d(*given, stride, padding, extra, dilation=dilation)
    np.testing.assert_allclose(got.detach().numpy()[0, 0], want + b, 1e-12)
    assert rabbet.autograd.gradcheck(
        lambda *v: F.conv_transpose1d(*v, stride, padding, extra, dilation=dilation), given
    )


def test_shuffled_pixels_are_a_copy():
    x = rabbet.ones(1, 4, 2, 2)
    for y in (F.pixel_shuffle(x, 1), F.pixel_unshuffle(x, 1)):
        y.zero_()
    assert bool(x.all())


def test_indices_of_a_dimension_lie_side_by_side():
    rows = rabbet.nonzero(rabbet.eye(3))
    assert rows.stride() == (1, 3) and rows.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert rabbet.argwhere(rabbet.ones(2, 2, 2)).stride() == (1, 8)
    assert rabbet.nonzero(rabbet.ones(4)).stride() == (1, 4)


@pytest.mark.parametrize("out_int32", [False, True])
def test_places_are_written_to_integers_of_the_size_asked_for(out_int32):
    edges, values = rabbet.tensor([1.0, 3.0, 5.0]), rabbet.tensor([0.0, 3.0, 9.0])
    out = rabbet.empty(0, dtype=rabbet.int32 if out_int32 else rabbet.int64)
    assert rabbet.searchsorted(edges, values, out_int32=out_int32, out=out) is out
    assert out.tolist() == [0, 1, 3]
    out.zero_()
    rabbet.bucketize(values, edges, out_int32=out_int32, out=out)
    assert out.tolist() == [0, 1, 3]
