"""The names of `torch._C._functorch` that packages import, as they behave outside transforms."""

from typing import Any

from .. import _C
from .._absent import refusing_function

__all__ = ["_add_batch_dim", "_remove_batch_dim", "get_unwrapped", "is_batchedtensor", "is_functorch_wrapped_tensor", "is_gradtrackingtensor", "maybe_get_level"]  # fmt: skip


_HIDDEN = "rabbet does not show how its transforms wrap tensors"

_add_batch_dim = refusing_function("torch._C._functorch", "_add_batch_dim", _HIDDEN)
_remove_batch_dim = refusing_function("torch._C._functorch", "_remove_batch_dim", _HIDDEN)


def _outside_of_transforms(name: str) -> None:
    if _C.transform_depth() > 0:
        raise _C.NotImplementedForError(f"torch._C._functorch.{name}: {_HIDDEN}")


def is_functorch_wrapped_tensor(tensor: Any) -> bool:
    """Whether a transform wraps a tensor. Outside transforms none does."""
    _outside_of_transforms("is_functorch_wrapped_tensor")
    return False


is_batchedtensor = is_gradtrackingtensor = is_functorch_wrapped_tensor


def maybe_get_level(tensor: Any) -> int:
    """The level of the transform that wraps a tensor; -1 outside transforms."""
    _outside_of_transforms("maybe_get_level")
    return -1


def get_unwrapped(tensor: Any) -> Any:
    """The tensor that a transform's tensor wraps; outside transforms, the tensor itself."""
    _outside_of_transforms("get_unwrapped")
    return tensor
