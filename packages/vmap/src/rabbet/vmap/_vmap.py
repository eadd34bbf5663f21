"""The function `vmap`: which arguments are batched, the level around the call, what comes out of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import rabbet
from rabbet import Tensor
from rabbet._pytree import TreeSpec, broadcast_prefix, tree_flatten, tree_unflatten

from . import _C

RANDOMNESS = {"error": 0, "same": 1, "different": 2}


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
    strict: bool = False,
) -> Callable[..., Any]:
    """Return a function that maps `func` over a dimension of its arguments.

    `func` is written for one example; the returned function runs its operators once, for all examples.

    Args:
        func: takes and returns tensors, alone or in nested containers.
        in_dims: the dimension of the examples: an int for all arguments, or a tuple with an entry for each
            argument, which may follow the structure of the argument; None for what is the same for all
            examples. Keyword arguments are the same for all examples.
        out_dims: where the examples go in the results: an int, or a structure like that of the results.
        randomness: what random operators do: 'error', 'same' numbers for all examples, or 'different' ones.
        chunk_size: how many examples to compute at a time; None: all.
        strict: whether an operator that would run example by example is an error instead of a warning.

    Raises:
        RuntimeError: for another `randomness`.
        ValueError: when called with `in_dims`, `out_dims` or sizes that do not fit.
        IndexError: when called with an `out_dims` that a result does not have.
    """
    if not callable(func):
        raise TypeError(f"vmap: expected a function, got {type(func).__name__}")
    if randomness not in RANDOMNESS:
        raise RuntimeError(
            f"vmap: Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness!r}"
        )
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0, got {chunk_size}")
    mode = RANDOMNESS[randomness]
    name = getattr(func, "__name__", type(func).__name__)

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        batch = _Batch(name, in_dims, args)
        called = functools.partial(func, **kwargs) if kwargs else func
        if chunk_size is None or chunk_size >= batch.size:
            return _call(called, batch, batch.leaves, batch.size, out_dims, mode, strict)
        parts = []
        for start in range(0, batch.size, chunk_size):
            size = min(chunk_size, batch.size - start)
            part = batch.slice(start, size)
            parts.append(_call(called, batch, part, size, out_dims, mode, strict))
        return _joined(batch.name, parts, out_dims)

    return mapped


class _Batch:
    """The arguments of one call as leaves, the batched dimension of each, the number of examples."""

    def __init__(self, name: str, in_dims: Any, args: tuple[Any, ...]) -> None:
        self.name = name
        self.leaves, self.spec = tree_flatten(args)
        if type(in_dims) is int:
            given = [in_dims] * len(self.leaves)
        else:
            given = _argument_dims(name, in_dims, args, self.spec)
        self.dims: list[int | None] = []
        dims = self.dims
        sizes: set[int] = set()
        for leaf, dim in zip(self.leaves, given, strict=True):
            if dim is None:
                dims.append(None)
                continue
            if type(dim) is not int or not isinstance(leaf, Tensor):
                raise self._refusal(leaf, dim)
            ndim = leaf.ndim
            if not -ndim <= dim < ndim:
                raise self._refusal(leaf, dim)
            sizes.add(leaf.shape[dim])
            dims.append(dim if dim >= 0 else dim + ndim)
        if len(sizes) != 1:
            raise self._size_refusal()
        self.size: int = sizes.pop()

    def _refusal(self, leaf: Any, dim: Any) -> ValueError:
        i = len(self.dims)
        if type(dim) is not int:
            what = f"in_dims: expected an int or None for input {i}, got {dim!r}"
        elif not isinstance(leaf, Tensor):
            what = (
                f"in_dims has {dim} for input {i}, which is of type {type(leaf).__name__} "
                "and not a Tensor; use None for it"
            )
        else:
            what = (
                f"in_dims has {dim} for input {i}, a Tensor of {leaf.ndim} dimensions; "
                f"expected {-leaf.ndim} <= dim < {leaf.ndim}"
            )
        return ValueError(f"vmap({self.name}): {what}")

    def _size_refusal(self) -> ValueError:
        sizes = [
            f"input {i} has {leaf.shape[dim]}"
            for i, (leaf, dim) in enumerate(zip(self.leaves, self.dims, strict=True))
            if dim is not None
        ]
        if sizes:
            what = f"the mapped dimensions must have one size, but {', '.join(sizes)}"
        else:
            what = "got no inputs" if not self.leaves else "no input is batched: in_dims is None"
            what += "; at least one input must be a Tensor with a dimension to map over"
        return ValueError(f"vmap({self.name}): {what}")

    def slice(self, start: int, size: int) -> list[Any]:
        """The leaves of `size` examples."""
        pairs = zip(self.leaves, self.dims, strict=True)
        return [x if d is None else x.narrow(d, start, size) for x, d in pairs]


def _argument_dims(name: str, in_dims: Any, args: tuple[Any, ...], spec: TreeSpec) -> list[Any]:
    if isinstance(in_dims, list):
        in_dims = tuple(in_dims)
    if isinstance(in_dims, bool) or not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"vmap({name}): in_dims: expected an int or a (nested) tuple of ints and None, "
            f"got {type(in_dims).__name__}"
        )
    if isinstance(in_dims, tuple) and len(in_dims) != len(args):
        raise ValueError(
            f"vmap({name}): in_dims: expected an entry for each of the {len(args)} positional arguments, "
            f"got {len(in_dims)}"
        )
    try:
        return broadcast_prefix(in_dims, spec, f"vmap({name}): in_dims")
    except ValueError as error:
        raise ValueError(
            f"{error}; in_dims must have the structure of the arguments, or end earlier"
        ) from None


def _call(
    func: Callable[..., Any],
    batch: _Batch,
    leaves: list[Any],
    size: int,
    out_dims: Any,
    randomness: int,
    strict: bool,
) -> Any:
    level, wrapped = _C.enter(size, randomness, strict, leaves, batch.dims)
    try:
        outputs, spec = tree_flatten(func(*tree_unflatten(wrapped, batch.spec)))
        _check_results(batch.name, outputs)
        inner = _C.unwrap(level, outputs)
    finally:
        _C.pop(level)
    dims = _result_dims(batch.name, out_dims, spec)
    results: list[Tensor] = []
    for (x, at), dim in zip(inner, dims, strict=True):
        placed = x if at == dim else _placed(batch.name, len(results), x, at, dim, size)
        results.append(placed)
    return tree_unflatten(results, spec)


def _check_results(name: str, outputs: list[Any]) -> None:
    for x in outputs:
        if not isinstance(x, Tensor):
            raise ValueError(
                f"vmap({name}): expected the function to return Tensors only, got type {type(x).__name__}; "
                "return other values in another way, or make them Tensors"
            )


def _result_dims(name: str, out_dims: Any, spec: TreeSpec) -> list[Any]:
    if type(out_dims) is int:
        return [out_dims] * spec.num_leaves
    try:
        dims = _dims_of_results(out_dims, spec, name)
    except ValueError as error:
        raise ValueError(
            f"{error}; out_dims must have the structure of the results, or end earlier"
        ) from None
    for dim in dims:
        if dim is not None and type(dim) is not int:
            raise ValueError(f"vmap({name}): out_dims: expected ints (or None), got {dim!r}")
    return dims


def _dims_of_results(out_dims: Any, spec: TreeSpec, name: str) -> list[Any]:
    if isinstance(out_dims, list) and spec.type is not list:
        out_dims = tuple(out_dims)
    return broadcast_prefix(out_dims, spec, f"vmap({name}): out_dims")


def _placed(name: str, i: int, x: Tensor, at: int | None, dim: int | None, size: int) -> Tensor:
    """The examples of result `i`, which lie along `at` of `x` (None: it is the same for all), along `dim`."""
    if dim is None:
        raise ValueError(
            f"vmap({name}): result {i} differs between examples and cannot be returned with out_dims None"
        )
    if at is None:
        x, at = x.expand(size, *x.shape), 0
    ndim = x.ndim
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"vmap({name}): out_dims has {dim} for a result of {ndim} dimensions with that of the examples; "
            f"expected {-ndim} <= dim < {ndim}"
        )
    return x if at == dim % ndim else x.movedim(at, dim)


def _joined(name: str, parts: list[Any], out_dims: Any) -> Any:
    columns = [tree_flatten(part) for part in parts]
    spec = columns[0][1]
    dims = _dims_of_results(out_dims, spec, name)
    whole = [
        pieces[0] if dim is None else rabbet.cat(list(pieces), dim)
        for dim, *pieces in zip(dims, *(leaves for leaves, _ in columns), strict=True)
    ]
    return tree_unflatten(whole, spec)
