"""Samplers: in which order a loader takes the samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import rabbet

from ... import _C
from ..._C import Generator, Tensor
from .permutation import Permutation

__all__ = [
    "BatchSampler",
    "Permutation",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

T_co = TypeVar("T_co", covariant=True)


def random_seed(generator: Generator | None = None) -> int:
    """A number to seed another generator with."""
    return int(rabbet.empty((), dtype=_C.int64).random_(generator=generator).item())


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def iter_from(sampler: Any, position: int) -> Iterator[Any]:
    """`iter(sampler)` without its first elements.

    A sampler that can begin anywhere defines `iter_from(position)` in the class that defines its `__iter__`; the elements
    of others are drawn and dropped.
    """
    owner = next((c for c in type(sampler).__mro__ if "__iter__" in c.__dict__), None)
    if owner is not None and "iter_from" in owner.__dict__:
        found: Iterator[Any] = sampler.iter_from(position)
        return found
    return itertools.islice(iter(sampler), position, None)


class Sampler(Generic[T_co]):
    """An iterable of indices, or of lists of them; subclasses define `__iter__`.

    A subclass that also defines `iter_from(position)`, the same without the first elements, lets a data loader resume a
    pass without drawing them again.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """The samples in their order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """The samples from a position on."""
        return iter(range(position, len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """The samples in random order; with `replacement` each one drawn from all, `num_samples` of them.

    Args:
        data_source: has a length.
        replacement: draw each sample from all.
        num_samples: how many, by default as many as there are.
        generator: of the order; by default one that the default generator seeds.
        constant_memory: compute the order index by index (`Permutation`) instead of storing a list of all, and resume in
            the middle without drawing the first part again. It is another order than the default one of the same
            generator, which is that of `randperm`. No effect with `replacement`, which stores no list.

    Raises:
        TypeError: if `replacement` or `constant_memory` is not a bool.
        ValueError: if `num_samples` is not a positive integer.

    Example:
        >>> sampler = RandomSampler(range(10**9), constant_memory=True)
        >>> loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    """

    _CHUNK = 32  # numbers that are drawn at once with replacement

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
        *,
        constant_memory: bool = False,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self.constant_memory = constant_memory
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        if not isinstance(constant_memory, bool):
            raise TypeError(
                f"RandomSampler: constant_memory must be a bool, got {constant_memory!r}"
            )
        if not _is_count(self.num_samples):
            raise ValueError(
                f"num_samples should be a positive integer value, but got num_samples={self.num_samples}"
            )

    @property
    def num_samples(self) -> int:
        """How many samples are drawn: by default as many as there are."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """The samples from a position on; with `constant_memory` it takes the same time everywhere."""
        if self.constant_memory and not self.replacement:
            return self._computed(position, random_seed(self.generator))
        return itertools.islice(self._drawn(), position, None)

    def _computed(self, position: int, seed: int) -> Iterator[int]:
        n = len(self.data_source)
        while position < self.num_samples:
            turn, start = divmod(position, n)
            rest = Permutation(n, seed + (turn << 64)).iter_from(start)
            yield from itertools.islice(rest, self.num_samples - position)
            position += n - start

    def _drawn(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = self.generator
        if generator is None:
            generator = Generator()
            generator.manual_seed(random_seed())
        if self.replacement:
            for start in range(0, self.num_samples, self._CHUNK):
                count = min(self._CHUNK, self.num_samples - start)
                yield from rabbet.randint(0, n, (count,), generator=generator).tolist()
            return
        left = self.num_samples
        while left > 0:
            order = rabbet.randperm(n, generator=generator).tolist()
            yield from order[:left]
            left -= n

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in rabbet.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices that are drawn with the given weights, which need not sum to 1."""

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        if not _is_count(num_samples):
            raise ValueError(
                f"num_samples should be a positive integer value, but got num_samples={num_samples}"
            )
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        self.weights: Tensor = _C.as_tensor(weights, _C.float64)
        if self.weights.ndim != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = rabbet.multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler; `drop_last` leaves out a last shorter one."""

    def __init__(
        self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool
    ) -> None:
        if not _is_count(batch_size):
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return self._batches(0)

    def iter_from(self, position: int) -> Iterator[list[int]]:
        """The lists from a position on."""
        return self._batches(position)

    def _batches(self, position: int) -> Iterator[list[int]]:
        first = position * self.batch_size
        indices = iter_from(self.sampler, first) if first else iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
