"""Functions made of reductions compute in float32 when their tensors have 16 bits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

import rabbet
from rabbet import Tensor

P = ParamSpec("P")

_NARROW = frozenset((rabbet.float16, rabbet.bfloat16))


def accumulation_dtype(dtype: Any) -> Any:
    """float32 for float16 and bfloat16, else `dtype`."""
    return rabbet.float32 if dtype in _NARROW else dtype


def widened(value: Any) -> Any:
    """`value` in its accumulation dtype if it is a tensor of float16 or bfloat16, else as it is."""
    if isinstance(value, Tensor) and value.dtype in _NARROW:
        return value.to(dtype=rabbet.float32)
    return value


def accumulated(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Let `function` compute in float32 where tensors are float16 or bfloat16, and round its result once.

    The result has the dtype that all tensor arguments promote to. The records' field `accumulate` is the same for
    operators.
    """

    @functools.wraps(function)
    def accumulating(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        for value in args:
            if getattr(value, "dtype", None) in _NARROW:
                return _in_float32(function, args, kwargs)
        for value in kwargs.values():
            if getattr(value, "dtype", None) in _NARROW:
                return _in_float32(function, args, kwargs)
        return function(*args, **kwargs)

    return accumulating


def _in_float32(
    function: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor:
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    # Tensors without dimensions matter only where there are no others.
    ranked = [x for x in tensors if x.ndim] or tensors
    dtype = functools.reduce(rabbet.promote_types, [x.dtype for x in ranked])
    result = function(
        *(widened(x) for x in args), **{name: widened(x) for name, x in kwargs.items()}
    )
    return result.to(dtype=dtype) if dtype in _NARROW else result
