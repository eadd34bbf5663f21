"""Linear maps and look-ups."""

from __future__ import annotations

import rabbet
from rabbet import Tensor, ops

linear = ops.linear


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `input1 @ weight[k] @ input2 + bias[k]` for each k.

    Args:
        input1: shape (*, in1).
        input2: shape (*, in2), the same leading sizes.
        weight: shape (out, in1, in2).
        bias: shape (out,).
    """
    if tuple(input1.shape[:-1]) != tuple(input2.shape[:-1]):
        raise RuntimeError(
            f"bilinear: expected equal leading sizes, got input1 {tuple(input1.shape)} and input2 {tuple(input2.shape)}"
        )
    out, in1, in2 = weight.shape
    if (input1.shape[-1], input2.shape[-1]) != (in1, in2):
        raise RuntimeError(
            f"bilinear: weight {tuple(weight.shape)} expects last sizes {in1} and {in2}, "
            f"got {input1.shape[-1]} and {input2.shape[-1]}"
        )
    rows = input1.reshape([-1, in1]) @ weight.permute([1, 0, 2]).reshape([in1, out * in2])
    result = (rows.reshape([-1, out, in2]) * input2.reshape([-1, 1, in2])).sum(-1)
    result = result.reshape([*input1.shape[:-1], out])
    return result if bias is None else result + bias


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Return the rows of `weight` at the integers `input`.

    Args:
        input: indices of any shape.
        weight: shape (count, size).
        padding_idx: a row that gets no gradient; negative counts from the end.
        max_norm, norm_type, scale_grad_by_freq, sparse: only the defaults are supported.
    """
    if max_norm is not None or scale_grad_by_freq or sparse:
        _refuse_embedding_options(max_norm, scale_grad_by_freq, sparse)
    if padding_idx is None:
        return ops.embedding(weight, input)
    count = weight.shape[0]
    if not -count <= padding_idx < count:
        raise ValueError(
            f"embedding: padding_idx must be within num_embeddings {count}, got {padding_idx}"
        )
    return ops.embedding(weight, input, padding_idx % count)


def _refuse_embedding_options(
    max_norm: float | None, scale_grad_by_freq: bool, sparse: bool
) -> None:
    options = {
        "max_norm": max_norm,
        "scale_grad_by_freq": scale_grad_by_freq,
        "sparse": sparse,
    }
    name, value = next((n, v) for n, v in options.items() if v)
    raise NotImplementedError(f"embedding: {name}={value!r} is not supported")


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Return int64 rows that are 1 at the class and 0 elsewhere; -1 takes the largest class + 1."""
    if tensor.dtype != rabbet.int64:
        raise RuntimeError(f"one_hot: expected an int64 tensor, got {tensor.dtype}")
    low, high = (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, -1)
    if low < 0:
        raise RuntimeError("one_hot: Class values must be non-negative.")
    if num_classes == -1:
        if tensor.numel() == 0:
            raise RuntimeError("one_hot: cannot infer num_classes from an empty tensor")
        num_classes = high + 1
    elif num_classes < 1:
        raise RuntimeError(f"one_hot: num_classes should be positive, got {num_classes}")
    elif high >= num_classes:
        raise RuntimeError("one_hot: Class values must be smaller than num_classes.")
    zeros = rabbet.zeros([*tensor.shape, num_classes], dtype=rabbet.int64, device=tensor.device)
    return zeros.scatter_(-1, tensor.unsqueeze(-1), 1)
