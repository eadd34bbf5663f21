"""Functions of one array, element by element.

Where no dtype is named, the result has the dtype of `x`; functions that have no integer results return the default
floating dtype for integers.
"""

import rabbet

from .._C import Tensor
from ._arguments import need_tensors


def abs(x: Tensor, /) -> Tensor:
    """Absolute value; of a complex dtype the modulus, which is real."""
    return rabbet.abs(x)


def acos(x: Tensor, /) -> Tensor:
    """Inverse cosine, in radians."""
    return rabbet.acos(x)


def acosh(x: Tensor, /) -> Tensor:
    """Inverse hyperbolic cosine."""
    return rabbet.acosh(x)


def asin(x: Tensor, /) -> Tensor:
    """Inverse sine, in radians."""
    return rabbet.asin(x)


def asinh(x: Tensor, /) -> Tensor:
    """Inverse hyperbolic sine."""
    return rabbet.asinh(x)


def atan(x: Tensor, /) -> Tensor:
    """Inverse tangent, in radians."""
    return rabbet.atan(x)


def atanh(x: Tensor, /) -> Tensor:
    """Inverse hyperbolic tangent."""
    return rabbet.atanh(x)


def cos(x: Tensor, /) -> Tensor:
    """Cosine of angles in radians."""
    return rabbet.cos(x)


def cosh(x: Tensor, /) -> Tensor:
    """Hyperbolic cosine."""
    return rabbet.cosh(x)


def exp(x: Tensor, /) -> Tensor:
    """e to the power of each element."""
    return rabbet.exp(x)


def expm1(x: Tensor, /) -> Tensor:
    """exp(x) - 1, exact for small numbers, too."""
    return rabbet.expm1(x)


def isfinite(x: Tensor, /) -> Tensor:
    """Whether each element is neither infinite nor NaN; bool."""
    return rabbet.isfinite(x)


def isinf(x: Tensor, /) -> Tensor:
    """Whether each element is infinite; bool."""
    return rabbet.isinf(x)


def isnan(x: Tensor, /) -> Tensor:
    """Whether each element is NaN; bool."""
    return rabbet.isnan(x)


def log(x: Tensor, /) -> Tensor:
    """Natural logarithm."""
    return rabbet.log(x)


def log10(x: Tensor, /) -> Tensor:
    """Logarithm to base 10."""
    return rabbet.log10(x)


def log1p(x: Tensor, /) -> Tensor:
    """log(1 + x), exact for small numbers, too."""
    return rabbet.log1p(x)


def log2(x: Tensor, /) -> Tensor:
    """Logarithm to base 2."""
    return rabbet.log2(x)


def logical_not(x: Tensor, /) -> Tensor:
    """Whether each element is zero; bool."""
    return rabbet.logical_not(x)


def positive(x: Tensor, /) -> Tensor:
    """The elements themselves."""
    return rabbet.positive(x)


def reciprocal(x: Tensor, /) -> Tensor:
    """1 / x."""
    return rabbet.reciprocal(x)


def signbit(x: Tensor, /) -> Tensor:
    """Whether each element is negative or -0.0; bool."""
    return rabbet.signbit(x)


def sin(x: Tensor, /) -> Tensor:
    """Sine of angles in radians."""
    return rabbet.sin(x)


def sinh(x: Tensor, /) -> Tensor:
    """Hyperbolic sine."""
    return rabbet.sinh(x)


def sqrt(x: Tensor, /) -> Tensor:
    """Square root."""
    return rabbet.sqrt(x)


def square(x: Tensor, /) -> Tensor:
    """x * x."""
    return rabbet.square(x)


def tan(x: Tensor, /) -> Tensor:
    """Tangent of angles in radians."""
    return rabbet.tan(x)


def tanh(x: Tensor, /) -> Tensor:
    """Hyperbolic tangent."""
    return rabbet.tanh(x)


def bitwise_invert(x: Tensor, /) -> Tensor:
    """Every bit flipped, of integers; of bools the negation."""
    return rabbet.bitwise_not(x)


def ceil(x: Tensor, /) -> Tensor:
    """Rounded up."""
    return rabbet.ceil(x)


def conj(x: Tensor, /) -> Tensor:
    """Complex conjugate; real numbers are their own."""
    return rabbet.conj(x)


def imag(x: Tensor, /) -> Tensor:
    """Imaginary part, a view of complex numbers; zeros for real ones.

    Raises:
        TypeError: if `x` is not a Tensor.
    """
    need_tensors("imag", x=x)
    return x.imag if x.is_complex() else rabbet.zeros_like(x)


def negative(x: Tensor, /) -> Tensor:
    """-x."""
    return rabbet.neg(x)


def real(x: Tensor, /) -> Tensor:
    """Real part, a view of complex numbers."""
    return rabbet.real(x)


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1; of complex numbers x / abs(x), 0 for 0; NaN for NaN."""
    found = rabbet.sgn(x)
    return rabbet.where(rabbet.isnan(x), x, found) if x.is_floating_point() else found


def floor(x: Tensor, /) -> Tensor:
    """Rounded down."""
    return rabbet.floor(x)


def round(x: Tensor, /) -> Tensor:
    """Rounded to the nearest whole number, halves to the even one; of complex numbers both parts.

    Raises:
        TypeError: if `x` is not a Tensor.
    """
    need_tensors("round", x=x)
    if x.is_complex():
        return rabbet.complex(rabbet.round(x.real), rabbet.round(x.imag))
    return rabbet.round(x)


def trunc(x: Tensor, /) -> Tensor:
    """Rounded towards zero."""
    return rabbet.trunc(x)
