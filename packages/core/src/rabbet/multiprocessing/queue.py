"""Queues among processes, under the names of `torch.multiprocessing.queue`."""

from multiprocessing.queues import SimpleQueue

from ._contexts import CheckedQueue as Queue

__all__ = ["Queue", "SimpleQueue"]
