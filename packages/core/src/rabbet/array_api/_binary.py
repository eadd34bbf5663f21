"""Functions of two arrays, or an array and a number, element by element.

Shapes broadcast. Tensors are computed in their common dtype by the standard's table of promotion, where 0-d tensors count
as any others; a Python number takes the dtype of the tensor if it has a number of that kind.
"""

from typing import Any, TypeAlias

import rabbet

from .._C import Tensor
from ._arguments import NUMBERS, Number, need_tensors
from ._dtypes import promoted, with_number

Operand: TypeAlias = Tensor | Number


def operands(function: str, x1: Any, x2: Any) -> tuple[Any, Any]:
    """Two operands in their common dtype; numbers stay numbers.

    Raises:
        TypeError: if one is neither a tensor nor a number, or both are numbers.
    """
    for name, x in (("x1", x1), ("x2", x2)):
        if not isinstance(x, (Tensor, *NUMBERS)):
            raise TypeError(
                f"{function}: {name} must be a Tensor or a number, got {type(x).__name__}"
            )
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        if x1.dtype is x2.dtype:
            return x1, x2
        dtype = promoted(function, x1.dtype, x2.dtype)
        return x1.to(dtype), x2.to(dtype)
    if isinstance(x1, Tensor):
        return x1.to(with_number(x1.dtype, x2)), x2
    if isinstance(x2, Tensor):
        return x1, x2.to(with_number(x2.dtype, x1))
    raise TypeError(f"{function}: at least one of x1 and x2 must be a Tensor, got two numbers")


