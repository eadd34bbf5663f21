"""Dtypes: promotion by the standard's table, kinds of dtypes and their limits."""

from dataclasses import dataclass
from functools import reduce
from typing import Any

import rabbet

from .._C import Tensor
from ._arguments import NUMBERS, Device, DType, Number, need_dtype, need_tensors

NAMES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip
# Unsigned integers that PyTorch's promotion refuses beside other integers.
_WIDE_UNSIGNED = ("uint16", "uint32", "uint64")
_PARTS = {
    "integral": ("signed integer", "unsigned integer"),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}
_KINDS = (
    "bool", "signed integer", "unsigned integer", "real floating", "complex floating", *_PARTS,
)  # fmt: skip


def kind_of(dtype: DType) -> str:
    """The standard's kind of a dtype; of others than numbers the empty string."""
    if dtype.is_complex:
        return "complex floating"
    if dtype.is_floating_point:
        return "real floating"
    if dtype is rabbet.bool:
        return "bool"
    name = dtype.name
    if name.startswith("uint"):
        return "unsigned integer"
    return "signed integer" if name.startswith("int") else ""


def is_integral(dtype: DType) -> bool:
    """Whether a dtype is of signed or unsigned integers."""
    return kind_of(dtype) in _PARTS["integral"]


def promoted(function: str, a: DType, b: DType) -> DType:
    """The dtype in which values of both dtypes are computed.

    Raises:
        TypeError: for uint64 and a signed integer, which no integer dtype holds.
    """
    if a is b:
        return a
    wide, other = (a, b) if a.name in _WIDE_UNSIGNED else (b, a)
    if wide.name not in _WIDE_UNSIGNED:
        return rabbet.promote_types(a, b)
    if not is_integral(other):
        return wide if other is rabbet.bool else other
    if kind_of(other) == "unsigned integer":
        return max(wide, other, key=lambda dtype: dtype.itemsize)
    size = max(other.itemsize, 2 * wide.itemsize)
    if size > rabbet.int64.itemsize:
        raise TypeError(f"{function}: {a.name} and {b.name} have no common integer dtype")
    return getattr(rabbet, f"int{8 * size}")


def with_number(dtype: DType, number: Number) -> DType:
    """The dtype of an operation on a tensor and a Python number.

    A number of a kind that the dtype has keeps the dtype; the others are computed as PyTorch does.
    """
    if isinstance(number, bool):
        return dtype
    if isinstance(number, int):
        return rabbet.int64 if dtype is rabbet.bool else dtype
    if isinstance(number, float):
        keeps = dtype.is_floating_point or dtype.is_complex
        return dtype if keeps else rabbet.get_default_dtype()
    if dtype.is_complex:
        return dtype
    return (dtype if dtype.is_floating_point else rabbet.get_default_dtype()).to_complex()


def common_dtype(function: str, *values: Any) -> DType:
    """The dtype of an operation on tensors, dtypes and Python numbers.

    Raises:
        TypeError: for other values, and if there are numbers only.
    """
    dtypes = [x.dtype if isinstance(x, Tensor) else x for x in values if not isinstance(x, NUMBERS)]
    for x in dtypes:
        if not isinstance(x, rabbet.dtype):
            raise TypeError(
                f"{function}: expected tensors, dtypes and numbers, got {type(x).__name__}"
            )
    if not dtypes:
        raise TypeError(f"{function}: at least one argument must be a Tensor or a dtype")
    numbers = [x for x in values if isinstance(x, NUMBERS)]
    return reduce(with_number, numbers, reduce(lambda a, b: promoted(function, a, b), dtypes))


def result_type(*arrays_and_dtypes: Tensor | Number | DType) -> DType:
    """The dtype of an operation on tensors, dtypes and Python numbers.

    A 0-d tensor counts as any other tensor, unlike in `rabbet.result_type`.

    Raises:
        TypeError: for other values, for numbers only, and for uint64 beside a signed integer.

    Example:
        >>> result_type(rabbet.uint16, rabbet.int8)
        rabbet.int32
    """
    return common_dtype("result_type", *arrays_and_dtypes)


def can_cast(from_: DType | Tensor, to: DType, /) -> bool:
    """Whether promotion leads from a dtype, or a tensor's, to the dtype `to`.

    `rabbet.can_cast` asks another question: whether the kind of the values is kept.

    Raises:
        TypeError: if an argument is no dtype.
    """
    start = from_.dtype if isinstance(from_, Tensor) else from_
    need_dtype("can_cast", start)
    need_dtype("can_cast", to)
    if is_integral(start) and not is_integral(to) and to is not rabbet.bool:
        return False  # the standard promotes no integer to a floating dtype
    try:
        return promoted("can_cast", start, to) is to
    except TypeError:
        return False


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """Whether `dtype` is a dtype, of a kind, or one of several.

    Args:
        kind: a dtype, 'bool', 'signed integer', 'unsigned integer', 'integral', 'real floating', 'complex floating',
            'numeric', or a tuple of these. float16 and bfloat16 are of the kind 'real floating', too.

    Raises:
        TypeError: if `dtype` is no dtype, or `kind` none of these types.
        ValueError: for a kind of another name.
    """
    need_dtype("isdtype", dtype)
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, rabbet.dtype):
        return dtype is kind
    if not isinstance(kind, str):
        raise TypeError(f"isdtype: kind must be a dtype, a str or a tuple of them, got {kind!r}")
    if kind not in _KINDS:
        raise ValueError(f"isdtype: kind must be one of {', '.join(_KINDS)}, got {kind!r}")
    return kind_of(dtype) in _PARTS.get(kind, (kind,))


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: Device = None) -> Tensor:
    """The elements in another dtype.

    Args:
        copy: whether the result has memory of its own even if neither the dtype nor the device changes.

    Raises:
        TypeError: from a complex dtype to a real one other than bool: take `real(x)` or `imag(x)` first.
    """
    need_tensors("astype", x=x)
    need_dtype("astype", dtype)
    if x.is_complex() and not dtype.is_complex:
        if dtype is not rabbet.bool:
            raise TypeError(
                f"astype: complex numbers cannot be cast to {dtype.name}; take real() or imag() first"
            )
        return (x != 0).to(device=x.device if device is None else device)
    return x.to(device=x.device if device is None else device, dtype=dtype, copy=copy)


@dataclass(frozen=True)
class FloatLimits:
    """Limits of a floating dtype; of a complex one, those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerLimits:
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: DType | Tensor, /) -> FloatLimits:
    """The limits of a floating or complex dtype, or of a tensor's.

    Raises:
        TypeError: for other dtypes.
    """
    dtype = type.dtype if isinstance(type, Tensor) else type
    need_dtype("finfo", dtype)
    if dtype.is_complex:
        dtype = dtype.to_real()
    found = rabbet.finfo(dtype)
    return FloatLimits(found.bits, found.eps, found.max, found.min, found.tiny, dtype)


def iinfo(type: DType | Tensor, /) -> IntegerLimits:
    """The limits of an integer dtype, or of a tensor's.

    Raises:
        TypeError: for other dtypes.
    """
    dtype = type.dtype if isinstance(type, Tensor) else type
    need_dtype("iinfo", dtype)
    found = rabbet.iinfo(dtype)
    return IntegerLimits(found.bits, found.max, found.min, dtype)
