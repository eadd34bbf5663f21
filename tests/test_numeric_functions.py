"""Functions for numerical work beside NumPy: integrals, indices, windows, counts, parts of numbers, refusals."""

import itertools

import numpy as np
import pytest
import rabbet

nan, inf = float("nan"), float("inf")


def numbers(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_integrals(dim):
    y, x = numbers(4, 5), numbers(4, 5, seed=1)
    want = np.trapezoid(y, x, axis=dim) if hasattr(np, "trapezoid") else np.trapz(y, x, axis=dim)
    got = rabbet.trapezoid(rabbet.tensor(y), rabbet.tensor(x), dim=dim)
    np.testing.assert_allclose(got.numpy(), want, 1e-12)
    running = rabbet.cumulative_trapezoid(rabbet.tensor(y), dx=0.5, dim=dim).numpy()
    last = rabbet.trapz(rabbet.tensor(y), dx=0.5, dim=dim).numpy()
    np.testing.assert_allclose(np.take(running, -1, dim), last, 1e-12)
    assert running.shape[dim] == y.shape[dim] - 1


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_integrals_at_equal_distances(n):
    y = numbers(3, n)
    want = 0.3 * (y[:, 1:] + y[:, :-1]).sum(1) / 2
    for dtype, tolerance in ((rabbet.float64, 1e-12), (rabbet.float16, 2e-3)):
        got = rabbet.trapezoid(rabbet.tensor(y, dtype=dtype), dx=0.3)
        assert got.dtype is dtype
        np.testing.assert_allclose(got.numpy(), want, tolerance, 10 * tolerance)
    y[:, 0] = inf
    assert rabbet.trapezoid(rabbet.tensor(y)).tolist() == [0.0 if n == 1 else inf] * 3
    whole = rabbet.arange(n, dtype=rabbet.int32)
    assert rabbet.trapezoid(whole).item() == (n - 1) ** 2 / 2
    leaf = rabbet.ones(n, dtype=rabbet.float64, requires_grad=True)
    rabbet.trapezoid(leaf, dx=2).backward()
    ends = [1.0] + [2.0] * (n - 2) + [1.0]
    assert leaf.grad.tolist() == ([0.0] if n == 1 else ends)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("spacing", [1, 0.3, [2.0, -0.5]])
def test_slopes_at_equal_distances(order, spacing):
    x = numbers(5, 7)
    each = spacing if isinstance(spacing, list) else [spacing]
    want = np.gradient(x, *each, edge_order=order)
    got = rabbet.gradient(rabbet.tensor(x), spacing=spacing, edge_order=order)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b, 1e-12, 1e-12)
    # An infinite sample is not its own neighbour.
    (slopes,) = rabbet.gradient(rabbet.tensor([1.0, 2.0, inf, 4.0, 6.0]), edge_order=order)
    assert slopes[2].item() == 1.0


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((8, 8), (6, 3)),
        ((3, 4, 5), (6, 2)),
        ((6, 5), (2, 5, 2)),
        ((5, 0), (6, 3)),
        ((9, 2), (9, 1)),
    ],
)
def test_kronecker_products_of_short_rows(left, right):
    a, b = numbers(*left), numbers(*right, seed=1)
    x, y = (rabbet.tensor(v, requires_grad=True) for v in (a, b))
    product = rabbet.kron(x, y)
    np.testing.assert_array_equal(product.detach().numpy(), np.kron(a, b))
    product.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full(left, b.sum()), 1e-10, 1e-10)
    np.testing.assert_allclose(y.grad.numpy(), np.full(right, a.sum()), 1e-10, 1e-10)


