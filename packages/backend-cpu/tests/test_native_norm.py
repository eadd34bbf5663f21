"""Normalisations, cross-entropy and their derivatives against NumPy, in every layout and dtype."""

from typing import Any

import numpy as np
import pytest
from native_host import INDEX, Host, KernelError, assert_close, layouts, wide

DTYPES = ["float32", "float64", "float16"]
# A sum over all rows of products that were rounded to the dtype first.
SUMS = 30


def values(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    return (rng.normal(size=shape) * 2 + 1).astype(dtype)


def run(host: Host, op: str, args: list[Any], *results: tuple[tuple[int, ...], str]) -> list[Any]:
    outs = [np.empty(shape, dtype) for shape, dtype in results]
    host.run(op, args, outs)
    return outs


def normal(x: np.ndarray, axes: tuple[int, ...], eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Normalised, and the reciprocal of the deviation."""
    r = 1 / np.sqrt(x.var(axes, keepdims=True) + eps)
    return (x - x.mean(axes, keepdims=True)) * r, r


def normal_gradient(
    g: np.ndarray, y: np.ndarray, r: np.ndarray, axes: tuple[int, ...]
) -> np.ndarray:
    return r * (g - g.mean(axes, keepdims=True) - y * (g * y).mean(axes, keepdims=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows,n", [(1, 1), (3, 5), (7, 100), (300, 16), (2, 40000), (0, 4)])
def test_layer_norm_and_gradients(host: Host, rows: int, n: int, dtype: str) -> None:
    rng = np.random.default_rng(1)
    x, g = values(rng, dtype, rows, n), values(rng, dtype, rows, n)
    w, b = values(rng, dtype, n), values(rng, dtype, n)
    y, r = normal(wide(x), (1,), 1e-5) if rows else (wide(x), wide(x))
    for view in layouts(x):
        (out,) = run(host, "layer_norm", [view, [n], w, b, 1e-5], ((rows, n), dtype))
        assert_close(out, y * wide(w) + wide(b), 10)
        (out,) = run(host, "layer_norm", [view, [n], None, b, 1e-5], ((rows, n), dtype))
        assert_close(out, y + wide(b), 10)
    dx, dw, db = run(
        host,
        "layer_norm_backward",
        [g, x, [n], w, 1e-5],
        ((rows, n), dtype),
        ((n,), "float64"),
        ((n,), "float64"),
    )
    want = normal_gradient(wide(g) * wide(w), y, r, (1,)) if rows else wide(g)
    scale = float(np.max(r, initial=1.0))
    assert_close(dx, want, 20 * scale)
    np.testing.assert_allclose(dw, (wide(g) * y).sum(0), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(db, wide(g).sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_and_gradients(host: Host, dtype: str) -> None:
    rng = np.random.default_rng(2)
    x, g, w = values(rng, dtype, 9, 70), values(rng, dtype, 9, 70), values(rng, dtype, 70)
    r = 1 / np.sqrt((wide(x) ** 2).mean(1, keepdims=True) + 0.1)
    y, gw = wide(x) * r, wide(g) * wide(w)
    for view in layouts(x):
        (out,) = run(host, "rms_norm", [view, [70], w, 0.1], (x.shape, dtype))
        assert_close(out, y * wide(w), 5)
        dx, dw = run(
            host, "rms_norm_backward", [g, view, [70], w, 0.1], (x.shape, dtype), ((70,), dtype)
        )
        assert_close(dx, r * (gw - y * (gw * y).mean(1, keepdims=True)), 10)
        assert_close(dw, (wide(g) * y).sum(0), SUMS)


CHANNELS = [(4, 6), (3, 6, 5), (2, 6, 7, 7), (2, 6, 300, 70)]


def per_channel(v: np.ndarray, ndim: int) -> np.ndarray:
    return wide(v).reshape(-1, *[1] * (ndim - 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("shape", CHANNELS[:3], ids=str)
def test_group_norm_and_gradients(
    host: Host, shape: tuple[int, ...], groups: int, dtype: str
) -> None:
    if shape == (4, 6) and groups == 6:
        pytest.skip("one value per group has no deviation")
    rng = np.random.default_rng(3)
    x, g = values(rng, dtype, *shape), values(rng, dtype, *shape)
    w, b = values(rng, dtype, 6), values(rng, dtype, 6)
    axes = (0, *range(2, len(shape)))
    y3, r = normal(wide(x).reshape(shape[0], groups, -1), (2,), 1e-3)
    y = y3.reshape(shape)
    gw = (wide(g) * per_channel(w, x.ndim)).reshape(y3.shape)
    for view in layouts(x):
        (out,) = run(host, "group_norm", [view, groups, w, b, 1e-3], (shape, dtype))
        assert_close(out, y * per_channel(w, x.ndim) + per_channel(b, x.ndim), 10)
        dx, dw, db = run(
            host,
            "group_norm_backward",
            [g, view, groups, w, 1e-3],
            (shape, dtype),
            ((6,), dtype),
            ((6,), dtype),
        )
        assert_close(
            dx, normal_gradient(gw, y3, r, (2,)).reshape(shape), 20 * max(1.0, float(r.max()))
        )
        assert_close(dw, (wide(g) * y).sum(axes), SUMS)
        assert_close(db, wide(g).sum(axes), SUMS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", CHANNELS, ids=str)
def test_batch_norm_and_gradients(host: Host, shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(4)
    x, g = values(rng, dtype, *shape), values(rng, dtype, *shape)
    w, b = values(rng, dtype, 6), values(rng, dtype, 6)
    axes = (0, *range(2, len(shape)))
    y, r = normal(wide(x), axes, 1e-3)
    mean, var = wide(x).mean(axes), wide(x).var(axes)
    scale, shift = per_channel(w, x.ndim), per_channel(b, x.ndim)
    views = layouts(x) if x.size < 10000 else [x]
    stats = ((6,), "float64"), ((6,), "float64")
    for view in views:
        out, m, v = run(host, "batch_norm_train", [view, w, b, 1e-3], (shape, dtype), *stats)
        assert_close(out, y * scale + shift, 10)
        np.testing.assert_allclose(m, mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(v, var, rtol=1e-5)
        dx, dw, db = run(
            host,
            "batch_norm_backward",
            [g, view, m, v, w, 1e-3, True],
            (shape, dtype),
            *stats,
        )
        assert_close(dx, normal_gradient(wide(g) * scale, y, r, axes), 20)
        np.testing.assert_allclose(dw, (wide(g) * y).sum(axes), rtol=1e-3, atol=0.05)
        np.testing.assert_allclose(db, wide(g).sum(axes), rtol=1e-4, atol=1e-3)
        # In evaluation the moments are given.
        m2, v2 = rng.normal(size=6), rng.uniform(0.5, 2, 6)
        r2 = 1 / np.sqrt(per_channel(v2, x.ndim) + 1e-3)
        y2 = (wide(x) - per_channel(m2, x.ndim)) * r2
        (out,) = run(host, "batch_norm_eval", [view, m2, v2, w, None, 1e-3], (shape, dtype))
        assert_close(out, y2 * scale, 10)
        dx, dw, db = run(
            host,
            "batch_norm_backward",
            [g, view, m2, v2, w, 1e-3, False],
            (shape, dtype),
            *stats,
        )
        assert_close(dx, wide(g) * scale * r2, 5)
        np.testing.assert_allclose(dw, (wide(g) * y2).sum(axes), rtol=1e-3, atol=0.05)


def log_softmax(x: np.ndarray) -> np.ndarray:
    top = x.max(1, keepdims=True)
    return x - top - np.log(np.exp(x - top).sum(1, keepdims=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(5, 3), (70, 10), (4, 1000), (2, 7, 5, 5), (3, 70, 2)], ids=str)
def test_cross_entropy_and_gradient(
    host: Host, shape: tuple[int, ...], smoothing: float, reduction: str, dtype: str
) -> None:
    rng = np.random.default_rng(5)
    classes, places = shape[1], (shape[0], *shape[2:])
    x = values(rng, dtype, *shape)
    w = rng.uniform(0.5, 2, classes).astype(dtype)
    target = rng.integers(0, classes, places)
    target.flat[1] = -7  # ignored
    keep = target != -7
    safe = np.where(keep, target, 0)
    hit = np.moveaxis(np.eye(classes)[safe], -1, 1)
    wt = wide(w)[safe] * keep
    wc = per_channel(w, x.ndim)
    soft = np.exp(log_softmax(wide(x)))
    spread = smoothing / classes
    mix = (1 - smoothing) * np.expand_dims(wide(w)[safe], 1) * hit + spread * wc
    losses = -(log_softmax(wide(x)) * mix).sum(1) * keep
    divisor = wt.sum() if reduction == "mean" else 1.0
    want = losses if reduction == "none" else losses.sum() / divisor
    stats = "float64" if dtype == "float64" else "float32"
    args = [w, reduction, -7, smoothing]
    for view in layouts(x):
        loss, lse, total = run(
            host,
            "cross_entropy_loss",
            [view, target, *args],
            (np.shape(want), dtype),
            (places, stats),
            ((), stats),
        )
        assert_close(loss, want, 20)
        g = values(rng, dtype, *np.shape(want))
        (dx,) = run(
            host,
            "cross_entropy_backward",
            [np.asarray(g), view, target, w, lse, total, *args[1:]],
            (shape, dtype),
        )
        gp = np.expand_dims(np.broadcast_to(wide(np.asarray(g)), places) * keep / divisor, 1)
        assert_close(dx, gp * (soft * mix.sum(1, keepdims=True) - mix), 5)


def test_ignored_rows_have_no_gradient_even_where_they_are_not_finite(host: Host) -> None:
    x = np.zeros((2, 3), np.float32)
    x[1] = np.inf
    target = np.array([1, -100])
    loss, lse, total = run(
        host,
        "cross_entropy_loss",
        [x, target, None, "mean", -100, 0.0],
        ((), "float32"),
        ((2,), "float32"),
        ((), "float32"),
    )
    np.testing.assert_allclose(loss, np.log(3), rtol=1e-6)
    (dx,) = run(
        host,
        "cross_entropy_backward",
        [np.float32(1)[...], x, target, None, lse, total, "mean", -100, 0.0],
        ((2, 3), "float32"),
    )
    np.testing.assert_array_equal(dx[1], 0)


@pytest.mark.parametrize("bad", [3, -1, 2**40])
def test_target_out_of_range_is_an_error_before_any_write(host: Host, bad: int) -> None:
    loss, lse, total = np.full((), 7.0), np.full(2, 7.0), np.full((), 7.0)
    args = [np.zeros((2, 3)), np.array([0, bad]), None, "mean", -100, 0.0]
    with pytest.raises(KernelError, match=rf"Target {bad} is out of bounds for 3 classes") as e:
        host.run("cross_entropy_loss", args, [loss, lse, total])
    assert e.value.code == INDEX
    assert loss == 7 and (lse == 7).all()
    with pytest.raises(KernelError, match=rf"nll_loss: Target {bad} is out of bounds"):
        host.run("nll_loss", args[:5], [loss, total])


def test_results_do_not_depend_on_threads(host: Host) -> None:
    rng = np.random.default_rng(6)
    x, g, w = values(rng, "float32", 4000, 96), values(rng, "float32", 4000, 96), np.ones(96, "f4")
    image, image_g = x.reshape(8, 48, 1000), g.reshape(8, 48, 1000)
    c = np.ones(48, "f4")
    target = rng.integers(0, 96, 4000)
    found = []
    for threads in (1, 2, 4):
        host.lib.set_threads(threads)
        s, f = (96,), "float32"
        ce = run(host, "cross_entropy_loss", [x, target, None, "mean", -100, 0.0],
                 ((), f), ((4000,), f), ((), f))  # fmt: skip
        m = run(
            host, "batch_norm_train", [image, c, c, 1e-5], (image.shape, f), ((48,), f), ((48,), f)
        )
        found.append([
            *run(host, "layer_norm_backward", [g, x, [96], w, 1e-5], (x.shape, f), (s, f), (s, f)),
            *run(host, "group_norm_backward", [image_g, image, 8, c, 1e-5],
                 (image.shape, f), ((48,), f), ((48,), f)),
            *run(host, "batch_norm_backward", [image_g, image, m[1], m[2], c, 1e-5, True],
                 (image.shape, f), ((48,), f), ((48,), f)),
            *m,
            *run(host, "batch_norm_train", [x, w, w, 1e-5], (x.shape, f), (s, f), (s, f)),
            *ce,
        ])  # fmt: skip
    host.lib.set_threads(2)
    for other in found[1:]:
        for p, q in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(p, q)
