"""Methods of tensors about other layouts than strided ones, of quantized tensors, and some of linear algebra.

Methods of other layouts: they answer for strided tensors where PyTorch does, and refuse otherwise.
"""

from __future__ import annotations

from typing import Any

from . import _C, _numeric, linalg
from ._absent import refusing_function
from ._C import Tensor

_NO_SPARSE = "rabbet has no sparse tensors yet"
_SPARSE = (
    "to_mkldnn to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr"
)
_OF_SPARSE = (
    "ccol_indices coalesce col_indices crow_indices indices is_coalesced row_indices values"
)


def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The tensor itself, which is dense, or its elements in `dtype`."""
    return self if dtype is None else self.to(dtype)


def dequantize(self: Tensor) -> Tensor:
    """The elements in float32: the tensor is not quantized."""
    return self.to(_C.float32)


def sparse_dim(self: Tensor) -> int:
    """How many dims are sparse: none."""
    return 0


def dense_dim(self: Tensor) -> int:
    """How many dims are dense: all."""
    return self.ndim


def _is_view(self: Tensor) -> bool:
    """Whether the tensor shows a part of another one's memory."""
    return self._base is not None


def matrix_power(self: Tensor, n: int) -> Tensor:
    """`rabbet.linalg.matrix_power`."""
    return linalg.matrix_power(self, n)


def lu(self: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """`rabbet.lu`."""
    return _numeric.lu(self, pivot, get_infos)


def _needs_sparse(name: str) -> Any:
    def refused(self: Tensor) -> Any:
        raise RuntimeError(f"{name} expected sparse tensor layout but got Strided")

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = "Refuses: only sparse tensors have it."
    return refused


globals().update(
    {
        **{name: _needs_sparse(name) for name in _OF_SPARSE.split()},
        **{name: refusing_function("rabbet.Tensor", name, _NO_SPARSE) for name in _SPARSE.split()},
    }
)
