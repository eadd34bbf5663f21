"""Functions of tensors some of whose elements a mask leaves out.

A mask is a tensor of bools that broadcasts to the input and has no more dimensions: True marks the elements that take
part. The others are replaced by the identity of the operation, so they change neither the result nor, being constants,
any gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import rabbet

from .. import _C
from .._C import Tensor

_Dims = int | Sequence[int] | None
_SMALL_INTEGERS = (_C.uint8, _C.bool, _C.int8, _C.int16, _C.int32)


# ---- masks and identities


def _canonical_dim(dim: _Dims, ndim: int) -> tuple[int, ...]:
    """The dimensions of a reduction, ascending; all of them for None."""
    if dim is None:
        return tuple(range(ndim))
    ndim = max(ndim, 1)
    dims: list[int] = []
    for d in (dim,) if isinstance(dim, int) else dim:
        if not -ndim <= d < ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {d})"
            )
        if d % ndim in dims:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        dims.append(d % ndim)
    return tuple(sorted(dims))


def _input_mask(input: Tensor, *args: Any, mask: Tensor | None = None, **kwargs: Any) -> Tensor:
    """The mask with the shape of the input.

    Raises:
        ValueError: without a mask.
        IndexError: for a mask of more dimensions than the input.
    """
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    if mask.ndim > input.ndim:
        raise IndexError(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the input): "
            f"mask has shape {tuple(mask.shape)}, input {tuple(input.shape)}"
        )
    return mask.broadcast_to(input.shape).to(rabbet.bool)


def _output_mask(operation: Callable[..., Any], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Which elements of the result of `operation(input, *args, **kwargs)` have a value."""
    name = getattr(operation, "__name__", "")
    if name in _CUMULATIVE:
        return _input_mask(input, **kwargs)
    if name not in _REDUCTIONS:
        raise ValueError(f"_output_mask expected masked operation (got {operation!r})")
    positional = args[1:] if name == "norm" else args
    dim = positional[0] if positional else kwargs.get("dim")
    found = _input_mask(input, **kwargs)
    for d in reversed(_canonical_dim(dim, input.ndim)):
        found = found.any(d, bool(kwargs.get("keepdim", False)))
    return found


def _extreme(dtype: Any, sign: int) -> Any:
    """The largest (`sign` 1) or the smallest (-1) value of a dtype."""
    if dtype.is_floating_point or dtype.is_complex:
        return sign * math.inf
    if dtype is _C.bool:
        return sign > 0
    limits = rabbet.iinfo(dtype)
    return limits.max if sign > 0 else limits.min


def _filled(input: Tensor, mask: Tensor | None, value: Any) -> Tensor:
    """The input with `value` where the mask is False."""
    if mask is None:
        return input
    fill = rabbet.full((), value, dtype=input.dtype, device=input.device)
    return rabbet.where(_input_mask(input, mask=mask), input, fill)


def _summed_dtype(dtype: Any, input: Tensor) -> Any:
    if dtype is not None:
        return dtype
    return _C.int64 if input.dtype in _SMALL_INTEGERS else input.dtype


# ---- reductions


