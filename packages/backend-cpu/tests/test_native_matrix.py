"""Matrix products against NumPy; convolution against its definition; pooling against windows of NumPy."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_host import (
    ARG,
    TYPE,
    BFloat16,
    Host,
    KernelError,
    assert_close,
    layouts,
    random_array,
    wide,
)

PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
    ((5, 1, 3, 4), (2, 4, 6)), ((3, 0), (0, 4)), ((0, 4), (4, 3)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)),
    ((65, 130), (130, 77)), ((1, 300), (300, 70)), ((70, 300), (300, 1)), ((13, 200), (200, 33)),
    ((128, 600), (600, 520)),
]  # fmt: skip


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int64", "uint8", "complex64", "complex128"]
)
@pytest.mark.parametrize("left,right", PRODUCTS, ids=str)
def test_matmul_matches_numpy(
    host: Host, left: tuple[int, ...], right: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(1)
    a, b = random_array(rng, dtype, left), random_array(rng, dtype, right)
    if a.size > 10000 and dtype not in ("float32", "float64"):
        pytest.skip("large sizes exercise the blocked kernels of float32 and float64")
    want = np.asarray(np.matmul(wide(a), wide(b)))
    for va, vb in itertools.product(layouts(a), layouts(b)):
        assert_close(host.filled("matmul", [va, vb], want.shape, dtype), want, 60)


@given(
    m=st.integers(1, 40),
    k=st.just(1) | st.integers(1, 300),
    n=st.integers(1, 80),
    turn=st.tuples(st.booleans(), st.booleans()),
)
@settings(max_examples=80, deadline=None)
def test_every_tile_edge(host: Host, m: int, k: int, n: int, turn: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(m * 1000 + n)
    a = rng.normal(size=(k, m)).T if turn[0] else rng.normal(size=(m, k))
    b = rng.normal(size=(n, k)).T if turn[1] else rng.normal(size=(k, n))
    assert_close(host.filled("matmul", [a, b], (m, n), "float64"), a @ b, 100)
    bias = rng.normal(size=n)
    assert_close(host.filled("linear", [a, b.T, bias], (m, n), "float64"), a @ b + bias, 100)


@given(
    m=st.integers(1, 70),
    k=st.integers(1, 200),
    n=st.integers(1, 70),
    turn=st.tuples(st.booleans(), st.booleans()),
)
@settings(max_examples=60, deadline=None)
def test_bfloat16_accumulates_in_float32(
    host: Host, m: int, k: int, n: int, turn: tuple[bool, bool]
) -> None:
    rng = np.random.default_rng(m + 100 * n)
    a = BFloat16(rng.normal(size=(k, m)).T if turn[0] else rng.normal(size=(m, k)))
    b = BFloat16(rng.normal(size=(n, k)).T if turn[1] else rng.normal(size=(k, n)))
    bias = BFloat16(rng.normal(size=n))
    want = a.float32().astype(np.float64) @ b.float32()
    scale = np.abs(a.float32()) @ np.abs(b.float32())
    out = BFloat16(np.zeros((m, n)))
    host.run("matmul", [a, b], [out])
    # Half an ulp of bfloat16 for the one rounding, and float32 sums.
    assert (np.abs(out.float32() - want) <= 2.0**-8 * np.abs(want) + 1e-5 * scale).all()
    host.run("linear", [a, BFloat16(b.float32().T), bias], [out])
    want = want + bias.float32()
    assert (np.abs(out.float32() - want) <= 2.0**-8 * np.abs(want) + 1e-5 * (scale + 4)).all()


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7), (0, 7)], ids=str)
def test_linear(host: Host, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    w, bias = rng.normal(size=(5, 7)), rng.normal(size=5)
    for x in layouts(rng.normal(size=shape)):
        assert_close(
            host.filled("linear", [x, w, bias], (*shape[:-1], 5), "float64"), x @ w.T + bias, 10
        )
        assert_close(host.filled("linear", [x, w, None], (*shape[:-1], 5), "float64"), x @ w.T, 10)


def test_matmul_refuses(host: Host) -> None:
    with pytest.raises(KernelError, match="matmul: inner sizes differ: 4 and 5") as caught:
        host.filled("matmul", [np.ones((3, 4)), np.ones((5, 6))], (3, 6), "float64")
    assert caught.value.code == ARG
    with pytest.raises(KernelError, match="no kernel for bool") as caught:
        host.filled("matmul", [np.ones((3, 3), bool), np.ones((3, 3), bool)], (3, 3), "bool")
    assert caught.value.code == TYPE


CONVOLUTIONS = [  # n, channels, h, w, outputs, kernel, stride, padding, dilation, groups
    (2, 3, 8, 9, 4, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (1, 4, 10, 7, 6, (3, 2), (2, 1), (0, 1), (1, 2), 2),
    (9, 4, 6, 6, 4, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (3, 6, 7, 7, 6, (3, 3), (2, 2), (1, 1), (1, 1), 6),
    (10, 1, 12, 12, 8, (5, 5), (1, 1), (2, 2), (1, 1), 1),
    (2, 2, 4, 4, 2, (3, 3), (3, 3), (2, 2), (2, 2), 1),
    (0, 2, 4, 4, 2, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (1, 16, 60, 60, 8, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (8, 3, 7, 7, 40, (3, 3), (1, 1), (1, 1), (1, 1), 1),  # a vector holds windows of two images
    (3, 2, 14, 32, 9, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (3, 5, 9, 20, 10, (3, 3), (1, 1), (1, 1), (1, 1), 5),  # from here on depthwise
    (2, 3, 11, 35, 3, (3, 3), (1, 1), (2, 0), (1, 1), 3),
    (2, 3, 13, 37, 3, (3, 3), (2, 2), (1, 1), (1, 1), 3),
    (2, 3, 10, 18, 3, (5, 5), (1, 2), (2, 2), (1, 1), 3),
    (2, 2, 12, 25, 2, (3, 2), (3, 3), (1, 0), (1, 2), 2),
    (1, 2, 6, 80, 2, (1, 40), (1, 1), (0, 3), (1, 1), 2),
    (1, 1, 300, 40, 1, (3, 3), (1, 1), (1, 1), (1, 1), 1),
]


def taps(case: tuple) -> list[tuple[int, int, slice, slice]]:
    """For each weight position the slices of the padded input under it."""
    _, _, h, w, _, k, s, p, d, _ = case
    oh, ow = (
        (h + 2 * p[0] - d[0] * (k[0] - 1) - 1) // s[0] + 1,
        (w + 2 * p[1] - d[1] * (k[1] - 1) - 1) // s[1] + 1,
    )
    rows = [slice(i * d[0], i * d[0] + (oh - 1) * s[0] + 1, s[0]) for i in range(k[0])]
    cols = [slice(j * d[1], j * d[1] + (ow - 1) * s[1] + 1, s[1]) for j in range(k[1])]
    return [(i, j, rows[i], cols[j]) for i in range(k[0]) for j in range(k[1])]


def convolve(case: tuple, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    groups, p = case[9], case[7]
    padded = np.pad(x, ((0, 0), (0, 0), (p[0], p[0]), (p[1], p[1])))
    parts = []
    for xs, ws in zip(np.split(padded, groups, 1), np.split(w, groups, 0), strict=True):
        parts.append(
            sum(
                np.einsum("nchw,oc->nohw", xs[:, :, r, c], ws[:, :, i, j])
                for i, j, r, c in taps(case)
            )
        )
    return np.concatenate(parts, 1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex128"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution_and_its_transposes(host: Host, case: tuple, dtype: str) -> None:
    n, channels, h, w, outputs, kernel, stride, padding, dilation, groups = case
    rng = np.random.default_rng(4)
    x = random_array(rng, dtype, (n, channels, h, w))
    weight = random_array(rng, dtype, (outputs, channels // groups, *kernel))
    bias = random_array(rng, dtype, (outputs,))
    tail = [stride, padding, dilation, groups]
    want = convolve(case, wide(x), wide(weight))
    assert_close(host.filled("convolution", [x, weight, None, *tail], want.shape, dtype), want, 30)
    with_bias = host.filled("convolution", [x, weight, bias, *tail], want.shape, dtype)
    assert_close(with_bias, want + wide(bias)[:, None, None], 30)
    # <g, conv(x, w)> = <dx(g, w), x> = <dw(x, g), w>: both are transposes of the bilinear map.
    g = random_array(rng, dtype, want.shape)
    dx = host.filled("convolution_dx", [g, weight, x.shape, *tail], x.shape, dtype)
    dw = host.filled("convolution_dw", [x, g, weight.shape, *tail], weight.shape, dtype)
    inner = np.sum(wide(g) * want)
    slack = {"float16": 3e-2, "float32": 1e-4}.get(dtype, 1e-10) * (
        1 + np.abs(wide(g) * want).sum()
    )
    assert abs(np.sum(wide(dx) * wide(x)) - inner) <= slack
    assert abs(np.sum(wide(dw) * wide(weight)) - inner) <= slack


@pytest.mark.parametrize("groups", [1, 4], ids=["full", "depthwise"])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_reads_no_neighbour(host: Host, stride: int, groups: int) -> None:
    rng = np.random.default_rng(5)
    tail = ((stride, stride), (1, 1), (1, 1), groups)
    x, w = rng.normal(size=(3, 4, 7, 7)), rng.normal(size=(4, 4 // groups, 3, 3))
    x[0] = x[2] = np.nan
    size = 7 if stride == 1 else 4
    for dtype in ("float32", "float64"):
        a, b = x.astype(dtype), w.astype(dtype)
        y = host.filled("convolution", [a, b, None, *tail], (3, 4, size, size), dtype)
        assert np.isnan(y[[0, 2]]).all()
        alone = host.filled("convolution", [a[1:2], b, None, *tail], (1, 4, size, size), dtype)
        assert_close(y[1:2], alone, 10)
        g = np.full((3, 4, size, size), np.nan, dtype)
        g[1] = 1
        dx = host.filled("convolution_dx", [g, b, x.shape, *tail], x.shape, dtype)
        assert np.isnan(dx[[0, 2]]).all() and np.isfinite(dx[1]).all()
        dw = host.filled("convolution_dw", [a[1:2], g[1:2], w.shape, *tail], w.shape, dtype)
        assert np.isfinite(dw).all()


def test_convolution_refuses_misfits(host: Host) -> None:
    x, w = np.ones((1, 4, 5, 5)), np.ones((2, 3, 3, 3))
    with pytest.raises(
        KernelError, match=r"convolution: a weight of \(2, 3, ...\) does not fit 4 input channels"
    ):
        host.filled("convolution", [x, w, None, (1, 1), (0, 0), (1, 1), 1], (1, 2, 3, 3), "float64")
    with pytest.raises(KernelError, match="`stride` must be at least 1"):
        host.filled(
            "convolution", [x, w[:, :2], None, (0, 1), (0, 0), (1, 1), 2], (1, 2, 3, 3), "float64"
        )


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
@pytest.mark.parametrize(
    "kernel,stride,padding",
    [((2, 2), (), (0, 0)), ((3, 2), (2, 1), (1, 1)), ((3, 3), (1, 1), (1, 0))],
)
def test_max_pool(host: Host, kernel: tuple, stride: tuple, padding: tuple, dtype: str) -> None:
    x = random_array(np.random.default_rng(5), dtype, (2, 3, 8, 9))
    s = stride or kernel
    size = [
        (n + 2 * p - k) // t + 1 for n, p, k, t in zip(x.shape[2:], padding, kernel, s, strict=True)
    ]
    values, indices = np.empty((2, 3, *size), dtype), np.empty((2, 3, *size), "int64")
    host.run(
        "max_pool_with_indices", [x, kernel, stride, padding, (1, 1), False], [values, indices]
    )
    for r, c in itertools.product(range(size[0]), range(size[1])):
        top, left = r * s[0] - padding[0], c * s[1] - padding[1]
        window = x[:, :, max(top, 0) : top + kernel[0], max(left, 0) : left + kernel[1]]
        np.testing.assert_array_equal(values[:, :, r, c], window.max((2, 3)))
    np.testing.assert_array_equal(
        np.take_along_axis(x.reshape(2, 3, -1), indices.reshape(2, 3, -1), 2),
        values.reshape(2, 3, -1),
    )


@pytest.mark.parametrize("include_pad,divisor", [(True, None), (False, None), (True, 3)])
def test_avg_pool_and_its_transpose(host: Host, include_pad: bool, divisor: int | None) -> None:
    rng = np.random.default_rng(6)
    x, g = rng.normal(size=(2, 7, 6)), rng.normal(size=(2, 4, 3))
    tail = [(3, 3), (2, 2), (1, 1), False, include_pad, divisor]
    y = host.filled("avg_pool", [x, *tail], (2, 4, 3), "float64")
    inside = np.pad(np.ones((7, 6)), 1)
    for r, c in itertools.product(range(4), range(3)):
        part = (slice(2 * r, 2 * r + 3), slice(2 * c, 2 * c + 3))
        by = divisor or (inside[part].size if include_pad else inside[part].sum())
        np.testing.assert_allclose(
            y[:, r, c], np.pad(x, ((0, 0), (1, 1), (1, 1)))[(slice(None), *part)].sum((1, 2)) / by
        )
    dx = host.filled("avg_pool_dx", [g, x.shape, *tail], x.shape, "float64")
    np.testing.assert_allclose(np.sum(dx * x), np.sum(g * y))


@pytest.mark.parametrize("size", [(1, 1), (3, 4), (7, 2)])
def test_adaptive_avg_pool_and_its_transpose(host: Host, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    x, g = rng.normal(size=(2, 3, 8, 9)), rng.normal(size=(2, 3, *size))
    y = host.filled("adaptive_avg_pool", [x, size], g.shape, "float64")
    for r, c in itertools.product(range(size[0]), range(size[1])):
        rows = slice(r * 8 // size[0], -(-(r + 1) * 8 // size[0]))
        cols = slice(c * 9 // size[1], -(-(c + 1) * 9 // size[1]))
        np.testing.assert_allclose(y[:, :, r, c], x[:, :, rows, cols].mean((2, 3)))
    dx = host.filled("adaptive_avg_pool_dx", [g, x.shape, 2], x.shape, "float64")
    np.testing.assert_allclose(np.sum(dx * x), np.sum(g * y))
