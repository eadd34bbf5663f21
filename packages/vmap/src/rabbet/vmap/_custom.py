"""Batching rules that users write, for operators of rabbet.library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rabbet import Tensor

from . import _C


class BatchInfo(NamedTuple):
    """What a batching rule gets as `info`: the number of examples, and the mode of random operators."""

    batch_size: int
    randomness: str


def run_rule(
    name: str, rule: Callable[..., Any], level: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call `rule(info, in_dims, *args)` with what the level's tensors stand for; wrap what it returns.

    Raises:
        ValueError: if the rule does not return (results, dims of the examples in them).
    """
    size, randomness = _C.level_info(level)

    def opened(value: Any) -> tuple[Any, Any]:
        if isinstance(value, list) and any(isinstance(v, Tensor) for v in value):
            pairs = [opened(v) for v in value]
            return [v for v, _ in pairs], [d for _, d in pairs]
        if not isinstance(value, Tensor):
            return value, None
        return _C.opened(level, value)

    pairs = [opened(a) for a in args]
    named = {key: opened(value)[0] for key, value in kwargs.items()}
    info = BatchInfo(size, randomness)
    returned = rule(info, tuple(d for _, d in pairs), *(v for v, _ in pairs), **named)
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise ValueError(
            f"{name}: its batching rule must return a pair, the results and the dims of the examples in them"
        )
    results, dims = returned
    if isinstance(results, (tuple, list)):
        if isinstance(dims, int) or dims is None:
            dims = (dims,) * len(results)
        if len(dims) != len(results):
            raise ValueError(
                f"{name}: its batching rule returned {len(results)} results and {len(dims)} dims"
            )
        return type(results)(
            closed(name, level, size, r, d) for r, d in zip(results, dims, strict=True)
        )
    return closed(name, level, size, results, dims)


def closed(name: str, level: int, size: int, result: Any, dim: int | None) -> Any:
    if not isinstance(result, Tensor) or dim is None:
        return result
    if isinstance(dim, bool) or not isinstance(dim, int) or not -result.ndim <= dim < result.ndim:
        raise ValueError(
            f"{name}: its batching rule said that the examples lie in dim {dim!r} of a result of shape "
            f"{tuple(result.shape)}"
        )
    if result.shape[dim] != size:
        raise ValueError(
            f"{name}: its batching rule returned a result of shape {tuple(result.shape)}, whose dim {dim} does "
            f"not hold {size} examples"
        )
    return _C.closed(level, result, dim % result.ndim)
