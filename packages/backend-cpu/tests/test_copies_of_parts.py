"""Copies of parts: opposite orders, borders, diagonals."""

import numpy as np
import pytest
import rabbet
import scipy.linalg

F = rabbet.nn.functional
RNG = np.random.RandomState(3)


@pytest.mark.parametrize(
    "dtype", ["int8", "float16", "float32", "float64", "complex64", "complex128"]
)
def test_opposite_orders(dtype):
    x = RNG.randint(-99, 99, (5, 77)).astype(dtype)
    for dims in ([1], [0], [0, 1]):
        np.testing.assert_array_equal(rabbet.flip(rabbet.tensor(x), dims), np.flip(x, dims))
        part = rabbet.tensor(x)[:, 3:]
        np.testing.assert_array_equal(rabbet.flip(part, dims), np.flip(x[:, 3:], dims))


def sources(n, before, after, mode):
    """Where the elements of a padded dimension come from."""
    if mode == "reflect":
        period = np.concatenate([np.arange(n), np.arange(n - 2, 0, -1)])
        return [period[i % len(period)] for i in range(-before, n + after)]
    if mode == "replicate":
        return np.clip(np.arange(-before, n + after), 0, n - 1)
    kept = np.arange(n)[max(-before, 0) : n - max(-after, 0)]
    start = max(-before, 0)
    return [kept[(i - start) % len(kept)] for i in range(-before, n + after)]


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "complex64", "complex128"])
@pytest.mark.parametrize(
    "pad", [(1, 1, 1, 1), (2, 0, 0, 3), (3, 4), (-1, 2, 1, -2), (0, 0, 2, 2), (10, 9, 4, 5)]
)
def test_borders(mode, dtype, pad):
    x = RNG.randint(-50, 50, (2, 3, 7, 12)).astype(dtype)
    pairs = list(zip(pad[::2], pad[1::2], strict=True))
    want, back = x, []
    for i, (before, after) in enumerate(pairs):
        places = sources(x.shape[3 - i], before, after, mode)
        want = np.take(want, places, 3 - i)
        back.append((3 - i, places))
    whole = rabbet.tensor(x)
    strided = whole.transpose(1, 3).contiguous().transpose(1, 3)
    last = whole.contiguous(memory_format=rabbet.channels_last)
    for t in (whole, strided, last):
        np.testing.assert_array_equal(F.pad(t, pad, mode=mode).numpy(), want)
    if dtype != "float32":
        return
    leaf = rabbet.tensor(x, requires_grad=True)
    g = RNG.randn(*want.shape).astype(dtype)
    F.pad(leaf, pad, mode=mode).backward(rabbet.tensor(g))
    expected = np.zeros(x.shape, dtype)
    for at in np.ndindex(*g.shape):
        to = list(at)
        for dim, places in back:
            to[dim] = places[at[dim]]
        expected[tuple(to)] += g[at]
    np.testing.assert_allclose(leaf.grad.numpy(), expected, 1e-5, 1e-5)


def test_borders_of_what_is_cropped():
    x = rabbet.tensor([1.0, 2.0, 3.0])
    assert F.pad(x[None], (-4, 6), mode="replicate").tolist() == [[3.0] * 5]
    assert F.pad(x[None], (-2, 1), mode="reflect").tolist() == [[3.0, 2.0]]
    with pytest.raises(rabbet.ArgumentError, match="leave nothing of shape"):
        rabbet._C.op("pad_circular")(x, [-3, 2])
    with pytest.raises(rabbet.ArgumentError, match=r"widths \(5, 0\) are too large"):
        rabbet._C.op("pad_border")(x, [5, 0], "reflect")


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex64", "bool"])
def test_matrices_on_a_diagonal(dtype):
    parts = [RNG.randint(0, 2, shape).astype(dtype) for shape in ((2, 3), (0, 2), (5, 1), (3, 0))]
    tensors = [rabbet.tensor(p) for p in parts]
    tensors[0] = tensors[0].T.contiguous().T
    want = scipy.linalg.block_diag(*parts)
    np.testing.assert_array_equal(rabbet.block_diag(*tensors).numpy(), want.astype(dtype))
    with pytest.raises(rabbet.ArgumentError, match="do not follow each other"):
        rabbet._C.op("join_diagonal")(tensors[:2], [0, 9], [0, 3], [4, 5])
