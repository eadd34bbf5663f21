"""Private functions of the module `torch` that packages call."""

from collections.abc import Callable
from typing import Any

import rabbet

from .. import _destinations, _foreach
from .._absent import refusing_function
from .._C import NotImplementedForError, Tensor
from .._foreach import *  # noqa: F403
from .._settings import is_nonzero
from . import operators
from .operators import *  # noqa: F403

__all__ = ["_assert", "_assert_async", "_check", "_check_tensor_all", "_check_tensor_all_with", "_check_with", "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo", "_grouped_mm", "_int_mm", "_make_per_tensor_quantized_tensor", "_nested_compute_contiguous_strides_offsets", "_nested_view_from_buffer", "_scaled_mm", "_segment_reduce", "_shape_as_tensor", "_check_index", "_check_not_implemented", "_check_type", "_check_value", "_is_all_true", "_sample_dirichlet", "_standard_gamma", *_foreach.__all__, *operators.__all__]  # fmt: skip


def _assert(condition: Any, message: str) -> None:
    """A Python assert as a function."""
    assert condition, message


def _assert_async(input: Tensor, assert_msg: str = "Expected Tensor to be nonzero") -> None:
    """Raise RuntimeError unless the one element of a tensor is not zero."""
    if not is_nonzero(input):
        raise RuntimeError(assert_msg)


def _raises(error: type[Exception], name: str) -> Callable[..., None]:
    def check(cond: Any, message: Callable[[], Any] | None = None) -> None:
        if not isinstance(cond, bool):
            raise TypeError(f"cond must be a bool, but got {type(cond)}")
        if cond:
            return
        if message is not None and not callable(message):
            raise TypeError("message must be a callable")
        raise error(
            f"{name}: expected cond to be True, got False" if message is None else str(message())
        )

    check.__name__ = check.__qualname__ = name
    check.__doc__ = (
        f"Raise {error.__name__} with the text that `message` gives unless `cond` holds."
    )
    return check


_check = _raises(RuntimeError, "_check")
_check_index = _raises(IndexError, "_check_index")
_check_value = _raises(ValueError, "_check_value")
_check_type = _raises(TypeError, "_check_type")
_check_not_implemented = _raises(NotImplementedError, "_check_not_implemented")


def _is_all_true(input: Tensor) -> Tensor:
    """Whether all elements of a bool tensor are True, as a tensor."""
    return input.all()


def _standard_gamma(self: Tensor, generator: Any = None) -> Tensor:
    """Numbers of Gamma(alpha, 1), differentiable by alpha."""
    return _drawn("gamma_draws", self, generator)


def _sample_dirichlet(self: Tensor, generator: Any = None) -> Tensor:
    """Samples of Dirichlet distributions whose concentrations lie along the last dimension."""
    return _drawn("dirichlet_draws", self, generator)


def _drawn(function: str, alpha: Tensor, generator: Any) -> Tensor:
    from rabbet.distributions import _sampling

    if generator is not None:
        raise NotImplementedForError(f"{function}: only the default generator is supported")
    return getattr(_sampling, function)(alpha)


def _check_with(error_type: type[Exception], cond: Any, message: Callable[[], str]) -> None:
    """Raise `error_type` with the text that `message` gives unless `cond` holds."""
    _raises(error_type, "_check_with")(cond, message)


def _check_tensor_all_with(
    error_type: type[Exception], cond: Tensor, message: Callable[[], str] | None = None
) -> None:
    """Raise `error_type` unless all elements of a bool tensor are True."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not rabbet.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all().item()), message)  # type: ignore[arg-type]


def _check_tensor_all(cond: Tensor, message: Callable[[], str] | None = None) -> None:
    """Raise RuntimeError unless all elements of a bool tensor are True."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _shape_as_tensor(self: Tensor) -> Tensor:
    """The shape as an int64 vector on the CPU."""
    return rabbet.tensor(list(self.shape), dtype=rabbet.int64, device="cpu")


