"""Sequences of different lengths: packed for recurrent layers, or padded to the longest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import rabbet
from rabbet import Tensor


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """Sequences of a batch, sorted by falling length, as rows of one step after the other.

    `pack_padded_sequence` and `pack_sequence` make it; recurrent layers take and return it.

    Attributes:
        data: (sum of lengths, *), the first elements of all sequences, then the second ones, ...
        batch_sizes: (longest length), int64: how many sequences reach each step.
        sorted_indices: which sequence of the batch stands at each place, or None.
        unsorted_indices: the place of each sequence of the batch, or None.
    """

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            raise ValueError("PackedSequence: expected batch_sizes, got None")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Return it with `data` converted as by `Tensor.to`."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else self._replace(data=data)

    def cpu(self) -> PackedSequence:
        """Return it on the CPU."""
        return self.to("cpu")

    def double(self) -> PackedSequence:
        """Return it in float64."""
        return self.to(rabbet.float64)

    def float(self) -> PackedSequence:
        """Return it in float32."""
        return self.to(rabbet.float32)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Return the permutation that undoes `permutation`, int64 of the same length; None for None."""
    return None if permutation is None else permutation.argsort()


def _rows(lengths: Sequence[int], batch_sizes: Sequence[int]) -> list[int]:
    """Where each packed row stands in a padded (T, B) batch that is flattened."""
    batch = len(lengths)
    return [t * batch + b for t, n in enumerate(batch_sizes) for b in range(n)]


def _sizes(lengths: Sequence[int]) -> list[int]:
    """How many of the sorted `lengths` reach each step."""
    sizes, n = [], len(lengths)
    for t in range(lengths[0]):
        while lengths[n - 1] <= t:
            n -= 1
        sizes.append(n)
    return sizes


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Pack a padded batch.

    Args:
        input: (T, B, *), or (B, T, *) with `batch_first`.
        lengths: B lengths, each from 1 to T.
        batch_first: whether the batch comes first in `input`.
        enforce_sorted: whether `lengths` must be sorted, longest first; otherwise it is done here.

    Raises:
        RuntimeError: if lengths are missing, not positive, too large, or not sorted.
    """
    if input.ndim < 2:
        raise RuntimeError(
            f"pack_padded_sequence: expected at least 2 dimensions, got {tuple(input.shape)}"
        )
    x = input.transpose(0, 1) if batch_first else input
    steps, batch = x.shape[0], x.shape[1]
    given = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    if len(given) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(given)} "
            f"(batch_size={batch})"
        )
    if not given:
        raise RuntimeError("Cannot pack empty tensors.")
    if min(given) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if max(given) > steps:
        raise RuntimeError(
            f"pack_padded_sequence: a length of {max(given)} exceeds the {steps} steps of the input"
        )
    order = sorted(range(batch), key=lambda i: -given[i])
    ordered = [given[i] for i in order]
    sorted_indices = None
    if enforce_sorted:
        if ordered != given:
            raise RuntimeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. "
                "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence "
                "to sidestep this requirement if you do not need ONNX exportability."
            )
    else:
        sorted_indices = rabbet.tensor(order, dtype=rabbet.int64, device=input.device)
        x = x.index_select(1, sorted_indices)
    sizes = _sizes(ordered)
    flat = x.reshape([steps * batch, *x.shape[2:]])
    if sizes[-1] == batch:
        data = flat[: len(sizes) * batch]
    else:
        data = flat.index_select(0, rabbet.tensor(_rows(ordered, sizes), device=input.device))
    return PackedSequence(data, rabbet.tensor(sizes, dtype=rabbet.int64), sorted_indices, None)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the padded batch (T, B, *), or (B, T, *), and the lengths (B) as int64.

    Args:
        sequence: what was packed.
        batch_first: whether the batch comes first in the result.
        padding_value: stands beyond the end of each sequence.
        total_length: the number of steps T, at least and by default the longest length.

    Raises:
        ValueError: if `total_length` is below the longest length.
    """
    sizes = [int(n) for n in sequence.batch_sizes.tolist()]
    longest, batch = len(sizes), sizes[0]
    if total_length is not None and total_length < longest:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, "
            f"but got total_length={total_length} and max sequence length being {longest}"
        )
    steps = longest if total_length is None else total_length
    data = sequence.data
    lengths = [sum(1 for n in sizes if n > b) for b in range(batch)]
    rest = list(data.shape[1:])
    if steps == longest and sizes[-1] == batch:
        padded = data.reshape([steps, batch, *rest])
    else:
        flat = rabbet.full(
            [steps * batch, *rest], padding_value, dtype=data.dtype, device=data.device
        )
        rows = rabbet.tensor(_rows(lengths, sizes), device=data.device)
        padded = flat.index_put([rows], data).reshape([steps, batch, *rest])
    order = sequence.unsorted_indices
    if order is not None:
        padded = padded.index_select(1, order)
        lengths = [lengths[int(i)] for i in order.tolist()]
    if batch_first:
        padded = padded.transpose(0, 1)
    return padded, rabbet.tensor(lengths, dtype=rabbet.int64)


def pad_sequence(
    sequences: Tensor | Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Return sequences (L_i, *) as one batch (T, B, *), or (B, T, *), T being the longest length.

    Args:
        sequences: tensors that agree in all sizes but the first.
        batch_first: whether the batch comes first in the result.
        padding_value: stands where a sequence has no element.
        padding_side: 'right' or 'left'.
    """
    if padding_side not in ("right", "left"):
        raise ValueError(
            f"pad_sequence: padding_side must be 'right' or 'left', got {padding_side!r}"
        )
    items = list(sequences.unbind(0) if isinstance(sequences, Tensor) else sequences)
    if not items:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    longest = max(x.shape[0] for x in items)
    columns = []
    for x in items:
        missing = longest - x.shape[0]
        if missing:
            shape = [missing, *x.shape[1:]]
            padding = rabbet.full(shape, padding_value, dtype=x.dtype, device=x.device)
            x = rabbet.cat([x, padding] if padding_side == "right" else [padding, x])
        columns.append(x)
    return rabbet.stack(columns, 0 if batch_first else 1)


def unpad_sequence(padded: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """Return the sequences of a padded batch, each cut to its length."""
    columns = (padded if batch_first else padded.transpose(0, 1)).unbind(0)
    return [x[: int(n)] for x, n in zip(columns, lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences (L_i, *); `enforce_sorted` as in `pack_padded_sequence`."""
    lengths = [x.shape[0] for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Return the sequences that were packed, in the order of the batch."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def permuted(state: Tensor, order: Tensor | None) -> Tensor:
    """`state` (layers, B, H) with the sequences in `order`."""
    return state if order is None else state.index_select(1, order)
