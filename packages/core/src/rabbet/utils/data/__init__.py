"""Datasets, samplers and the loader that makes batches of both."""

from ._utils.collate import default_collate, default_convert
from ._utils.stats import LoaderStats, WorkerStats
from ._utils.worker import WorkerInfo, get_worker_info
from .dataloader import DataLoader, _DatasetKind  # noqa: F401
from .dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .distributed import DistributedSampler
from .permutation import Permutation
from .sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
    "IterableDataset", "LoaderStats", "Permutation", "RandomSampler", "Sampler", "SequentialSampler",
    "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "WorkerInfo", "WorkerStats",
    "default_collate", "default_convert", "get_worker_info", "random_split",
]  # fmt: skip

_PIPES = {
    "DFIterDataPipe": "datapipe", "DataChunk": "datapipe", "IterDataPipe": "datapipe", "MapDataPipe": "datapipe",
    "argument_validation": "_decorator", "functional_datapipe": "_decorator",
    "guaranteed_datapipes_determinism": "_decorator", "non_deterministic": "_decorator",
    "runtime_validation": "_decorator", "runtime_validation_disabled": "_decorator",
}  # fmt: skip


def __getattr__(name: str) -> object:
    """The names of data pipes, which refuse."""
    if name in _PIPES:
        import importlib

        module = importlib.import_module(f"rabbet.utils.data.datapipes.{_PIPES[name]}")
        return getattr(module, name)
    from ..._as_torch.names import missing_attribute

    raise missing_attribute("utils.data", name)
