"""NumPy's arrays and scalars in pickles: their dtypes, shapes and bytes, checked before NumPy sees them."""

import math
import re
from collections.abc import Callable
from typing import Any

from .header import is_shape
from .unpickling import UnpicklingError

# What numpy._core is called by versions before 2.
_MODULES = re.compile(r"numpy(\._?core(\.(multiarray|numeric|_multiarray_umath))?)?")
_PLAIN = re.compile(r"[|<>=]?([?]|[biufcSU]\d+)")
_MAKERS = ("_reconstruct", "scalar", "_frombuffer", "ndarray", "dtype")


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise UnpicklingError("the file holds NumPy's values: pip install numpy") from None
    return numpy


def find(module: str, name: str) -> tuple[Any, Callable[..., Any] | None] | None:
    """The value of a name of NumPy's and what makes its result; None: it is no such name."""
    if not _MODULES.fullmatch(module) or name not in _MAKERS:
        return None
    if name == "ndarray":
        return _numpy().ndarray, None
    if name == "dtype":
        return _numpy().dtype, _dtype
    maker: Any = {"_reconstruct": _array, "scalar": _scalar, "_frombuffer": _from_buffer}[name]
    return maker, maker


def _dtype(code: Any, align: Any = False, copy: Any = False) -> Any:
    if type(code) is not str or not _PLAIN.fullmatch(code):
        raise UnpicklingError(
            f"the file holds a NumPy array of dtype {code!r}: only numbers, bools and strings are read"
        )
    return _numpy().dtype(code, False, True)


def _checked_dtype(dtype: Any) -> Any:
    if not isinstance(dtype, _numpy().dtype) or not _PLAIN.fullmatch(dtype.str):
        raise UnpicklingError("a NumPy value of the file has a damaged dtype")
    return dtype


def _array(cls: Any, shape: Any, code: Any) -> Any:
    if cls is not _numpy().ndarray:
        raise UnpicklingError("a NumPy array of the file is of another class than ndarray")
    return _numpy().ndarray((0,), "b")


def _scalar(dtype: Any, data: Any) -> Any:
    dtype = _checked_dtype(dtype)
    if isinstance(data, str):
        data = data.encode("latin1")
    if type(data) is not bytes or len(data) != dtype.itemsize:
        raise UnpicklingError("a NumPy scalar of the file is damaged")
    return _numpy().frombuffer(data, dtype)[0]


def _shaped(data: Any, dtype: Any, shape: Any, order: str) -> Any:
    if isinstance(data, str):
        data = data.encode("latin1")
    if not isinstance(data, (bytes, bytearray)) or not isinstance(shape, tuple):
        raise UnpicklingError("a NumPy array of the file is damaged")
    if not is_shape(list(shape)) or len(data) != math.prod(shape) * _checked_dtype(dtype).itemsize:
        raise UnpicklingError("the bytes of a NumPy array do not fit its shape")
    return _numpy().ndarray(shape, dtype, bytearray(data), order=order)


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any, *axes: Any) -> Any:
    if order not in ("C", "F"):
        raise UnpicklingError("a NumPy array of the file is damaged")
    return _shaped(data, dtype, shape, order)


def build(value: Any, state: Any) -> bool:
    """Give an array or dtype the state of a file; False: the value is neither."""
    if type(value).__module__.partition(".")[0] != "numpy":
        return False
    numpy = _numpy()
    if type(value) is numpy.ndarray:
        if not isinstance(state, tuple) or len(state) != 5:
            raise UnpicklingError("a NumPy array of the file is damaged")
        _, shape, dtype, fortran, data = state
        made = _shaped(data, dtype, shape, "F" if fortran is True else "C")
        value.__setstate__((1, made.shape, made.dtype, fortran is True, made.tobytes("A")))
        return True
    if isinstance(value, numpy.dtype):
        _check_state(value, state)
        value.__setstate__(state)
        return True
    return False


def _check_state(dtype: Any, state: Any) -> None:
    plain = isinstance(state, tuple) and len(state) == 8 and state[0] in (3, 4)
    if plain:
        sizes = (-1, dtype.itemsize), (-1, dtype.alignment)
        plain = (
            state[1] in ("<", ">", "|", "=")
            and state[2:5] == (None, None, None)
            and all(type(n) is int and n in known for n, known in zip(state[5:7], sizes, strict=True))
            and type(state[7]) is int
            and state[7] in (0, 8)
        )  # fmt: skip
    if not plain:
        raise UnpicklingError("a NumPy dtype of the file is damaged or has fields")
