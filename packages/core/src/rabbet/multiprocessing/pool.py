"""Pools of processes, under the names of `torch.multiprocessing.pool`."""

from multiprocessing.pool import Pool

__all__ = ["Pool"]
