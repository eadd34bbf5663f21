"""Reading samples and joining them to batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any

from .collate import default_collate
from .slots import Staging
from .stats import NOTHING, nbytes

__all__ = ["Fetcher"]


def _shortened(indices: Any) -> str:
    shown = list(indices)
    return repr(shown) if len(shown) <= 32 else f"{shown[:32]!r} and {len(shown) - 32} more"


class Fetcher:
    """Reads the samples of a batch and joins them.

    `indices` of a dataset by index is a list, or one index where there are no batches; of a stream a list whose length
    counts.
    """

    def __init__(
        self,
        dataset: Any,
        is_stream: bool,
        batches: bool,
        collate: Callable[[Any], Any],
        drop_last: bool,
    ) -> None:
        self._dataset, self._batches, self._collate = dataset, batches, collate
        self._drop_last = drop_last
        self.is_stream = is_stream
        self._samples: Iterator[Any] | None = iter(dataset) if is_stream else None
        self.ended = False
        self.took = NOTHING
        self._placing = 0  # nanoseconds that copying samples to the batch took

    def __call__(self, indices: Any) -> Any:
        """The next batch; `took` then says what it took.

        Raises:
            StopIteration: at the end of a stream.
        """
        self._placing = 0
        begin = perf_counter_ns()
        samples = self._read(indices)
        read = perf_counter_ns()
        try:
            batch = self._collate(samples)
        except Exception as error:
            if self._batches and not self.is_stream:
                error.add_note(f"The batch has the indices {_shortened(indices)}.")
            raise
        end = perf_counter_ns()
        count = len(samples) if self._batches and hasattr(samples, "__len__") else 1
        placing = self._placing
        self.took = count, nbytes(batch), read - begin - placing, end - read + placing, 0, end
        return batch

    fetch = __call__  # PyTorch's name

    def _read(self, indices: Any) -> Any:
        """The samples of a batch, or a single one."""
        if self._samples is not None:
            return self._from_stream(indices)
        if not self._batches:
            return self._sample(indices)
        many = getattr(self._dataset, "__getitems__", None)
        if many:
            return many(indices)
        staging = self._staging(indices)
        return [
            self._placed(staging, self._sample(index), number)
            for number, index in enumerate(indices)
        ]

    def _staging(self, indices: Any) -> Staging | None:
        """The object that copies large tensors into the batch's memory; None if samples are only stacked."""
        if self._collate is not default_collate or not Staging.is_wanted():
            return None
        return Staging(len(indices)) if hasattr(indices, "__len__") else None

    def _placed(self, staging: Staging | None, sample: Any, number: int) -> Any:
        if staging is None:
            return sample
        begin = perf_counter_ns()
        placed = staging.placed(sample, number)
        self._placing += perf_counter_ns() - begin
        return placed

    def _sample(self, index: Any) -> Any:
        try:
            return self._dataset[index]
        except Exception as error:
            error.add_note(f"The index of the sample is {index!r}.")
            raise

    def _from_stream(self, indices: Any) -> Any:
        assert self._samples is not None
        if self.ended:
            raise StopIteration
        if not self._batches:
            return next(self._samples)
        staging = self._staging(indices)
        batch: list[Any] = []
        for _ in indices:
            try:
                batch.append(self._placed(staging, next(self._samples), len(batch)))
            except StopIteration:
                self.ended = True
                break
        if not batch or (self._drop_last and len(batch) < len(indices)):
            raise StopIteration
        return batch
