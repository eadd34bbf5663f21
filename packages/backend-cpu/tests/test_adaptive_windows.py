"""Pooling over windows that divide a size unevenly, beside definitions in NumPy."""

import itertools
import math

import numpy as np
import pytest
import rabbet

CASES = [  # batch and channels, sizes, numbers of windows
    ((2, 3), (10,), (4,)),
    ((1, 2), (3,), (8,)),  # windows that overlap
    ((2, 2), (100,), (3,)),
    ((2, 3), (7, 9), (3, 4)),
    ((1, 17), (64, 33), (7, 5)),
    ((2, 1), (4, 5), (6, 5)),
    ((2, 1), (5, 40), (1, 1)),
    ((1, 2), (5, 6, 7), (2, 4, 3)),
]


def windows(n, count):
    return [slice(i * n // count, -(-(i + 1) * n // count)) for i in range(count)]


def each_window(sizes, counts):
    """The place of each result and its window."""
    return zip(
        np.ndindex(*counts),
        itertools.product(*map(windows, sizes, counts)),
        strict=True,
    )


def layouts(x, dtype):
    formats = [rabbet.contiguous_format]
    formats += {4: [rabbet.channels_last], 5: [rabbet.channels_last_3d]}.get(x.ndim, [])
    for memory_format in formats:
        yield rabbet.tensor(x, dtype=dtype).contiguous(memory_format=memory_format)
    yield rabbet.tensor(np.swapaxes(x, 0, -1).copy(), dtype=dtype).transpose(0, -1)


@pytest.mark.parametrize("lead,sizes,counts", CASES)
@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64])
def test_means_and_their_gradients(lead, sizes, counts, dtype):
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((*lead, *sizes)), rng.standard_normal((*lead, *counts))
    want, slope = np.zeros(g.shape), np.zeros(x.shape)
    for place, window in each_window(sizes, counts):
        part = x[:, :, *window]
        want[:, :, *place] = part.reshape(*lead, -1).mean(-1)
        share = g[:, :, *place] / (part.size / math.prod(lead))
        slope[:, :, *window] += share.reshape(*lead, *[1] * len(sizes))
    near = {"rtol": 0, "atol": 1e-5 if dtype is rabbet.float32 else 1e-12}
    for given in layouts(x, dtype):
        found = rabbet.ops.adaptive_avg_pool(given, list(counts))
        np.testing.assert_allclose(found.numpy(), want, **near)
    for given in layouts(g, dtype):
        found = rabbet.ops.adaptive_avg_pool_dx(given, [*lead, *sizes], len(sizes))
        np.testing.assert_allclose(found.numpy(), slope, **near)


@pytest.mark.parametrize("lead,sizes,counts", CASES)
@pytest.mark.parametrize("dtype", [rabbet.float16, rabbet.float32, rabbet.float64])
@pytest.mark.parametrize("what", ["numbers", "ties", "nan", "-inf"])
def test_maxima_and_where_they_stand(lead, sizes, counts, dtype, what):
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 3, (*lead, *sizes)).astype(float)
    if what == "numbers":
        x = np.arange(x.size)[rng.permutation(x.size)].reshape(x.shape) / 2.0
        x = x % 1000  # exact in float16
    elif what == "nan":
        x[rng.uniform(size=x.shape) < 0.1] = math.nan
    elif what == "-inf":
        x = np.full_like(x, -math.inf)
    flat = np.arange(math.prod(sizes)).reshape(sizes)
    values, places = np.zeros((*lead, *counts)), np.zeros((*lead, *counts), np.int64)
    for place, window in each_window(sizes, counts):
        part, own = x[:, :, *window].reshape(*lead, -1), flat[window].reshape(-1)
        nan = np.isnan(part)
        # The first of equal values, and the last NaN.
        last = part.shape[-1] - 1 - nan[..., ::-1].argmax(-1)
        best = np.where(nan.any(-1), last, np.where(nan, -math.inf, part).argmax(-1))
        places[:, :, *place] = own[best]
        values[:, :, *place] = np.take_along_axis(part, best[..., None], -1)[..., 0]
    for given in layouts(x, dtype):
        found = rabbet.ops.adaptive_max_pool_with_indices(given, list(counts))
        np.testing.assert_array_equal(found[0].double().numpy(), values)
        np.testing.assert_array_equal(found[1].numpy(), places)


@pytest.mark.parametrize("dtype", [rabbet.float16, rabbet.bfloat16])
def test_means_of_16_bits_are_rounded_once(dtype):
    x = rabbet.tensor(np.random.default_rng(0).standard_normal((2, 3, 50, 70)), dtype=dtype)
    pool = rabbet.ops.adaptive_avg_pool
    assert rabbet.equal(pool(x, [7, 3]), pool(x.float(), [7, 3]).to(dtype))
    g = x[:, :, :4, :5].contiguous()
    slope = rabbet.ops.adaptive_avg_pool_dx
    shape = [2, 3, 9, 17]
    assert rabbet.equal(slope(g, shape, 2), slope(g.float(), shape, 2).to(dtype))
