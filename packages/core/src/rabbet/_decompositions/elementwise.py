"""Decompositions of elementwise operators."""

from .. import _C
from .._functions import finfo

_ops = _C.op


def isclose(
    input: _C.Tensor, other: _C.Tensor, rtol: float, atol: float, equal_nan: bool
) -> _C.Tensor:
    if input.dtype is not other.dtype:
        raise _C.DTypeError(
            f"isclose: expected tensors of one dtype, got {input.dtype} and {other.dtype}"
        )
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not value >= 0:
            raise _C.ArgumentError(f"isclose: {name} must not be negative, got {value}")
    inexact = input.is_floating_point() or input.is_complex()
    same = input == other
    if not inexact:  # the difference of unsigned numbers would wrap
        input, other = input.double(), other.double()
    error = (input - other).abs()
    close = same | (_ops("isfinite")(error) & (error <= atol + (rtol * other).abs()))
    if equal_nan and inexact:
        close = close | ((input != input) & (other != other))
    return close


def nan_to_num(
    input: _C.Tensor, nan: float | None, posinf: float | None, neginf: float | None
) -> _C.Tensor:
    if input.is_complex():
        parts = (nan_to_num(x, nan, posinf, neginf) for x in (input.real, input.imag))
        return _ops("complex")(*parts)
    if not input.is_floating_point():
        return input.clone()
    limits = finfo(input.dtype)
    return _ops("replace_nonfinite")(
        input,
        0.0 if nan is None else nan,
        limits.max if posinf is None else posinf,
        limits.min if neginf is None else neginf,
    )


def both_tensors(input: _C.Tensor | int, other: _C.Tensor | int) -> tuple[_C.Tensor, _C.Tensor]:
    """Two operands of which one may be a number, which takes the dtype of the other."""
    if not isinstance(input, _C.Tensor):
        assert isinstance(other, _C.Tensor)
        return _C.tensor(input, other.dtype, other.device), other
    if not isinstance(other, _C.Tensor):
        return input, _C.tensor(other, input.dtype, input.device)
    return input, other


def gcd(input: _C.Tensor, other: _C.Tensor) -> _C.Tensor:
    """Euclid's algorithm on all elements until the last remainder is 0."""
    input, other = both_tensors(input, other)
    a, b = _ops("broadcast_tensors")(input.abs(), other.abs())
    while bool((b != 0).any()):
        rest = _ops("fmod")(a, _ops("where")(b == 0, 1, b))
        a, b = _ops("where")(b == 0, a, b), _ops("where")(b == 0, 0, rest)
    return a.clone()


def lcm(input: _C.Tensor, other: _C.Tensor) -> _C.Tensor:
    input, other = both_tensors(input, other)
    divisor = _ops("gcd")(input, other)
    some = _ops("where")(divisor == 0, 1, divisor)
    return _ops("div")(input, some, rounding_mode="trunc").abs() * other.abs()


BITS = {_C.float16: _C.int16, _C.bfloat16: _C.int16, _C.float32: _C.int32, _C.float64: _C.int64}


def nextafter(input: _C.Tensor, other: _C.Tensor) -> _C.Tensor:
    """Numbers of one sign are in the order of their bits as integers."""
    where = _ops("where")
    input, other = _ops("broadcast_tensors")(*both_tensors(input, other))
    bits = input.contiguous().view(BITS[input.dtype])
    away = (other > input) == (input > 0)
    moved = where(away, bits + 1, bits - 1).view(input.dtype)
    smallest = _ops("ones_like")(bits).view(input.dtype)
    out = where(input == 0, where(other > 0, smallest, -smallest), moved)
    out = where(input == other, other, out)
    return where(input.isnan() | other.isnan(), input + other, out)
