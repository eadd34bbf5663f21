"""Wrappers that PyTorch programs use for several devices; rabbet has one process and one device."""

from .data_parallel import DataParallel
from .distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel"]
