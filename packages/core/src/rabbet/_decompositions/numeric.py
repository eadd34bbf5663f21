"""Decompositions of functions for numerical work."""

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

from .. import _C
from .._C import Tensor
from .._functions import finfo
from .elementwise import BITS

_ops = _C.op


def _axis(name: str, input: Tensor, dim: int) -> int:
    """The dimension as one of 0 to ndim - 1."""
    if not -input.ndim <= dim < input.ndim:
        raise _C.OutOfRangeError(
            f"{name}: dimension out of range for a tensor of {input.ndim} dimensions, got {dim}"
        )
    return dim % input.ndim


def _neighbours(t: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    n = t.shape[dim]
    return t.narrow(dim, 0, n - 1), t.narrow(dim, 1, n - 1)


def _areas(name: str, y: Tensor, x: Any, dim: int) -> Tensor:
    """Twice the areas between neighbours; `x` holds places, or is their distance."""
    if not isinstance(x, Tensor):
        left, right = _neighbours(y, dim)
        areas = left + right
        return areas if x == 1 and type(x) is int else areas * x
    if x.ndim == 0 or (x.ndim == 1 and x.shape[0] != y.shape[dim]):
        raise _C.ArgumentError(
            f"{name}: there must be one x value for each sample point, {y.shape[dim]}, got shape {tuple(x.shape)}"
        )
    if x.ndim == 1:
        shape = [1] * y.ndim
        shape[dim] = x.shape[0]
        x = x.reshape(shape)
    elif x.ndim < y.ndim:
        x = x.reshape([1] * (y.ndim - x.ndim) + list(x.shape))
    if x.shape[dim] != y.shape[dim]:
        raise _C.ArgumentError(
            f"{name}: there must be one x value for each sample point, {y.shape[dim]}, got shape {tuple(x.shape)}"
        )
    (before, after), (left, right) = _neighbours(x, dim), _neighbours(y, dim)
    return (after - before) * (left + right)


def _integrals(name: str, y: Tensor, x: Any, dim: int, running: bool) -> Tensor:
    dim = _axis(name, y, dim)
    if y.dtype is _C.bool or (isinstance(x, Tensor) and x.dtype is _C.bool):
        raise _C.ArgumentError(
            f"{name}: received a bool input for x or y, but bool is not supported"
        )
    if isinstance(x, (bool, complex)):
        raise _C.ArgumentError(f"{name}: received dx = {x}, but only real numbers are supported")
    if y.shape[dim] == 0 and running:
        return y.clone()
    if y.shape[dim] == 0:
        return y.sum(dim) / 2.0
    inexact = y.is_floating_point() or y.is_complex()
    if inexact and not running and not isinstance(x, Tensor) and y.shape[dim] > 1:
        # Each sample but the first and the last belongs to two areas.
        n = y.shape[dim]
        ends = (y.select(dim, 0) + y.select(dim, n - 1)) / 2.0
        total = y.narrow(dim, 1, n - 2).sum(dim) + ends
        return total if x == 1 and type(x) is int else total * x
    areas = _areas(name, y, x, dim)
    return (areas.cumsum(dim) if running else areas.sum(dim)) / 2.0


def trapezoid(y: Tensor, x: Tensor, *, dim: int) -> Tensor:
    return _integrals("trapezoid", y, x, dim, False)


def trapezoid_dx(y: Tensor, *, dx: Any, dim: int) -> Tensor:
    return _integrals("trapezoid", y, dx, dim, False)


def cumulative_trapezoid(y: Tensor, x: Tensor, *, dim: int) -> Tensor:
    return _integrals("cumulative_trapezoid", y, x, dim, True)


def cumulative_trapezoid_dx(y: Tensor, *, dx: Any, dim: int) -> Tensor:
    return _integrals("cumulative_trapezoid", y, dx, dim, True)


def _places(chosen: Tensor, dtype: Any) -> Tensor:
    return chosen.nonzero().t().contiguous().to(dtype or _C.int64)


def _distances(row: int, col: int, device: Any) -> Tensor:
    """How far each element of a matrix is above the main diagonal."""
    return _ops("arange")(col, device=device) - _ops("arange")(row, device=device).unsqueeze(1)


def tril_indices(row: int, col: int, offset: int, *, dtype: Any, device: Any) -> Tensor:
    return _places(_distances(row, col, device) <= offset, dtype)


def triu_indices(row: int, col: int, offset: int, *, dtype: Any, device: Any) -> Tensor:
    return _places(_distances(row, col, device) >= offset, dtype)


def combinations(input: Tensor, r: int, with_replacement: bool) -> Tensor:
    if r == 0:
        return input.new_empty([0])
    n, repeats = input.numel(), int(with_replacement)
    columns = [_ops("arange")(n, device=input.device)]
    for k in range(2, r + 1):
        # Each row continues with every later place and, if places repeat, also with its last one.
        following = n - 1 + repeats - columns[-1]
        ends = following.cumsum(0)
        total = math.comb(n + (k - 1) * repeats, k)
        # How many rows end at or before each of the new ones.
        marks = ends.new_zeros([total + 1]).index_add(0, ends, _ops("ones_like")(ends))
        row = marks.cumsum(0).narrow(0, 0, total)
        rank = _ops("arange")(total, device=input.device)
        place = rank - (ends - n).index_select(0, row)
        columns = [*(c.index_select(0, row) for c in columns), place]
    return _ops("stack")([input.index_select(0, c) for c in columns], 1)


def vander(x: Tensor, N: int | None, increasing: bool) -> Tensor:
    count = x.numel() if N is None else N
    if not (x.is_floating_point() or x.is_complex()):
        x = x.long()
    one = _ops("ones_like")(x).unsqueeze(1)
    columns = [one.narrow(1, 0, min(count, 1))]
    if count > 1:
        columns.append(x.unsqueeze(1).expand([x.numel(), count - 1]).cumprod(1))
    powers = _ops("cat")(columns, 1)
    return powers if increasing else powers.flip([1])


def rot90(input: Tensor, k: int, dims: list[int]) -> Tensor:
    if len(dims) != 2:
        raise _C.ArgumentError(f"rot90: expected total rotation dims == 2, got dims = {len(dims)}")
    if input.ndim < 2:
        raise _C.ArgumentError(f"rot90: expected total dims >= 2, got total dims = {input.ndim}")
    first, second = (_axis("rot90", input, d) for d in dims)
    if first == second:
        raise _C.ArgumentError(
            f"rot90: expected rotation dims to be different, got dim0 = {dims[0]} and dim1 = {dims[1]}"
        )
    turns = k % 4
    if turns == 0:
        return input.clone()
    if turns == 2:
        return input.flip([first, second])
    return input.flip([second if turns == 1 else first]).transpose(first, second)


def renorm(input: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
    for name, value in (("p", p), ("maxnorm", maxnorm)):
        if isinstance(value, complex):
            raise _C.ArgumentError(f"renorm: {name} must be a real number, got {value}")
    if p <= 0:
        raise _C.ArgumentError(f"renorm: non-positive-norm not supported, got {p}")
    if maxnorm < 0:
        raise _C.ArgumentError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    if input.ndim < 2:
        raise _C.ArgumentError(
            f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions"
        )
    others = [d for d in range(input.ndim) if d != dim % input.ndim]
    norm = _ops("vector_norm")(input, float(p), others, True)
    factor = _ops("where")(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)
    return input * factor.to(input.dtype)


def histc(input: Tensor, bins: int, min: Any, max: Any) -> Tensor:
    for name, value in (("min", min), ("max", max)):
        if isinstance(value, complex) or not math.isfinite(value):
            raise _C.ArgumentError(f"histc: {name} must be a finite number, got {value}")
    if min > max:
        raise _C.ArgumentError(f"histc: max must be larger than min, got {min} and {max}")
    flat = input.reshape([-1])
    if flat.numel() == 0:
        return input.new_zeros([bins])
    low, high = (_ops("full")([], x, dtype=input.dtype, device=input.device) for x in (min, max))
    if min == max:
        low, high = flat.min(), flat.max()
        same = low == high
        low, high = _ops("where")(same, low - 1, low), _ops("where")(same, high + 1, high)
        finite = _ops("isfinite")(high - low)
        _ops("assert_all")(finite, "histc: the range of the input is not finite")
    inside = (flat >= low) & (flat <= high)
    place = _ops("where")(inside, (flat - low) * bins / (high - low), 0)
    counts = input.new_zeros([bins])
    return counts.index_add(0, place.long().clamp(max=bins - 1), inside.to(input.dtype))


def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    length = input.shape[dimension] if input.ndim else 1
    if size < 0:
        raise _C.ArgumentError(f"unfold: size must be >= 0 but got {size}")
    if size > length:
        raise _C.ArgumentError(
            f"unfold: maximum size for tensor at dimension {dimension} is {length} but size is {size}"
        )
    if step <= 0:
        raise _C.ArgumentError(f"unfold: step is {step} but must be > 0")
    if input.ndim == 0:
        return input.as_strided([size], [1])
    shape, stride = list(input.shape), list(input.stride())
    at = dimension % input.ndim
    shape[at] = (length - size) // step + 1
    stride.append(stride[at])
    stride[at] *= step
    return input.as_strided([*shape, size], stride)


def float_power(input: Any, exponent: Any) -> Tensor:
    given = (input, exponent)
    some_complex = any(
        x.is_complex() if isinstance(x, Tensor) else isinstance(x, complex) for x in given
    )
    wide = _C.complex128 if some_complex else _C.float64
    base, power = (x.to(wide) if isinstance(x, Tensor) else x for x in given)
    return _ops("pow")(base, power)


def ldexp(input: Any, other: Any) -> Tensor:
    return _ops("mul")(input, _ops("pow")(2.0, other))


def frexp(input: Tensor) -> tuple[Tensor, Tensor]:
    """The exponent from the bits; numbers below the smallest normal one are scaled up first."""
    where, limits = _ops("where"), finfo(input.dtype)
    digits = round(-math.log2(limits.eps))
    bias = round(1 - math.log2(limits.tiny))
    x = input.detach()
    small = x.abs() < limits.tiny
    scaled = where(small, x * 2.0**digits, x).contiguous()
    bits = scaled.view(BITS[x.dtype]) >> digits
    exponent = (bits & (2 * bias + 1)) - (bias - 1)
    exponent = where(small, exponent - digits, exponent)
    plain = (x == 0) | _ops("isfinite")(x).logical_not()
    exponent = where(plain, 0, exponent).to(_C.int32)
    half = exponent >> 1  # rounds down, as // does, without a division
    powers = [(e.to(bits.dtype) + bias << digits).view(x.dtype) for e in (-half, half - exponent)]
    return input * powers[0] * powers[1], exponent


def corrcoef(input: Tensor) -> Tensor:
    c = _ops("cov")(input)
    if c.ndim == 0:
        return c / c
    deviation = (c.diag().real if c.is_complex() else c.diag()).sqrt()
    c = c / deviation.unsqueeze(1) / deviation
    if c.is_complex():
        return _ops("complex")(c.real.clamp(-1, 1), c.imag.clamp(-1, 1))
    return c.clamp(-1, 1)


def unravel_index(indices: Tensor, shape: Sequence[int]) -> list[Tensor]:
    if any(n < 0 for n in shape):
        raise ValueError(f"unravel_index: shape must not have negative sizes, got {tuple(shape)}")
    if 0 in shape and indices.numel() > 0:
        raise _C.ArgumentError(f"unravel_index: an array of shape {tuple(shape)} has no elements")
    strides = itertools.accumulate(reversed(shape[1:]), operator.mul, initial=1)
    divide, remainder = _ops("floor_divide"), _ops("remainder")
    pairs = zip(shape, reversed(list(strides)), strict=True) if shape else ()
    flat = indices.to(_C.int64)
    places = [remainder(divide(flat, stride), n) for n, stride in pairs]
    # Beside each other in memory, as in PyTorch.
    return list(_ops("stack")(places, -1).unbind(-1)) if places else []
