"""Queues among processes, under the names of `torch.multiprocessing.queue`."""

from multiprocessing.queues import SimpleQueue

from ._contexts import Queue

__all__ = ["Queue", "SimpleQueue"]