@pytest.mark.parametrize("offset", [-2, 0, 1, 9])
def test_indices_of_triangles(offset):
    lower, upper = rabbet.tril_indices(4, 3, offset), rabbet.triu_indices(4, 3, offset)
    np.testing.assert_array_equal(lower.numpy(), np.tril_indices(4, offset, 3))
    np.testing.assert_array_equal(upper.numpy(), np.triu_indices(4, offset, 3))
    assert lower.dtype is rabbet.int64 and lower.is_contiguous()
    assert rabbet.tril_indices(2, 2, dtype=rabbet.int32).dtype is rabbet.int32


def test_combinations():
    x = rabbet.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    for r in (1, 2, 3):
        want = list(map(list, itertools.combinations([1, 2, 3, 4], r)))
        assert rabbet.combinations(x, r).tolist() == want
    want = list(map(list, itertools.combinations_with_replacement([1, 2, 3, 4], 2)))
    assert rabbet.combinations(x, with_replacement=True).tolist() == want
    rabbet.combinations(x).sum().backward()
    assert x.grad.tolist() == [3] * 4
    assert rabbet.combinations(x, 5).shape == (0, 5) and rabbet.combinations(x, 0).shape == (0,)


def test_powers_as_columns():
    a = numbers(4)
    for options in ({}, {"N": 2}, {"N": 6, "increasing": True}, {"N": 0}):
        got = rabbet.vander(rabbet.tensor(a), **options).numpy()
        np.testing.assert_allclose(got, np.vander(a, **options), 1e-12)


@pytest.mark.parametrize("k", range(-3, 6))
def test_turns(k):
    a = numbers(2, 3, 4)
    for dims in ((0, 1), (2, 0), (-1, 1)):
        got = rabbet.rot90(rabbet.tensor(a), k, dims).numpy()
        np.testing.assert_array_equal(got, np.rot90(a, k, dims))


def test_slices_of_a_largest_norm():
    a = numbers(4, 6) * 3
    got = rabbet.tensor(a).renorm(2, 0, 5.0).numpy()
    norms = np.linalg.norm(a, axis=1)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), np.minimum(norms, 5), 1e-6)
    np.testing.assert_array_equal(got[norms <= 5], a[norms <= 5])


def test_counts_in_equal_parts():
    a = numbers(200)
    want, _ = np.histogram(a, 7)
    np.testing.assert_array_equal(rabbet.histc(rabbet.tensor(a), 7).numpy(), want)
    want, _ = np.histogram(a, 5, (-1, 1))
    np.testing.assert_array_equal(rabbet.tensor(a).histc(5, -1, 1).numpy(), want)
    assert rabbet.histc(rabbet.tensor([2.0, 2.0]), 2).tolist() == [0, 2]


def test_windows_are_a_view():
    a = numbers(3, 7)
    x = rabbet.tensor(a)
    got = x.unfold(1, 3, 2)
    want = np.lib.stride_tricks.sliding_window_view(a, 3, 1)[:, ::2]
    np.testing.assert_array_equal(got.numpy(), want)
    assert got.stride() == (7, 2, 1)
    got[0, 0, 0] = 9
    assert x[0, 0] == 9
    w = rabbet.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    w.unfold(0, 3, 1).sum().backward()
    assert w.grad.tolist() == [1, 2, 2, 1]


def test_parts_of_numbers():
    for dtype in (rabbet.float16, rabbet.float32, rabbet.float64):
        tiny = rabbet.finfo(dtype).tiny
        list_ = [0.0, 1.0, -3.5, 1e-3, tiny, tiny / 2, tiny / 8 * 3, 6e4, inf, -inf, 0.5, -0.75]
        x = rabbet.tensor(list_, dtype=dtype)
        mantissa, exponent = rabbet.frexp(x)
        want = np.frexp(x.numpy())
        np.testing.assert_array_equal(mantissa.numpy(), want[0])
        np.testing.assert_array_equal(exponent.numpy(), want[1])
        assert exponent.dtype is rabbet.int32
        y = rabbet.ldexp(
            mantissa[:4], exponent[:4]
        )  # powers of integers are float32, as in PyTorch
        np.testing.assert_array_equal(y.to(dtype).numpy(), x[:4].numpy())
        z = rabbet.tensor(
            [1.0, 1.0, -inf, inf, nan, -1.0, 1.0, 1.0, 0.0, 0.0, 0.5, 1.0], dtype=dtype
        )
        np.testing.assert_array_equal(
            rabbet.nextafter(x, z).numpy(), np.nextafter(x.numpy(), z.numpy())
        )


