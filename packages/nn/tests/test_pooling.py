"""Pooling in one to three directions against windows of NumPy, and against PyTorch where it is installed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from rabbet import nn
from rabbet.nn import functional as F


@st.composite
def pools(draw: st.DrawFn) -> dict:
    rank = draw(st.integers(1, 3))
    each = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    kernel = each(1, 4)
    return {
        "shape": [draw(st.integers(1, 2)), draw(st.integers(1, 3)), *each(1, 9)],
        "kernel_size": kernel,
        "stride": each(1, 4),
        "padding": [draw(st.integers(0, k // 2)) for k in kernel],
        "ceil_mode": draw(st.booleans()),
    }


def call(function, *arguments, **options):
    """The result, or None where the arguments are refused."""
    try:
        return function(*arguments, **options)
    except RuntimeError:
        return None


@settings(max_examples=60, deadline=None)
@given(pool=pools(), dilation=st.integers(1, 2), pad=st.booleans())
def test_pools_agree_with_pytorch(pool: dict, dilation: int, pad: bool) -> None:
    torch = pytest.importorskip("torch")
    pool = dict(pool)
    shape = pool.pop("shape")
    rank = len(shape) - 2
    # Few values: ties and their indices matter.
    data = np.random.default_rng(0).integers(-3, 3, shape).astype("float32")
    for kind, options in (
        ("max_pool", {"dilation": dilation, "return_indices": True}),
        ("avg_pool", {"count_include_pad": pad}),
    ):
        x, tx = rabbet.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
        name = f"{kind}{rank}d"
        want = call(getattr(torch.nn.functional, name), tx, **pool, **options)
        got = call(getattr(F, name), x, **pool, **options)
        if want is None:  # some of what PyTorch refuses has a meaning here
            continue
        if kind == "max_pool" and torch.isneginf(want[0]).any():
            # A window in the padding altogether: PyTorch gives it an index that may not exist.
            assert got is None
            continue
        assert got is not None, name
        if kind == "max_pool":
            np.testing.assert_array_equal(got[1].numpy(), want[1].numpy())
            got, want = got[0], want[0]
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-6)
        weights = np.random.default_rng(1).normal(size=want.shape).astype("float32")
        (got * rabbet.tensor(weights)).sum().backward()
        (want * torch.tensor(weights)).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), tx.grad.numpy(), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_maxima_are_those_of_their_windows(rank: int, dtype: str) -> None:
    x = np.random.default_rng(2).integers(-9, 9, (2, 3, *(7, 8, 9)[:rank])).astype(dtype)
    y, at = rabbet.ops.max_pool_with_indices(rabbet.tensor(x), [3] * rank, [2] * rank, [1] * rank)
    for place in itertools.product(*(range(n) for n in y.shape[2:])):
        cut = tuple(slice(max(2 * i - 1, 0), 2 * i + 2) for i in place)
        want = x[(slice(None), slice(None), *cut)].max(tuple(range(2, 2 + rank)))
        np.testing.assert_array_equal(y.numpy()[(slice(None), slice(None), *place)], want)
    flat = np.take_along_axis(x.reshape(2, 3, -1), at.numpy().reshape(2, 3, -1), 2)
    np.testing.assert_array_equal(flat, y.numpy().reshape(2, 3, -1))


def test_nan_and_minus_infinity() -> None:
    x = rabbet.tensor([[[1.0, float("nan"), 2.0, -float("inf"), -float("inf"), -float("inf")]]])
    y, at = F.max_pool1d(x, 3, return_indices=True)
    assert np.isnan(y.numpy()[0, 0, 0]) and y.numpy()[0, 0, 1] == -np.inf
    assert at.tolist() == [[[1, 3]]]


@pytest.mark.parametrize("rank,size", [(1, 3), (2, (3, 4)), (2, 1), (3, (2, 3, 4)), (3, 1)])
def test_adapted_windows(rank: int, size: int | tuple) -> None:
    x = np.random.default_rng(3).normal(size=(2, 3, *(7, 8, 9)[:rank]))
    sizes = (size,) * rank if isinstance(size, int) else size
    mean = getattr(F, f"adaptive_avg_pool{rank}d")(rabbet.tensor(x), size).numpy()
    best, at = getattr(F, f"adaptive_max_pool{rank}d")(rabbet.tensor(x), size, return_indices=True)
    for place in itertools.product(*(range(n) for n in sizes)):
        cut = tuple(
            slice(i * n // s, -(-(i + 1) * n // s))
            for i, n, s in zip(place, x.shape[2:], sizes, strict=True)
        )
        window = x[(slice(None), slice(None), *cut)]
        axes = tuple(range(2, 2 + rank))
        here = (slice(None), slice(None), *place)
        np.testing.assert_allclose(mean[here], window.mean(axes))
        np.testing.assert_array_equal(best.numpy()[here], window.max(axes))
    flat = np.take_along_axis(x.reshape(2, 3, -1), at.numpy().reshape(2, 3, -1), 2)
    np.testing.assert_array_equal(flat, best.numpy().reshape(2, 3, -1))


def test_the_gradient_of_a_maximum_can_be_differentiated() -> None:
    from rabbet.autograd import grad

    x = rabbet.tensor(np.random.default_rng(4).normal(size=(1, 2, 6, 6)), requires_grad=True)
    y, at = F.max_pool2d(x, 3, 2, return_indices=True)
    (first,) = grad((y * y * y).sum(), [x], create_graph=True)
    (second,) = grad((first * first).sum(), [x])
    # first = sum of 3 y^2 over the windows that chose x, so second = 2 first * sum of 6 y.
    value, places = y.detach().numpy().ravel(), at.numpy().reshape(2, -1)
    counts = np.zeros((2, 36))
    for channel, row in enumerate(places):
        np.add.at(counts[channel], row, 1)
    flat = x.detach().numpy().reshape(2, 36)
    want = 2 * (3 * flat**2 * counts) * (6 * flat * counts)
    np.testing.assert_allclose(second.numpy().reshape(2, 36), want, atol=1e-9)
    assert value.size == 8


LAYERS = [
    (nn.MaxPool3d(2), (1, 2, 4, 4, 4), (1, 2, 2, 2, 2)),
    (nn.AvgPool3d(2, divisor_override=3), (2, 4, 4, 4), (2, 2, 2, 2)),
    (nn.AdaptiveAvgPool3d((None, 2, 1)), (1, 2, 5, 4, 4), (1, 2, 5, 2, 1)),
    (nn.AdaptiveMaxPool1d(3), (1, 2, 7), (1, 2, 3)),
    (nn.AdaptiveMaxPool2d((2, None)), (1, 2, 7, 5), (1, 2, 2, 5)),
    (nn.AdaptiveMaxPool3d(2), (2, 3, 4, 5), (2, 2, 2, 2)),
]


@pytest.mark.parametrize("layer,shape,want", LAYERS, ids=lambda v: str(v))
def test_layers(layer: nn.Module, shape: tuple, want: tuple) -> None:
    assert tuple(layer(rabbet.ones(*shape)).shape) == want


X = rabbet.ones(1, 2, 4, 4)
ERRORS = [
    (lambda: F.max_pool3d(X[0, 0], 2), "max_pool3d: non-empty 4D or 5D"),
    (lambda: F.max_pool2d(X, 5), "does not fit the input"),
    (lambda: F.max_pool2d(X, 0), "'kernel_size' must be at least 1"),
    (lambda: F.max_pool2d(X, 2, padding=2), "at most half of effective kernel size"),
    (lambda: F.avg_pool2d(X, (2, 2, 2)), "expected kernel_size to be an int or 2 ints"),
    (lambda: F.avg_pool3d(X, 2, divisor_override=0), "divisor must be not zero"),
    (lambda: F.adaptive_max_pool2d(X, -1), "must not be negative"),
    (lambda: F.adaptive_avg_pool3d(X, (1, 2)), "output_size must be 3"),
    (lambda: F.adaptive_avg_pool2d(rabbet.ones(1, 2, 0, 4), 2), "no window"),
    (lambda: rabbet.ops.max_pool_dx(X, rabbet.full([1, 2, 4, 4], 16), [1, 2, 4, 4], 2),
     "index 16 is out of range"),
    (lambda: rabbet.ops.max_pool_dx(X, rabbet.zeros(1, 2, 4, 4), [1, 2, 4, 4], 2),
     "'indices' must have dtype int64"),
]  # fmt: skip


@pytest.mark.parametrize("make,message", ERRORS, ids=[m for _, m in ERRORS])
def test_bad_arguments(make, message: str) -> None:
    with pytest.raises((RuntimeError, ValueError, TypeError), match=message):
        make()


def test_unpool_keeps_the_memory_format():
    x = rabbet.randn(2, 3, 6, 4).contiguous(memory_format=rabbet.channels_last)
    y, places = F.max_pool2d(x, 2, return_indices=True)
    assert y.stride() == (18, 1, 6, 3)
    back = F.max_unpool2d(y, places, 2)
    assert back.stride() == (72, 1, 12, 3)
    plain = F.max_unpool2d(y.contiguous(), places.contiguous(), 2)
    assert plain.stride() == (72, 24, 4, 1) and rabbet.equal(back, plain)


@pytest.mark.parametrize(
    "pool2d,pool3d",
    [(lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool3d(x, 2)),
     (lambda x: F.adaptive_avg_pool2d(x, 2), lambda x: F.adaptive_avg_pool3d(x, 2)),
     (lambda x: F.adaptive_max_pool2d(x, 2), lambda x: F.adaptive_max_pool3d(x, 2))],
)  # fmt: skip
def test_volumes_without_a_batch_are_no_images(pool2d, pool3d):
    x = rabbet.randn(3, 4, 6, 6)
    last = x.contiguous(memory_format=rabbet.channels_last).requires_grad_()
    images, volume = pool2d(last), pool3d(last)
    assert images.is_contiguous(memory_format=rabbet.channels_last)
    assert volume.is_contiguous() and rabbet.equal(volume, pool3d(x))
    (grad,) = rabbet.autograd.grad(volume.sum(), last)
    assert grad.sum().item() == pytest.approx(volume.numel(), rel=1e-5)


@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.int64])
@pytest.mark.parametrize("rank", [2, 3])
def test_averages_are_written_to_a_destination(rank, dtype):
    x = rabbet.arange(2 * 4**rank).reshape(1, 2, *[4] * rank).to(dtype)
    pool, out = getattr(F, f"avg_pool{rank}d"), rabbet.empty(0, dtype=dtype)
    assert pool(x, 2, out=out) is out and out.equal(pool(x, 2))
