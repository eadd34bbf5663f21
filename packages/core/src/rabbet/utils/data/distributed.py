"""The sampler that shares a dataset among processes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import rabbet

from ... import _C
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
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
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
