"""Maximum pooling of short windows along rows, against a scan of each window."""

import itertools

import numpy as np
import pytest
import rabbet

F = rabbet.nn.functional
RNG = np.random.RandomState(3)


def scanned(x, taps, stride, padding, dilation):
    """Values and places of 1-d maximum pooling, window by window."""
    n = x.shape[-1]
    count = (n + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    values = np.empty((*x.shape[:-1], count), x.dtype)
    places = np.empty(values.shape, np.int64)
    for row in np.ndindex(*x.shape[:-1]):
        for c in range(count):
            window = [c * stride - padding + k * dilation for k in range(taps)]
            window = [i for i in window if 0 <= i < n]
            best = window[0]
            for i in window:
                if x[row][i] > x[row][best] or x[row][i] != x[row][i]:
                    best = i
            values[row][c], places[row][c] = x[row][best], best
    return values, places


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
@pytest.mark.parametrize("n", [9, 64, 275])
def test_maxima_of_short_windows(dtype, n):
    # Many equal ones, NaN and -inf among them.
    x = RNG.randint(0, 5, (2, 2, n)).astype(dtype)
    if dtype.startswith("float"):
        x[RNG.uniform(size=x.shape) < 0.1] = np.nan
        x[RNG.uniform(size=x.shape) < 0.3] = -np.inf
    for taps, stride, padding, dilation in itertools.product(
        (2, 3, 4, 5), (1, 2, 3, 5), (0, 1), (1, 2)
    ):
        want, places = scanned(x, taps, stride, padding, dilation)
        got = F.max_pool1d(rabbet.tensor(x), taps, stride, padding, dilation, return_indices=True)
        np.testing.assert_array_equal(got[0].numpy(), want)
        np.testing.assert_array_equal(got[1].numpy(), places)


def test_short_windows_in_rows_of_planes():
    x = RNG.randn(2, 3, 4, 37).astype("float32")
    values, places = scanned(x, 3, 2, 1, 1)
    got = F.max_pool2d(rabbet.tensor(x), (1, 3), (1, 2), (0, 1), return_indices=True)
    np.testing.assert_array_equal(got[0].numpy(), values)
    rows = 37 * np.arange(4)[:, None]
    np.testing.assert_array_equal(got[1].numpy(), places + rows)
