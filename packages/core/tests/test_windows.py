"""Windows of signals against SciPy's."""

import numpy as np
import pytest
import rabbet
from rabbet.signal import windows

scipy_windows = pytest.importorskip("scipy.signal.windows")
F64 = {"dtype": rabbet.float64}

BY_NAME = {
    "bartlett": ({}, "bartlett", ()), "blackman": ({}, "blackman", ()), "cosine": ({}, "cosine", ()),
    "exponential": ({"tau": 3.0}, "exponential", (None, 3.0)), "gaussian": ({"std": 2.5}, "gaussian", (2.5,)),
    "general_cosine": ({"a": [0.4, 0.5, 0.1]}, "general_cosine", ([0.4, 0.5, 0.1],)),
    "general_hamming": ({"alpha": 0.6}, "general_hamming", (0.6,)), "hamming": ({}, "hamming", ()),
    "hann": ({}, "hann", ()), "kaiser": ({"beta": 8.0}, "kaiser", (8.0,)), "nuttall": ({}, "nuttall", ()),
}  # fmt: skip


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("length", [0, 1, 2, 7, 16])
@pytest.mark.parametrize("name", BY_NAME)
def test_windows_are_scipys(name, length, sym):
    options, theirs, arguments = BY_NAME[name]
    found = getattr(windows, name)(length, sym=sym, **options, **F64)
    expected = getattr(scipy_windows, theirs)(length, *arguments, sym=sym)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("length", [0, 1, 2, 7, 16])
@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hann", "kaiser"])
def test_windows_of_the_namespace_are_scipys(name, length, periodic):
    found = getattr(rabbet, f"{name}_window")(length, periodic, **F64)
    arguments = (12.0,) if name == "kaiser" else ()
    expected = getattr(scipy_windows, name)(length, *arguments, sym=not periodic)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-15)


def test_windows_take_a_dtype_a_device_and_record():
    assert rabbet.hann_window(4).dtype is rabbet.float32 and windows.hann(4).dtype is rabbet.float32
    assert rabbet.hamming_window(4, True, 0.6, 0.4, dtype=rabbet.bfloat16).dtype is rabbet.bfloat16
    assert (
        windows.kaiser(4, device="meta").is_meta and rabbet.kaiser_window(4, device="meta").is_meta
    )
    assert windows.cosine(4, requires_grad=True).requires_grad


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: rabbet.hann_window(-1), RuntimeError, "a length of 0 or more, got -1"),
        (lambda: rabbet.hann_window(4, dtype=rabbet.int64), RuntimeError, "expects floating point dtypes"),
        (lambda: rabbet.hann_window(4, layout=rabbet.sparse_coo), RuntimeError, "strided tensors only"),
        (lambda: windows.hann(-1), ValueError, "requires non-negative window length, got M=-1"),
        (lambda: windows.hann(4, dtype=rabbet.float16), ValueError, "float32 or float64 dtypes"),
        (lambda: windows.kaiser(4, beta=-1), ValueError, "beta must be non-negative"),
        (lambda: windows.gaussian(4, std=0), ValueError, "must be positive"),
        (lambda: windows.exponential(4, tau=0), ValueError, "must be positive"),
        (lambda: windows.exponential(4, center=1), ValueError, "must be None for symmetric"),
        (lambda: windows.general_cosine(4, a=[]), ValueError, "cannot be empty"),
        (lambda: windows.general_cosine(4, a=1), TypeError, "must be a list/tuple"),
    ],
)  # fmt: skip
def test_wrong_arguments_of_windows(call, error, text):
    with pytest.raises(error, match=text):
        call()