def tensors(function: str, x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """Two operands in their common dtype as tensors, numbers as 0-d ones.

    Raises:
        TypeError: if one is neither a tensor nor a number, or both are numbers.
    """
    x1, x2 = operands(function, x1, x2)
    if not isinstance(x1, Tensor):
        x1 = rabbet.full((), x1, dtype=x2.dtype, device=x2.device)
    if not isinstance(x2, Tensor):
        x2 = rabbet.full((), x2, dtype=x1.dtype, device=x1.device)
    return x1, x2


def add(x1: Operand, x2: Operand, /) -> Tensor:
    """Sum."""
    return rabbet.add(*operands("add", x1, x2))


def subtract(x1: Operand, x2: Operand, /) -> Tensor:
    """Difference."""
    return rabbet.sub(*operands("subtract", x1, x2))


def multiply(x1: Operand, x2: Operand, /) -> Tensor:
    """Product."""
    return rabbet.mul(*operands("multiply", x1, x2))


def divide(x1: Operand, x2: Operand, /) -> Tensor:
    """Quotient; of integers in the default floating dtype."""
    return rabbet.div(*operands("divide", x1, x2))


def floor_divide(x1: Operand, x2: Operand, /) -> Tensor:
    """Quotient rounded down."""
    return rabbet.floor_divide(*operands("floor_divide", x1, x2))


def remainder(x1: Operand, x2: Operand, /) -> Tensor:
    """Remainder of the division, with the sign of `x2`, zeros included."""
    x1, x2 = tensors("remainder", x1, x2)
    found = rabbet.remainder(x1, x2)
    if not found.is_floating_point():
        return found
    return rabbet.where(found == 0, rabbet.copysign(found, x2), found)


def pow(x1: Operand, x2: Operand, /) -> Tensor:
    """`x1` to the power of `x2`."""
    return rabbet.pow(*operands("pow", x1, x2))


def equal(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether the elements are equal; bool."""
    return rabbet.eq(*tensors("equal", x1, x2))


def not_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether the elements differ; bool."""
    return rabbet.ne(*tensors("not_equal", x1, x2))


def greater(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether x1 > x2; bool."""
    return rabbet.gt(*tensors("greater", x1, x2))


def greater_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether x1 >= x2; bool."""
    return rabbet.ge(*tensors("greater_equal", x1, x2))


def less(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether x1 < x2; bool."""
    return rabbet.lt(*tensors("less", x1, x2))


def less_equal(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether x1 <= x2; bool."""
    return rabbet.le(*tensors("less_equal", x1, x2))


def bitwise_and(x1: Operand, x2: Operand, /) -> Tensor:
    """Bits that both integers have; of bools the conjunction."""
    return rabbet.bitwise_and(*operands("bitwise_and", x1, x2))


def bitwise_or(x1: Operand, x2: Operand, /) -> Tensor:
    """Bits that at least one of the integers has; of bools the disjunction."""
    return rabbet.bitwise_or(*operands("bitwise_or", x1, x2))


def bitwise_xor(x1: Operand, x2: Operand, /) -> Tensor:
    """Bits that exactly one of the integers has; of bools the exclusive or."""
    return rabbet.bitwise_xor(*operands("bitwise_xor", x1, x2))


def bitwise_left_shift(x1: Operand, x2: Operand, /) -> Tensor:
    """Bits of `x1` shifted to the left by `x2`, at least 0."""
    return rabbet.bitwise_left_shift(*operands("bitwise_left_shift", x1, x2))


def bitwise_right_shift(x1: Operand, x2: Operand, /) -> Tensor:
    """Bits of `x1` shifted to the right by `x2`, at least 0; the sign is kept."""
    return rabbet.bitwise_right_shift(*operands("bitwise_right_shift", x1, x2))


def atan2(x1: Operand, x2: Operand, /) -> Tensor:
    """Angle of the point (x2, x1), in radians from -pi to pi."""
    return rabbet.atan2(*tensors("atan2", x1, x2))


def copysign(x1: Operand, x2: Operand, /) -> Tensor:
    """The size of `x1` with the sign of `x2`."""
    return rabbet.copysign(*tensors("copysign", x1, x2))


def hypot(x1: Operand, x2: Operand, /) -> Tensor:
    """sqrt(x1 ** 2 + x2 ** 2), without overflow of the squares."""
    return rabbet.hypot(*tensors("hypot", x1, x2))


def logaddexp(x1: Operand, x2: Operand, /) -> Tensor:
    """log(exp(x1) + exp(x2)), without overflow of the powers."""
    return rabbet.logaddexp(*tensors("logaddexp", x1, x2))


def logical_and(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether both elements are not zero; bool."""
    return rabbet.logical_and(*tensors("logical_and", x1, x2))


def logical_or(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether at least one of the elements is not zero; bool."""
    return rabbet.logical_or(*tensors("logical_or", x1, x2))


def logical_xor(x1: Operand, x2: Operand, /) -> Tensor:
    """Whether exactly one of the elements is not zero; bool."""
    return rabbet.logical_xor(*tensors("logical_xor", x1, x2))


def maximum(x1: Operand, x2: Operand, /) -> Tensor:
    """The larger element; NaN if one of them is."""
    return rabbet.maximum(*tensors("maximum", x1, x2))


def minimum(x1: Operand, x2: Operand, /) -> Tensor:
    """The smaller element; NaN if one of them is."""
    return rabbet.minimum(*tensors("minimum", x1, x2))


def nextafter(x1: Operand, x2: Operand, /) -> Tensor:
    """The next number of the dtype after `x1` in the direction of `x2`."""
    return rabbet.nextafter(*tensors("nextafter", x1, x2))


def clip(
    x: Tensor,
    /,
    min: Tensor | int | float | None = None,
    max: Tensor | int | float | None = None,
) -> Tensor:
    """The elements, at least `min` and at most `max`; NaN where one of the three is NaN.

    Raises:
        TypeError: for bounds that are neither tensors nor numbers.
    """
    need_tensors("clip", x=x)
    found = x
    for bound, limit in ((min, rabbet.maximum), (max, rabbet.minimum)):
        if bound is not None:
            found = limit(*tensors("clip", found, bound))
    return found.clone() if found is x else found
