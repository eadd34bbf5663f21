"""Rules that are Python functions, between what core passes and what users write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rabbet

from . import _C
from ._C import Tensor


class Context:
    """What a derivative that is a function gets as `ctx`.

    `inputs`: the operator's arguments; `output`: its result, or the tuple of them; `needs_input_grad`: a
    bool for each argument. Tensors that the derivative was registered not to read are meta tensors.
    """

    def __init__(
        self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], wanted: tuple[bool, ...]
    ) -> None:
        self.inputs = inputs
        self.output = outputs[0] if len(outputs) == 1 else outputs
        self.needs_input_grad = wanted
        self.saved_tensors: tuple[Tensor | None, ...] = ()
        self._materialize = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Set `saved_tensors`."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward: expected Tensors or None, got {type(t).__name__}"
                )
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def set_materialize_grads(self, value: bool) -> None:
        """Whether results without a gradient get zeros (True, the default) or None."""
        self._materialize = value

    def filled(self, given: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        """Zeros in place of None, if that was not switched off."""
        if not self._materialize:
            return list(given)
        return [
            rabbet.zeros(x.shape, dtype=x.dtype, device=_real_device(x, given))
            if g is None and isinstance(x, Tensor) and x.dtype.is_floating_point
            else g
            for g, x in zip(given, like, strict=True)
        ]


def _real_device(like: Tensor, others: Sequence[Any]) -> Any:
    for t in (*others, like):
        if isinstance(t, Tensor):
            return t.device
    return like.device


def _names(name: str) -> list[str]:
    return [p["name"] for p in _C.op_info(name)["params"]]


def _as_tuple(result: Any, n: int, name: str, what: str, wanted: str) -> tuple[Any, ...]:
    if n == 1 and not isinstance(result, tuple):
        result = (result,)
    if not isinstance(result, tuple) or len(result) != n:
        got = (
            f"{len(result)} values" if isinstance(result, tuple) else f"one {type(result).__name__}"
        )
        raise RuntimeError(
            f"{name}: its {what} function must return {n} values, {wanted}, got {got}"
        )
    return result


def _gradient(value: Any, like: Any, name: str, what: str, arg: str) -> Any:
    """A gradient or tangent as core takes it: Tensor, None, or a tuple of such for a list."""
    if value is None:
        return None
    if isinstance(like, list):
        if not isinstance(value, (list, tuple)) or len(value) != len(like):
            raise RuntimeError(
                f"{name}: its {what} function must return a list of {len(like)} Tensors (or None) for '{arg}'"
            )
        return tuple(_gradient(v, x, name, what, arg) for v, x in zip(value, like, strict=True))
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name}: its {what} function must return Tensors or None, got {type(value).__name__} for '{arg}'"
        )
    if not isinstance(like, Tensor):
        raise RuntimeError(
            f"{name}: its {what} function returned a Tensor for '{arg}', which is no Tensor: return None for it"
        )
    return value


def vjp_rule(
    name: str, backward: Callable[..., Any], setup_context: Callable[..., Any] | None
) -> Callable[..., Any]:
    """`backward(ctx, *grads)` as core calls it."""

    def rule(
        wanted: tuple[bool, ...],
        inputs: tuple[Any, ...],
        outputs: tuple[Any, ...],
        grads: tuple[Any, ...],
    ) -> tuple[Any, ...]:
        ctx = Context(inputs, outputs, wanted)
        if setup_context is not None:
            setup_context(ctx, inputs, ctx.output)
        names = _names(name)
        found = _as_tuple(
            backward(ctx, *ctx.filled(grads, outputs)), len(inputs), name, "vjp",
            f"a gradient (or None) for each of the arguments {', '.join(names)}",
        )  # fmt: skip
        return tuple(
            _gradient(g, x, name, "vjp", arg) if need else None
            for g, x, arg, need in zip(found, inputs, names, wanted, strict=True)
        )

    return rule


def jvp_rule(
    name: str, forward: Callable[..., Any], setup_context: Callable[..., Any] | None
) -> Callable[..., Any]:
    """`forward(ctx, *tangents)` as core calls it."""

    def rule(
        inputs: tuple[Any, ...], outputs: tuple[Any, ...], tangents: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        ctx = Context(inputs, outputs, tuple(t is not None for t in tangents))
        if setup_context is not None:
            setup_context(ctx, inputs, ctx.output)
        found = _as_tuple(
            forward(ctx, *ctx.filled(tangents, inputs)), len(outputs), name, "jvp",
            "a tangent (or None) for each result",
        )  # fmt: skip
        rets = _C.op_info(name)["rets"]
        return tuple(
            _gradient(t, x, name, "jvp", ret)
            for t, x, ret in zip(found, outputs, rets, strict=True)
        )

    return rule


def _is_shape(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(
        isinstance(n, int) and not isinstance(n, bool) for n in value
    )


def _meta(value: Any, dtype: Any, name: str) -> Tensor:
    """A meta tensor of what a shape function said of one result."""
    shape = value
    if isinstance(value, Tensor):
        shape, dtype = value.shape, value.dtype
    elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], _C.dtype):
        shape, dtype = value
    if not _is_shape(shape):
        raise TypeError(
            f"{name}: its shape function must return a shape, a pair (shape, dtype) or a meta tensor for each "
            f"result, got {value!r}"
        )
    if dtype is None:
        raise TypeError(
            f"{name}: its shape function must return (shape, dtype): there is no tensor argument to take the "
            "dtype from"
        )
    return rabbet.empty(tuple(shape), dtype=dtype, device="meta")


def _first_dtype(args: Sequence[Any]) -> Any:
    for a in args:
        if isinstance(a, Tensor):
            return a.dtype
        if isinstance(a, list) and a and isinstance(a[0], Tensor):
            return a[0].dtype
    return None


def shape_rule(
    name: str, shape: Callable[..., Any], dtype: Any = None
) -> Callable[..., tuple[Tensor, ...]]:
    """A shape function as core calls it; `dtype`: a dtype or a function, where `shape` gives shapes only."""

    def rule(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        found = shape(*args, **kwargs)
        n = len(_C.op_info(name)["rets"])
        given = dtype(*args, **kwargs) if callable(dtype) else dtype
        dtypes = given if isinstance(given, tuple) else (given or _first_dtype(args),) * n
        values = (found,) if n == 1 else _as_tuple(found, n, name, "shape", "one for each result")
        return tuple(_meta(v, d, name) for v, d in zip(values, dtypes, strict=True))

    return rule


def batch_rule(name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
    """`rule(info, in_dims, *args)` as core calls it: with the level, then the arguments."""

    def handler(level: int, *args: Any, **kwargs: Any) -> Any:
        from rabbet.vmap._custom import run_rule

        return run_rule(name, rule, level, args, kwargs)

    return handler
