"""Private operators of PyTorch that programs call as `torch.name` or `torch.ops.aten.name`."""

from collections.abc import Callable, Sequence
from typing import Any

import rabbet

from .._C import Tensor

__all__ = ["_batch_norm_with_update", "_chunk_cat", "_log_softmax_backward_data", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "_softmax_backward_data", "_unsafe_index", "_unsafe_index_put", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "native_dropout_backward"]  # fmt: skip


# ---- derivatives


def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any
) -> Tensor:
    """The gradient of softmax's input, from the output and its gradient."""
    product = grad_output * output
    return (product - output * product.sum(dim, keepdim=True)).to(input_dtype)


def _log_softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any
) -> Tensor:
    """The gradient of log_softmax's input, from the output and its gradient."""
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)


def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient of dropout's input: `grad_output` where `mask` is True, times `scale`."""
    return grad_output * (mask.to(grad_output.dtype) * scale)


# ---- normalization


def _native_batch_norm_legit(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, *args: Any, out: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`native_batch_norm`; calls may leave out both running statistics.

    Args:
        args: `(running_mean, running_var, training, momentum, eps)` or `(training, momentum, eps)`.
        out: tensors for the three results.
    """
    if len(args) == 3:
        args = (None, None, *args)
    if len(args) != 5:
        raise TypeError(
            "_native_batch_norm_legit() takes 6 arguments, or 8 with running statistics, "
            f"got {3 + len(args)}"
        )
    found: tuple[Tensor, Tensor, Tensor] = rabbet.native_batch_norm(
        input, weight, bias, *args, out=out
    )
    return found


def _native_batch_norm_legit_no_training(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`native_batch_norm` in evaluation."""
    return _native_batch_norm_legit(
        input, weight, bias, running_mean, running_var, False, momentum, eps
    )


def _batch_norm_with_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`native_batch_norm` in training, and an empty uint8 tensor: no backward pass here needs a reserve."""
    found = _native_batch_norm_legit(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return *found, input.new_empty(0, dtype=rabbet.uint8)


# ---- resampling


def _upsampling(mode: str) -> Callable[..., Tensor]:
    def upsample(
        input: Tensor,
        output_size: Sequence[int] | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Tensor:
        # Only scales without a size decide; with one they would be those that lead to it.
        found: Tensor = rabbet.nn.functional.interpolate(
            input,
            None if output_size is None else list(output_size),
            list(scale_factors or (scales_h, scales_w)) if output_size is None else None,
            mode=mode,
            align_corners=align_corners,
            antialias=True,
        )
        return found

    upsample.__name__ = upsample.__qualname__ = f"_upsample_{mode}2d_aa"
    upsample.__doc__ = f"`nn.functional.interpolate` in mode '{mode}' with `antialias=True`."
    return upsample


_upsample_bilinear2d_aa, _upsample_bicubic2d_aa = _upsampling("bilinear"), _upsampling("bicubic")


# ---- indexing


def _unsafe_index(input: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """`input[indices]`, where None stands for all of a dimension. Indices are checked here."""
    return input[tuple(slice(None) if index is None else index for index in indices)]


def _unsafe_index_put(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`index_put`. Indices are checked here."""
    return input.index_put(list(indices), values, accumulate)


def _check_masked(name: str, mask: Tensor, indices: Sequence[Tensor | None]) -> None:
    for index in indices:
        if index is not None and index.dtype not in (rabbet.int64, rabbet.int32):
            raise IndexError(
                f"{name}: expected int64 or int32 tensors as indices, got {index.dtype}"
            )
    if mask.dtype is not rabbet.bool:
        raise IndexError(f"{name}: expected a bool tensor as mask, got {mask.dtype}")


def _clamped(
    input: Tensor, indices: Sequence[Tensor | None], negative: bool
) -> list[Tensor | None]:
    """The indices, each moved to the nearest valid one."""
    return [
        None if index is None else index.clamp(-n if negative else 0, n - 1)
        for index, n in zip(indices, input.shape, strict=False)
    ]


def _unsafe_masked_index(
    input: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Any
) -> Tensor:
    """`input[indices]` where `mask` is True, else `fill`; there the indices may be out of range."""
    _check_masked("_unsafe_masked_index", mask, indices)
    if input.numel() == 0:
        shape = rabbet.broadcast_shapes(
            mask.shape, *(index.shape for index in indices if index is not None)
        )
        return input.new_full(shape, fill)
    return _unsafe_index(input, _clamped(input, indices, False)).masked_fill(~mask, fill)


def _unsafe_masked_index_put_accumulate(
    input: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor:
    """`input` with `values` added at `indices` where `mask` is True; elsewhere the indices may be out of range."""
    _check_masked("_unsafe_masked_index_put_accumulate", mask, indices)
    if input.numel() == 0:
        return input.clone()
    kept = values.masked_fill(~mask, 0)
    return input.index_put(_clamped(input, indices, True), kept, True)


# ---- joining


def _chunk_cat(
    tensors: Sequence[Tensor], dim: int, num_chunks: int, *, out: Tensor | None = None
) -> Tensor:
    """Cut each tensor into chunks along `dim`, and join the chunks of one number.

    A tensor of size n along `dim` is padded with zeros to a multiple of `num_chunks`; its dimensions from `dim` on
    become `(num_chunks, -1)`, and the results are joined along the last dimension.
    """
    if num_chunks < 1:
        raise RuntimeError(f"_chunk_cat expects positive num_chunks, got {num_chunks}")
    if not tensors:
        raise RuntimeError("_chunk_cat expects a non-empty input tensor list")
    if any(t.numel() == 0 for t in tensors):
        raise RuntimeError("_chunk_cat expects non-empty tensor")
    if dim < 0:
        if len({t.ndim for t in tensors}) > 1:
            raise RuntimeError(
                "_chunk_cat expects non-negative dim when input tensors have different ndims"
            )
        dim += tensors[0].ndim
    if any(dim >= t.ndim for t in tensors):
        raise RuntimeError("_chunk_cat expects dim < ndim for all input tensors")
    if any(t.shape[:dim] != tensors[0].shape[:dim] for t in tensors):
        raise RuntimeError(
            "_chunk_cat expects same sizes of 0,...,dim-1 dimensions for all tensors"
        )
    parts = []
    for t in tensors:
        missing = -t.shape[dim] % num_chunks
        if missing:
            t = rabbet.constant_pad_nd(t, [0, 0] * (t.ndim - dim - 1) + [0, missing], 0)
        parts.append(t.reshape(*t.shape[:dim], num_chunks, -1))
    return rabbet.cat(parts, dim + 1) if out is None else rabbet.cat(parts, dim + 1, out=out)
