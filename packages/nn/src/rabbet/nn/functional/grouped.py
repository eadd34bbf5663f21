"""Products of groups of matrices that lie one behind another in a tensor, as in a mixture of experts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import rabbet
from rabbet import Tensor

_DTYPES = (rabbet.float32, rabbet.bfloat16, rabbet.float16)


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:
    """One product per group; a matrix instead of a batch holds the groups one behind another.

    Args:
        mat_a: (M, K) or (G, M, K), in float32, bfloat16 or float16.
        mat_b: (K, N) or (G, K, N), in the dtype of `mat_a`.
        offs: (G), int32, where each group ends: in the rows of a matrix `mat_a`, in the columns of a matrix
            `mat_b`, in K where both are matrices. None where both are batches.
        bias: must be None, as in PyTorch.
        out_dtype: None or the dtype of the operands, as in PyTorch.

    Returns:
        (M, N), or (G, M, N) where both are matrices or both are batches. Rows and columns of no group are 0.

    Raises:
        RuntimeError: for other dtypes and shapes, and for offsets that fall or leave the tensor.
    """
    _check(mat_a, mat_b, offs, bias)
    if out_dtype not in (None, mat_a.dtype):
        raise RuntimeError(
            f"grouped_mm: output dtype must match `mat_a` dtype {mat_a.dtype}, got {out_dtype}"
        )
    if offs is None:
        return rabbet.bmm(mat_a, mat_b)
    ends: list[int] = offs.tolist()
    jagged = mat_b.shape[1] if mat_a.ndim == 3 else mat_a.shape[0 if mat_b.ndim == 3 else 1]
    spans = list(pairwise([0, *ends]))
    if any(start > end for start, end in spans) or ends[-1] > jagged:
        raise RuntimeError(f"grouped_mm: expected offs to rise to at most {jagged}, got {ends}")
    if mat_a.ndim == mat_b.ndim:
        return rabbet.stack([mat_a[:, s:e] @ mat_b[s:e] for s, e in spans])
    if mat_a.ndim == 2:
        rows = [mat_a[s:e] @ b for (s, e), b in zip(spans, mat_b, strict=True)]
        return rabbet.cat([*rows, mat_a.new_zeros(jagged - ends[-1], mat_b.shape[2])])
    columns = [a @ mat_b[:, s:e] for (s, e), a in zip(spans, mat_a, strict=True)]
    return rabbet.cat([*columns, mat_a.new_zeros(mat_a.shape[1], jagged - ends[-1])], 1)


def _check(a: Tensor, b: Tensor, offs: Tensor | None, bias: Tensor | None) -> None:
    for name, mat in (("mat_a", a), ("mat_b", b)):
        if mat.dtype not in _DTYPES:
            raise RuntimeError(
                f"grouped_mm: Expected {name} to be Float32, BFloat16 or Float16 matrix, got {mat.dtype}"
            )
        if mat.ndim not in (2, 3):
            raise RuntimeError(
                f"grouped_mm: {name} has to be 2 or 3d, got shape {tuple(mat.shape)}"
            )
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"grouped_mm: expected operands of one dtype, got {a.dtype} and {b.dtype}"
        )
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            "grouped_mm: contraction dimension of mat_a and mat_b must match, "
            f"got shapes {tuple(a.shape)} and {tuple(b.shape)}"
        )
    if (offs is None) != (a.ndim == 3 and b.ndim == 3):
        raise RuntimeError(
            "grouped_mm: Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
        )
    if bias is not None:
        raise RuntimeError("grouped_mm: Bias not supported yet")
    groups = {mat.shape[0] for mat in (a, b) if mat.ndim == 3}
    if offs is not None:
        if offs.ndim != 1 or offs.numel() == 0:
            raise RuntimeError(f"grouped_mm: offs has to be 1D, got shape {tuple(offs.shape)}")
        if offs.dtype != rabbet.int32:
            raise RuntimeError(f"grouped_mm: Offsets have to be int32, got {offs.dtype}")
        groups.add(offs.shape[0])
    if len(groups) > 1:
        raise RuntimeError(
            f"grouped_mm: matrix batch sizes have to match, got shapes {tuple(a.shape)} and "
            f"{tuple(b.shape)}" + ("" if offs is None else f" and {offs.shape[0]} offsets")
        )
