"""Functions of users whose arguments are batched; `rabbet.autograd.function` imports it at need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rabbet import Tensor
from rabbet._pytree import broadcast_prefix, tree_flatten, tree_map, tree_unflatten
from rabbet.autograd._C import call_below
from rabbet.autograd.function import Function, backward_of, call

from . import _C
from ._custom import BatchInfo, closed
from ._vmap import RANDOMNESS

_MORE = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"

is_batched_level = _C.is_batched_level


def call_batched(cls: Any, level: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a Function for all examples of a level: by its `vmap`, or by a rule made of its other functions."""
    own_rule = cls.vmap is not Function.vmap
    if cls.generate_vmap_rule and own_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden vmap "
            "staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid "
            f"ambiguity. {_MORE}"
        )
    if not cls.generate_vmap_rule and not own_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and implement "
            f"the vmap staticmethod or set generate_vmap_rule=True. {_MORE}"
        )
    size, randomness = _C.level_info(level)
    leaves, spec = tree_flatten(args)
    pairs = [_C.opened(level, x) if isinstance(x, Tensor) else (x, None) for x in leaves]
    inner = tree_unflatten([x for x, _ in pairs], spec)
    dims = [d for _, d in pairs]
    if all(d is None for d in dims):
        return call_below(level, lambda: call(cls, args, kwargs)[0])
    in_dims = tree_unflatten(dims, spec)
    if own_rule:
        info = BatchInfo(size, randomness)
        returned = call_below(level, lambda: cls.vmap(info, in_dims, *inner, **kwargs))
        result, out_dims = _two(returned)
    else:
        rule = _GeneratedRule(cls, in_dims, size, randomness)
        result = call_below(level, lambda: call(rule.function, inner, kwargs)[0])
        out_dims = rule.out_dims
    given = {id(x): outer for (x, _), outer in zip(pairs, leaves, strict=True)}
    return _wrapped(cls.__name__, level, size, result, out_dims, given)


def _two(returned: Any) -> tuple[Any, Any]:
    expected = (
        "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible "
        "with the output."
    )
    if not isinstance(returned, tuple):
        raise RuntimeError(f"{expected} Got a {type(returned)} instead")
    if len(returned) != 2:
        raise RuntimeError(f"{expected} Got {len(returned)} returns instead")
    return returned


def _wrapped(
    name: str, level: int, size: int, result: Any, out_dims: Any, given: dict[int, Any]
) -> Any:
    """The results as tensors of the level; an argument that was written in place is itself the result."""
    outputs, spec = tree_flatten(result)
    try:
        dims = broadcast_prefix(out_dims, spec, name)
    except ValueError:
        raise RuntimeError(
            f"The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected "
            f"out_dims={out_dims} to be compatible with the structure of `output`. out_dims has structure "
            f"{tree_flatten(out_dims)[1]} but output has structure {spec}. {_MORE}"
        ) from None
    return tree_unflatten(
        [
            given[id(o)]
            if isinstance(o, Tensor) and id(o) in given
            else closed(name, level, size, o, d)
            for o, d in zip(outputs, dims, strict=True)
        ],
        spec,
    )


