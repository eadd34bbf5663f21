"""Activation checkpointing: backward computes again what forward did not keep."""

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import rabbet
from rabbet import _C, Tensor, _pytree
from rabbet.autograd import _C as _tape
from rabbet.autograd import Function, enable_grad, is_grad_enabled, no_grad
from rabbet.autograd.graph import saved_tensors_hooks

from ._call_log import CallLog, compared
from ._saved_state import SavedCall, Surroundings
from ._selective_checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]

_DETERMINISM_CHECKS = ("default", "none")


class CheckpointError(RuntimeError):
    """The recomputation differs from the forward pass."""


class DefaultDeviceType:
    """The device type that device states mean where nothing else says it."""

    _default = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Choose it."""
        DefaultDeviceType._default = device

    @staticmethod
    def get_device_type() -> str:
        """The one that was chosen, 'cuda' at first."""
        return DefaultDeviceType._default


def noop_context_fn() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Two contexts that do nothing: the default of `context_fn`."""
    return contextlib.nullcontext(), contextlib.nullcontext()


# ---- settings

_early_stop: bool | None = None  # None: what the call says
_debug: bool | None = None


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Context manager: whether checkpoints made inside stop to recompute once all that is needed is there.

    It goes before the argument `early_stop`. Backward may run outside.
    """
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Context manager: whether checkpoints made inside log their operators; None: as their argument says."""
    global _debug
    before, _debug = _debug, enabled
    try:
        yield
    finally:
        _debug = before


# ---- devices, arguments


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """Indices and generator states of the devices, other than the CPU, that tensors among `args` are on."""
    devices = []
    for leaf in _pytree.tree_leaves(args):
        if not isinstance(leaf, Tensor) or leaf.device.type in ("cpu", "meta"):
            continue
        if leaf.device not in devices:
            devices.append(leaf.device)
    states = [_C.default_generator(device).get_state() for device in devices]
    return [device.index or 0 for device in devices], states


def set_device_states(
    devices: list[int], states: list[Tensor], *, device_type: str | None = None
) -> None:
    """Set the states of the generators of `device_type`, None: of `DefaultDeviceType`."""
    kind = device_type or DefaultDeviceType.get_device_type()
    for device, state in zip(devices, states, strict=True):
        _C.default_generator(rabbet.device(f"{kind}:{device}")).set_state(state)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leaves of the same values, requiring grad where the tensors did; what is no tensor stays."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            "Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}"
        )
    return tuple(
        x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs
    )


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if no tensor among `inputs` requires grad."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2
        )


# ---- reentrant: one node, whose backward runs forward and backward again


class CheckpointFunction(Function):
    """`checkpoint` with use_reentrant=True."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """Run it without recording."""
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = Surroundings(preserve)
        ctx.inputs = [None if isinstance(a, Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Run it again with recording, and backward through that."""
        if _tape.run_has_inputs():
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an "
                "`inputs` parameter to .backward(). To resolve this error, you can either set "
                "use_reentrant=False, or call .backward() without passing the `inputs` argument."
            )
        inputs = list(ctx.inputs)
        for i, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[i] = tensor
        detached = detach_variable(tuple(inputs))
        with ctx.surroundings.restored(), enable_grad():
            outputs = ctx.run_function(*detached)
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        roots = [
            (output, grad)
            for output, grad in zip(outputs, grads, strict=True)
            if isinstance(output, Tensor) and output.requires_grad
        ]
        if not roots:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        rabbet.autograd.backward([o for o, _ in roots], [g for _, g in roots])
        return (None, None, *(x.grad if isinstance(x, Tensor) else None for x in detached))


# ---- not reentrant: what operators save is replaced by holders, which a recomputation fills


class _Stop(BaseException):  # code that is recomputed must not catch it by `except Exception`
    """All that the forward pass saved is there again."""

    def __init__(self, frame: "_Frame") -> None:
        self.frame = frame


