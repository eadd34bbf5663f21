"""Resizing and sampling at points: kernels beside definitions in NumPy, at all dtypes and layouts."""

import itertools
import math

import numpy as np
import pytest
import rabbet

resample, resample_dx = rabbet.ops.resample, rabbet.ops.resample_dx
grid_sample = rabbet.nn.functional.grid_sample
HALF = [rabbet.float16, rabbet.bfloat16]
MODES = ["nearest", "nearest-exact", "linear", "cubic"]


def keys(d):
    """Keys' cubic kernel with the parameter -0.75."""
    d, a = abs(d), -0.75
    if d < 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def matrix(n, out, step, mode, align):
    """The matrix that resizes a line of `n` elements to `out`."""
    found = np.zeros((out, n))
    for o in range(out):
        if mode.startswith("nearest"):
            place = np.float32(o + (0.5 if mode == "nearest-exact" else 0)) * np.float32(step)
            found[o, min(int(place), n - 1)] += 1
            continue
        source = o * step if align else (o + 0.5) * step - 0.5
        if mode == "linear":
            source = max(source, 0.0)
        low = math.floor(source)
        for k in range(-1, 3):
            d = source - (low + k)
            weight = keys(d) if mode == "cubic" else max(0.0, 1 - abs(d))
            found[o, min(max(low + k, 0), n - 1)] += weight
    return found


def resized(x, size, steps, mode, align, transpose=False):
    for d, step in enumerate(steps):
        n, out = (size[d], x.shape[d + 2]) if transpose else (x.shape[d + 2], size[d])
        m = matrix(n, out, step, mode, align)
        x = np.moveaxis(np.tensordot(m.T if transpose else m, x, (1, d + 2)), 0, d + 2)
    return x