def test_divisors_and_multiples():
    a = np.random.RandomState(0).randint(-50, 50, (6, 1))
    b = np.random.RandomState(1).randint(-50, 50, (9,))
    b[0] = a[0] = 0
    for dtype in ("int8", "int32", "int64"):
        x, y = a.astype(dtype), b.astype(dtype)
        got = rabbet.gcd(rabbet.tensor(x), rabbet.tensor(y)).numpy()
        np.testing.assert_array_equal(got, np.gcd(x, y))
    np.testing.assert_array_equal(
        rabbet.lcm(rabbet.tensor(a), rabbet.tensor(b)).numpy(), np.lcm(a, b)
    )


def test_steps_powers_and_polar_numbers():
    x = rabbet.tensor([-1.0, 0.0, 2.0, nan])
    assert rabbet.heaviside(x, rabbet.tensor([0.5])).tolist() == [0, 0.5, 1, 0]
    power = rabbet.float_power(rabbet.tensor([2, 3]), -1)
    assert power.dtype is rabbet.float64
    np.testing.assert_allclose(power.numpy(), [0.5, 1 / 3])
    angle = rabbet.tensor([0.0, 1.0])
    got = rabbet.polar(rabbet.tensor([1.0, 2.0]), angle).numpy()
    np.testing.assert_allclose(got, np.array([1, 2]) * np.exp(1j * angle.numpy()), 1e-6)


