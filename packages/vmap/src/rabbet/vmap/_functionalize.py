"""The function `functionalize`: programs without writes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import rabbet
from rabbet import Tensor
from rabbet._pytree import tree_flatten, tree_unflatten
from rabbet._tensor import _requires_grad

from . import _C

_REMOVE = {"mutations": False, "mutations_and_views": True}


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """Return a function that computes what `func` does with operators that write to no tensor.

    Inside, a call that writes (`x.add_(y)`, `x[i] = y`, `out=`, in-place random operators) becomes the call
    that makes a new tensor, of which every alias of `x` (a view, the tensor it is a view of) is made anew
    when it is next used. What runs below, in an outer transform or on the device, is therefore a program of
    out-of-place operators with the same results. Arguments that `func` writes to, and other tensors from
    outside that it writes to, get their new values when it has returned, by one `copy_` each.

    Args:
        func: takes and returns trees (tuples, lists, dicts) of tensors and other values.
        remove: 'mutations', or 'mutations_and_views' to have the operators that make views replaced as well,
            by those that copy (`select` by `select_copy`): no result of an operator then shares memory with
            its arguments.

    Returns:
        A function of the arguments of `func`. Results are new tensors, or arguments (views of them under
        'mutations') that were not written to. A result that `func` has made by writing to an argument holds
        the value and is not the argument.

    Nothing is written to the arguments if `func` raises. Sharing of memory among the arguments is respected.
    Differs from plain execution where memory rather than values matters: results may have other strides,
    tensors cannot be resized (`out=` needs the result's shape), and a write through `detach()` cuts the
    history of the tensor that it reaches. Nests with `vmap`, `grad`, `jvp` and itself, in any order.

    Raises:
        TypeError: if `func` is not callable.
        RuntimeError: if `remove` is neither value; when a tensor made inside is used after the call.
        NotImplementedError: in the call, for an operator that writes to its arguments by its nature and has
            no decomposition (the optimizers' fused steps: `rabbet.optim` then steps operator by operator),
            and for `as_strided` of memory with gaps.

    Example:
        >>> def f(x):
        ...     y = x.clone()
        ...     y[0].mul_(2)
        ...     return y
        >>> functionalize(f)(x)  # slices, multiplies, scatters the slice into a new tensor
    """
    if not callable(func):
        raise TypeError(f"functionalize: expected a function, got {type(func).__name__}")
    if remove not in _REMOVE:
        raise RuntimeError(
            f"functionalize: remove should be 'mutations' or 'mutations_and_views', got {remove!r}"
        )
    copies = _REMOVE[remove]

    @functools.wraps(func)
    def functional(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        with _level(copies) as level:
            inside, inside_kwargs = tree_unflatten(
                [_C.functional_wrap(level, x) if isinstance(x, Tensor) else x for x in leaves], spec
            )
            outputs, out_spec = tree_flatten(func(*inside, **inside_kwargs))
            results = [
                _C.functional_unwrap(level, x) if isinstance(x, Tensor) else x for x in outputs
            ]
            written = _C.functional_written(level)
        for tensor, value in written:
            _write(tensor, value)
        return tree_unflatten(results, out_spec)

    return functional


@contextmanager
def _level(copies: bool) -> Iterator[int]:
    level = _C.functional_push(copies)
    try:
        yield level
    finally:
        _C.functional_pop(level)


def _write(tensor: Tensor, value: Tensor) -> None:
    if not _requires_grad(value) and _requires_grad(tensor) and tensor.is_leaf:
        with rabbet.no_grad():  # an optimizer's update: it was computed without gradients
            tensor.copy_(value)
    else:
        tensor.copy_(value)
