"""Maxima over windows of channels that lie side by side (channels_last) have loops of their own."""

import pytest
import rabbet
from rabbet.nn import functional as F

OPTIONS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2, "stride": 1, "dilation": 2, "ceil_mode": True},
]


def compare(pool, x, format):
    """Values, indices and gradients of both layouts."""
    results = []
    for given in (x, x.contiguous(memory_format=format)):
        given = given.detach().requires_grad_()
        y, index = pool(given)
        weight = rabbet.arange(y.numel(), dtype=y.dtype).reshape(y.shape) + 1
        if given.stride()[1] == 1:
            weight = weight.contiguous(memory_format=format)
            assert y.is_contiguous(memory_format=format)
        results.append([y, index, *rabbet.autograd.grad(y, given, weight)])
    for rows, last in zip(*results, strict=True):
        assert rabbet.equal(rows.nan_to_num(-1.5), last.nan_to_num(-1.5))


@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64, rabbet.bfloat16])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 7, 9), (1, 33, 6, 5), (2, 5, 4, 6, 5)])
def test_windows(shape, options, dtype):
    rabbet.manual_seed(3)
    pool = F.max_pool2d if len(shape) == 4 else F.max_pool3d
    format = rabbet.channels_last if len(shape) == 4 else rabbet.channels_last_3d
    x = rabbet.randint(-4, 5, shape).to(dtype)  # many are equal: the first one counts
    compare(lambda t: pool(t, **options, return_indices=True), x, format)


def test_nan_and_infinity():
    x = rabbet.randn(2, 4, 6, 6)
    x[0, 1, 2, 2:4] = float("nan")
    x[1, :, :4, :4] = -float("inf")
    compare(lambda t: F.max_pool2d(t, 2, return_indices=True), x, rabbet.channels_last)


@pytest.mark.parametrize("size", [(1, 1), (3, 4), (5, 2)])
def test_adapted_windows(size):
    x = rabbet.randn(2, 18, 7, 5)
    pool = lambda t: F.adaptive_max_pool2d(t, size, return_indices=True)  # noqa: E731
    compare(pool, x, rabbet.channels_last)


def test_no_images():
    x = rabbet.empty(0, 3, 4, 4).contiguous(memory_format=rabbet.channels_last).requires_grad_()
    y = F.max_pool2d(x, 2)
    assert y.shape == (0, 3, 2, 2)
    y.sum().backward()
    assert x.grad.shape == x.shape
