"""Resizing of integer images: uint8 rounds as PyTorch's kernels do, other integers are refused."""

import itertools

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet import nn

rng = np.random.default_rng(28)
INTEGERS = [
    getattr(rabbet, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
]
MODES = {  # mode: the numbers of dimensions that it takes
    "nearest": (3, 4, 5),
    "nearest-exact": (3, 4, 5),
    "area": (3, 4, 5),
    "linear": (3,),
    "bilinear": (4,),
    "bicubic": (4,),
    "trilinear": (5,),
}
TAKES_UINT8 = ("nearest", "nearest-exact", "bilinear", "bicubic")


def kernel(distance, cubic, a):
    d = np.abs(distance)
    if not cubic:
        return np.maximum(1 - d, 0)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d < 1, near, np.where(d < 2, far, 0))


def matrix(n, out, cubic, align_corners, antialias, scale=None):
    """The float64 weights of each output: (out, n), edges repeated without antialias."""
    step = 1 / scale if scale else n / out
    if align_corners:
        step = (n - 1) / (out - 1) if out > 1 else 0.0
    weights = np.zeros((out, n))
    for i in range(out):
        if antialias:
            stretch, center = max(step, 1.0), (i + 0.5) * step
            support = (2 if cubic else 1) * stretch
            first = max(int(center - support + 0.5), 0)
            last = min(int(center + support + 0.5), n)
            places = np.arange(first, last)
            row = kernel((places + 0.5 - center) / stretch, cubic, -0.5)
            weights[i, first:last] = row / row.sum()
            continue
        source = i * step if align_corners else (i + 0.5) * step - 0.5
        source = source if cubic else max(source, 0.0)
        base = int(np.floor(source))
        for k in range(-1, 3) if cubic else range(2):
            place = min(max(base + k, 0), n - 1)
            weights[i, place] += kernel(base + k - source, cubic, -0.75)
    return weights


def resized(image, size, **options):
    """The reference: columns, then rows, each in float64 and rounded to uint8."""
    for dim in (3, 2):
        n, out = image.shape[dim], size[dim - 2]
        if n == out:
            continue
        w = matrix(n, out, **options)
        lines = np.moveaxis(image.astype(np.float64), dim, -1) @ w.T
        image = np.moveaxis(np.clip(np.floor(lines + 0.5), 0, 255), -1, dim)
    return image


SIZES = [(7, 9), (3, 4), (23, 5), (5, 31), (1, 1), (11, 13)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_uint8_images_are_those_of_float64_rounded(mode, antialias, align_corners, size):
    image = rng.integers(0, 256, (2, 3, 11, 13), dtype=np.uint8)
    image[0] = np.where(image[0] > 127, 255, 0)  # the cubic kernel overshoots: results are clamped
    out = F.interpolate(rabbet.tensor(image), size, None, mode, align_corners, antialias=antialias)
    assert out.dtype == rabbet.uint8
    options = {"cubic": mode == "bicubic", "align_corners": align_corners, "antialias": antialias}
    difference = np.abs(out.numpy() - resized(image, size, **options))
    # The kernels' weights have 14 to 22 bits after the point: a sum near a half rounds either way.
    assert difference.max() <= 1 and (difference > 0).mean() < 0.1


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_uint8_images_equal_pytorch(mode, antialias, align_corners, channels_last):
    torch = pytest.importorskip("torch")
    for channels, size, scale in itertools.product(
        (1, 3, 6), [(4, 5), (23, 31), (11, 40)], (None, (1.05, 0.7))
    ):
        image = rng.integers(0, 256, (2, channels, 11, 13), dtype=np.uint8)
        args = (None if scale else size, scale, mode, align_corners)
        x, y = rabbet.tensor(image), torch.tensor(image)
        if channels_last:
            x = x.contiguous(memory_format=rabbet.channels_last)
            y = y.contiguous(memory_format=torch.channels_last)
        out = F.interpolate(x, *args, antialias=antialias)
        theirs = torch.nn.functional.interpolate(y, *args, antialias=antialias)
        np.testing.assert_array_equal(out.numpy(), theirs.numpy())


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_nearest_of_uint8_takes_the_elements_of_the_float_image(exact, rank):
    mode = "nearest-exact" if exact else "nearest"
    image = rng.integers(0, 256, (2, 3, *range(5, 5 + rank)), dtype=np.uint8)
    x = rabbet.tensor(image)
    for size, scale in ((3, None), (11, None), (None, 1.7), (None, 0.6)):
        out = F.interpolate(x, size, scale, mode)
        wide = F.interpolate(x.double(), size, scale, mode)
        assert out.dtype == rabbet.uint8
        np.testing.assert_array_equal(out.numpy(), wide.numpy())


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("scale", [1.03, 1.15, 2.0, 2.08, 2.2, 0.98])
def test_a_scale_that_keeps_or_doubles_the_size_equals_pytorch(mode, scale):
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((1, 2, 6, 13))
    out = F.interpolate(rabbet.tensor(x), scale_factor=scale, mode=mode)
    theirs = torch.nn.functional.interpolate(torch.tensor(x), scale_factor=scale, mode=mode)
    np.testing.assert_array_equal(out.numpy(), theirs.numpy())


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_integers_that_pytorch_refuses_are_refused(mode, dtype):
    for rank in MODES[mode]:
        x = rabbet.ones([1, 2, *[4] * (rank - 2)], dtype=dtype)
        if dtype == rabbet.uint8 and mode in TAKES_UINT8:
            out = F.interpolate(x, 3, mode=mode)
            assert out.dtype == dtype and (out == 1).all()
            continue
        with pytest.raises(NotImplementedError, match=str(dtype).removeprefix("rabbet.")):
            F.interpolate(x, 3, mode=mode)


def test_a_constant_image_stays_what_it_is():
    image = rabbet.full((1, 1, 4, 4), 200, dtype=rabbet.uint8)
    for mode, size in itertools.product(["bilinear", "bicubic"], [(2, 2), (3, 9), (7, 1)]):
        for antialias in (False, True):
            out = F.interpolate(image, size, mode=mode, antialias=antialias)
            assert out.shape[2:] == size and (out == 200).all()


def test_halves_are_rounded_up():
    image = rabbet.tensor([[[[0, 255], [255, 0]]]], dtype=rabbet.uint8)
    out = nn.Upsample((3, 3), mode="bilinear", align_corners=True)(image)
    assert out.tolist() == [[[[0, 128, 255], [128, 128, 128], [255, 128, 0]]]]
    assert out.dtype == rabbet.uint8


def test_an_empty_batch_of_images():
    image = rabbet.zeros((0, 3, 4, 4), dtype=rabbet.uint8)
    assert F.interpolate(image, (2, 2), mode="bilinear").shape == (0, 3, 2, 2)
