"""complex32: two float16. Stored, converted, promoted; computed with in complex64 and rounded once."""

import numpy as np
import pytest
import rabbet

C32 = rabbet.complex32
DATA = [1 + 2j, 3 - 1j]


def numbers():
    return rabbet.tensor(DATA, dtype=C32)


def test_the_dtype_says_what_it_is():
    assert (
        rabbet.chalf is C32 and C32.itemsize == 4 and C32.is_complex and not C32.is_floating_point
    )
    assert C32.to_real() is rabbet.float16 and rabbet.float16.to_complex() is C32
    assert rabbet.bfloat16.to_complex() is rabbet.complex64
    assert rabbet.finfo(C32).max == 65504.0
    assert repr(numbers()) == "tensor([1.+2.j, 3.-1.j], dtype=rabbet.complex32)"


def test_parts_are_those_of_numpys_float16():
    rng = np.random.default_rng(0)
    parts = np.concatenate(
        [
            rng.normal(size=4000) * 10.0 ** rng.integers(-9, 6, 4000),
            [0.0, -0.0, np.inf, 65504, 65519.9, 65520, 2**-24, 2**-25, 3 * 2**-26],
        ]
    )
    parts = np.concatenate([parts, -parts, [np.nan, 1.0]]).astype(np.float32)
    with np.errstate(over="ignore"):
        want = parts.astype(np.float16).reshape(-1, 2)
    wide = rabbet.view_as_complex(rabbet.tensor(parts.reshape(-1, 2)))
    stored = rabbet.view_as_real(wide.to(C32))
    assert stored.dtype is rabbet.float16
    np.testing.assert_array_equal(stored.numpy(), want)
    back = rabbet.view_as_real(wide.to(C32).to(rabbet.complex64)).numpy()
    np.testing.assert_array_equal(back, want.astype(np.float32))


def test_conversions():
    h = numbers()
    assert h.tolist() == DATA and h[0].item() == DATA[0]
    assert h.to(rabbet.complex128).dtype is rabbet.complex128 and h.to(rabbet.float32).tolist() == [
        1.0,
        3.0,
    ]
    assert rabbet.tensor([1.0, 2.0]).chalf().dtype is C32
    assert rabbet.full((2,), 1j, dtype=C32).tolist() == [1j, 1j] and rabbet.ones(
        2, dtype=C32
    ).tolist() == [1, 1]
    assert rabbet.randn(3, dtype=C32).dtype is C32 and rabbet.rand_like(h).dtype is C32


def test_parts_are_views():
    h = numbers()
    h.real.fill_(7)
    h.imag[0] = 5
    assert h.tolist() == [7 + 5j, 7 - 1j]
    rabbet.view_as_real(h)[1, 1] = 0
    assert h[1].item() == 7
    assert rabbet.view_as_complex(rabbet.ones(2, 2).half()).dtype is C32
    assert (
        h.view(rabbet.float16).shape == (4,)
        and h.view(rabbet.float16).view(C32).tolist() == h.tolist()
    )


@pytest.mark.parametrize(
    "other, result",
    [
        ("bool", "complex32"), ("int64", "complex32"), ("float16", "complex32"), ("bfloat16", "complex64"),
        ("float32", "complex64"), ("float64", "complex128"), ("complex64", "complex64"), ("complex128", "complex128"),
    ],
)  # fmt: skip
def test_promotion(other, result):
    dtype, want = getattr(rabbet, other), getattr(rabbet, result)
    assert rabbet.promote_types(C32, dtype) is rabbet.promote_types(dtype, C32) is want
    assert (numbers() + rabbet.ones(2, dtype=dtype)).dtype is want


def test_float16_and_imaginary_numbers():
    half = rabbet.ones(2).half()
    assert (half * 1j).dtype is C32 and (half + 1j).tolist() == [1 + 1j, 1 + 1j]
    assert rabbet.result_type(half, 1j) is C32
    assert rabbet.complex(half, half).dtype is C32
    assert (rabbet.ones(2, dtype=rabbet.bfloat16) * 1j).dtype is rabbet.complex64


def test_arithmetic_is_that_of_complex64_rounded_once():
    h, wide = numbers(), numbers().to(rabbet.complex64)
    for run in (
        lambda x: x + x,
        lambda x: x * x,
        lambda x: x - 1,
        lambda x: x * 2.5,
        lambda x: x.conj(),
        lambda x: x.sum(),
    ):
        assert run(h).dtype is C32 and run(h).tolist() == run(wide).to(C32).tolist()
    assert h.abs().dtype is rabbet.float16 and h.angle().dtype is rabbet.float16
    assert h.abs().tolist() == wide.abs().half().tolist()
    assert (h == h).all() and rabbet.isfinite(h).all()


def test_what_has_no_order_or_no_form_is_refused():
    h = numbers()
    for call in (h.sort, h.relu, lambda: h.clamp(0), lambda: h < h):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(TypeError, match="complex32"):
        h.numpy()
    with pytest.raises(TypeError):
        rabbet.promote_types(C32, rabbet.float8_e5m2)
