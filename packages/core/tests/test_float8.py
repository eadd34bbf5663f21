"""Floats of 8 bits: stored, converted exactly, computed with in float32; refused where they have no form."""

import pickle
import struct

import numpy as np
import pytest
import rabbet

F8 = rabbet.float8_e4m3fn
CODES = np.arange(256, dtype=np.uint8)


class Format:
    """Values by the definition of a format, and the codes nearest to float32 values."""

    def __init__(self, dtype, fraction, bias, infinity=None, one_nan=False):
        self.dtype, self.fraction, self.bias, self.infinity = dtype, fraction, bias, infinity
        self.one_nan = one_nan  # the code of -0, and of all that is too large
        self.values = np.array([self.value_of(code) for code in range(256)])
        finite = 0x80 if one_nan else self.infinity or 0x7F
        self.sizes = self.values[:finite]
        self.middles = (self.sizes[1:] + self.sizes[:-1]) / 2  # exact in float64

    def value_of(self, code: int) -> float:
        size, sign = code & 0x7F, -1.0 if code & 0x80 else 1.0
        if size == self.infinity:
            return sign * float("inf")
        if code == 0x80 if self.one_nan else size > (self.infinity or 0x7E):
            return float("nan")
        exponent, fraction = divmod(size, 2**self.fraction)
        whole = fraction / 2**self.fraction + (exponent > 0)
        return sign * whole * 2.0 ** (max(exponent, 1) - self.bias)

    def encoded(self, values: np.ndarray) -> np.ndarray:
        """Ties to the even code; what is too large becomes infinity, the only NaN, or the largest value."""
        a = np.abs(np.where(np.isnan(values), 0, values).astype(np.float64))
        low = np.searchsorted(self.middles, a, side="left")
        tie = (low < len(self.middles)) & (
            a == self.middles[np.minimum(low, len(self.middles) - 1)]
        )
        codes = np.where(tie & (low % 2 == 1), low + 1, low)
        beyond = self.sizes[-1] + (self.sizes[-1] - self.sizes[-2]) / 2
        if self.one_nan:
            codes = np.where((a >= beyond) | np.isnan(values), 0x80, codes)
            return np.where(codes > 0, codes | (np.signbit(values) << 7), 0).astype(np.uint8)
        if self.infinity:
            codes = np.where(a >= beyond, self.infinity, codes)
        codes = np.where(np.isnan(values), 0x7F, codes)
        return (codes | (np.signbit(values) << 7)).astype(np.uint8)

    def samples(self) -> np.ndarray:
        """Float32 values: between codes, at their middles, next to these, everywhere, and special ones."""
        middles = self.middles.astype(np.float32)
        rng = np.random.default_rng(0)
        bits = rng.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
        special = [0.0, np.inf, np.nan, 448, 464, 465, 480, 1e30, 1e-45, 2**-10,
                   240, 247.9, 248, 57344, 61439, 61440, 61441, 65536, 2**-17, 1.5 * 2**-17]  # fmt: skip
        near = np.concatenate([middles, np.nextafter(middles, 0), np.nextafter(middles, 1e9)])
        plain = np.exp(rng.normal(size=5000) * 5).astype(np.float32)
        bits = bits[~np.isnan(bits)]  # one NaN is among the special ones
        every = np.concatenate([np.array(special, np.float32), near, plain, bits])
        return np.concatenate([every, -every])


FORMATS = [
    Format(F8, 3, 7),
    Format(rabbet.float8_e5m2, 2, 15, infinity=0x7C),
    Format(rabbet.float8_e4m3fnuz, 3, 8, one_nan=True),
    Format(rabbet.float8_e5m2fnuz, 2, 16, one_nan=True),
]
of_each_format = pytest.mark.parametrize("form", FORMATS, ids=lambda f: f.dtype.name)


def codes_of(t):
    return t.view(rabbet.uint8).tolist()


def of_codes(codes, dtype=F8):
    return rabbet.tensor(np.asarray(codes, np.uint8)).view(dtype)


@of_each_format
def test_every_code_has_its_value(form):
    got, wanted = np.array(of_codes(CODES, form.dtype).float().tolist()), form.values
    np.testing.assert_array_equal(got, wanted)
    there = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(got[there]), np.signbit(wanted[there]))


@of_each_format
def test_every_value_comes_back(form):
    back = codes_of(of_codes(CODES, form.dtype).float().to(form.dtype))
    nan = CODES if form.one_nan else CODES | 0x7F
    assert back == np.where(np.isnan(form.values), nan, CODES).tolist()


@of_each_format
def test_float32_rounds_to_the_nearest_code_ties_to_even(form):
    x = form.samples()
    got = np.array(codes_of(rabbet.tensor(x).to(form.dtype)), np.uint8)
    wanted = form.encoded(x)
    wrong = np.flatnonzero(got != wanted)
    assert not wrong.size, (x[wrong[:3]], got[wrong[:3]], wanted[wrong[:3]])


