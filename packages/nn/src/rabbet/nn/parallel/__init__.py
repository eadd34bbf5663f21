"""Wrappers and functions that PyTorch programs use for several devices; rabbet has one process and one device."""

from .data_parallel import DataParallel
from .distributed import DistributedDataParallel
from .functions import data_parallel, parallel_apply, replicate
from .scatter_gather import gather, scatter

__all__ = [
    "DataParallel",
    "DistributedDataParallel",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]
