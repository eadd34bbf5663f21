"""Functions of several tensors, under the names of `torch.functional`."""

from typing import Any

import rabbet
from rabbet import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    broadcast_shapes,
    broadcast_tensors,
    cartesian_prod,
    cdist,
    einsum,
    meshgrid,
    norm,
    split,
    tensordot,
    unique,
    unique_consecutive,
    unravel_index,
)

_lazy: Any = rabbet
chain_matmul = _lazy.chain_matmul
lu = _lazy.lu
istft = _lazy.istft
pca_lowrank = _lazy.pca_lowrank
stft = _lazy.stft
svd_lowrank = _lazy.svd_lowrank

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "block_diag",
    "broadcast_shapes",
    "broadcast_tensors",
    "cartesian_prod",
    "cdist",
    "chain_matmul",
    "einsum",
    "lu",
    "meshgrid",
    "norm",
    "split",
    "stft",
    "tensordot",
    "unique",
    "unique_consecutive",
    "unravel_index",
]
