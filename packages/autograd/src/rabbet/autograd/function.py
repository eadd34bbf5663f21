"""User-written differentiable functions."""

import functools
from collections.abc import Callable
from typing import Any

import rabbet
from rabbet import Tensor

from . import _C
from ._modes import is_grad_enabled, no_grad, set_grad_enabled


class FunctionCtx:
    """What `forward` leaves for `backward`."""

    def __init__(self) -> None:
        self.needs_input_grad: tuple[bool, ...] = ()
        self.materialize_grads = True
        self._saved: tuple[Tensor | None, ...] = ()
        self._versions: tuple[int, ...] = ()
        self._non_differentiable: tuple[Tensor, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors; `saved_tensors` gives them back and checks that nobody wrote to them since."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward: expected Tensors or None, got {type(t).__name__}"
                )
        self._saved = tensors
        self._versions = tuple(0 if t is None else t._version for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors given to save_for_backward."""
        for t, version in zip(self._saved, self._versions, strict=True):
            if t is not None and t._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"{type(self).__name__} saved a tensor at version {version}, it is at version {t._version} now"
                )
        return self._saved

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say that these outputs carry no gradient."""
        self._non_differentiable = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say that `forward` wrote these inputs in place."""
        self._dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether `backward` gets zeros (True, the default) or None for outputs without gradient."""
        self.materialize_grads = value


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for `backward`: its gradients cannot be differentiated again."""

    @functools.wraps(function)
    def wrapped(ctx: FunctionCtx, *grads: Tensor) -> Any:
        with no_grad():
            return function(ctx, *grads)

    return wrapped


class Function:
    """Base of user-written functions: define `forward(ctx, ...)` and `backward(ctx, *grads)`, call `apply(...)`.

    `forward` may also leave out `ctx` when `setup_context(ctx, inputs, output)` is defined.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs, a Tensor or a tuple."""
        raise NotImplementedError("a Function must define forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return one gradient (or None) for each argument of `forward`."""
        raise NotImplementedError(
            "a Function must define backward(ctx, *grads) to be differentiated"
        )

    setup_context: Callable[..., None] | None = None

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` and record the call."""
        ctx = type(f"{cls.__name__}Backward", (FunctionCtx,), {})()
        wanted = [isinstance(a, Tensor) and a.requires_grad for a in args]
        ctx.needs_input_grad = tuple(wanted)
        recording = is_grad_enabled() and any(wanted)
        with no_grad():
            if cls.setup_context is not None:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args, **kwargs)
        outputs = result if isinstance(result, tuple) else (result,)
        if not recording:
            return result
        outputs = tuple(_fresh(o, args, ctx._dirty) for o in outputs)
        _record(cls, ctx, args, outputs, result if isinstance(result, tuple) else (result,))
        return outputs if isinstance(result, tuple) else outputs[0]


def _fresh(output: Any, args: tuple[Any, ...], dirty: tuple[Tensor, ...]) -> Any:
    """An input that is returned as it is gets a tensor of its own, unless it was written in place."""
    if (
        isinstance(output, Tensor)
        and any(output is a for a in args)
        and not any(output is d for d in dirty)
    ):
        return output.detach()
    return output


def _record(
    cls: type[Function],
    ctx: FunctionCtx,
    args: tuple[Any, ...],
    outputs: tuple[Any, ...],
    returned: tuple[Any, ...],
) -> None:
    tensors = [(i, a) for i, a in enumerate(args) if isinstance(a, Tensor)]
    made = [o for o in outputs if isinstance(o, Tensor)]
    shapes = [(o.shape, o.dtype, o.device) for o in made]
    plain = 0
    for i, (o, r) in enumerate(
        (o, r) for o, r in zip(outputs, returned, strict=True) if isinstance(o, Tensor)
    ):
        if any(o is n or r is n for n in ctx._non_differentiable):
            plain |= 1 << i
    indices = [i for i, _ in tensors]

    def run_backward(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        if ctx.materialize_grads:
            grads = tuple(
                rabbet.zeros(s, dtype=t, device=d) if g is None else g
                for g, (s, t, d) in zip(grads, shapes, strict=True)
            )
        results = cls.backward(ctx, *grads)
        results = results if isinstance(results, tuple) else (results,)
        if len(results) > len(args) and all(r is None for r in results[len(args) :]):
            results = results[: len(args)]
        if len(results) != len(args):
            raise RuntimeError(
                f"{cls.__name__}.backward returned {len(results)} gradients, expected one for each of the "
                f"{len(args)} arguments of forward"
            )
        return tuple(results[i] for i in indices)

    for d in ctx._dirty:
        if d.is_leaf and d.requires_grad:
            raise RuntimeError(
                f"{cls.__name__}: a leaf tensor that requires grad was written in place"
            )
    with set_grad_enabled(True):
        _C.record_custom(
            f"{cls.__name__}Backward", [t for _, t in tensors], made, plain, run_backward
        )
