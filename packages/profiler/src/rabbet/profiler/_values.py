"""Arguments and results as a recording keeps them: tensors as (dtype id, sizes), lists, numbers, None for all else."""

from __future__ import annotations

import functools
from typing import Any

from rabbet import _C as core


def sizes_of(value: Any) -> list[Any]:
    """The shape of an argument, of lists of tensors that of each; [] for all else."""
    if isinstance(value, tuple):
        return list(value[1])
    if isinstance(value, list) and any(isinstance(v, tuple) for v in value):
        return [sizes_of(v) for v in value]
    return []


def concrete(value: Any) -> Any:
    """An argument that is a number or a list of numbers; None for tensors and all else."""
    if isinstance(value, list):
        return None if any(not isinstance(v, int) for v in value) else value
    return None if isinstance(value, tuple) else value


def type_of(value: Any) -> str:
    """PyTorch's word for the type of an argument in traces."""
    if isinstance(value, tuple):
        return _dtype_names().get(value[0], "")
    if isinstance(value, list):
        return "TensorList" if any(isinstance(v, tuple) for v in value) else "ScalarList"
    return "" if value is None else "Scalar"


@functools.cache
def _dtype_names() -> dict[int, str]:
    """The words of C++ for dtypes, by id."""
    words = {"float32": "float", "float64": "double", "int64": "long int", "int32": "int", "int16": "short int",
             "int8": "signed char", "uint8": "unsigned char", "bool": "bool", "float16": "c10::Half",
             "bfloat16": "c10::BFloat16", "complex64": "c10::complex<float>", "complex128": "c10::complex<double>"}  # fmt: skip
    return {i: words.get(name, name) for i, name in enumerate(core.dtype_names())}
