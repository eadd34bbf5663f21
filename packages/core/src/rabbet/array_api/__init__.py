"""The Python array API standard, edition 2025.12, for rabbet tensors (https://data-apis.org/array-api).

Its functions take and return ordinary tensors; `x.__array_namespace__()` is this module. Names, signatures, dtypes and
special cases are the standard's, also where PyTorch's functions of the same name differ. Methods and operators of tensors
stay PyTorch's: docs/reference/array-api.md lists what that means. `rabbet.array_api.v2024_12` is the edition before.

Example:
    >>> xp = rabbet.tensor([1.0, 2.0]).__array_namespace__()
    >>> xp.mean(xp.asarray([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    tensor([2., 3.])
"""

from types import ModuleType

import rabbet

from . import fft, linalg
from ._binary import (
    add,
    atan2,
    bitwise_and,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    clip,
    copysign,
    divide,
    equal,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    less,
    less_equal,
    logaddexp,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    nextafter,
    not_equal,
    pow,
    remainder,
    subtract,
)
from ._creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from ._dtypes import astype, can_cast, finfo, iinfo, isdtype, result_type
from ._elementwise import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitwise_invert,
    ceil,
    conj,
    cos,
    cosh,
    exp,
    expm1,
    floor,
    imag,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    negative,
    positive,
    real,
    reciprocal,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)
from ._info import NamespaceInfo
from ._manipulation import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from ._products import matmul, matrix_transpose, tensordot, vecdot
from ._searching import (
    argmax,
    argmin,
    argsort,
    count_nonzero,
    isin,
    nonzero,
    searchsorted,
    sort,
    take,
    take_along_axis,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
    where,
)
from ._statistics import (
    all,
    any,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)

__array_api_version__ = "2025.12"
EDITIONS = ("2024.12", "2025.12")

bool = rabbet.bool
int8 = rabbet.int8
int16 = rabbet.int16
int32 = rabbet.int32
int64 = rabbet.int64
uint8 = rabbet.uint8
uint16 = rabbet.uint16
uint32 = rabbet.uint32
uint64 = rabbet.uint64
float32 = rabbet.float32
float64 = rabbet.float64
complex64 = rabbet.complex64
complex128 = rabbet.complex128

e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None
pi = 3.141592653589793


def __array_namespace_info__() -> NamespaceInfo:
    """The inspection object: capabilities, devices, dtypes."""
    return NamespaceInfo()


def namespace_of(edition: str | None) -> ModuleType:
    """The namespace of an edition of the standard; None is the latest.

    Raises:
        ValueError: for an edition that is not implemented.
    """
    import importlib

    if edition is None or edition == __array_api_version__:
        return importlib.import_module(__name__)
    if edition in EDITIONS:
        return importlib.import_module(f"{__name__}.v{edition.replace('.', '_')}")
    raise ValueError(
        f"__array_namespace__: api_version must be one of {', '.join(EDITIONS)} or None, got {edition!r}"
    )


def __dir__() -> list[str]:
    """The names of the standard."""
    return __all__


__all__ = [
    "__array_api_version__", "__array_namespace_info__", "abs", "acos", "acosh", "add", "all", "any", "arange",
    "argmax", "argmin", "argsort", "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bool",
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "can_cast", "ceil", "clip", "complex128", "complex64",
    "concat", "conj", "copysign", "cos", "cosh", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff",
    "divide", "e", "empty", "empty_like", "equal", "exp", "expand_dims", "expm1", "eye", "fft", "finfo", "flip",
    "float32", "float64", "floor", "floor_divide", "from_dlpack", "full", "full_like", "greater", "greater_equal",
    "hypot", "iinfo", "imag", "inf", "int16", "int32", "int64", "int8", "isdtype", "isfinite", "isin", "isinf",
    "isnan", "less", "less_equal", "linalg", "linspace", "log", "log10", "log1p", "log2", "logaddexp",
    "logical_and", "logical_not", "logical_or", "logical_xor", "matmul", "matrix_transpose", "max", "maximum",
    "mean", "meshgrid", "min", "minimum", "moveaxis", "multiply", "nan", "negative", "newaxis", "nextafter",
    "nonzero", "not_equal", "ones", "ones_like", "permute_dims", "pi", "positive", "pow", "prod", "real",
    "reciprocal", "remainder", "repeat", "reshape", "result_type", "roll", "round", "searchsorted", "sign",
    "signbit", "sin", "sinh", "sort", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "take",
    "take_along_axis", "tan", "tanh", "tensordot", "tile", "tril", "triu", "trunc", "uint16", "uint32", "uint64",
    "uint8", "unique_all", "unique_counts", "unique_inverse", "unique_values", "unstack", "var", "vecdot", "where",
    "zeros", "zeros_like",
]  # fmt: skip