class _GeneratedRule:
    """A Function for the examples of one call: each function of `cls` is run inside a level of vmap."""

    def __init__(self, cls: Any, in_dims: tuple[Any, ...], size: int, randomness: str) -> None:
        self.cls, self.in_dims, self.size, self.randomness = cls, in_dims, size, randomness
        self.out_dims: Any = None
        self.in_shapes: list[Any] = []
        self.out_shapes: list[Any] = []
        functions = {
            name: staticmethod(getattr(self, name))
            for name in ("forward", "setup_context", "backward", "jvp")
        }
        self.function = type(cls)(
            cls.__name__, (Function,), functions | {"generate_vmap_rule": True}
        )

    def _mapped(self, body: Callable[..., Any], values: Any, dims: Any) -> tuple[Any, Any]:
        """`body(level, *values)` inside a level; the results and the dims of the examples in them."""
        leaves, spec = tree_flatten(values)
        at = tree_flatten(dims)[0]
        level, wrapped = _C.enter(self.size, RANDOMNESS[self.randomness], False, leaves, at)
        try:
            outputs, out_spec = tree_flatten(body(level, *tree_unflatten(wrapped, spec)))
            pairs = [_C.opened(level, o) if isinstance(o, Tensor) else (o, None) for o in outputs]
        finally:
            _C.pop(level)
        return (
            tree_unflatten([o for o, _ in pairs], out_spec),
            tree_unflatten([d for _, d in pairs], out_spec),
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        def body(level: int, *examples: Any) -> Any:
            result = self.cls.forward(*examples, **kwargs)
            self.in_shapes = [_shape(x) for x in examples]
            self.out_shapes = [_shape(x) for x in _as_tuple(result)]
            return result

        result, self.out_dims = self._mapped(body, args, self.in_dims)
        return result

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        def body(level: int, examples: Any, results: Any) -> tuple[()]:
            batched = _BatchedCtx(ctx, level)
            self.cls.setup_context(batched, examples, results)
            ctx._dims[self] = batched._saved_dims
            return ()

        if not hasattr(ctx, "_dims"):
            ctx._dims = {}  # by rule: where the examples are in saved tensors, for backward and jvp

        self._mapped(body, (inputs, output), (self.in_dims, self.out_dims))

    def backward(self, ctx: Any, *grads: Any) -> tuple[Any, ...]:
        def body(level: int, saved: Any, given: Any) -> tuple[Any, ...]:
            found = _as_tuple(backward_of(self.cls)(_SavedCtx(ctx, saved), *given))
            return _reduced(found, self.in_shapes)

        found, dims = self._mapped(
            body, (ctx.saved_tensors, grads), (ctx._dims[self][0], _dims_like(grads, self.out_dims))
        )
        return self._aligned(found, dims, self.in_dims)

    def jvp(self, ctx: Any, *tangents: Any) -> Any:
        def body(level: int, saved: Any, given: Any) -> tuple[Any, ...]:
            found = _as_tuple(self.cls.jvp(_SavedCtx(ctx, saved), *given))
            return _reduced(found, self.out_shapes)

        found, dims = self._mapped(
            body,
            (ctx.saved_tensors, tangents),
            (ctx._dims[self][-1], _dims_like(tangents, self.in_dims)),
        )
        return self._aligned(found, dims, _as_tuple(self.out_dims))

    def _aligned(self, found: tuple[Any, ...], dims: Any, wanted: Sequence[Any]) -> tuple[Any, ...]:
        """Derivatives with their examples where those of the tensors are, which they belong to."""
        return tuple(
            self._align(t, d, w) if isinstance(t, Tensor) else t
            for t, d, w in zip(found, dims, [*wanted, *[None] * len(found)], strict=False)
        )

    def _align(self, t: Tensor, at: int | None, wanted: int | None) -> Tensor:
        if at is None:
            if wanted is None:
                return t
            return t.unsqueeze(wanted).expand(*t.shape[:wanted], self.size, *t.shape[wanted:])
        return t.sum(at) if wanted is None else t.movedim(at, wanted)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _shape(value: Any) -> Any:
    return tuple(value.shape) if isinstance(value, Tensor) else None


def _dims_like(values: Sequence[Any], dims: Any) -> tuple[Any, ...]:
    """The dims of the examples in derivatives, of which some may be missing."""
    return tuple(
        d if isinstance(v, Tensor) else tree_map(lambda _: None, v)
        for v, d in zip(values, _as_tuple(dims), strict=True)
    )


def _summed(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The gradient of what was broadcast from `shape` to the shape of `t`."""
    leading = t.ndim - len(shape)
    if leading:
        t = t.sum(list(range(leading)))
    ones = [d for d, n in enumerate(shape) if n == 1 and t.shape[d] != 1]
    return t.sum(ones, keepdim=True) if ones else t


def _reduced(found: tuple[Any, ...], shapes: Sequence[Any]) -> tuple[Any, ...]:
    """Gradients summed to the shapes of one example's tensors, where they are larger."""
    return tuple(
        _summed(t, shape)
        if isinstance(t, Tensor) and shape is not None and tuple(t.shape) != shape
        else t
        for t, shape in zip(found, [*shapes, *[None] * len(found)], strict=False)
    )


class _Ctx:
    """What a Function sees as its ctx: all but the saved tensors is that of the call."""

    def __init__(self, ctx: Any) -> None:
        self.__dict__["_ctx"] = ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_ctx"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ctx, name, value)


class _SavedCtx(_Ctx):
    """In backward and jvp: with the saved tensors of one example."""

    def __init__(self, ctx: Any, saved: tuple[Any, ...]) -> None:
        super().__init__(ctx)
        self.__dict__["saved_tensors"] = saved


class _BatchedCtx(_Ctx):
    """In setup_context: saves what the level's tensors stand for."""

    def __init__(self, ctx: Any, level: int) -> None:
        super().__init__(ctx)
        self.__dict__["_level"] = level
        self.__dict__["_saved_dims"] = [()]

    def _opened(self, tensors: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        pairs = [_C.opened(self._level, t) if isinstance(t, Tensor) else (t, None) for t in tensors]
        return tuple(t for t, _ in pairs), tuple(d for _, d in pairs)

    def save_for_backward(self, *tensors: Any) -> None:
        saved, self._saved_dims[0] = self._opened(tensors)
        self._ctx.save_for_backward(*saved)

    def save_for_forward(self, *tensors: Any) -> None:
        saved, dims = self._opened(tensors)
        self._saved_dims[1:] = [dims]
        self._ctx.save_for_forward(*saved)

    def mark_dirty(self, *tensors: Any) -> None:
        self._ctx.mark_dirty(*self._opened(tensors)[0])

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self._ctx.mark_non_differentiable(*self._opened(tensors)[0])
