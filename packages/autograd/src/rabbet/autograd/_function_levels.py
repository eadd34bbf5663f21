"""A Function whose arguments belong to a level of a transform: forward mode, vmap, or another one."""

from __future__ import annotations

from typing import Any

import rabbet
from rabbet import Tensor

from . import _C
from ._function_ctx import FunctionCtx
from ._modes import no_grad
from .function import (
    Function,
    call,
    calls_at_levels,
    is_differentiable,
    new_ctx,
    outputs_of,
    separate,
)


@calls_at_levels
def call_at_level(
    cls: type[Function], level: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, FunctionCtx | None]:
    """What the Function returns for arguments the highest of which have `level`.

    The ctx is that of a Function whose `forward` takes it, with the level's tensors.
    """
    if _C.is_dual_level(level):
        return _call_dual(cls, level, args, kwargs)
    from rabbet.vmap._function import call_batched, is_batched_level

    if is_batched_level(level):
        if not separate(cls):
            raise RuntimeError(
                "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it "
                f"must override the setup_context staticmethod; {cls.__name__} does not."
            )
        return call_batched(cls, level, args, kwargs), None
    return _call_inside(cls, args, kwargs)


def _call_inside(
    cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, FunctionCtx]:
    """Run forward with the level's own tensors, whose operators the transform sees."""
    if any(_C.recorded_below(a) for a in args if isinstance(a, Tensor)):
        raise NotImplementedError(
            f"{cls.__name__}: a Function inside this transform cannot be differentiated from outside; take the "
            "gradient inside, or write the function with operators"
        )
    ctx = cls._ctx_class()
    with no_grad():
        if not separate(cls):
            return cls.forward(ctx, *args, **kwargs), ctx
        result = cls.forward(*args, **kwargs)
        cls.setup_context(ctx, args, result)
    return result, ctx


# ---- forward mode


def _call_dual(
    cls: type[Function], level: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, FunctionCtx | None]:
    """The Function of the primals, and the tangents that `jvp` gives."""
    pairs = [_C.dual_unpack(level, a) if isinstance(a, Tensor) else (a, None) for a in args]
    primals = tuple([p for p, _ in pairs])
    tangents = [t for _, t in pairs]
    moves = any(t is not None for t in tangents)

    def below() -> tuple[Any, FunctionCtx | None, tuple[Any, ...]]:
        result, ctx = call(cls, primals, kwargs, keep=not separate(cls))
        if not moves:
            return result, ctx, ()
        if ctx is None:
            ctx = new_ctx(cls, (False,) * len(args), primals, result)
        zeros = ctx.materialize_grads
        given = [
            rabbet.zeros_like(p) if t is None and zeros and is_differentiable(p) else t
            for p, t in zip(primals, tangents, strict=True)
        ]
        found = outputs_of(cls.jvp(ctx._for_jvp(), *given))
        outputs = outputs_of(result)
        _check_tangents(cls, ctx, outputs, found)
        for p, was, t in zip(primals, tangents, given, strict=True):
            _check_written(cls, p, was, t, outputs, found)
        return result, ctx, found

    result, ctx, found = _C.call_below(level, below)
    outer = {id(p): a for p, a in zip(primals, args, strict=True) if isinstance(p, Tensor)}
    outputs = []
    for k, o in enumerate(outputs_of(result)):
        t = found[k] if found else None
        if isinstance(o, Tensor) and id(o) in outer:
            outputs.append(_written(level, outer[id(o)], o, t))
        else:
            outputs.append(o if t is None else _C.dual_make(level, o, t, False))
    if not separate(cls) and ctx is not None:
        inner = outputs_of(result)
        outer.update(
            {id(o): d for o, d in zip(inner, outputs, strict=True) if isinstance(o, Tensor)}
        )
        ctx = ctx._with(outer)
    return (tuple(outputs) if isinstance(result, tuple) else outputs[0]), ctx


def _check_tangents(
    cls: type[Function], ctx: FunctionCtx, outputs: tuple[Any, ...], found: tuple[Any, ...]
) -> None:
    if len(found) != len(outputs):
        raise RuntimeError(
            f"Function's jvp returned an invalid number of forward gradients (expected {len(outputs)} but got "
            f"{len(found)}): {cls.__name__}"
        )
    for i, (o, t) in enumerate(zip(outputs, found, strict=True)):
        if t is None:
            continue
        if not isinstance(t, Tensor):
            raise RuntimeError(
                f"{cls.__name__}.jvp: expected Variable or None (got {type(t).__name__}) for grad output {i}."
            )
        if not is_differentiable(o, ctx._non_differentiable):
            raise RuntimeError(
                f"Function's jvp returned a gradient at position {i}, but the corresponding forward output is not a "
                f"differentiable Tensor. You should return None at that position instead: {cls.__name__}"
            )
        if t.shape != o.shape:
            raise RuntimeError(
                "Trying to set a forward gradient that has a different size than that of the original Tensor, this is "
                f"not supported. Tensor is of size {tuple(o.shape)} while the given forward gradient is of size "
                f"{tuple(t.shape)}: {cls.__name__}.jvp, output {i}"
            )
        if t.dtype != o.dtype or t.device != o.device:
            raise RuntimeError(
                f"{cls.__name__}.jvp: expected a tangent of {o.dtype} on {o.device} for output {i}, got {t.dtype} on "
                f"{t.device}"
            )


def _check_written(
    cls: type[Function],
    primal: Any,
    had: Tensor | None,
    given: Tensor | None,
    outputs: tuple[Any, ...],
    found: tuple[Any, ...],
) -> None:
    """An input that forward wrote: jvp must have written to its tangent."""
    for o, t in zip(outputs, found, strict=True):
        if isinstance(primal, Tensor) and o is primal and had is not None and t is not given:
            raise RuntimeError(
                "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
                "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace: "
                f"{cls.__name__}"
            )


def _written(level: int, dual: Tensor, primal: Tensor, tangent: Tensor | None) -> Tensor:
    """An argument that was written in place; its tangent was too, if it had one."""
    if tangent is not None and _C.dual_unpack(level, dual)[1] is None:
        with no_grad():
            dual.copy_(_C.dual_make(level, primal.clone(), tangent, False))
    return dual
