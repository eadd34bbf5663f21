"""The names of `torch._subclasses.meta_utils` that packages import."""

from typing import Any

from ..._absent import refusing_class

__all__ = ["MetaConverter", "is_sparse_any", "is_sparse_compressed", "is_sparse_coo"]

MetaConverter = refusing_class(
    "torch._subclasses.meta_utils", "MetaConverter", "rabbet has no fake tensors"
)


def is_sparse_any(t: Any) -> bool:
    """Whether a tensor is sparse: rabbet has no sparse tensors yet."""
    return False


is_sparse_coo = is_sparse_compressed = is_sparse_any
