"""What tensors inside transforms stand for, to look at."""

from __future__ import annotations

from rabbet import Tensor
from rabbet.vmap import _C


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """Return the tensor that a tensor inside vmap, forward mode or functionalize stands for; others as they are.

    For printing and debugging: computing with it instead of the tensor itself gives wrong results. Under `grad`
    tensors are what they seem.

    Args:
        recurse: whether to go through all levels, else through the innermost one.

    Raises:
        TypeError: if it is no Tensor.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"debug_unwrap: expected a Tensor, got {type(tensor).__name__}")
    inner = _C.inner(tensor)
    while recurse and inner is not tensor:
        tensor, inner = inner, _C.inner(inner)
    return inner
