"""User-written differentiable functions."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import rabbet
from rabbet import Tensor

from . import _C
from ._function_ctx import FunctionCtx
from ._modes import is_grad_enabled, no_grad

__all__ = ["Function", "FunctionCtx", "InplaceFunction", "once_differentiable"]


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for `backward`: its gradients cannot be differentiated again."""

    @functools.wraps(function)
    def wrapped(ctx: FunctionCtx, *grads: Tensor) -> Any:
        with no_grad():
            results = function(ctx, *grads)
        recorded = [g for g in grads if isinstance(g, Tensor) and g.requires_grad]
        if not is_grad_enabled() or not recorded:
            return results
        single = not isinstance(results, tuple)
        results = tuple(
            r.detach() if isinstance(r, Tensor) else r for r in ((results,) if single else results)
        )
        made = [r for r in results if isinstance(r, Tensor) and r.is_floating_point()]
        _C.record_custom("OnceDifferentiable", recorded, made, _refuse_twice)
        return results[0] if single else results

    return wrapped


def _refuse_twice(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    raise RuntimeError(
        "trying to differentiate twice a function that was marked with @once_differentiable"
    )


class FunctionMeta(type):
    """Gives each Function the class of its ctx."""

    _ctx_class: type[FunctionCtx]
    _signature: inspect.Signature | None
    _all_given: int  # number of arguments after which `forward` has no further ones

    def __init__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> None:
        super().__init__(name, bases, attributes)
        cls._ctx_class = type(f"{name}Backward", (FunctionCtx,), {})
        cls._signature = None
        cls._all_given = -1


class Function(metaclass=FunctionMeta):
    """Base of user-written functions: define `forward` and `backward`, call `apply(...)`.

    Either `forward(ctx, *args)` leaves in `ctx` what `backward(ctx, *grads)` needs, or `forward(*args)` only
    computes and `setup_context(ctx, inputs, output)` does that; the transforms of `rabbet.func` want the second.
    `jvp(ctx, *tangents)` gives the derivative in forward mode. Under vmap a Function needs
    `vmap(info, in_dims, *args)`, or `generate_vmap_rule = True` if all its functions are made of operators.
    """

    generate_vmap_rule = False
    clear_saved_tensors_on_access = False
    boxed_grads_call = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
            "version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: a Function is called by `apply`."""
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method, and call it by apply()."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs, a Tensor or a tuple."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Leave in `ctx` what the derivatives need; `forward` then takes no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return one gradient (or None) for each argument of `forward`."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Return one tangent (or None) for each output of `forward`."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Return `(output, out_dims)` for arguments with examples along `in_dims`."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` and record the call."""
        if cls.setup_context is not Function.setup_context and (
            kwargs or len(args) != cls._all_given
        ):
            args, kwargs = _bound(cls, args, kwargs)
        return call(cls, args, kwargs)[0]


class InplaceFunction(Function):
    """A Function with a flag that says whether it writes its argument; kept for programs that use it."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


def _bound(
    cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with the defaults of `forward`."""
    if cls._signature is None:
        cls._signature = inspect.signature(cls.forward)
        kinds = [p.kind for p in cls._signature.parameters.values()]
        if all(kind == inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds):
            cls._all_given = len(kinds)
    bound = cls._signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs


def separate(cls: type[Function]) -> bool:
    """Whether `setup_context` is there, so that `forward` takes no ctx."""
    return cls.setup_context is not Function.setup_context


def outputs_of(result: Any) -> tuple[Any, ...]:
    """What `forward` and `jvp` return, one or a tuple, as a tuple."""
    return result if isinstance(result, tuple) else (result,)


AtLevel = Callable[
    [type[Function], int, tuple[Any, ...], dict[str, Any]], tuple[Any, FunctionCtx | None]
]
_at_level: list[AtLevel] = []


def calls_at_levels(rule: AtLevel) -> AtLevel:
    """Decorator of what calls Functions whose arguments belong to a level of a transform."""
    _at_level[:] = [rule]
    return rule


def call(
    cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any], keep: bool = False
) -> tuple[Any, FunctionCtx | None]:
    """Call the Function at the highest level of its arguments.

    Returns what it returned, and with `keep` its ctx before it was settled, where `forward` takes one.
    """
    level, needs = _C.recorded(args)
    ctx: FunctionCtx | None
    if level:
        returned, ctx = _at_level[0](cls, level, args, kwargs)
        outputs = outputs_of(returned)
    else:
        fresh = ctx = cls._ctx_class()
        fresh.needs_input_grad = needs
        returned = _run_forward(cls, fresh, args, kwargs)
        outputs = outputs_of(returned)
        if _returns_inputs(outputs, args):
            outputs = tuple([_fresh(o, args, fresh._dirty) for o in outputs])
    result = outputs if isinstance(returned, tuple) else outputs[0]
    recording = True in needs and is_grad_enabled()
    if not recording and not keep:
        return result, None
    settled = _ctx_at(cls, ctx, level, needs, args, result) if level else ctx
    assert settled is not None
    kept = settled._with({}) if keep and not separate(cls) else None
    if recording:
        _record(cls, settled, args, outputs, outputs_of(returned))
    return result, kept


