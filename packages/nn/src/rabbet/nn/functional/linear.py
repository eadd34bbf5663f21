"""Linear maps and look-ups."""

from __future__ import annotations

import math

import rabbet
from rabbet import Tensor, ops

from .._accumulate import accumulated, widened
from ._dtypes import require_floating
from .distance import vector_norm
from .loss import holds

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
    _, in1, in2 = weight.shape
    if (input1.shape[-1], input2.shape[-1]) != (in1, in2):
        raise RuntimeError(
            f"bilinear: weight {tuple(weight.shape)} expects last sizes {in1} and {in2}, "
            f"got {input1.shape[-1]} and {input2.shape[-1]}"
        )
    # The product refuses two dtypes, which it must see, unless autocast is on.
    products = _wide_products if input1.dtype is weight.dtype else _products
    return products(input1, input2, weight, bias)


def _products(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out, in1, in2 = weight.shape
    rows = input1.reshape([-1, in1]) @ weight.permute([1, 0, 2]).reshape([in1, out * in2])
    terms = rows.reshape([-1, out, in2]) * input2.reshape([-1, 1, in2])
    result = terms.sum(-1, dtype=terms.dtype).reshape([*input1.shape[:-1], out])
    return result if bias is None else result + bias


_wide_products = accumulated(_products)


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
        max_norm: rows that are looked up are first scaled down, in place, to this norm.
        norm_type: which norm that is.
        scale_grad_by_freq: divide the gradient of a row by how often it is looked up.
        sparse: sparse gradients are not supported, so True needs a `weight` that does not require grad.
    """
    if sparse and weight.requires_grad and rabbet.is_grad_enabled():
        raise NotImplementedError(
            "embedding: sparse=True is not supported for a weight that requires grad, "
            "since there are no sparse gradients; use sparse=False"
        )
    if padding_idx is not None:
        padding_idx = _wrapped_row(padding_idx, weight, "embedding")
    if max_norm is not None:
        limit_norms(weight, input, max_norm, norm_type)
    if scale_grad_by_freq:
        return ops.embedding(weight, input, -1 if padding_idx is None else padding_idx, True)
    if padding_idx is None:
        return ops.embedding(weight, input)
    return ops.embedding(weight, input, padding_idx)


def _wrapped_row(padding_idx: int, weight: Tensor, name: str) -> int:
    count = weight.shape[0]
    if not -count <= padding_idx < count:
        raise ValueError(
            f"{name}: padding_idx must be within num_embeddings {count}, got {padding_idx}"
        )
    return padding_idx % count


def limit_norms(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows of `weight` at `input` down to `max_norm`, in place."""
    with rabbet.no_grad():
        if input.device.type == "meta":
            return
        index = rabbet.unique(input.reshape([-1]).to(rabbet.int64))
        rows = weight.detach().index_select(0, index)
        rows = widened(rows)
        norms = vector_norm(rows, norm_type, 1, True)
        scaled = rabbet.where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows)
        weight.detach()[index] = scaled.to(dtype=weight.dtype)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Return sums, means or maxima over bags of rows of `weight`.

    Args:
        input: indices (B, N): bags of equal size, or (N,) with `offsets`.
        weight: shape (count, size).
        offsets: where in a one-dimensional `input` each bag starts.
        max_norm, norm_type, scale_grad_by_freq, sparse: as in `embedding`.
        mode: 'sum', 'mean' or 'max'.
        per_sample_weights: factors of the rows, in the shape of `input`; of mode 'sum' only.
        include_last_offset: whether `offsets` ends with the number of indices.
        padding_idx: a row that does not count.
    """
    if per_sample_weights is not None and tuple(input.shape) != tuple(per_sample_weights.shape):
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, "
            f"then it must have the same shape as the input ({input.shape})"
        )
    require_floating("embedding_bag", weight)
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum or mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
            f"for mode='sum' (got mode='{mode}'). Please open a feature request on GitHub."
        )
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
                "fixed length sequences. However, found offsets of type " + str(type(offsets))
            )
        bags = input.shape[0]
        bag = rabbet.arange(bags, device=input.device).reshape([-1, 1]).expand(input.shape)
        bag = bag.reshape([-1])
    elif input.ndim == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.ndim != 1:
            raise ValueError("offsets has to be a 1D Tensor")
        bag, bags = _bags(offsets, input.shape[0], include_last_offset)
    else:
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}"
        )
    flat = input.reshape([-1])
    padding = -1 if padding_idx is None else _wrapped_row(padding_idx, weight, "embedding_bag")
    counted = None if padding_idx is None else flat != padding
    if mode == "max" or scale_grad_by_freq or sparse or weight.dtype.itemsize < 4:
        rows = embedding(flat, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        if mode == "max":
            return _bag_maxima(rows, bag, bags, counted)
        return _bag_sums(rows, bag, bags, counted, per_sample_weights, mode == "mean")
    if max_norm is not None:
        limit_norms(weight, flat, max_norm, norm_type)
    factors = None if per_sample_weights is None else per_sample_weights.reshape([-1])
    sums = ops.bag_sums(weight, flat, bag, bags, factors, padding)
    if mode == "sum":
        return sums
    if input.ndim == 2 and counted is None:
        return sums / max(input.shape[1], 1)
    return sums / _bag_sizes(sums, bag, counted)


@accumulated
def _bag_sums(
    rows: Tensor,
    bag: Tensor,
    bags: int,
    counted: Tensor | None,
    factors: Tensor | None,
    average: bool,
) -> Tensor:
    if factors is not None:
        rows = rows * factors.reshape([-1, 1])
    if counted is not None:
        rows = rabbet.where(counted.unsqueeze(-1), rows, 0)
    sums = rows.new_zeros([bags, rows.shape[1]]).index_add(0, bag, rows)
    return sums / _bag_sizes(sums, bag, counted) if average else sums


def _bag_sizes(sums: Tensor, bag: Tensor, counted: Tensor | None) -> Tensor:
    """How many rows each bag has, at least 1, as a column."""
    ones = sums.new_ones([bag.shape[0]]) if counted is None else counted.to(sums.dtype)
    return sums.new_zeros([sums.shape[0]]).index_add(0, bag, ones).clamp(min=1).unsqueeze(-1)


def _bags(offsets: Tensor, count: int, include_last_offset: bool) -> tuple[Tensor, int]:
    """The bag of each index, and the number of bags."""
    if include_last_offset:
        if offsets.shape[0] == 0:
            raise RuntimeError("include_last_offset: number of offsets should be at least 1")
        offsets = offsets[:-1]
    bags = offsets.shape[0]
    if bags == 0:
        return offsets.to(rabbet.int64), 0
    if not holds(offsets[0] == 0):
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
            f"position 0. However, got {offsets[0].item()}"
        )
    if not holds(offsets[1:] >= offsets[:-1]) or not holds(offsets[-1] <= count):
        raise RuntimeError(
            f"embedding_bag: expected offsets that ascend to at most {count}, got {offsets.tolist()}"
        )
    begins = offsets.new_zeros([count + 1]).index_add(0, offsets, rabbet.ones_like(offsets))
    return begins[:-1].cumsum(0) - 1, bags


def _bag_maxima(rows: Tensor, bag: Tensor, bags: int, counted: Tensor | None) -> Tensor:
    """The largest element of each column in each bag, of equal ones the first; 0 for empty bags."""
    count, size = rows.shape
    if count == 0:
        return rows.new_zeros([bags, size]) + rows.sum(0)
    seen = rows.detach()
    if counted is not None:
        seen = rabbet.where(counted.unsqueeze(-1), seen, -math.inf)
    at = bag.unsqueeze(-1).expand([count, size])
    lowest = seen.new_full([bags, size], -math.inf)
    largest = lowest.scatter_reduce(0, at, seen, "amax")
    is_largest = (seen == largest.gather(0, at)) | seen.isnan()
    if counted is not None:
        is_largest = is_largest & counted.unsqueeze(-1)
    places = rabbet.arange(count, device=rows.device).unsqueeze(-1)
    candidates = rabbet.where(is_largest, places, count)
    first = candidates.new_full([bags, size], count).scatter_reduce(0, at, candidates, "amin")
    return rabbet.where(first < count, rows.gather(0, first.clamp(max=count - 1)), 0)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Return int64 rows that are 1 at the class and 0 elsewhere; -1 takes the largest class + 1."""
    if tensor.dtype != rabbet.int64:
        raise RuntimeError(f"one_hot: expected an int64 tensor, got {tensor.dtype}")
    if not holds(tensor >= 0):
        raise RuntimeError("one_hot: Class values must be non-negative.")
    if num_classes == -1:
        if tensor.numel() == 0:
            raise RuntimeError("one_hot: cannot infer num_classes from an empty tensor")
        num_classes = int(tensor.max()) + 1
    elif num_classes < 1:
        raise RuntimeError(f"one_hot: num_classes should be positive, got {num_classes}")
    elif not holds(tensor < num_classes):
        raise RuntimeError("one_hot: Class values must be smaller than num_classes.")
    zeros = tensor.new_zeros([*tensor.shape, num_classes])
    return zeros.scatter_(-1, tensor.unsqueeze(-1), 1)