def values(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


CASES = [  # batch and channels, sizes, sizes of the result
    ((2, 3), (5,), (9,)),
    ((1, 2), (40,), (97,)),
    ((2, 1), (100,), (31,)),
    ((1, 1), (1,), (7,)),
    ((2, 3), (4, 5), (7, 3)),
    ((1, 1), (130, 90), (261, 33)),  # few planes: in blocks of rows
    ((1, 17), (6, 20), (13, 41)),
    ((2, 2), (3, 4, 5), (5, 3, 11)),
    ((1, 1), (20, 30, 9), (41, 17, 20)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("lead,sizes,size", CASES)
@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64])
def test_resizing_and_its_transpose_are_products_with_matrices(
    mode, align, lead, sizes, size, dtype
):
    steps = [
        (n - 1) / max(out - 1, 1) if align else n / out for n, out in zip(sizes, size, strict=True)
    ]
    tolerance = 1e-12 if dtype is rabbet.float64 else 4e-5
    x, g = values(*lead, *sizes), values(*lead, *size, seed=1)
    layouts = [rabbet.contiguous_format]
    if len(sizes) > 1:
        layouts.append(rabbet.channels_last if len(sizes) == 2 else rabbet.channels_last_3d)
    for layout in layouts:
        given = rabbet.tensor(x, dtype=dtype).contiguous(memory_format=layout)
        found = resample(given, list(size), steps, mode, align)
        assert found.is_contiguous(memory_format=layout)
        want = resized(x, size, steps, mode, align)
        np.testing.assert_allclose(found.numpy(), want, 0, tolerance * 10)
        gradient = rabbet.tensor(g, dtype=dtype).contiguous(memory_format=layout)
        found = resample_dx(gradient, [*lead, *sizes], steps, mode, align)
        want = resized(g, sizes, steps, mode, align, transpose=True)
        np.testing.assert_allclose(found.numpy(), want, 0, tolerance * 100)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", HALF)
def test_resizing_of_16_bits_is_rounded_once(mode, dtype):
    x = rabbet.tensor(values(2, 3, 9, 20), dtype=dtype)
    args = [13, 33], [9 / 13, 20 / 33], mode, False
    want = resample(x.float(), *args).to(dtype)
    assert rabbet.equal(resample(x, *args), want)
    g = rabbet.tensor(values(2, 3, 13, 33), dtype=dtype)
    args = [2, 3, 9, 20], [9 / 13, 20 / 33], mode, False
    assert rabbet.equal(resample_dx(g, *args), resample_dx(g.float(), *args).to(dtype))


@pytest.mark.parametrize("mode", MODES)
def test_resizing_of_strided_tensors(mode):
    x = rabbet.tensor(values(2, 3, 10, 42))
    view = x[:, :, ::2, 1::2].transpose(2, 3)
    args = [30, 8], [0.7, 0.6], mode, False
    assert rabbet.equal(resample(view, *args), resample(view.contiguous(), *args))


def test_resizing_of_nothing():
    x = rabbet.zeros(0, 3, 4, 5)
    assert resample(x, [8, 7], [0.5, 0.7], "linear", False).shape == (0, 3, 8, 7)
    assert resample_dx(x, [0, 3, 8, 7], [2.0, 1.4], "linear", False).shape == (0, 3, 8, 7)


def test_resizing_and_sampling_are_batched():
    x = rabbet.tensor(values(3, 2, 2, 5, 6))
    grid = rabbet.tensor(np.random.default_rng(2).uniform(-1, 1, (3, 2, 4, 4, 2)))
    vmap, grad = rabbet.func.vmap, rabbet.func.grad

    def double(a):
        return rabbet.nn.functional.interpolate(a, scale_factor=2, mode="bilinear")

    def sample(a, g):
        return grid_sample(a, g, align_corners=False)

    for function, given in ((double, (x,)), (sample, (x, grid))):
        slope = grad(lambda *args, f=function: (f(*args) ** 2).sum())
        for f in (function, slope):
            want = rabbet.stack([f(*args) for args in zip(*given, strict=True)])
            np.testing.assert_allclose(vmap(f)(*given).numpy(), want.numpy(), 1e-12, 1e-12)


def test_a_nan_reaches_only_results_near_it():
    x = rabbet.zeros(1, 1, 8, 8)
    x[0, 0, 4, 4] = math.nan
    found = resample(x, [16, 16], [0.5, 0.5], "linear", False)[0, 0].isnan()
    rows = found.any(1).nonzero().flatten().tolist()
    assert rows == [7, 8, 9, 10] and int(found.sum()) == 16


@pytest.mark.parametrize(
    "arguments,message",
    [
        (([2], [0.5, 0.5], "linear", False), "'size' must have 2 entries, got 1"),
        (([2, 0], [0.5, 0.5], "linear", False), "sizes must be at least 1"),
        (([2, 2], [0.5], "linear", False), "`steps` must be 2 floats, got 1"),
        (([2, 2], [0.5, 0.5], "round", False), "mode"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises((RuntimeError, ValueError), match=f"(?s)resample.*{message}"):
        resample(rabbet.ones(1, 1, 3, 3), *arguments)


# ---- sampling at points


def inside(x, n, padding, align):
    if padding == "zeros":
        return x
    if padding == "reflection":
        low, high = (0, n - 1) if align else (-0.5, n - 0.5)
        if low == high:
            return 0.0
        while not low <= x <= high:
            x = 2 * low - x if x < low else 2 * high - x
    return min(max(x, 0), n - 1)


def sampled(image, point, mode, padding, align):
    """The value of a plane or volume (C, *) at one point."""
    sizes = image.shape[1:]
    directions = []
    for n, at in zip(sizes, reversed(point), strict=True):
        x = (at + 1) / 2 * (n - 1) if align else ((at + 1) * n - 1) / 2
        if mode != "bicubic":
            x = inside(x, n, padding, align)
        low = math.floor(x)
        if mode == "nearest":
            taps = [(round(x), 1.0)]
        elif mode == "bilinear":
            taps = [(low, low + 1 - x), (low + 1, x - low)]
        else:
            taps = [(inside(low + k, n, padding, align), keys(x - low - k)) for k in range(-1, 3)]
        directions.append(taps)
    total = np.zeros(image.shape[0])
    for corner in itertools.product(*directions):
        places = tuple(int(place) for place, _ in corner)
        if all(0 <= i < n for i, n in zip(places, sizes, strict=True)):
            total += image[:, *places] * np.prod([weight for _, weight in corner])
    return total


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64])
def test_samples_are_weighted_sums_of_neighbours(mode, padding, align, rank, dtype):
    if mode == "bicubic" and rank == 3:
        pytest.skip("of planes alone")
    image = values(2, 3, *(5, 4, 3)[:rank])
    grid = np.random.default_rng(2).uniform(-1.7, 1.7, (2, *(9, 11, 2)[:rank], rank))
    found = grid_sample(
        rabbet.tensor(image, dtype=dtype), rabbet.tensor(grid, dtype=dtype), mode, padding, align
    ).numpy()
    for n in range(2):
        for place in np.ndindex(*grid.shape[1:-1]):
            want = sampled(image[n], grid[n][place], mode, padding, align)
            np.testing.assert_allclose(
                found[n][:, *place], want, 0, 1e-9 if dtype is rabbet.float64 else 2e-4
            )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
def test_gradients_of_samples(mode, padding, align):
    rng = np.random.default_rng(3)
    image = rabbet.tensor(values(2, 2, 5, 4), requires_grad=True)
    grid = rabbet.tensor(rng.uniform(-1.6, 1.6, (2, 3, 4, 2)), requires_grad=True)
    rabbet.autograd.gradcheck(lambda x, g: grid_sample(x, g, mode, padding, align), (image, grid))
    rabbet.autograd.gradgradcheck(
        lambda x, g: grid_sample(x, g, mode, padding, align), (image, grid)
    )


def test_gradients_of_samples_of_volumes():
    rng = np.random.default_rng(3)
    image = rabbet.tensor(values(1, 2, 3, 5, 4), requires_grad=True)
    grid = rabbet.tensor(rng.uniform(-1.3, 1.3, (1, 3, 2, 2, 3)), requires_grad=True)
    rabbet.autograd.gradcheck(lambda x, g: grid_sample(x, g, align_corners=False), (image, grid))


def test_elements_that_no_point_is_near_are_not_read():
    image = rabbet.full((1, 1, 6, 6), math.nan)
    image[0, 0, 2:4, 2:4] = 1.0
    grid = rabbet.tensor([[[[0.0, 0.0], [-9.0, 4.0], [0.1, -0.1]]]])
    found = grid_sample(image, grid, align_corners=False)
    np.testing.assert_allclose(found.flatten().numpy(), [1.0, 0.0, 1.0], 1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_points_at_no_place_read_nothing_outside(value, mode, padding):
    image = rabbet.ones(1, 2, 3, 3)
    grid = rabbet.full((1, 1, 70, 2), value, requires_grad=True)
    found = grid_sample(image, grid, mode, padding, align_corners=False)
    finite = found[found.isfinite()]
    assert bool(((finite >= -1) & (finite <= 2)).all())
    found.sum().backward()


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_samples_of_16_bits_are_rounded_once(dtype, mode):
    rng = np.random.default_rng(2)
    image = rabbet.tensor(values(2, 3, 9, 8), dtype=dtype)
    grid = rabbet.tensor(rng.uniform(-1.2, 1.2, (2, 10, 9, 2)), dtype=dtype)
    found = grid_sample(image, grid, mode, align_corners=False)
    assert rabbet.equal(
        found, grid_sample(image.float(), grid.float(), mode, align_corners=False).to(dtype)
    )
    g = rabbet.ones_like(found)
    args = mode, "zeros", False
    for op, given in (
        (rabbet.ops.grid_sample_dx, (g, grid, [2, 3, 9, 8])),
        (rabbet.ops.grid_sample_dgrid, (g, image, grid)),
    ):
        wide = [x.float() if isinstance(x, rabbet.Tensor) else x for x in given]
        assert rabbet.equal(op(*given, *args), op(*wide, *args).to(dtype))


def test_samples_of_strided_tensors_and_of_nothing():
    rng = np.random.default_rng(2)
    image = rabbet.tensor(values(2, 3, 8, 9)).transpose(2, 3)[:, :, ::2]
    grid = rabbet.tensor(rng.uniform(-1, 1, (2, 2, 5, 7))).permute(0, 2, 3, 1)
    want = grid_sample(image.contiguous(), grid.contiguous(), align_corners=False)
    assert rabbet.equal(grid_sample(image, grid, align_corners=False), want)
    last = image.contiguous(memory_format=rabbet.channels_last)
    assert rabbet.equal(grid_sample(last, grid, align_corners=False), want)
    assert grid_sample(image[:0], grid[:0], align_corners=False).shape == (0, 3, 5, 7)
    none = grid_sample(image[:, :0], grid, align_corners=False)
    assert none.shape == (2, 0, 5, 7)
    x = image[:, :0].detach().requires_grad_()
    points = grid.clone().requires_grad_()
    grid_sample(x, points, align_corners=False).sum().backward()
    assert bool((points.grad == 0).all()) and x.grad.shape == x.shape