three = rabbet.tensor([1.0, 2.0, 3.0])
REFUSED = {
    "trapezoid": lambda: rabbet.trapezoid(three, rabbet.ones(2)),
    "trapezoid bool": lambda: rabbet.trapezoid(three.bool()),
    "trapezoid dim": lambda: rabbet.trapezoid(three, dim=1),
    "tril_indices": lambda: rabbet.tril_indices(-1, 2),
    "combinations": lambda: rabbet.combinations(rabbet.ones(2, 2)),
    "combinations r": lambda: rabbet.combinations(three, -1),
    "vander": lambda: rabbet.vander(rabbet.ones(2, 2)),
    "vander N": lambda: rabbet.vander(three, -1),
    "rot90": lambda: rabbet.rot90(three),
    "rot90 same": lambda: rabbet.rot90(rabbet.ones(2, 2), 1, [0, 0]),
    "renorm p": lambda: rabbet.renorm(rabbet.ones(2, 2), 0, 0, 1),
    "renorm maxnorm": lambda: rabbet.renorm(rabbet.ones(2, 2), 2, 0, -1),
    "histc bins": lambda: rabbet.histc(three, 0),
    "histc range": lambda: rabbet.histc(three, 3, 2, 1),
    "histc inf": lambda: rabbet.histc(rabbet.tensor([inf, 1.0]), 3),
    "unfold size": lambda: three.unfold(0, 4, 1),
    "unfold step": lambda: three.unfold(0, 1, 0),
    "polar": lambda: rabbet.polar(three, three.double()),
    "gcd": lambda: rabbet.gcd(three, three),
    "frexp": lambda: rabbet.frexp(three.long()),
    "heaviside": lambda: rabbet.heaviside(three, three.double()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    with pytest.raises((RuntimeError, IndexError, TypeError)) as error:
        REFUSED[name]()
    assert name.split()[0] in str(error.value)


def test_small_compositions():
    a, b = numbers(3, 4), numbers(3, 4, seed=1)
    x, y = rabbet.tensor(a), rabbet.tensor(b)
    for offset in (-1, 0, 2):
        np.testing.assert_array_equal(rabbet.diagflat(x, offset).numpy(), np.diagflat(a, offset))
    for p in (1, 2, 3.5, inf):
        want = np.linalg.norm((a - b).ravel(), p)
        np.testing.assert_allclose(rabbet.dist(x, y, p).item(), want, 1e-12)
    z = rabbet.complex(x, y)
    np.testing.assert_array_equal(z.adjoint().numpy(), z.numpy().conj().T)
    assert [p.shape[0] for p in x.split_with_sizes([1, 2])] == [1, 2]
    assert rabbet.equal(rabbet.ger(x[0], y[0]), rabbet.outer(x[0], y[0]))
    with pytest.raises(RuntimeError, match="adjoint"):
        three.adjoint()


def test_functions_of_layers_are_at_the_top_too():
    functional = pytest.importorskip("rabbet.nn.functional")
    for name in ("conv2d", "max_pool1d", "prelu", "pixel_shuffle", "cosine_similarity", "selu_"):
        assert getattr(rabbet, name) is getattr(functional, name)


@pytest.mark.parametrize("dtype", [rabbet.int8, rabbet.int32, rabbet.int64])
def test_negative_powers_of_integers(dtype):
    """Those that are no integers are 0; a number as exponent is refused."""
    base = rabbet.tensor([2, 1, -1, -1, 0, -3], dtype=dtype)
    exponent = rabbet.tensor([-1, -2, -3, -2, -1, -2], dtype=dtype)
    assert (base**exponent).tolist() == [0, 1, -1, 1, 0, 0]
    assert (base ** exponent[0]).tolist() == [0, 1, -1, -1, 0, 0]
    assert (2**exponent).tolist() == [0] * 6
    assert ((-1) ** exponent).tolist() == [-1, 1, -1, 1, -1, 1]
    with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
        base**-1
    with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
        base.pow_(-2)


# ---- points, segments, bits


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_points_in_the_cells_of_a_grid(density, weighted):
    points = numbers(300, 3)
    weight = np.random.RandomState(3).rand(300) if weighted else None
    edges = [np.array([-2.0, -0.5, 0.0, 1.5]), np.linspace(-1, 1, 5), np.linspace(-2, 2, 3)]
    want, _ = np.histogramdd(points, edges, weights=weight, density=density)
    found = rabbet.histogramdd(
        rabbet.tensor(points),
        [rabbet.tensor(e) for e in edges],
        weight=None if weight is None else rabbet.tensor(weight),
        density=density,
    )
    np.testing.assert_allclose(found.hist.numpy(), want)
    limits = [-1.0, 1.0, -2.0, 2.0, 0.0, 1.0]
    want, edges = np.histogramdd(
        points, [3, 4, 2], list(zip(limits[::2], limits[1::2], strict=True))
    )
    found = rabbet.histogramdd(rabbet.tensor(points).reshape(3, 100, 3), [3, 4, 2], range=limits)
    np.testing.assert_array_equal(found.hist.numpy(), want)
    for got, edge in zip(found.bin_edges, edges, strict=True):
        np.testing.assert_allclose(got.numpy(), edge)
    assert rabbet.histogramdd(rabbet.tensor(points), 2).hist.sum() == 300


def test_histogramdd_refuses_what_does_not_fit():
    points = rabbet.zeros(4, 2)
    for arguments, message in (
        ({"bins": [2]}, "size of bins must be equal to the innermost dimension"),
        ({"bins": [2, 0]}, "bins must be > 0, but got 0 for dimension 1"),
        ({"bins": 2, "range": [0.0, 1.0]}, "range should have 4 elements, but got 2"),
        ({"bins": 2, "weight": rabbet.zeros(3)}, "weight with shape"),
        ({"bins": 2, "weight": rabbet.zeros(4, dtype=rabbet.float64)}, "same dtype"),
        ({"bins": [rabbet.zeros(2, 2), 1]}, "should have one dimension"),
    ):
        with pytest.raises(RuntimeError, match=message):
            rabbet.histogramdd(points, **arguments)
    with pytest.raises(RuntimeError, match="expected a floating tensor, got"):
        rabbet.histogramdd(points.long(), 2)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 0.5])
