"""Comparison of tensors, arrays and nested lists."""

from typing import Any

import numpy as np
import rabbet

_TOLERANCES = {"float16": (1e-3, 1e-3), "bfloat16": (1.6e-2, 1e-2), "float32": (1e-5, 1e-6), "float64": (1e-9, 1e-10),
               "complex32": (1e-3, 1e-3), "complex64": (1e-5, 1e-6), "complex128": (1e-9, 1e-10)}  # fmt: skip
_WIDER = {rabbet.bfloat16: rabbet.float32, rabbet.complex32: rabbet.complex64}  # NumPy has neither


def to_numpy(value: Any) -> np.ndarray:
    """A NumPy array of a tensor (bfloat16 as float32, complex32 as complex64), array or number."""
    if isinstance(value, rabbet.Tensor):
        value = value.detach()
        return value.to(_WIDER.get(value.dtype, value.dtype)).numpy()
    return np.asarray(value)


def assert_close(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    message: str = "",
) -> None:
    """Raise AssertionError unless shape and elements agree; tolerances default by the dtype of `actual`."""
    name = actual.dtype.name if isinstance(actual, rabbet.Tensor) else str(np.asarray(actual).dtype)
    default_rtol, default_atol = _TOLERANCES.get(name, (0.0, 0.0))
    got, want = to_numpy(actual), to_numpy(expected)
    assert got.shape == want.shape, f"{message}: shape {got.shape}, expected {want.shape}"
    np.testing.assert_allclose(
        got,
        want,
        default_rtol if rtol is None else rtol,
        default_atol if atol is None else atol,
        err_msg=message,
    )
