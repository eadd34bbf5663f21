"""functional.scaled_mm: products of float8 whose scales are said by a recipe."""

import pytest
import rabbet
from rabbet.nn import functional as F
from rabbet.nn.functional import ScalingType, SwizzleType

F8 = rabbet.float8_e4m3fn
WHOLE, ROWS = ScalingType.TensorWise, ScalingType.RowWise
A, B = rabbet.arange(32.0).reshape(4, 8).to(F8), rabbet.ones(6, 8).to(F8).t()
TWO = rabbet.tensor(2.0)


def test_one_scale_for_each_operand():
    got = F.scaled_mm(A, B, TWO, WHOLE, [TWO], [WHOLE])
    assert got.dtype is rabbet.bfloat16
    assert got[:, 0].tolist() == (A.float().sum(1) * 4).bfloat16().tolist()


def test_a_scale_for_each_row_and_column():
    rows, columns = rabbet.arange(4.0).reshape(4, 1), rabbet.arange(6.0).reshape(1, 6)
    got = F.scaled_mm(
        A, B, rows, ROWS, columns, ROWS, SwizzleType.NO_SWIZZLE, output_dtype=rabbet.float32
    )
    assert got.tolist() == (A.float().sum(1, keepdim=True) * rows * columns).tolist()


def test_bias_and_the_dtype_of_the_operand():
    got = F.scaled_mm(A, B, TWO, WHOLE, TWO, WHOLE, bias=-rabbet.ones(6), output_dtype=None)
    assert got.dtype is F8
    assert got.tolist() == ((A.float() @ B.float()) * 4 - 1).to(F8).tolist()


@pytest.mark.parametrize(
    "scale_a,kind_a,scale_b,kind_b,swizzle",
    [
        (TWO, WHOLE, rabbet.ones(1, 6), ROWS, None),
        (rabbet.ones(4), ROWS, rabbet.ones(6), ROWS, None),
        (rabbet.ones(4, 1), WHOLE, rabbet.ones(1, 6), WHOLE, None),
        (rabbet.ones(4, 1), ScalingType.BlockWise1x128, rabbet.ones(1, 6), ScalingType.BlockWise1x128, None),
        ([TWO, TWO], WHOLE, TWO, WHOLE, None),
        (TWO, WHOLE, TWO, WHOLE, SwizzleType.SWIZZLE_32_4_4),
    ],
)  # fmt: skip
def test_scales_that_do_not_fit_their_recipe(scale_a, kind_a, scale_b, kind_b, swizzle):
    with pytest.raises(ValueError, match="Invalid scaling configuration"):
        F.scaled_mm(A, B, scale_a, kind_a, scale_b, kind_b, swizzle)


def test_recipes_are_members_of_the_enumeration():
    with pytest.raises(AttributeError, match="value"):
        F.scaled_mm(A, B, TWO, 0, TWO, 0)
    assert [kind.value for kind in ScalingType] == list(range(6))