def sum(
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The sum along `dim` (all by default) of the elements that the mask keeps; 0 where it keeps none.

    Args:
        input: of any shape; integers are summed as int64.
        mask: bools that broadcast to `input`; None keeps all.

    Example:
        >>> rabbet.masked.sum(rabbet.tensor([[1, 2], [3, 4]]), 1, mask=rabbet.tensor([[True, False], [True, True]]))
        tensor([1, 7])
    """
    dims = _canonical_dim(dim, input.ndim)
    x = _filled(input, mask, 0)
    return x.sum(dims, keepdim=bool(keepdim), dtype=_summed_dtype(dtype, input))


def prod(
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The product along `dim` (all by default) of the elements that the mask keeps; 1 where it keeps none."""
    found = _filled(input, mask, 1).to(_summed_dtype(dtype, input))
    for d in reversed(_canonical_dim(dim, input.ndim)):
        found = found.prod(d, keepdim=bool(keepdim))
    return found


def amax(
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The largest element along `dim` that the mask keeps; the dtype's smallest value where it keeps none."""
    dims = _canonical_dim(dim, input.ndim)
    x = _filled(input, mask, _extreme(input.dtype, -1))
    return x.amax(dims, bool(keepdim)).to(dtype or input.dtype)


def amin(
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The smallest element along `dim` that the mask keeps; the dtype's largest value where it keeps none."""
    dims = _canonical_dim(dim, input.ndim)
    x = _filled(input, mask, _extreme(input.dtype, 1))
    return x.amin(dims, bool(keepdim)).to(dtype or input.dtype)


def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Where the largest element that the mask keeps is, in the dtype of the input unless `dtype` is given."""
    x = _filled(input, mask, _extreme(input.dtype, -1))
    return x.argmax(dim, bool(keepdim)).to(dtype or input.dtype)


def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Where the smallest element that the mask keeps is, in the dtype of the input unless `dtype` is given."""
    x = _filled(input, mask, _extreme(input.dtype, 1))
    return x.argmin(dim, bool(keepdim)).to(dtype or input.dtype)


def _count(input: Tensor, dims: tuple[int, ...], keepdim: bool, mask: Tensor | None) -> Tensor:
    kept = (
        rabbet.ones(input.shape, dtype=rabbet.bool, device=input.device)
        if mask is None
        else _input_mask(input, mask=mask)
    )
    return kept.sum(dims, keepdim=keepdim)


def mean(
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The mean along `dim` of the elements that the mask keeps; NaN where it keeps none.

    Raises:
        ValueError: for a dtype that is neither floating nor complex.
    """
    found = dtype or input.dtype
    if not (found.is_floating_point or found.is_complex):
        source = "Input" if dtype is None else "Optional"
        raise ValueError(
            f"mean(): Could not infer output dtype. {source} dtype must be either a floating point or complex dtype. "
            f"Got: {found}"
        )
    dims = _canonical_dim(dim, input.ndim)
    total = sum(input, dims, keepdim=keepdim, dtype=found, mask=mask)
    return total / _count(input, dims, bool(keepdim), mask)


def median(
    input: Tensor,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The median along `dim` of the elements that the mask keeps, of two the lower; NaN where it keeps none.

    Raises:
        ValueError: where the mask keeps none of a row of integers.
    """
    along = _canonical_dim(dim, input.ndim)[0]
    floating = input.is_floating_point()
    x = _filled(input if floating else input.to(_C.float32), mask, math.nan)
    found = x.nanmedian(along, keepdim).values
    if floating:
        return found
    if found.isnan().any():
        raise ValueError(
            "masked median expects no fully masked out rows if dtype is not floating point"
        )
    return found.to(dtype or input.dtype)


def logsumexp(
    input: Tensor,
    dim: _Dims = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """log(sum(exp(input))) along `dim` over the elements that the mask keeps; -inf where it keeps none."""
    dims = _canonical_dim(dim, input.ndim)
    x = _filled(input, mask, _extreme(input.dtype, -1))
    return x.logsumexp(dims, keepdim).to(dtype or input.dtype)


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: _Dims = None,
    *,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """`linalg.vector_norm` of the elements that the mask keeps; 0 where it keeps none, inf for `ord=-inf`."""
    order = 2.0 if ord is None else ord
    x = _filled(input, mask, math.inf if order == -math.inf else 0)
    dims = _canonical_dim(dim, input.ndim)
    return rabbet.linalg.vector_norm(x, order, dims, bool(keepdim), dtype=dtype or input.dtype)


def _spread(
    input: Tensor,
    dim: _Dims,
    unbiased: bool | None,
    correction: float | None,
    keepdim: bool | None,
    dtype: Any,
    mask: Tensor | None,
) -> Tensor:
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    if correction is None:
        correction = 0.0 if unbiased is False else 1.0
    whole = not (input.is_floating_point() or input.is_complex())
    found = dtype or (_C.float32 if whole else input.dtype)
    computed = found if found.is_floating_point or found.is_complex else _C.float32
    dims = _canonical_dim(dim, input.ndim)
    count = _count(input, dims, True, mask)
    x = input - sum(input, dims, keepdim=True, dtype=found, mask=mask) / count
    total = sum(x * x.conj(), dims, keepdim=keepdim, dtype=computed, mask=mask)
    count = count.reshape(total.shape).to(total.real.dtype if total.is_complex() else total.dtype)
    return (total / (count - correction).clamp(min=0)).to(found)


def var(
    input: Tensor,
    dim: _Dims = None,
    unbiased: bool | None = None,
    *,
    correction: int | float | None = None,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance along `dim` of the elements that the mask keeps; NaN where it keeps too few."""
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask)


def std(
    input: Tensor,
    dim: _Dims = None,
    unbiased: bool | None = None,
    *,
    correction: int | None = None,
    keepdim: bool | None = False,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The standard deviation along `dim` of the elements that the mask keeps; NaN where it keeps too few."""
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask).sqrt()


# ---- functions that keep the shape


def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Running sums along `dim` of the elements that the mask keeps."""
    along = _canonical_dim(dim, input.ndim)[0]
    return _filled(input, mask, 0).cumsum(along, dtype=dtype or input.dtype)


def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Running products along `dim` of the elements that the mask keeps."""
    along = _canonical_dim(dim, input.ndim)[0]
    return _filled(input, mask, 1).cumprod(along, dtype=dtype or input.dtype)


def softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Softmax along `dim` of the elements that the mask keeps, 0 for the others; NaN where it keeps none."""
    along = _canonical_dim(dim, input.ndim)[0]
    return rabbet.softmax(
        _filled(input, mask, _extreme(input.dtype, -1)), along, dtype or input.dtype
    )


def log_softmax(
    input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None
) -> Tensor:
    """The logarithm of `softmax`: -inf for the elements that the mask leaves out."""
    along = _canonical_dim(dim, input.ndim)[0]
    return rabbet.log_softmax(
        _filled(input, mask, _extreme(input.dtype, -1)), along, dtype or input.dtype
    )


def softmin(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """`softmax` of the negated input."""
    along = _canonical_dim(dim, input.ndim)[0]
    return rabbet.softmax(
        -_filled(input, mask, _extreme(input.dtype, 1)), along, dtype or input.dtype
    )


def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The elements that the mask keeps divided by their norm along `dim`, which counts as `eps` at least; else 0."""
    length = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _filled(input, mask, 0) / length.maximum(length.new_full([], eps))


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: Any = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """log(exp(input) + exp(other)), where elements that their mask leaves out count as -inf."""
    x = _filled(input, input_mask, _extreme(input.dtype, -1))
    y = _filled(other, other_mask, _extreme(other.dtype, -1))
    return x.logaddexp(y).to(dtype or input.dtype)


_REDUCTIONS = {
    "amax", "amin", "argmax", "argmin", "logsumexp", "mean", "median", "norm", "prod", "std", "sum", "var",
}  # fmt: skip
_CUMULATIVE = {"cumprod", "cumsum", "log_softmax", "normalize", "softmax", "softmin"}