def _returns_inputs(outputs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
    for o in outputs:
        for a in args:
            if o is a:
                return True
    return False


def _run_forward(
    cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    before = is_grad_enabled()
    _C.set_grad_enabled(False)
    try:
        if cls.setup_context is Function.setup_context:
            return cls.forward(ctx, *args, **kwargs)
        result = cls.forward(*args, **kwargs)
        cls.setup_context(ctx, args, result)
        return result
    finally:
        _C.set_grad_enabled(before)


def _ctx_at(
    cls: type[Function],
    ctx: FunctionCtx | None,
    level: int,
    needs: tuple[bool, ...],
    args: tuple[Any, ...],
    result: Any,
) -> FunctionCtx:
    if level and separate(cls):
        return new_ctx(cls, needs, args, result)
    assert ctx is not None
    ctx.needs_input_grad = needs
    return ctx


def new_ctx(
    cls: type[Function], needs: tuple[bool, ...], args: tuple[Any, ...], result: Any
) -> FunctionCtx:
    """A ctx as `setup_context` fills it from these arguments and results."""
    ctx = cls._ctx_class()
    ctx.needs_input_grad = needs
    with no_grad():
        cls.setup_context(ctx, args, result)
    return ctx


def _fresh(output: Any, args: tuple[Any, ...], dirty: tuple[Tensor, ...]) -> Any:
    """An input that is returned as it is gets a tensor of its own, unless it was written in place."""
    for a in args:
        if output is a and isinstance(a, Tensor) and not any(a is d for d in dirty):
            with no_grad():
                return a.view_as(a)
    return output


def backward_of(cls: type[Function]) -> Callable[..., Any]:
    """`backward`, or `vjp`, which is its other name."""
    return _C.backward_rule(cls)


def is_differentiable(t: Any, unmarked: Sequence[Tensor] = ()) -> bool:
    """Whether it can have a derivative; `unmarked`: those that a ctx marked to have none."""
    return (
        isinstance(t, Tensor)
        and (t.is_floating_point() or t.is_complex())
        and not (unmarked and any(t is n for n in unmarked))
    )


def _record(
    cls: type[Function],
    ctx: FunctionCtx,
    args: tuple[Any, ...],
    outputs: tuple[Any, ...],
    returned: tuple[Any, ...],
) -> None:
    if ctx._dirty:
        _check_dirty(ctx, args, outputs)
    marked = ctx._non_differentiable
    if len(outputs) == 1 and not marked and outputs is returned:
        places = [0] if is_differentiable(outputs[0]) else []
    else:
        places = [
            k
            for k, o in enumerate(outputs)
            if is_differentiable(o, marked)
            and (o is returned[k] or is_differentiable(returned[k], marked))
        ]
    if cls.clear_saved_tensors_on_access:
        ctx._clears_on_access = True
    ctx._settle([outputs[k] for k in places])
    if places:
        _C.record_function(cls, ctx, args, outputs, places)


def _check_dirty(ctx: FunctionCtx, args: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
    for d in ctx._dirty:
        if not any(d is a for a in args):
            warnings.warn(
                "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been mutated "
                "should be passed to ctx.mark_dirty().",
                stacklevel=5,
            )
        elif d.is_leaf and d.requires_grad:
            raise RuntimeError(
                "a leaf Variable that requires grad has been used in an in-place operation."
            )
        if not any(d is o for o in outputs):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                "are modified inplace must all be outputs of the Function."
            )


def _zeros(shape: Any, dtype: Any, device: Any) -> Tensor:
    return rabbet.zeros(shape, dtype=dtype, device=device)


_C.set_function_base(Function, _zeros)
