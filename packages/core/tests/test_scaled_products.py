"""Products of 8-bit integers and of float8 with scales."""

import numpy as np
import pytest
import rabbet

F8, F5 = rabbet.float8_e4m3fn, rabbet.float8_e5m2


@pytest.mark.parametrize("other", [rabbet.int8, rabbet.uint8], ids=str)
@pytest.mark.parametrize("m,k,n", [(3, 5, 4), (17, 32, 24), (0, 4, 2), (3, 0, 2)])
def test_integers_of_8_bits_are_summed_in_32(m, k, n, other):
    rng = np.random.default_rng(0)
    a = rng.integers(-128, 128, (m, k)).astype(np.int8)
    b = rng.integers(-128, 128, (k, n)).astype(np.int8 if other is rabbet.int8 else np.uint8)
    got = rabbet._int_mm(rabbet.tensor(a), rabbet.tensor(b.T.copy()).t())
    assert got.dtype is rabbet.int32
    np.testing.assert_array_equal(got.numpy(), a.astype(np.int32) @ b.astype(np.int32))


def test_sums_in_32_bits_go_into_a_result_that_is_there():
    a = rabbet.full((2, 300), -128, dtype=rabbet.int8)
    out = rabbet.empty(2, 2, dtype=rabbet.int32)
    assert rabbet._int_mm(a, a.t(), out=out) is out
    assert out.tolist() == [[300 * 128**2] * 2] * 2


@pytest.mark.parametrize(
    "a,b,error,message",
    [
        ((3, 4), (5, 2), ValueError, "k differs"),
        ((4,), (4, 2), ValueError, "'input' must have 2 dimensions"),
    ],
)
def test_shapes_of_integers_that_do_not_fit(a, b, error, message):
    with pytest.raises(error, match=f"_int_mm: .*{message}"):
        rabbet._int_mm(*(rabbet.zeros(shape, dtype=rabbet.int8) for shape in (a, b)))


def test_wider_integers_are_refused():
    x = rabbet.zeros(2, 2, dtype=rabbet.int8)
    with pytest.raises(TypeError, match="expected 'mat2' of int8 or uint8, got int16"):
        rabbet._int_mm(x, x.short())


def operands(m, k, n, first=F8, second=F8):
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((m, k), (n, k)))
    return rabbet.tensor(a).to(first), rabbet.tensor(b).to(second).t()


def product(a, b, scale_a, scale_b, bias=0.0):
    """In float64, which holds the sums of float8 exactly."""
    exact = a.float().numpy().astype(np.float64) @ b.float().numpy().astype(np.float64)
    return exact * scale_a * scale_b + bias


@pytest.mark.parametrize("first,second", [(F8, F8), (F8, F5), (F5, F8)])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_scaled_products(first, second, rows, biased):
    a, b = operands(16, 48, 24, first, second)
    rng = np.random.default_rng(2)
    shapes = ((16, 1), (1, 24)) if rows else ((), (1,))
    scales = [rng.uniform(0.5, 2, shape).astype(np.float32) for shape in shapes]
    bias = rng.normal(size=24).astype(np.float32) if biased else None
    got = rabbet._scaled_mm(
        a,
        b,
        *map(rabbet.tensor, scales),
        bias=None if bias is None else rabbet.tensor(bias),
        out_dtype=rabbet.float32,
    )
    wanted = product(a, b, *scales, 0.0 if bias is None else bias)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [None, F8, F5, rabbet.float16, rabbet.bfloat16, rabbet.float64])
def test_dtypes_of_scaled_products(dtype):
    a, b = operands(4, 16, 8)
    one = rabbet.tensor(1.0)
    wide = rabbet._scaled_mm(a, b, one, one, out_dtype=rabbet.float32)
    got = rabbet._scaled_mm(a, b, one, one, None, None, dtype)
    assert got.dtype is (dtype or F8) and got.is_contiguous()
    assert got.float().tolist() == wide.to(got.dtype).float().tolist()


def test_only_results_of_8_bits_are_divided_by_their_scale():
    a, b = operands(4, 16, 8)
    one, half = rabbet.tensor(1.0), rabbet.tensor(0.5)
    wide = rabbet._scaled_mm(a, b, one, one, out_dtype=rabbet.float32)
    narrow = rabbet._scaled_mm(a, b, one, one, scale_result=half)
    assert narrow.float().tolist() == (wide * 2).to(F8).float().tolist()
    same = rabbet._scaled_mm(a, b, one, one, scale_result=half, out_dtype=rabbet.float32)
    assert same.tolist() == wide.tolist()


ONE = rabbet.tensor(1.0)


@pytest.mark.parametrize(
    "change,message",
    [
        ({"input": rabbet.ones(4, 16)}, "'input' and 'mat2' should be float8"),
        ({"mat2": rabbet.ones(8, 8).to(F8)}, "k differs"),
        ({"input": rabbet.ones(16).to(F8)}, "'input' must have 2 dimensions"),
        ({"scale_a": rabbet.ones(4, 1)}, r"\(4, 1\) and \(1, 8\)"),
        ({"scale_a": rabbet.ones(4), "scale_b": rabbet.ones(8)}, r"\(4, 1\) and \(1, 8\)"),
        ({"scale_a": ONE.double()}, "scales should be float32"),
        ({"bias": rabbet.ones(7)}, "n differs"),
    ],
)
def test_scaled_products_that_do_not_fit(change, message):
    a, b = operands(4, 16, 8)
    given = {"input": a, "mat2": b, "scale_a": ONE, "scale_b": ONE} | change
    with pytest.raises(ValueError, match=f"_scaled_mm: .*{message}"):
        rabbet._scaled_mm(**given)


def test_conversions_by_torch_and_products_agree():
    torch = pytest.importorskip("torch")
    a, b = operands(16, 32, 48)

    def as_torch(t):
        return torch.tensor(t.float().tolist()).to(getattr(torch, t.dtype.name))

    scale = torch.tensor(0.5)
    wanted = torch._scaled_mm(
        as_torch(a), as_torch(b), scale, scale, bias=torch.ones(48), out_dtype=torch.float32
    )
    half = rabbet.tensor(0.5)
    got = rabbet._scaled_mm(a, b, half, half, bias=rabbet.ones(48), out_dtype=rabbet.float32)
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