class _Holder:
    """In the place of a saved tensor: its values, by the backward run that they were recomputed for."""

    __slots__ = ("__weakref__", "values")

    def __init__(self) -> None:
        self.values: dict[Any, Tensor] = {}


def _metadata(x: Tensor) -> dict[str, Any]:
    return {"shape": x.shape, "dtype": x.dtype, "device": x.device}


class _Frame:
    """One call of a checkpointed function."""

    def __init__(
        self,
        function: Callable[..., Any],
        call: SavedCall,
        surroundings: Surroundings,
        recompute_context: AbstractContextManager[Any],
        early_stop: bool,
        checks: bool,
        log: CallLog | None,
    ) -> None:
        self.function = function
        self.call = call
        self.surroundings = surroundings
        self.recompute_context = recompute_context
        self.early_stop = early_stop
        self.checks = checks
        self.log = log
        self.recomputed_log: CallLog | None = None
        self.holders: list[weakref.ref[_Holder]] = []
        self.metadata: list[dict[str, Any]] = []
        self.counts: dict[Any, int] = {}  # tensors saved again, by run
        self.is_complete = False  # forward has returned
        self.ignores_count = False

    def pack(self, x: Tensor) -> _Holder:
        """The forward pass saves `x`."""
        holder = _Holder()
        self.holders.append(weakref.ref(holder))
        if self.checks:
            self.metadata.append(_metadata(x))
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        """The derivative asks for what was saved."""
        run = _tape.current_run()
        if run:
            return self._value(holder, run)
        outside = object()  # nobody else will ask for the values of this recomputation
        value = self._value(holder, outside)
        for reference in self.holders:
            other = reference()
            if other is not None:
                other.values.pop(outside, None)
        del self.counts[outside]
        return value

    def _value(self, holder: _Holder, run: Any) -> Tensor:
        if run not in self.counts:
            self._recompute(run)
        if run not in holder.values:
            raise CheckpointError(
                "torch.utils.checkpoint: Unpack is being triggered for a tensor that was either never "
                "recomputed, or already unpacked once. If you are calling ctx.saved_tensors in backward, make "
                "sure to do so only once."
            )
        return holder.values.pop(run)

    def _recompute(self, run: Any) -> None:
        args, kwargs = self.call.load()  # maybe by the recomputation of an outer checkpoint
        self.counts[run] = 0
        self.recomputed_log = CallLog() if self.log is not None else None
        try:
            with (
                self.surroundings.restored(),
                self.recompute_context,
                self.recomputed_log or contextlib.nullcontext(),
                enable_grad(),
                saved_tensors_hooks(lambda x: self._fill(x, run), lambda x: x),
            ):
                self.function(*args, **kwargs)
        except _Stop as stop:
            if stop.frame is not self:
                raise
        except BaseException:
            del self.counts[run]
            raise
        try:
            self._check(run)
        except CheckpointError:
            del self.counts[run]
            raise

    def _fill(self, x: Tensor, run: Any) -> Tensor:
        """The recomputation saves `x`, in the place of what the forward pass saved at this point."""
        at = self.counts[run]
        x = x.detach()
        if at >= len(self.holders):
            if self.is_complete:
                raise self._error(
                    "trying to save more tensors during recomputation than during the original forward pass."
                )
            self.ignores_count = True  # backward inside of the function, before its end
            return x
        self.counts[run] = at + 1
        holder = self.holders[at]()
        if holder is not None:
            holder.values[run] = x
        if self.early_stop and at + 1 == len(self.holders):
            raise _Stop(self)
        return x

    def _check(self, run: Any) -> None:
        if self.ignores_count:
            return
        if self.counts[run] != len(self.holders):
            raise self._error(
                "A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.holders)}\n"
                f"Number of tensors saved during recomputation: {self.counts[run]}."
            )
        text = ""
        for i, (saved, reference) in enumerate(zip(self.metadata, self.holders, strict=False)):
            holder = reference()
            if holder is None:
                continue
            now = _metadata(holder.values[run])
            if now != saved:
                text += f"tensor at position {i}:\nsaved metadata: {saved}\nrecomputed metadata: {now}\n"
        if text:
            raise self._error(
                "Recomputed values for the following tensors have different metadata than during the "
                f"forward pass.\n{text}"
            )

    def _error(self, text: str) -> CheckpointError:
        if self.log is not None and self.recomputed_log is not None:
            text += "\n\n" + compared(self.log, self.recomputed_log)
        else:
            text += (
                "\n\nTip: pass `debug=True` to `torch.utils.checkpoint.checkpoint(...)`, or use "
                "`with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):`, to see the operators "
                "of both passes."
            )
        return CheckpointError(f"torch.utils.checkpoint: {text}")


