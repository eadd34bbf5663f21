"""Infer the shapes and dtypes of results from the records of the operators, without running them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _C
from .._C import Tensor
from ._ir import GraphError, Node, Object, Value, map_values
from ._records import Record, record
from ._sizes import Number, Size


def concrete_shape(value: Value, symbols: Mapping[str, Number]) -> tuple[int, ...] | None:
    """Evaluate the shape of a value at these sizes; None if it is unknown."""
    sizes: list[int] = []
    for d, size in enumerate(value.shape):
        if size is not None:
            sizes.append(int(size.evaluate(symbols)))
        elif value.hint is not None:
            sizes.append(value.hint[d])
        else:
            return None
    return tuple(sizes)


def meta_tensor(
    shape: Sequence[int], dtype: _C.dtype, strides: Sequence[int] | None = None
) -> Tensor:
    """A tensor of this shape without memory."""
    empty = _C.op("empty")
    if strides is None:
        made: Tensor = empty(list(shape), dtype=dtype, device="meta")
        return made
    extent = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    flat = empty([extent if all(shape) else 0], dtype=dtype, device="meta")
    made = _C.op("as_strided")(flat, list(shape), list(strides))
    return made


def on_meta(arg: Any) -> Any:
    """Convert an argument for a call on meta tensors."""
    if isinstance(arg, _C.device):
        return _C.device("meta")
    return arg


def fill_arguments(
    name: str, info: Record, args: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[Any, ...]:
    """One argument for each parameter of a record, defaults included.

    Raises:
        GraphError: if there are too many, an unknown keyword, or one is missing.
    """
    if len(args) > len(info.params):
        raise GraphError(
            f"{name}: expected at most {len(info.params)} arguments for {info.schema}, got {len(args)}"
        )
    known = {param.name for param in info.params}
    for keyword in keywords:
        if keyword not in known:
            raise GraphError(f"{name}: {info.schema} has no parameter '{keyword}'")
    given = list(args)
    for param in info.params[: len(args)]:
        if param.name in keywords:
            raise GraphError(f"{name}: the argument '{param.name}' is given twice")
    for param in info.params[len(args) :]:
        if param.name in keywords:
            given.append(keywords[param.name])
        elif param.has_default:
            given.append(param.default)
        elif param.optional:
            given.append(None)
        else:
            raise GraphError(f"{name}: the argument '{param.name}' of {info.schema} is missing")
    return tuple(given)


def as_results(info: Record, returned: Any) -> list[Any]:
    """Return the results of a call as a list with an entry for each: a tensor, or a list of tensors."""
    if not info.rets:
        return []
    if len(info.rets) > 1:
        return list(returned)
    return [list(returned)] if isinstance(returned, (list, tuple)) else [returned]


class Unknown(Exception):
    """Raised where results depend on data, or where only a kernel can determine them."""


def infer(
    node: Node, tensor_of: Callable[[Value], Tensor], symbols: Mapping[str, Number]
) -> list[Any]:
    """Meta tensors for the results of an operator's call.

    Args:
        tensor_of: the meta tensor of each value that the node reads.
        symbols: the sizes to compute with.

    Raises:
        Unknown: where values decide.
        Exception: what the call raises for wrong arguments.
    """
    info = record(node.op)

    def converted(arg: Any) -> Any:
        if isinstance(arg, (list, tuple)):
            return [converted(item) for item in arg]
        if isinstance(arg, Size):
            return arg.evaluate(symbols, lambda value: tensor_of(value).shape)
        if isinstance(arg, Object):
            return None
        return on_meta(map_values(arg, tensor_of))

    args = tuple(
        _C.device("meta") if param.type == "device" and arg is None else converted(arg)
        for param, arg in zip(info.params, node.args, strict=True)
    )
    outs = tuple(tensor_of(value) for value in node.outs) or None
    before = _C.set_overrides_disabled(2)
    try:
        return (
            as_results(info, _C.call_record(node.op, args, outs))
            if outs is None
            else _written(node.op, args, outs)
        )
    except NotImplementedError as error:
        raise Unknown(str(error)) from error
    finally:
        _C.set_overrides_disabled(before)


def _written(name: str, args: tuple[Any, ...], outs: tuple[Any, ...]) -> list[Any]:
    _C.call_record(name, args, outs)
    return []
