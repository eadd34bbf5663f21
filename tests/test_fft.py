"""Discrete Fourier transforms against NumPy: lengths, dimensions, layouts, derivatives, batches, refusals."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from rabbet import fft
from rabbet.autograd import gradcheck, gradgradcheck

ONE_DIM = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY_DIMS = ["fftn", "ifftn", "rfftn", "irfftn"]
OF_REAL = {"rfft", "ihfft", "rfftn", "ihfftn", "rfft2", "ihfft2"}
# Powers of each radix, products of them, primes with and without a butterfly of their own, and larger ones.
LENGTHS = [
    1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 23, 27, 31, 32, 37, 45, 60, 64, 97, 101, 121, 128, 143, 210, 243, 256, 343,
    400, 512, 625, 961, 1000, 1009, 1024, 1331, 2310, 4096, 5000, 6561, 10007, 16384, 19683, 30030, 65536,
]  # fmt: skip


def numbers(*shape, seed=0, real=False):
    rng = np.random.RandomState(seed)
    return rng.randn(*shape) if real else rng.randn(*shape) + 1j * rng.randn(*shape)


def near(found, want, dtype):
    eps = {"float32": 2**-24, "complex64": 2**-24}.get(dtype, 2**-53)
    scale = max(np.abs(want).max(), 1e-300) if want.size else 1
    bound = 8 * eps * (2 + math.log2(max(want.size, 2)))
    assert found.shape == want.shape
    assert (np.abs(found - want) <= bound * scale).all(), np.abs(found - want).max() / scale


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("n", LENGTHS)
def test_every_length_in_both_directions(n, dtype):
    x = numbers(3 if n < 3000 else 1, n).astype(dtype)
    exact = x.astype(np.complex128)
    near(fft.fft(rabbet.tensor(x)).numpy(), np.fft.fft(exact), dtype)
    near(fft.ifft(rabbet.tensor(x)).numpy(), np.fft.ifft(exact), dtype)
    real = x.real.copy()
    near(fft.rfft(rabbet.tensor(real)).numpy(), np.fft.rfft(real.astype(float)), dtype)
    half = x[:, : n // 2 + 1]
    found = fft.irfft(rabbet.tensor(half), n)
    near(found.numpy(), np.fft.irfft(half.astype(np.complex128), n), dtype)


@pytest.mark.parametrize("count", [1, 7, 16, 37])
@pytest.mark.parametrize("n", [6, 25, 48, 100])
def test_numbers_of_lines_that_fill_vectors_or_do_not(n, count):
    x = numbers(count, n).astype("complex64")
    near(fft.fft(rabbet.tensor(x)).numpy(), np.fft.fft(x.astype(complex)), "complex64")
    near(
        fft.fft(rabbet.tensor(x.T.copy()), dim=0).numpy(),
        np.fft.fft(x.astype(complex)).T,
        "complex64",
    )
    real = x.real.copy()
    near(fft.rfft(rabbet.tensor(real)).numpy(), np.fft.rfft(real.astype(float)), "float32")


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("name", ONE_DIM)
@pytest.mark.parametrize(("n", "dim"), [(None, -1), (4, 0), (9, 1), (6, -2), (7, 2)])
def test_one_dimension(name, n, dim, norm):
    x = numbers(5, 6, 7, real=name in OF_REAL)
    found = getattr(fft, name)(rabbet.tensor(x), n, dim, norm)
    near(found.numpy(), getattr(np.fft, name)(x, n, dim, norm), "complex128")
    out = rabbet.empty(0, dtype=found.dtype)
    assert getattr(fft, name)(rabbet.tensor(x), n, dim, norm, out=out) is out
    assert (out == found).all()


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", MANY_DIMS)
@pytest.mark.parametrize(
    ("s", "dim"), [(None, None), ((4, 9), None), (None, (2, 0)), ((5, 3), (0, -2)), ((8,), (1,))]
)
def test_many_dimensions(name, s, dim, norm):
    x = numbers(5, 6, 7, real=name in OF_REAL)
    axes = dim if s is None or dim is not None else tuple(range(-len(s), 0))
    found = getattr(fft, name)(rabbet.tensor(x), s, dim, norm)
    near(found.numpy(), getattr(np.fft, name)(x, s, axes, norm), "complex128")


def test_hermitian_transforms_of_many_dimensions_are_those_of_the_conjugate():
    x = rabbet.tensor(numbers(4, 5, 6))
    near(fft.hfftn(x).numpy(), fft.irfftn(x.conj(), norm="forward").numpy(), "complex128")
    near(fft.hfft2(x, (3, 7)).numpy(), fft.hfftn(x, (3, 7), (-2, -1)).numpy(), "complex128")
    real = rabbet.tensor(numbers(4, 5, 6, real=True))
    near(fft.ihfftn(real).numpy(), fft.rfftn(real, norm="forward").conj().numpy(), "complex128")
    near(fft.hfft2(fft.ihfft2(real), real.shape[-2:]).numpy(), real.numpy(), "complex128")
    for name in ("fft2", "ifft2", "rfft2", "irfft2"):
        y = real if name in OF_REAL else x
        near(getattr(fft, name)(y).numpy(), getattr(np.fft, name)(y.numpy()), "complex128")


@pytest.mark.parametrize("shape", [(40, 3), (3, 40), (2, 33, 5), (70, 2, 2), (20000, 2), (1009, 3)])
def test_dimensions_with_others_behind_them(shape):
    x = numbers(*shape).astype("complex64")
    for dim in range(len(shape)):
        near(
            fft.fft(rabbet.tensor(x), dim=dim).numpy(),
            np.fft.fft(x.astype(complex), axis=dim),
            "complex64",
        )


def test_strided_broadcast_conjugate_and_empty_inputs():
    a = numbers(6, 8, 5)
    x = rabbet.tensor(a)
    near(fft.fftn(x.transpose(0, 2)).numpy(), np.fft.fftn(a.T), "complex128")
    near(fft.fft(x[::2, 1:, ::2], dim=1).numpy(), np.fft.fft(a[::2, 1:, ::2], axis=1), "complex128")
    near(fft.ifft(x.conj()).numpy(), np.fft.ifft(a.conj()), "complex128")
    near(fft.rfft(x.imag).numpy(), np.fft.rfft(a.imag), "complex128")
    wide = rabbet.tensor(a[0, 0]).expand(4, 5)
    near(
        fft.fft(wide, dim=0).numpy(),
        np.fft.fft(np.broadcast_to(a[0, 0], (4, 5)), axis=0),
        "complex128",
    )
    assert fft.fft(rabbet.zeros(0, 3)).shape == (0, 3)
    assert fft.rfft(rabbet.zeros(2, 0, 3)).shape == (2, 0, 2)
    assert fft.fftn(x, dim=()).tolist() == x.tolist()


def test_dtypes_of_results():
    for dtype, wanted in (
        ("int64", "complex64"), ("bool", "complex64"), ("float32", "complex64"), ("float64", "complex128"),
        ("complex128", "complex128"),
    ):  # fmt: skip
        x = rabbet.ones(4, dtype=getattr(rabbet, dtype))
        assert fft.fft(x).dtype is getattr(rabbet, wanted)
        assert fft.irfft(x).dtype is getattr(rabbet, wanted).to_real()
    for dtype in (rabbet.float16, rabbet.bfloat16):
        with pytest.raises(RuntimeError, match="fft: Unsupported dtype"):
            fft.fft(rabbet.ones(4, dtype=dtype))
    with pytest.raises(RuntimeError, match=r"rfft.*(real|complex64)"):
        fft.rfft(rabbet.ones(4, dtype=rabbet.complex64))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: fft.fft(x, 0), RuntimeError, r"fft: Invalid number of data points \(0\)"),
        (lambda x: fft.fft(x, dim=2), IndexError, "dim"),
        (lambda x: fft.fft(x[0, 0]), IndexError, "has no dimensions"),
        (
            lambda x: fft.fft(x, norm="backwards"),
            RuntimeError,
            'Invalid normalization mode: "backwards"',
        ),
        (lambda x: fft.irfft(x[:, :1]), RuntimeError, r"Invalid number of data points \(0\)"),
        (lambda x: fft.fftn(x, (2, 2, 2)), RuntimeError, "only has 2 dimensions"),
        (lambda x: fft.fftn(x, (2,), (0, 1)), RuntimeError, "must have the same length"),
        (lambda x: fft.fftn(x, dim=(0, -2)), RuntimeError, "must be unique"),
        (lambda x: fft.fftn(x, dim=(5,)), IndexError, "Dimension out of range"),
        (lambda x: fft.fftn(x, (0,)), RuntimeError, "Invalid number of data points"),
        (lambda x: fft.rfftn(x, dim=()), RuntimeError, "must transform at least one axis"),
        (lambda x: fft.irfftn(x, dim=()), RuntimeError, "must transform at least one axis"),
        (lambda x: fft.fft([1.0]), TypeError, "input"),
    ],
)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(rabbet.ones(3, 4))


@pytest.mark.parametrize("name", [*ONE_DIM, *MANY_DIMS, "hfftn", "ihfftn"])
def test_derivatives_of_first_and_second_order(name):
    x = rabbet.tensor(numbers(3, 5, real=name in OF_REAL), requires_grad=True)
    for arguments in ({}, {"norm": "ortho", "dim": (0,) if name.endswith("n") else 0}):

        def call(x, arguments=arguments):
            return getattr(fft, name)(x, **arguments)

        assert gradcheck(call, (x,), check_forward_ad=True)
        assert gradgradcheck(call, (x,))


@pytest.mark.parametrize("name", [*ONE_DIM, *MANY_DIMS])
@pytest.mark.parametrize("in_dim", [0, 1, -1])
def test_vmap_is_the_loop(name, in_dim):
    x = rabbet.tensor(numbers(4, 5, 6, real=name in OF_REAL))
    found = rabbet.vmap(getattr(fft, name), in_dim)(x)
    want = rabbet.stack([getattr(fft, name)(slice_) for slice_ in x.unbind(in_dim)])
    near(found.numpy(), want.numpy(), "complex128")


def test_shapes_on_the_meta_device():
    x = rabbet.empty(3, 4, 5, device="meta")
    assert fft.rfft2(x).shape == (3, 4, 3)
    assert fft.irfft(x, 7, 0).shape == (7, 4, 5)
    assert rabbet.stft(rabbet.empty(2, 30, device="meta"), 8, return_complex=True).shape == (
        2,
        5,
        16,
    )


def test_parseval_shift_and_linearity_hold_for_any_length():
    @settings(max_examples=60, deadline=None)
    @given(n=st.integers(1, 3000), shift=st.integers(0, 50), seed=st.integers(0, 99))
    def holds(n, shift, seed):
        x, y = (rabbet.tensor(numbers(n, seed=seed + i)) for i in range(2))
        X = fft.fft(x)
        assert abs((X.abs() ** 2).sum() / n - (x.abs() ** 2).sum()) < 1e-9 * n
        moved = fft.fft(x.roll(shift))
        turn = rabbet.exp(
            rabbet.arange(n, dtype=rabbet.float64) * (-2j * math.pi * (shift % n) / n)
        )
        assert (moved - X * turn).abs().max() < 1e-10 * n
        assert (fft.fft(x + 2 * y) - (X + 2 * fft.fft(y))).abs().max() < 1e-11 * n
        assert (fft.ifft(X) - x).abs().max() < 1e-12 * (1 + math.log2(n))

    holds()


def test_threads_share_plans_and_give_the_same_bits():
    code = (
        "import threading, rabbet\n"
        "x = rabbet.randn(64, 1009) + 1j * rabbet.randn(64, 1009)\n"
        "long = rabbet.randn(1 << 17)\n"
        "found = [None] * 8\n"
        "def run(i):\n"
        "    found[i] = (rabbet.fft.fft(x), rabbet.fft.rfft(long), rabbet.fft.fft(long[: 1 << 16]))\n"
        "threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]\n"
        "[t.start() for t in threads], [t.join() for t in threads]\n"
        "assert all(rabbet.equal(a, b) for f in found for a, b in zip(f, found[0]))\n"
        "rabbet.set_num_threads(1)\n"
        "run(0)\n"
        "assert all(rabbet.equal(a, b) for a, b in zip(found[0], found[1]))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("level", ["2", "3"])
def test_lower_instruction_sets_agree(level):
    code = (
        "import numpy, rabbet\n"
        "r = numpy.random.RandomState(0)\n"
        "for n in (8, 30, 64, 400, 1000, 1009, 4096, 32768):\n"
        "    x = (r.randn(5, n) + 1j * r.randn(5, n)).astype('complex64')\n"
        "    for f in ('fft', 'ifft', 'irfft'):\n"
        "        y, w = getattr(rabbet.fft, f)(rabbet.tensor(x)).numpy(), getattr(numpy.fft, f)(x.astype(complex))\n"
        "        assert abs(y - w).max() < 1e-5 * abs(w).max(), (n, f)\n"
    )
    environment = {**os.environ, "RABBET_CPU_LEVEL": level}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


# ---- spectrograms


def frames(x, n_fft, hop, window):
    count = 1 + (len(x) - n_fft) // hop
    return np.stack([x[i * hop : i * hop + n_fft] * window for i in range(count)], 1)


def test_frames_of_a_signal_are_transformed():
    x, window = numbers(50, real=True), np.hanning(8)
    found = rabbet.stft(
        rabbet.tensor(x), 8, 3, window=rabbet.tensor(window), center=False, return_complex=True
    )
    near(found.numpy(), np.fft.rfft(frames(x, 8, 3, window), axis=0), "complex128")
    padded = np.pad(x, 4, "reflect")
    found = rabbet.stft(rabbet.tensor(x), 8, window=rabbet.tensor(window), return_complex=True)
    near(found.numpy(), np.fft.rfft(frames(padded, 8, 2, window), axis=0), "complex128")
    short = np.pad(np.hanning(5), (1, 2))
    found = rabbet.stft(
        rabbet.tensor(x), 8, 4, 5, rabbet.tensor(np.hanning(5)), False, normalized=True, onesided=False,
        return_complex=True,
    )  # fmt: skip
    near(found.numpy(), np.fft.fft(frames(x, 8, 4, short), axis=0, norm="ortho"), "complex128")


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize("normalized", [True, False])
def test_signals_come_back_from_their_frames(center, onesided, normalized):
    x = rabbet.tensor(numbers(2, 64, real=True))
    window = rabbet.hann_window(16, dtype=rabbet.float64) + 0.1
    options = {"center": center, "onesided": onesided, "normalized": normalized, "window": window}
    spectrum = rabbet.stft(x, 16, 4, return_complex=True, **options)
    near(rabbet.istft(spectrum, 16, 4, length=64, **options).numpy(), x.numpy(), "complex128")
    near(spectrum.istft(16, 4, **options).numpy(), x.numpy(), "complex128")


def test_spectrograms_of_complex_signals_and_as_pairs():
    z = rabbet.tensor(numbers(40))
    spectrum = z.stft(8)
    assert spectrum.shape == (8, 21)
    near(rabbet.istft(spectrum, 8, return_complex=True).numpy(), z.numpy(), "complex128")
    with pytest.warns(UserWarning, match="return_complex=False is deprecated"):
        pairs = rabbet.stft(z.real, 8, return_complex=False)
    assert pairs.shape == (5, 21, 2)
    with pytest.warns(UserWarning, match="padded with zeros"):
        assert rabbet.istft(spectrum, 8, length=60, return_complex=True).shape == (60,)


def test_derivatives_of_spectrograms():
    x = rabbet.tensor(numbers(20, real=True), requires_grad=True)
    window = (rabbet.hann_window(6, dtype=rabbet.float64) + 0.1).requires_grad_()
    assert gradcheck(lambda x, w: rabbet.stft(x, 6, 2, window=w, return_complex=True), (x, window))
    spectrum = rabbet.stft(x, 6, 2, window=window, return_complex=True).detach().requires_grad_()
    assert gradcheck(lambda s, w: rabbet.istft(s, 6, 2, window=w), (spectrum, window))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: rabbet.stft(x, 4), "return_complex parameter be given"),
        (lambda x: rabbet.stft(x, 40, center=False, return_complex=True), "0 < n_fft"),
        (lambda x: rabbet.stft(x, 4, 0, return_complex=True), "hop_length > 0"),
        (lambda x: rabbet.stft(x, 4, win_length=5, return_complex=True), "win_length <= n_fft"),
        (lambda x: rabbet.stft(x, 4, window=rabbet.ones(3), return_complex=True), "1D window"),
        (lambda x: rabbet.stft(x.long(), 4, return_complex=True), "floating point or complex"),
        (lambda x: rabbet.stft(x.expand(2, 2, 9), 4, return_complex=True), "1D or 2D tensor"),
        (lambda x: rabbet.stft(x + 0j, 4, onesided=True), "Cannot have onesided output"),
        (lambda x: rabbet.stft(x, 4, align_to_window=True, return_complex=True), "align_to_window"),
        (lambda x: rabbet.istft(x, 4), "expected complex dtypes"),
        (lambda x: rabbet.istft(rabbet.ones(4, 5) + 0j, 8), "frequency dimension"),
        (lambda x: rabbet.istft(rabbet.ones(5, 0) + 0j, 8), "cannot be empty"),
        (lambda x: rabbet.istft(rabbet.ones(5) + 0j, 8), "2 or 3 dimensions"),
        (lambda x: rabbet.istft(rabbet.ones(5, 4) + 0j, 8, 9), "hop_length <= win_length"),
        (lambda x: rabbet.istft(rabbet.ones(5, 4) + 0j, 8, return_complex=True), "onesided"),
        (
            lambda x: rabbet.istft(rabbet.ones(5, 4) + 0j, 8, window=rabbet.zeros(8)),
            "window overlap add min",
        ),
    ],
)
def test_spectrograms_that_are_refused(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(rabbet.ones(9))