def _int_mm(self: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of two int8 matrices in int32.

    Raises:
        RuntimeError: for other dtypes.
    """
    for name, value in (("self", self), ("mat2", mat2)):
        if value.dtype is not rabbet.int8:
            raise RuntimeError(f"_int_mm: Expected {name} dtype to be int8 but got {value.dtype}")
    found = rabbet.mm(self.to(rabbet.int32), mat2.to(rabbet.int32))
    return _destinations.write("_int_mm", found, out)


def _scaled_mm(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """The product of two scaled matrices of narrow floats, computed in float32: (m, k), (k, n) to (m, n).

    Args:
        scale_a, scale_b: float32: one number each, or one per row of `self` (m, 1) and column of `mat2` (1, n).
        bias: is added to each row.
        out_dtype: that of `self` by default.

    Raises:
        RuntimeError: for scales of other shapes.
    """
    rows, columns = self.shape[0], mat2.shape[1]
    whole = scale_a.numel() == 1 and scale_b.numel() == 1
    if not whole and (scale_a.shape != (rows, 1) or scale_b.shape != (1, columns)):
        raise RuntimeError(
            "_scaled_mm: expected one scale each, or scales of the shapes "
            f"({rows}, 1) and (1, {columns}), got {tuple(scale_a.shape)} and {tuple(scale_b.shape)}"
        )
    found = rabbet.mm(self.to(rabbet.float32), mat2.to(rabbet.float32)) * scale_a * scale_b
    if bias is not None:
        found = found + bias
    if scale_result is not None:
        found = found * scale_result
    return found.to(self.dtype if out_dtype is None else out_dtype)


def _grouped_mm(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:
    """Products of groups of matrices, whose ends along the dim that two tensors share are in `offs`.

    Args:
        self, mat2: both 3-d: one group per matrix. (m, k) and (groups, k, n): groups of rows; (groups, m, k) and
            (k, n): of columns; (m, k) and (k, n): of the inner dim, with a result (groups, m, n).

    Raises:
        RuntimeError: without `offs` unless both are 3-d.
    """
    if bias is not None:
        raise RuntimeError("_grouped_mm: Bias not supported yet")
    if (self.ndim == 3 and mat2.ndim == 3) != (offs is None):
        raise RuntimeError("_grouped_mm: Have to provide offsets for 2d-3d, 3d-2d and 2d-2d, only")
    if offs is None:
        found = rabbet.bmm(self, mat2)
        return found if out_dtype is None else found.to(out_dtype)
    ends = offs.tolist()
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    if self.ndim == 2 and mat2.ndim == 2:
        found = rabbet.stack([self[:, a:b] @ mat2[a:b] for a, b in spans])
    elif self.ndim == 2:
        found = rabbet.cat([self[a:b] @ mat2[g] for g, (a, b) in enumerate(spans)])
    else:
        found = rabbet.cat([self[g] @ mat2[:, a:b] for g, (a, b) in enumerate(spans)], 1)
    return found if out_dtype is None else found.to(out_dtype)


def _convert_indices_from_coo_to_csr(
    self: Tensor, size: int, *, out_int32: bool = False, out: Tensor | None = None
) -> Tensor:
    """The start of each of `size` rows among sorted row indices, followed by the end of the last row."""
    rows = rabbet.arange(size + 1, dtype=self.dtype, device=self.device)
    return rabbet.searchsorted(self.contiguous(), rows, out_int32=out_int32, out=out)


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor,
    col_indices: Tensor,
    *,
    out_int32: bool = False,
    transpose: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """The (row, column) indices of the elements of a CSR matrix, a (2, count) tensor."""
    rows = rabbet.repeat_interleave(crow_indices.diff())
    pair = [col_indices, rows] if transpose else [rows, col_indices]
    dtype = rabbet.int32 if out_int32 else rabbet.int64
    found = rabbet.stack([x.to(dtype) for x in pair])
    return _destinations.write("_convert_indices_from_csr_to_coo", found, out)


_NO_NESTED = "rabbet has no nested tensors yet"
_make_per_tensor_quantized_tensor = refusing_function(
    "torch", "_make_per_tensor_quantized_tensor", "rabbet has no quantization package yet"
)
_nested_compute_contiguous_strides_offsets = refusing_function(
    "torch", "_nested_compute_contiguous_strides_offsets", _NO_NESTED
)
_nested_view_from_buffer = refusing_function("torch", "_nested_view_from_buffer", _NO_NESTED)
_segment_reduce = rabbet.segment_reduce