@of_each_format
def test_conversions_are_those_of_torch(form):
    torch = pytest.importorskip("torch")
    x = form.samples()
    got = codes_of(rabbet.tensor(x).to(form.dtype))
    other = getattr(torch, form.dtype.name)
    assert got == torch.from_numpy(x).to(other).view(torch.uint8).tolist()


def test_the_format_with_infinities_says_so():
    limits = rabbet.finfo(rabbet.float8_e5m2)
    assert (limits.bits, limits.max, limits.eps, limits.tiny) == (8, 57344.0, 0.25, 2.0**-14)
    assert limits.resolution == 1.0 and limits.dtype == "float8_e5m2"
    x = rabbet.tensor([1e5, -1e5, float("nan")], dtype=rabbet.float8_e5m2)
    assert x.isinf().tolist() == [True, True, False] and x.isnan().tolist() == [False, False, True]


def test_formats_without_infinities_have_one_nan():
    for dtype, largest, tiny in (
        (rabbet.float8_e4m3fnuz, 240.0, 2.0**-7),
        (rabbet.float8_e5m2fnuz, 57344.0, 2.0**-15),
    ):
        limits = rabbet.finfo(dtype)
        assert (limits.max, limits.min, limits.tiny) == (largest, -largest, tiny)
        assert limits.eps == 0.125  # as PyTorch has it, of both
        x = rabbet.tensor([float("inf"), -float("inf"), float("nan"), -0.0, 1e9], dtype=dtype)
        assert codes_of(x) == [0x80, 0x80, 0x80, 0, 0x80] and x.isnan().sum().item() == 4
        assert (x + x).dtype is dtype


def test_the_two_formats_convert_into_each_other_but_have_no_common_dtype():
    a, b = rabbet.tensor([1.5, 448.0, -0.001]).to(F8), rabbet.ones(3, dtype=rabbet.float8_e5m2)
    assert a.to(b.dtype).tolist() == [1.5, 448.0, -0.001953125]
    assert b.to(F8).tolist() == [1.0, 1.0, 1.0] and b.to(F8).dtype is F8
    with pytest.raises(TypeError, match=r"no common dtype"):
        a + b


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", "int32", "uint8", "bool", "complex64"]
)
def test_other_dtypes_convert_by_way_of_float32(dtype):
    other = getattr(rabbet, dtype)
    x = rabbet.tensor([0.0, 1.0, 17.0, 100.0]).to(other)
    assert codes_of(x.to(F8)) == codes_of(x.float().to(F8))
    back = of_codes([0, 0x38, 0x40, 0xC8]).to(other)
    assert (
        back.dtype is other
        and back.tolist() == of_codes([0, 0x38, 0x40, 0xC8]).float().to(other).tolist()
    )


def test_what_the_dtype_says():
    assert repr(F8) == "rabbet.float8_e4m3fn" and F8.itemsize == 1
    assert F8.is_floating_point and not F8.is_complex and F8.is_signed
    limits = rabbet.finfo(F8)
    assert (limits.bits, limits.max, limits.min, limits.eps, limits.tiny) == (
        8,
        448.0,
        -448.0,
        0.125,
        2.0**-6,
    )
    assert limits.resolution == 1.0 and limits.dtype == "float8_e4m3fn"
    assert pickle.loads(pickle.dumps(F8)) is F8


def test_tensors_are_made_printed_and_read():
    x = rabbet.tensor([1.5, 300.0, -0.001], dtype=F8)
    assert x.dtype is F8 and x.element_size() == 1 and x.tolist() == [1.5, 288.0, -0.001953125]
    assert "dtype=rabbet.float8_e4m3fn" in repr(x) and "2.8800e+02" in repr(x)
    assert x[1].item() == 288.0
    assert rabbet.zeros(2, dtype=F8).tolist() == [0.0, 0.0]
    assert rabbet.full((2,), 3.3, dtype=F8).tolist() == [3.25, 3.25]
    assert rabbet.empty(3, dtype=F8).dtype is F8
    assert rabbet.ones(2, 2).to(F8).t().contiguous().dtype is F8


def test_elements_move_as_they_are():
    codes = np.arange(24, dtype=np.uint8).reshape(4, 6) * 9
    x, plain = of_codes(codes), rabbet.tensor(codes)
    at = rabbet.tensor([2, 0, 2])
    for move in (
        lambda t: t.t().contiguous(), lambda t: t[1:3, ::2].clone(), lambda t: rabbet.cat([t, t], 1),
        lambda t: t.flip(0), lambda t: t[at], lambda t: t.index_select(1, at), lambda t: rabbet.stack([t, t]),
        lambda t: t.expand(2, 4, 6).contiguous(), lambda t: t.roll(2), lambda t: t.gather(0, at.view(1, 3)),
    ):  # fmt: skip
        assert move(x).dtype is F8 and codes_of(move(x)) == move(plain).tolist()