def test_segments_are_slices(reduce, initial):
    a = numbers(6, 2)
    lengths = [2, 0, 3, 1]
    of_slice = {"sum": np.sum, "mean": np.sum, "max": np.max, "min": np.min, "prod": np.prod}
    nothing = {"sum": 0.0, "mean": nan, "max": -inf, "min": inf, "prod": 1.0}
    start, want = 0, []
    for n in lengths:
        part = a[start : start + n]
        if initial is not None:
            part = np.concatenate([np.full((1, 2), initial), part])
        value = of_slice[reduce](part, 0) if len(part) else np.full(2, nothing[reduce])
        want.append(value / n if reduce == "mean" and n else value)
        start += n
    x = rabbet.tensor(a, requires_grad=True)
    found = rabbet.segment_reduce(x, reduce, lengths=rabbet.tensor(lengths), initial=initial)
    np.testing.assert_allclose(found.detach().numpy(), want)
    offsets = rabbet.tensor([0, 2, 2, 5, 6])
    same = rabbet.segment_reduce(x, reduce, offsets=offsets, initial=initial)
    np.testing.assert_array_equal(same.detach().numpy(), found.detach().numpy())
    assert rabbet.autograd.gradcheck(
        lambda x: rabbet.segment_reduce(
            x, reduce, offsets=rabbet.tensor([0, 2, 5, 6]), initial=initial
        ),
        (x,),
    )


def test_rows_have_segments_of_their_own():
    x = rabbet.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    lengths = rabbet.tensor([[1, 2], [3, 0]])
    found = rabbet.segment_reduce(x, "sum", lengths=lengths, axis=1)
    assert found.tolist() == [[1.0, 5.0], [15.0, 0.0]]
    few = rabbet.segment_reduce(x[0], "max", lengths=rabbet.tensor([1, 1]), unsafe=True)
    assert few.tolist() == [1.0, 2.0]


