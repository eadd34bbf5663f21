"""User-written differentiable functions."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import rabbet
from rabbet import Tensor

from . import _C
from ._modes import is_grad_enabled, no_grad, set_grad_enabled
from .graph import active_hooks


def _contents(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return value.values()
    return value if type(value) in (list, tuple) else (value,)


def _in_container(f: Callable[[Any], Any], value: Any) -> Any:
    """`f` of each entry of a list, tuple or dict, of anything else itself."""
    if type(value) is dict:
        return {key: f(entry) for key, entry in value.items()}
    return type(value)(map(f, value)) if type(value) in (list, tuple) else f(value)


class _Output:
    """An output that the ctx keeps: without its history, which leads back to the ctx."""

    def __init__(self, value: Tensor, number: int) -> None:
        self.value, self.number = value, number

    def load(self) -> Tensor:
        return _C.saved_output(self.value, self.number)


class FunctionCtx:
    """What `forward` leaves for `backward`."""

    def __init__(self) -> None:
        self.needs_input_grad: tuple[bool, ...] = ()
        self.materialize_grads = True
        self._saved: tuple[Any, ...] = ()
        self._versions: tuple[int, ...] = ()
        self._outputs: tuple[int | None, ...] = ()  # of those saved: which output it is
        self._unpack: Callable[[Any], Tensor] | None = None
        self._non_differentiable: tuple[Tensor, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._kept: dict[str, Any] = {}  # attributes with outputs in them, as _Output

    def __getattr__(self, name: str) -> Any:
        try:
            value = self.__dict__["_kept"][name]
        except KeyError:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            ) from None
        return _in_container(lambda o: o.load() if isinstance(o, _Output) else o, value)

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors; `saved_tensors` gives them back and checks that nobody wrote to them since."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward: expected Tensors or None, got {type(t).__name__}"
                )
        self._saved = tensors
        self._outputs = (None,) * len(tensors)
        self._versions = tuple(0 if t is None or t.is_inference() else t._version for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors given to save_for_backward."""
        if self._unpack is not None:
            return tuple(None if t is None else self._unpack(t) for t in self._saved)
        for t, version in zip(self._saved, self._versions, strict=True):
            if t is not None and not t.is_inference() and t._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"{type(self).__name__} saved a tensor at version {version}, it is at version {t._version} now"
                )
        return tuple(
            t if output is None else _C.saved_output(t, output)
            for t, output in zip(self._saved, self._outputs, strict=True)
        )

    def _settle(self, outputs: list[Tensor]) -> None:
        """Prepare what was saved for waiting: the graph must not keep itself alive."""
        for t in self._saved:
            if t is not None and t.is_inference():
                raise RuntimeError(
                    "Inference tensors cannot be saved for backward. To work around you can make a clone "
                    "to get a normal tensor and use it in autograd."
                )
        numbers = {id(o): i for i, o in enumerate(outputs)}
        self._outputs = tuple(None if t is None else numbers.get(id(t)) for t in self._saved)
        self._saved = tuple(
            t if output is None else t.detach()
            for t, output in zip(self._saved, self._outputs, strict=True)
        )
        self._settle_attributes(numbers)
        hooks = active_hooks()
        if hooks is not None:
            pack, self._unpack = hooks
            with no_grad():
                self._saved = tuple(None if t is None else pack(t) for t in self._saved)

    def _settle_attributes(self, numbers: dict[int, int]) -> None:
        """Outputs among the attributes, and in lists, tuples and dicts there, lose their history."""

        def settle(value: Any) -> Any:
            at = numbers.get(id(value))
            return value if at is None else _Output(value.detach(), at)

        self._dirty = self._non_differentiable = ()
        for name in [name for name in self.__dict__ if not name.startswith("_")]:
            value = self.__dict__[name]
            if any(id(leaf) in numbers for leaf in _contents(value)):
                self._kept[name] = _in_container(settle, value)
                del self.__dict__[name]

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
            results = function(ctx, *grads)
        recorded = [g for g in grads if isinstance(g, Tensor) and g.requires_grad]
        if not is_grad_enabled() or not recorded:
            return results
        single = not isinstance(results, tuple)
        results = tuple(
            r.detach() if isinstance(r, Tensor) else r for r in ((results,) if single else results)
        )
        made = [r for r in results if isinstance(r, Tensor) and r.is_floating_point()]
        _C.record_custom("OnceDifferentiable", recorded, made, 0, _refuse_twice)
        return results[0] if single else results

    return wrapped


def _refuse_twice(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    raise RuntimeError(
        "trying to differentiate twice a function that was marked with @once_differentiable"
    )


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
        if is_grad_enabled() and any(_C.recorded_below(a) for a in args if isinstance(a, Tensor)):
            raise NotImplementedError(
                f"{cls.__name__}: a Function inside vmap or forward mode cannot be differentiated "
                "from outside; take the gradient inside, or write the function with operators"
            )
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
    places = [k for k, o in enumerate(outputs) if isinstance(o, Tensor)]
    plain = 0
    for i, k in enumerate(places):
        if any(outputs[k] is n or returned[k] is n for n in ctx._non_differentiable):
            plain |= 1 << i
    indices = [i for i, _ in tensors]
    nargs, noutputs = len(args), len(outputs)  # what waits for backward holds no tensors

    def run_backward(given: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        if ctx.materialize_grads:
            given = tuple(
                rabbet.zeros(s, dtype=t, device=d) if g is None else g
                for g, (s, t, d) in zip(given, shapes, strict=True)
            )
        grads: list[Tensor | None] = [None] * noutputs  # also for outputs that are no tensors
        for k, g in zip(places, given, strict=True):
            grads[k] = g
        results = cls.backward(ctx, *grads)
        results = results if isinstance(results, tuple) else (results,)
        if len(results) > nargs and all(r is None for r in results[nargs:]):
            results = results[:nargs]
        if len(results) != nargs:
            raise RuntimeError(
                f"{cls.__name__}.backward returned {len(results)} gradients, expected one for each of the "
                f"{nargs} arguments of forward"
            )
        return tuple(results[i] for i in indices)

    for d in ctx._dirty:
        if d.is_leaf and d.requires_grad:
            raise RuntimeError(
                f"{cls.__name__}: a leaf tensor that requires grad was written in place"
            )
        if not any(d is o for o in made):
            raise RuntimeError(
                f"{cls.__name__}: some elements marked as dirty during the forward method were not "
                "returned as output. The inputs that are modified inplace must all be outputs of the Function"
            )
    ctx._settle(made)
    with set_grad_enabled(True):
        _C.record_custom(
            f"{cls.__name__}Backward", [t for _, t in tensors], made, plain, run_backward
        )
