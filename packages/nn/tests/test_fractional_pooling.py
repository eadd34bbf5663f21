"""Max pooling over windows at pseudo-random distances."""

import itertools

import numpy as np
import pytest
import rabbet
from rabbet import nn
from rabbet.nn import functional as F

CASES = [(2, (9, 11), (2, 3), (4, 5)), (2, (6, 6), 2, (1, 5)), (3, (7, 8, 9), 2, (3, 4, 5))]


def starts(sample, size, window, count):
    step = (size - window) / (count - 1) if count > 1 else 0.0
    first = [int((i + sample) * step) - int(sample * step) for i in range(count - 1)]
    return [*first, size - window]


def reference(x, samples, window, counts):
    """Maxima and their places of one plane, window by window."""
    lines = [starts(*a) for a in zip(samples, x.shape, window, counts, strict=True)]
    best, found = np.zeros(counts), np.zeros(counts, dtype=np.int64)
    for at in itertools.product(*map(range, counts)):
        low = [line[i] for line, i in zip(lines, at, strict=True)]
        part = x[tuple(slice(a, a + k) for a, k in zip(low, window, strict=True))]
        inside = np.unravel_index(part.argmax(), part.shape)
        best[at] = part.max()
        found[at] = np.ravel_multi_index([a + i for a, i in zip(low, inside, strict=True)], x.shape)
    return best, found


@pytest.mark.parametrize("rank,sizes,window,counts", CASES)
def test_maxima_are_those_of_the_windows(rank, sizes, window, counts):
    rng = np.random.default_rng(1)
    x, samples = rng.standard_normal((2, 3, *sizes)), rng.random((2, 3, rank))
    given = rabbet.tensor(x, requires_grad=True)
    pool = getattr(F, f"fractional_max_pool{rank}d_with_indices")
    best, found = pool(given, window, counts, _random_samples=rabbet.tensor(samples))
    windows = (window,) * rank if isinstance(window, int) else window
    grad = np.zeros_like(x).reshape(2, 3, -1)
    for n, c in itertools.product(range(2), range(3)):
        order = samples[n, c][::-1] if rank == 2 else samples[n, c]
        wanted, places = reference(x[n, c], order, windows, counts)
        assert np.array_equal(best[n, c].detach().numpy(), wanted)
        assert np.array_equal(found[n, c].numpy(), places)
        np.add.at(grad[n, c], places.ravel(), 1)
    best.sum().backward()
    assert np.array_equal(given.grad.numpy().reshape(grad.shape), grad)


@pytest.mark.parametrize("rank,sizes,window,counts", CASES)
def test_it_is_torchs(rank, sizes, window, counts):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    x, samples = rng.standard_normal((2, 3, *sizes)), rng.random((2, 3, rank))
    own = getattr(nn, f"FractionalMaxPool{rank}d")(
        window, counts, return_indices=True, _random_samples=rabbet.tensor(samples)
    )
    other = getattr(torch.nn, f"FractionalMaxPool{rank}d")(
        window, counts, return_indices=True, _random_samples=torch.tensor(samples)
    )
    for a, b in zip(own(rabbet.tensor(x)), other(torch.tensor(x)), strict=True):
        assert a.tolist() == b.tolist()


def test_modules_take_a_ratio_and_single_items():
    assert nn.FractionalMaxPool2d(3, output_ratio=(0.5, 0.4))(rabbet.randn(3, 20, 20)).shape == (
        3,
        10,
        8,
    )
    assert nn.FractionalMaxPool3d(2, output_ratio=0.5)(rabbet.randn(1, 2, 8, 8, 8)).shape == (
        1,
        2,
        4,
        4,
        4,
    )


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="FractionalMaxPool2d requires specifying either"):
        nn.FractionalMaxPool2d(2)
    with pytest.raises(ValueError, match="only one of"):
        nn.FractionalMaxPool2d(2, 3, 0.5)
    with pytest.raises(ValueError, match="must be between 0 and 1"):
        nn.FractionalMaxPool3d(2, output_ratio=1.5)
    with pytest.raises(ValueError, match="fractional_max_pool2d requires"):
        F.fractional_max_pool2d(rabbet.ones(1, 1, 5, 5), 2)
    with pytest.raises(
        RuntimeError, match="fractional_max_pool2d: expected an output_size of 1 to 4"
    ):
        F.fractional_max_pool2d(rabbet.ones(1, 1, 5, 5), 2, 5)
    with pytest.raises(RuntimeError, match=r"expected _random_samples of shape \(1, 1, 2\)"):
        F.fractional_max_pool2d(rabbet.ones(1, 1, 5, 5), 2, 3, _random_samples=rabbet.ones(1, 2))
