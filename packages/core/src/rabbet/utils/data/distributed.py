"""The sampler that shares a dataset among processes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import rabbet

from ... import _C
from .permutation import Permutation
from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """The samples of one of several processes, the same number for each.

    Args:
        dataset: has a length.
        num_replicas, rank: how many processes there are and which this one is. They must be given, as rabbet has no
            distributed package yet that could say so.
        shuffle: a new order for each epoch that set_epoch() names.
        seed: the same in all processes.
        drop_last: leave samples out to make the parts equal, instead of repeating some.
        constant_memory: compute the order index by index (`Permutation`) instead of storing a list of all indices; it
            is another order than the default one of the same seed.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        constant_memory: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            missing = "num_replicas" if num_replicas is None else "rank"
            raise RuntimeError(
                f"Requires distributed package to be available: DistributedSampler needs {missing}="
            )
        if rank >= num_replicas or rank < 0:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        if not isinstance(constant_memory, bool):
            raise TypeError(
                f"DistributedSampler: constant_memory must be a bool, got {constant_memory!r}"
            )
        self.constant_memory = constant_memory
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        count = len(dataset)
        if drop_last and count % num_replicas:
            self.num_samples = math.ceil((count - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(count / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """The samples from a position on; with `constant_memory` it takes the same time everywhere."""
        if self.constant_memory:
            return self._computed(position)
        return itertools.islice(self._listed(), position, None)

    def _computed(self, position: int) -> Iterator[int]:
        """As `_listed`: the order, repeated up to `total_size`, of which each replica takes every n-th index."""
        count = len(self.dataset)
        order = Permutation(count, self.seed + self.epoch) if self.shuffle else range(count)
        places = range(self.rank, self.total_size, self.num_replicas)[position:]
        inside = places[: len(range(places.start, count, self.num_replicas))]
        first: Iterator[int] = iter(inside)
        if isinstance(order, Permutation):
            first = itertools.islice(order.iter_from(inside.start, inside.step), len(inside))
        return itertools.chain(first, (order[p % count] for p in places[len(inside) :]))

    def _listed(self) -> Iterator[int]:
        count = len(self.dataset)
        if self.shuffle:
            generator = _C.Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = rabbet.randperm(count, generator=generator).tolist()
        else:
            indices = list(range(count))
        if not self.drop_last and indices:
            indices = (indices * math.ceil(self.total_size / count))[: self.total_size]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch begins, so that its order is another one."""
        self.epoch = epoch
