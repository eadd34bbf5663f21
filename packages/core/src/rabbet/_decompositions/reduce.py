"""Decompositions of reductions: norms, traces, differences."""

from typing import Any

from .. import _C
from .._C import Tensor
from ..linalg import matrix_norm

_ops = _C.op


def norm(input: Tensor, p: Any, dim: list[int] | None, keepdim: bool, *, dtype: Any) -> Tensor:
    if p == "nuc":
        if dim is not None and len(dim) != 2:
            raise _C.ArgumentError(f"norm: p='nuc' needs two dimensions in 'dim', got {dim}")
        return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    if p is not None and p != "fro" and isinstance(p, str):
        raise _C.ArgumentError(f"norm: p must be a number, 'fro' or 'nuc', got {p!r}")
    if not (input.is_floating_point() or input.is_complex()):
        raise _C.DTypeError(f"norm: expected a floating or complex dtype, got {input.dtype}")
    x = input if dtype is None else input.to(dtype)
    if isinstance(p, complex):
        raise _C.ArgumentError(f"norm: p must be a real number, got {p}")
    order = 2.0 if p in ("fro", None) else float(p)
    return _ops("vector_norm")(x, order, dim, keepdim)


def trace(input: Tensor) -> Tensor:
    if input.ndim != 2:
        raise _C.ArgumentError(f"trace: expected a matrix, got shape {tuple(input.shape)}")
    if input.dtype is _C.bool:
        raise _C.NotImplementedForError("trace: bool is not supported")
    return input.diagonal().sum()


def _check_joined(input: Tensor, t: Tensor, dim: int, name: str) -> None:
    """Raise unless `t` has the sizes of `input` but in `dim`."""
    along = range(input.ndim)[dim]
    for d in range(input.ndim):
        if d != along and t.shape[d] != input.shape[d]:
            raise _C.ArgumentError(
                f"diff: expects the shape of {name} to match that of input except along dimension {along}: "
                f"input.size({d}) = {input.shape[d]}, but got {t.shape[d]}"
            )


def diff(input: Tensor, n: int, dim: int, prepend: Tensor | None, append: Tensor | None) -> Tensor:
    if input.ndim == 0:
        raise _C.ArgumentError("diff: expected at least 1 dimension, got a 0-d tensor")
    if n < 0:
        raise _C.ArgumentError(f"diff: n must not be negative, got {n}")
    for name, t in (("prepend", prepend), ("append", append)):
        if t is not None and t.ndim != input.ndim:
            raise _C.ArgumentError(
                f"diff: {name} must have the {input.ndim} dimensions of input, got shape {tuple(t.shape)}"
            )
        if t is not None:
            _check_joined(input, t, dim, name)
    if n == 0:
        return input.clone()
    parts = [t for t in (prepend, input, append) if t is not None]
    x = _ops("cat")(parts, dim) if len(parts) > 1 else input
    subtract = _ops("logical_xor") if x.dtype is _C.bool else _ops("sub")
    for _ in range(min(n, x.size(dim))):
        length = max(x.size(dim) - 1, 0)
        start = min(1, x.size(dim))
        x = subtract(x.narrow(dim, start, length), x.narrow(dim, 0, length))
    return x


def hash_tensor(input: Tensor, dim: list[int], *, keepdim: bool, mode: int) -> Tensor:
    """The exclusive or by halving: the elements of the second half meet those of the first."""
    dims = sorted(dim or range(input.ndim)) if input.ndim else []
    kept = [d for d in range(input.ndim) if d not in dims]
    numbers = input.double() if input.is_floating_point() else input.to(_C.int64)
    bits = numbers.contiguous().view(_C.int64).permute(kept + dims)
    bits = bits.reshape([input.shape[d] for d in kept] + [-1 if input.numel() else 0])
    if bits.shape[-1] == 0:
        bits = bits.new_zeros([*bits.shape[:-1], 1])
    while (count := bits.shape[-1]) > 1:
        half = count // 2
        folded = bits[..., :half] ^ bits[..., half : 2 * half]
        bits = _ops("cat")([folded, bits[..., 2 * half :]], -1) if count % 2 else folded
    shape = [1 if d in dims else n for d, n in enumerate(input.shape)]
    return (
        bits.clone().view(_C.uint64).reshape(shape if keepdim else [input.shape[d] for d in kept])
    )
