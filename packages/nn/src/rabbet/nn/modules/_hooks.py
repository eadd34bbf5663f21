"""Hooks of a module: functions that run around `forward` and around its part of the backward pass."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

_ids = itertools.count()

# Hooks that run for every module.
global_forward_pre_hooks: dict[int, Callable[..., Any]] = OrderedDict()
global_forward_hooks: dict[int, Callable[..., Any]] = OrderedDict()


class RemovableHandle:
    """Takes a hook away again, by `remove()` or at the end of a `with` block."""

    def __init__(self, hooks: dict[int, Any], *flags: dict[int, Any]) -> None:
        self.id = next(_ids)
        self._dicts = [weakref.ref(d) for d in (hooks, *flags)]

    def remove(self) -> None:
        """Take the hook away; a second call does nothing."""
        for ref in self._dicts:
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def add_hook(
    hooks: dict[int, Any],
    hook: Callable[..., Any],
    what: str,
    *,
    prepend: bool = False,
    flags: tuple[dict[int, Any], ...] = (),
) -> RemovableHandle:
    """Register `hook` in `hooks` and its id in each dict of `flags`."""
    if not callable(hook):
        raise TypeError(f"{what}: expected a callable hook, got {type(hook).__name__}")
    handle = RemovableHandle(hooks, *flags)
    hooks[handle.id] = hook
    for flag in flags:
        flag[handle.id] = True
    if prepend and isinstance(hooks, OrderedDict):
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, args)` before the forward of every module."""
    return add_hook(global_forward_pre_hooks, hook, "register_module_forward_pre_hook")


def register_module_forward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, args, output)` after the forward of every module."""
    return add_hook(global_forward_hooks, hook, "register_module_forward_hook")


class HookedModule:
    """The part of `Module` that keeps and runs hooks."""

    _forward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _backward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _backward_hooks: OrderedDict[int, Callable[..., Any]]
    _hooked: bool  # whether a call has to look for hooks; may stay True when the last one has gone
    forward: Callable[..., Any]

    def _has_hooks(self) -> bool:
        return bool(
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
        )

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Run `hook(module, args)` before `forward`.

        A result that is not None replaces the positional arguments. With `with_kwargs` the hook is called
        as `hook(module, args, kwargs)` and may return `(args, kwargs)`.
        """
        flags = (self._forward_pre_hooks_with_kwargs,) if with_kwargs else ()
        self._hooked = True
        return add_hook(
            self._forward_pre_hooks, hook, "register_forward_pre_hook", prepend=prepend, flags=flags
        )

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Run `hook(module, args, output)` after `forward`; a result that is not None replaces the output.

        With `with_kwargs` the hook is called as `hook(module, args, kwargs, output)`.
        """
        flags = (self._forward_hooks_with_kwargs,) if with_kwargs else ()
        self._hooked = True
        return add_hook(
            self._forward_hooks, hook, "register_forward_hook", prepend=prepend, flags=flags
        )

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run `hook(module, grad_output)` before the module's backward; a result replaces `grad_output`."""
        self._hooked = True
        return add_hook(
            self._backward_pre_hooks, hook, "register_full_backward_pre_hook", prepend=prepend
        )

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run `hook(module, grad_input, grad_output)` after the module's backward.

        A result that is not None replaces `grad_input`. Both are tuples over the positional arguments and
        the outputs; places without a gradient hold None.
        """
        self._hooked = True
        return add_hook(self._backward_hooks, hook, "register_full_backward_hook", prepend=prepend)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._has_hooks():
            self._hooked = False
        for hook in list(global_forward_pre_hooks.values()):
            args = _replaced_args(args, hook(self, args))
        for key, hook in list(self._forward_pre_hooks.items()):
            if key in self._forward_pre_hooks_with_kwargs:
                result = hook(self, args, kwargs)
                if result is not None:
                    if not (isinstance(result, tuple) and len(result) == 2):
                        raise RuntimeError(
                            f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {result}."
                        )
                    args, kwargs = result
            else:
                args = _replaced_args(args, hook(self, args))

        around = None
        if self._backward_hooks or self._backward_pre_hooks:
            from ._backward import AroundBackward

            around = AroundBackward(
                self, list(self._backward_pre_hooks.values()), list(self._backward_hooks.values())
            )
            args = around.watch_inputs(args)

        output = self.forward(*args, **kwargs)

        for hook in list(global_forward_hooks.values()):
            result = hook(self, args, output)
            output = output if result is None else result
        for key, hook in list(self._forward_hooks.items()):
            if key in self._forward_hooks_with_kwargs:
                result = hook(self, args, kwargs, output)
            else:
                result = hook(self, args, output)
            output = output if result is None else result
        return output if around is None else around.watch_outputs(output)


def _replaced_args(args: tuple[Any, ...], result: Any) -> tuple[Any, ...]:
    if result is None:
        return args
    return result if isinstance(result, tuple) else (result,)
