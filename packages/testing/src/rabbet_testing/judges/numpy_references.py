"""The NumPy functions that records name as their reference, called as the operators are."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from rabbet import _C


def _axis(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, list) else dim


# Where NumPy's function takes its arguments in another form.
_ADAPTED: dict[str, Callable[..., Any]] = {
    "transpose": lambda x, dims: np.transpose(x, dims),
    "unsqueeze": np.expand_dims,
    "gather": lambda x, dim, index: np.take_along_axis(x, index, dim),
    "index_select": lambda x, dim, index: np.take(x, index, dim),
    "cat": lambda xs, dim=0: np.concatenate(xs, dim),
    "stack": lambda xs, dim=0: np.stack(xs, dim),
    "var": lambda x, dim=None, correction=1, keepdim=False: np.var(x, _axis(dim), ddof=correction, keepdims=keepdim),
    "std": lambda x, dim=None, correction=1, keepdim=False: np.std(x, _axis(dim), ddof=correction, keepdims=keepdim),
    "flip": lambda x, dims: np.flip(x, tuple(dims)),
    "roll": lambda x, shifts, dims: np.roll(x, shifts, dims),
    "clamp": lambda x, min=None, max=None: np.clip(x, min, max),
    "searchsorted": lambda s, x: np.searchsorted(s, x),
    "repeat": lambda x, repeats: np.tile(x, repeats),
    "diagonal": lambda x, offset: np.diagonal(x, offset),
    "movedim": lambda x, a, b: np.moveaxis(x, a, b),
    "round": lambda x: np.round(x),
    "prod.dim": lambda x, dim: np.prod(x, dim),
    "angle": np.angle,
    "logsumexp": lambda x, dim: np.log(np.exp(x).sum(tuple(dim))),
    "count_nonzero": lambda x, dim=None: np.count_nonzero(x, _axis(dim)),
    "tril": np.tril,
    "triu": np.triu,
    "reshape": lambda x, shape: np.reshape(x, shape),
    "permute": lambda x, dims: np.transpose(x, dims),
    "argsort": lambda x: np.argsort(x, -1, kind="stable"),
}  # fmt: skip


def numpy_reference(name: str) -> Callable[..., Any] | None:
    """The reference of a record as a function of the operator's arguments (as arrays), or None."""
    info = _C.op_info(name)
    if not info["ref"] or info["kind"] == "creation":
        return None
    if name in _ADAPTED:
        return _ADAPTED[name]
    module, function = info["ref"].rsplit(".", 1)
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    if info["kind"] not in ("reduction", "along"):
        return found

    def along(x: Any, dim: Any = None, keepdim: Any = None) -> Any:
        kwargs = {} if keepdim is None else {"keepdims": keepdim}
        return found(x, axis=_axis(dim), **kwargs)

    return along