def _checkpoint_without_reentry(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    preserve: bool,
    context_fn: Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]],
    checks: bool,
    debug: bool,
    early_stop: bool,
) -> Any:
    forward_context, recompute_context = context_fn()
    if not is_grad_enabled():
        with forward_context:
            return function(*args, **kwargs)
    log = CallLog() if debug else None
    frame = _Frame(
        function,
        SavedCall(args, kwargs),
        Surroundings(preserve),
        recompute_context,
        early_stop,
        checks,
        log,
    )
    with (
        forward_context,
        log or contextlib.nullcontext(),
        saved_tensors_hooks(frame.pack, frame.unpack),
    ):
        result = function(*args, **kwargs)
    frame.is_complete = True
    return result


# ---- what users call


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[
        [], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]
    ] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Call `function(*args, **kwargs)`; what its operators save for backward is computed again there.

    Backward runs `function` a second time, with the random states (of every device) and the autocast regions
    of the first. Tensors among the arguments are kept; they must not be written meanwhile.

    Args:
        use_reentrant: False stops the second run early, and serves all ways to run backward, keyword
            arguments, hooks and nested structures. True records a single node: `backward()` only, and an
            argument must require grad. None warns and means True.
        context_fn: gives two context managers, for the first and the second run; without reentry only.
        determinism_check: 'default' compares shapes, dtypes and devices of what both runs save, 'none' does not.
        debug: a CheckpointError shows the operators of both runs.
        early_stop: whether the second run ends when all that backward needs is there.
        preserve_rng_state: False leaves the random states as they are in backward.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in PyTorch "
            "2.9, calling checkpoint without use_reentrant will raise an exception. use_reentrant=False is "
            "recommended, but if you need to preserve the current default behavior, you can pass "
            "use_reentrant=True. Refer to docs for more details on the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    if not callable(function):
        raise TypeError(f"checkpoint: function must be callable, got {type(function).__name__}")
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in _DETERMINISM_CHECKS:
        raise ValueError(
            f"determinism_check should be one of {list(_DETERMINISM_CHECKS)}, but got {determinism_check}"
        )
    if debug and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    return _checkpoint_without_reentry(
        function,
        args,
        kwargs,
        preserve=preserve,
        context_fn=context_fn,
        checks=determinism_check == "default",
        debug=debug if _debug is None else _debug,
        early_stop=early_stop if _early_stop is None else _early_stop,
    )


def _run_all(functions: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x

    return run


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a Sequential, or a list of functions, in `segments` parts; all but the last are checkpointed.

    Args:
        preserve_rng_state: as of `checkpoint`.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly. "
            "In version 2.9 we will raise an exception if use_reentrant is not passed. use_reentrant=False is "
            "recommended, but if you need to preserve the current default behavior, you can pass "
            "use_reentrant=True. Refer to docs for more details on the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if not 1 <= segments <= max(len(steps), 1):
        raise ValueError(
            f"checkpoint_sequential: segments must be from 1 to {len(steps)}, the number of functions, "
            f"got {segments}"
        )
    size = len(steps) // segments
    last = size * (segments - 1)
    for start in range(0, last, size):
        input = checkpoint(
            _run_all(steps[start : start + size]),
            input,
            use_reentrant=use_reentrant,
            preserve_rng_state=preserve,
        )
    return _run_all(steps[last:])(input)
