"""The exchange of two tensors."""

import weakref

from .. import _C
from .._C import Tensor


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange two tensors with all that belongs to them: references to either then lead to the other.

    Raises:
        TypeError: for what is no tensor.
        RuntimeError: if there are weak references to one, or anything else uses one, such as a view or a graph.

    Example:
        >>> a, b = rabbet.zeros(2), rabbet.ones(3)
        >>> rabbet.utils.swap_tensors(a, b)
        >>> a.shape, b.shape
        (rabbet.Size([3]), rabbet.Size([2]))
    """
    for name, tensor in (("t1", t1), ("t2", t2)):
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"swap_tensors: expected {name} to be a Tensor, got {type(tensor).__name__}"
            )
        if weakref.getweakrefs(tensor):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    _C.swap_tensors(t1, t2)
    first, second = type(t1), type(t2)
    if first is not second:
        t1.__class__, t2.__class__ = second, first
    kept = dict(t1.__dict__)
    t1.__dict__.clear()
    t1.__dict__.update(t2.__dict__)
    t2.__dict__.clear()
    t2.__dict__.update(kept)