def test_strides_are_kept():
    x = rabbet.arange(6.0).reshape(2, 3).t().to(F8)
    assert x.stride() == (1, 3) and x.float().stride() == (1, 3)
    assert x.tolist() == [[0, 3], [1, 4], [2, 5]]
    gap = rabbet.arange(8.0).to(F8)[::2]
    assert gap.float().tolist() == [0, 2, 4, 6] and gap.clone().tolist() == [0, 2, 4, 6]


def test_arithmetic_is_that_of_float32_rounded_once():
    rng = np.random.default_rng(1)
    a, b = (rabbet.tensor(rng.normal(size=(3, 50)).astype(np.float32) * 8).to(F8) for _ in range(2))
    for call in (lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x / y, lambda x, y: x.maximum(y),
                 lambda x, y: x.exp(), lambda x, y: x * 2.5, lambda x, y: x.sum(1), lambda x, y: x @ y.t(),
                 lambda x, y: rabbet.where(x > y, x, y)):  # fmt: skip
        got, wide = call(a, b), call(a.float(), b.float())
        assert got.dtype is F8 and codes_of(got) == codes_of(wide.to(F8))
    assert (a == a).all().item() and (a < b).dtype is rabbet.bool
    assert a.argmax().dtype is rabbet.int64


def test_writes_in_place():
    x = rabbet.tensor([1.0, 2.0, 3.0]).to(F8)
    alias = x[1:]
    x.add_(x)
    alias.mul_(2)
    x[0] = 7.2
    assert x.tolist() == [7.0, 8.0, 12.0] and alias.tolist() == [8.0, 12.0]
    x.copy_(rabbet.tensor([0.3, 500.0, -1.0]))
    assert x.tolist() == [0.3125, 448.0, -1.0]
    x.fill_(2)
    out = rabbet.zeros(3, dtype=F8)
    assert rabbet.add(x, x, out=out) is out and out.tolist() == [4, 4, 4]
    wide = rabbet.zeros(3)
    assert rabbet.add(x, x, out=wide).tolist() == [4, 4, 4]
    rabbet.add(wide, wide, out=out)
    assert out.tolist() == [8, 8, 8]
    wide.copy_(x)
    assert wide.tolist() == [2, 2, 2]


def test_gradients_pass_through_casts():
    x = rabbet.tensor([1.0, 2.0], requires_grad=True)
    (x.to(F8).float() * rabbet.tensor([3.0, 5.0])).sum().backward()
    assert x.grad.tolist() == [3, 5]
    leaf = rabbet.tensor([1.0, 2.0]).to(F8).requires_grad_()
    (leaf * 3).sum().backward()
    assert leaf.grad.dtype is F8 and leaf.grad.tolist() == [3, 3]


def test_it_has_no_common_dtype_with_others():
    x = rabbet.ones(2).to(F8)
    for call in (lambda: x + rabbet.ones(2), lambda: rabbet.promote_types(F8, rabbet.float16),
                 lambda: rabbet.cat([x, rabbet.ones(2)]), lambda: x + rabbet.tensor([1])):  # fmt: skip
        with pytest.raises(TypeError, match=r"no common dtype of .*float8_e4m3fn"):
            call()


def test_numpy_has_no_such_dtype():
    x = rabbet.ones(2).to(F8)
    with pytest.raises(TypeError, match=r"NumPy has no float8_e4m3fn; use tensor\.float"):
        x.numpy()
    with pytest.raises(
        BufferError, match=r"float8_e4m3fn has no buffer format: use .float\(\) first"
    ):
        memoryview(x)


@pytest.mark.parametrize("dtype,name", [(F8, b'"F8_E4M3"'), (rabbet.float8_e5m2, b'"F8_E5M2"')])
def test_it_is_saved_and_loaded(dtype, name, tmp_path):
    x = of_codes(CODES, dtype).reshape(16, 16)
    rabbet.save({"x": x}, tmp_path / "x.safetensors")
    back = rabbet.load(tmp_path / "x.safetensors")["x"]
    assert back.dtype is dtype and codes_of(back) == codes_of(x)
    header = (tmp_path / "x.safetensors").read_bytes()
    size = struct.unpack("<Q", header[:8])[0]
    assert name in header[8 : 8 + size]


def test_dlpack_carries_it():
    x = rabbet.tensor([1.0, -2.5]).to(F8)
    back = rabbet.from_dlpack(x)
    assert back.dtype is F8 and back.tolist() == [1.0, -2.5]


def test_meta_tensors():
    x = rabbet.empty(2, 3, dtype=F8, device="meta")
    assert (
        (x + x).dtype is F8 and x.float().dtype is rabbet.float32 and (x > 1).dtype is rabbet.bool
    )
