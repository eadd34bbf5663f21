"""Operators of integer tensors: numbers beside them keep their fractions, results have PyTorch's dtypes."""

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F

INTEGERS = [getattr(rabbet, name) for name in ("uint8", "int8", "int16", "int32", "int64")]
base = np.array([[1, 2, 0, 3], [3, 1, 2, 0], [2, 0, 1, 3]])


@pytest.fixture(params=INTEGERS, ids=str)
def x(request):
    return rabbet.tensor(base).to(request.param)


def test_any_and_all_of_uint8_are_uint8(x):
    expected = rabbet.uint8 if x.dtype == rabbet.uint8 else rabbet.bool
    for op, reference in ((rabbet.any, np.any), (rabbet.all, np.all)):
        for dim in (None, 0, (0, 1)):
            out = op(x) if dim is None else op(x, dim)
            assert out.dtype == expected
            np.testing.assert_array_equal(out.numpy().astype(bool), reference(base, dim))
        assert op(x, 1, True).dtype == expected and op(x.t(), 0).dtype == expected
        assert op(x, []).dtype == expected
        assert op(x.to("meta")).dtype == expected


def test_products_keep_the_dtype(x):
    a, b = x.reshape(1, 3, 4), x.t().reshape(1, 4, 3)
    out = rabbet.addbmm(x[:, :3], a.repeat(2, 1, 1), b.repeat(2, 1, 1))
    assert out.dtype == x.dtype
    np.testing.assert_array_equal(out.numpy(), base[:, :3] + 2 * base @ base.T)
    weight = rabbet.ones(2, 4, 4, dtype=x.dtype)
    out = F.bilinear(x, x, weight)
    assert out.dtype == x.dtype
    np.testing.assert_array_equal(out.numpy(), np.stack([base.sum(1) ** 2] * 2, 1))
    out = rabbet.tensordot(x.reshape(1, 3, 4), x.reshape(3, 4), ([0, 2], [0, 1]))
    assert out.dtype == x.dtype  # a size of 1 broadcasts: `other` is summed over it
    np.testing.assert_array_equal(out.numpy(), base @ base.sum(0))


def test_unravel_index_gives_int64(x):
    places = rabbet.unravel_index(x, (2, 4))
    assert [p.dtype for p in places] == [rabbet.int64] * 2
    for place, expected in zip(places, np.unravel_index(base, (2, 4)), strict=True):
        np.testing.assert_array_equal(place.numpy(), expected)


@pytest.mark.parametrize(
    "arguments, narrow, wide",
    [
        ((0, 2.5), [0, 1, 2], [0, 1]),
        ((1, 4, 1.5), [1, 2], [1, 2, 3]),
        ((0.9, 5), [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
        ((5, 0.5, -1.5), [5, 4, 3], [5, 4, 3, 2, 1]),
        ((0.5, 2, 0.5), [0, 0, 0], None),
    ],
)
def test_ranges_of_narrow_integers_count_with_fractions(arguments, narrow, wide):
    for dtype in INTEGERS[:-1]:
        out = rabbet.arange(*arguments, dtype=dtype)
        assert out.dtype == dtype and out.tolist() == narrow
    if wide is None:
        with pytest.raises(ValueError, match="step 0"):
            rabbet.arange(*arguments, dtype=rabbet.int64)
    else:
        assert rabbet.arange(*arguments, dtype=rabbet.int64).tolist() == wide


def test_average_pools_of_int64_cut_fractions_off():
    values = np.array([[7, -8, 5, 2], [3, -9, 1, 1]])
    x = rabbet.tensor(values).reshape(1, 2, 4)
    out = F.avg_pool1d(x, 2)
    assert out.dtype == rabbet.int64 and out.tolist() == [[[0, 3], [-3, 1]]]
    assert F.avg_pool1d(x, 2, 2, 1).tolist() == [[[3, -1, 1], [1, -4, 0]]]
    assert F.avg_pool1d(x, 2, 2, 1, count_include_pad=False).tolist() == [[[7, -1, 2], [3, -4, 1]]]
    assert F.avg_pool2d(x, 2, divisor_override=3).tolist() == [[[-2, 3]]]
    norm = F.local_response_norm(rabbet.arange(12).reshape(1, 3, 4), 2)
    assert norm.dtype == rabbet.float32
    for dtype in INTEGERS[:-1]:
        with pytest.raises(RuntimeError, match="avg_pool"):
            F.avg_pool1d(x.to(dtype), 2)


@pytest.mark.parametrize("integral", ["input", "target"])
def test_kl_div_refuses_integers(x, integral):
    given = {"input": rabbet.rand(3, 4), "target": rabbet.rand(3, 4), integral: x}
    with pytest.raises(RuntimeError, match=f"{integral} has dtype"):
        F.kl_div(**given, reduction="sum")


FRACTIONS = {
    "x + 0.5": base + 0.5,
    "x * 0.5": base * 0.5,
    "x // 0.75": base // 0.75,
    "x % 0.75": base % 0.75,
    "2.5 ** x": 2.5**base,
    "rabbet.clamp(x, 0.5, 1.5)": np.clip(base, 0.5, 1.5),
    "rabbet.where(x > 1, x, 0.5)": np.where(base > 1, base, 0.5),
    "rabbet.isclose(x, x + 1, rtol=0.0, atol=0.9)": np.zeros((3, 4), bool),
    "rabbet.trapezoid(x, dx=0.5)": (base[:, 1:] + base[:, :-1]).sum(1) * 0.25,
    "rabbet.bucketize(x, rabbet.tensor([0.5, 1.5]))": np.searchsorted([0.5, 1.5], base),
    "rabbet.logit(x, 0.25)": np.where(base > 0, np.log(3.0), -np.log(3.0)),
    "F.l1_loss(x, x + 0.5)": 0.5,
    "F.leaky_relu(x - 0.5, 0.5)": np.where(base > 0, base - 0.5, -0.25),
}


@pytest.mark.parametrize("expression", FRACTIONS)
def test_numbers_keep_their_fractions(x, expression):
    out = eval(expression, {"x": x, "rabbet": rabbet, "F": F})
    np.testing.assert_allclose(out.numpy().squeeze(), FRACTIONS[expression], rtol=1e-6)