def test_segment_reduce_refuses_what_does_not_fit():
    x = rabbet.zeros(4, 2)
    for arguments, message in (
        ({}, "Either lengths or offsets must be defined"),
        ({"lengths": rabbet.tensor([1, 2])}, "sum to"),
        ({"lengths": rabbet.tensor([5, -1])}, "negative value"),
        ({"lengths": rabbet.tensor([[4]])}, "one dimension more"),
        ({"lengths": rabbet.tensor([4.0])}, "int32 or int64, got"),
        ({"lengths": rabbet.tensor([4]), "axis": 2}, "expected an axis"),
        ({"lengths": rabbet.tensor([4]), "indices": rabbet.tensor([0])}, "not supported"),
    ):
        with pytest.raises((RuntimeError, TypeError), match=message):
            rabbet.segment_reduce(x, "sum", **arguments)
    with pytest.raises(ValueError, match="reduce"):
        rabbet.segment_reduce(x, "median", lengths=rabbet.tensor([4]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int64", "bool"])
def test_the_hash_is_the_exclusive_or_of_the_bits(dtype):
    a = (numbers(3, 5) * 9).astype(dtype)
    bits = a.astype("float64" if a.dtype.kind == "f" else "int64").view(np.uint64)
    x = rabbet.tensor(a)
    assert rabbet.hash_tensor(x).item() == int(np.bitwise_xor.reduce(bits, None))
    found = rabbet.hash_tensor(x, 1, keepdim=True)
    assert found.dtype is rabbet.uint64
    np.testing.assert_array_equal(found.numpy(), np.bitwise_xor.reduce(bits, 1, keepdims=True))
    np.testing.assert_array_equal(x.hash_tensor((0,)).numpy(), np.bitwise_xor.reduce(bits, 0))
    assert rabbet.hash_tensor(x[:0]).item() == 0
    with pytest.raises(ValueError, match="expected mode 0"):
        rabbet.hash_tensor(x, mode=1)


def test_nonzero_rows_of_a_given_number():
    x = rabbet.tensor([[0, 3], [4, 0]])
    assert rabbet.nonzero_static(x, size=3).tolist() == [[0, 1], [1, 0], [-1, -1]]
    assert x.nonzero_static(size=1, fill_value=9).tolist() == [[0, 1]]
    assert rabbet.nonzero_static(x, size=0).shape == (0, 2)
    with pytest.raises(ValueError, match="non-negative"):
        rabbet.nonzero_static(x, size=-1)


def test_values_written_where_a_view_would_show_them():
    x = rabbet.arange(12.0).reshape(3, 4)[:, 1:]
    y = x.as_strided_scatter(rabbet.tensor([-1.0, -2.0]), (2,), (4,), 2)
    want = x.clone()
    want[0, 1], want[1, 1] = -1.0, -2.0
    assert y.tolist() == want.tolist()
    assert y.stride() == x.stride()
    assert x[0, 1].item() == 2.0
    with pytest.raises(ValueError, match="size equal to the slice of self"):
        x.as_strided_scatter(rabbet.zeros(3), (2,), (4,))


def test_inverse_hyperbolic_functions_of_complex_numbers():
    z = np.array(
        [2 + 1j, -2 + 1j, -0.5 - 3j, 0.25 + 0j, complex(0.5, -0.0), -3 - 0.5j, 1j, 40 - 7j]
    )
    for name in ("arcsinh", "arccosh", "arctanh"):
        found = getattr(rabbet, name)(rabbet.tensor(z)).numpy()
        np.testing.assert_allclose(found, getattr(np, name)(z), 1e-14)
    w = rabbet.tensor(z[[0, 1, 2, 5]], requires_grad=True)
    for name in ("asinh", "acosh", "atanh", "sinc"):
        assert rabbet.autograd.gradcheck(getattr(rabbet, name), (w,))
    np.testing.assert_allclose(rabbet.sinc(rabbet.tensor(z)).numpy(), np.sinc(z), 1e-13)


@pytest.mark.parametrize("categories", [1, 2, 3, 7, 8, 9, 100])
def test_multinomial_draws_by_the_sums_of_weights(categories):
    weights = np.random.default_rng(categories).uniform(size=(4, categories))
    weights[1, 1:] = 0
    weights[2, :-1] = 0
    rabbet.manual_seed(3)
    got = rabbet.multinomial(rabbet.tensor(weights), 500, True).numpy()
    rabbet.manual_seed(3)
    draws = rabbet.rand(4, 500, dtype=rabbet.float64).numpy()
    edges = np.cumsum(weights / weights.sum(1, keepdims=True), 1)
    for row, edge, draw in zip(got, edges, draws, strict=True):
        want = np.searchsorted(edge, draw, "right").clip(max=categories - 1)
        assert (row != want).mean() < 0.01  # the sums may differ in their last bits
    assert (got[1] == 0).all()
    assert (got[2] == categories - 1).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_frexp_of_all_exponents(dtype):
    digits = np.finfo(dtype).nmant + 1
    x = np.ldexp(1.5, np.arange(np.finfo(dtype).minexp - digits + 2, np.finfo(dtype).maxexp))
    x = np.concatenate([x, -x, [0.0, -0.0]]).astype(dtype)
    mantissa, exponent = rabbet.frexp(rabbet.tensor(x))
    want, power = np.frexp(x)
    np.testing.assert_array_equal(mantissa.numpy(), want)
    np.testing.assert_array_equal(exponent.numpy(), power)
