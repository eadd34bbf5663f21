"""Hooks of a module: functions that run around `forward` and around its part of the backward pass."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from rabbet import Tensor
from rabbet.utils.hooks import RemovableHandle, add_hook

# Hooks that run for every module.
global_forward_pre_hooks: dict[int, Callable[..., Any]] = OrderedDict()
global_forward_hooks: dict[int, Callable[..., Any]] = OrderedDict()
global_forward_hooks_with_kwargs: dict[int, bool] = OrderedDict()
global_forward_hooks_always_called: dict[int, bool] = OrderedDict()
global_backward_pre_hooks: dict[int, Callable[..., Any]] = OrderedDict()
global_backward_hooks: dict[int, Callable[..., Any]] = OrderedDict()

# Whether the global backward hooks are full ones; a list, as the value changes. None: nobody has said.
global_is_full_backward_hook: list[bool | None] = [None]

# Hooks that run when a module gets a part.
global_parameter_registration_hooks: dict[int, Callable[..., Any]] = OrderedDict()
global_buffer_registration_hooks: dict[int, Callable[..., Any]] = OrderedDict()
global_module_registration_hooks: dict[int, Callable[..., Any]] = OrderedDict()


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, args)` before the forward of every module."""
    return add_hook(global_forward_pre_hooks, hook, "register_module_forward_pre_hook")


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Run `hook(module, args, output)` after the forward of every module.

    Args:
        hook: its result, if not None, replaces the output.
        with_kwargs: call it as `hook(module, args, kwargs, output)`.
        always_call: call it also if an exception leaves the call before its turn, with the output so far or None.
    """
    flags = _flags(
        (with_kwargs, global_forward_hooks_with_kwargs),
        (always_call, global_forward_hooks_always_called),
    )
    return add_hook(global_forward_hooks, hook, "register_module_forward_hook", flags=flags)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, grad_output)` before the backward of every module."""
    return add_hook(global_backward_pre_hooks, hook, "register_module_full_backward_pre_hook")


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, grad_input, grad_output)` at the last operation of every module's forward.

    Deprecated in favour of `register_module_full_backward_hook`: `grad_input` holds the gradients of that
    operation's inputs, not of the module's.
    """
    _agree(global_is_full_backward_hook[0], False, "as a global Module hook")
    global_is_full_backward_hook[0] = False
    return add_hook(global_backward_hooks, hook, "register_module_backward_hook")


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, grad_input, grad_output)` after the backward of every module."""
    _agree(global_is_full_backward_hook[0], True, "as a global Module hook")
    global_is_full_backward_hook[0] = True
    return add_hook(global_backward_hooks, hook, "register_module_full_backward_hook")


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, name, param)` when a module gets a parameter; a result replaces it."""
    what = "register_module_parameter_registration_hook"
    return add_hook(global_parameter_registration_hooks, hook, what)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, name, buffer)` when a module gets a buffer; a result replaces it."""
    what = "register_module_buffer_registration_hook"
    return add_hook(global_buffer_registration_hooks, hook, what)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(module, name, submodule)` when a module gets a child; a result replaces it."""
    what = "register_module_module_registration_hook"
    return add_hook(global_module_registration_hooks, hook, what)


def registered(hooks: dict[int, Callable[..., Any]], module: Any, name: str, part: Any) -> Any:
    """`part` as the registration hooks leave it."""
    for hook in list(hooks.values()):
        result = hook(module, name, part)
        part = part if result is None else result
    return part


def _agree(is_full: bool | None, wanted: bool, where: str) -> None:
    if is_full is not None and is_full is not wanted:
        raise RuntimeError(
            f"Cannot use both regular backward hooks and full backward hooks {where}. "
            "Please use only one of them."
        )


def _flags(*wanted: tuple[bool, dict[int, bool]]) -> tuple[dict[int, bool], ...]:
    return tuple(flag for want, flag in wanted if want)


class HookedModule:
    """The part of `Module` that keeps and runs hooks."""

    _forward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _backward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _backward_hooks: OrderedDict[int, Callable[..., Any]]
    _is_full_backward_hook: bool | None = None  # of the hooks in _backward_hooks
    _hooked: bool  # whether a call has to look for hooks; may stay True when the last one has gone
    # Whether a call runs a `_call_impl` of a subclass or of the object; `_hooked` is set then, so that other calls need
    # not look for it.
    _replaces_call_impl = False
    _compiled_call_impl: Any = None  # what Module.compile made of it; `_hooked` is set then
    forward: Callable[..., Any]

    def _has_hooks(self) -> bool:
        return bool(
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or self._replaces_call_impl
            or self._compiled_call_impl is not None
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
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Run `hook(module, args, output)` after `forward`; a result that is not None replaces the output.

        With `with_kwargs` the hook is called as `hook(module, args, kwargs, output)`. With `always_call` it
        is also called if an exception leaves the call before its turn, with the output so far or None.
        """
        flags = _flags(
            (with_kwargs, self._forward_hooks_with_kwargs),
            (always_call, self._forward_hooks_always_called),
        )
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
        _agree(self._is_full_backward_hook, True, "on a single Module")
        self._is_full_backward_hook = True
        self._hooked = True
        return add_hook(self._backward_hooks, hook, "register_full_backward_hook", prepend=prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(module, grad_input, grad_output)` at the last operation of `forward`.

        Deprecated in favour of `register_full_backward_hook`: `grad_input` holds the gradients of that
        operation's inputs, not of the module's.
        """
        _agree(self._is_full_backward_hook, False, "on a single Module")
        self._is_full_backward_hook = False
        self._hooked = True
        return add_hook(self._backward_hooks, hook, "register_backward_hook")

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._has_hooks():
            self._hooked = False
        called: set[int] = set()  # forward hooks that had their turn
        output = None
        try:
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
            pre_hooks = [*global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]
            hooks, at_node = self._split_backward_hooks()
            if hooks or pre_hooks:
                from ._backward import AroundBackward

                around = AroundBackward(self, pre_hooks, hooks)
                args = around.watch_inputs(args)

            output = self.forward(*args, **kwargs)

            for key, hook, with_kwargs, _ in self._after_forward():
                called.add(key)
                result = _call_after(hook, with_kwargs, self, args, kwargs, output)
                output = output if result is None else result
            if at_node:
                _hook_last_node(self, at_node, args, output)
            return output if around is None else around.watch_outputs(output)
        except Exception:
            if self._forward_hooks_always_called or global_forward_hooks_always_called:
                self._call_left_over(args, kwargs, output, called)
            raise

    def _split_backward_hooks(self) -> tuple[list[Callable[..., Any]], list[Callable[..., Any]]]:
        """The full backward hooks, and those of the last operation."""
        full: list[Callable[..., Any]] = []
        at_node: list[Callable[..., Any]] = []
        for hooks, is_full in (
            (global_backward_hooks, global_is_full_backward_hook[0]),
            (self._backward_hooks, self._is_full_backward_hook),
        ):
            (at_node if is_full is False else full).extend(hooks.values())
        return full, at_node

    def _after_forward(self) -> list[tuple[int, Callable[..., Any], bool, bool]]:
        """The forward hooks in order: id, hook, whether it takes keywords, whether it is always called."""
        tables = (
            (
                global_forward_hooks,
                global_forward_hooks_with_kwargs,
                global_forward_hooks_always_called,
            ),
            (
                self._forward_hooks,
                self._forward_hooks_with_kwargs,
                self._forward_hooks_always_called,
            ),
        )
        return [
            (key, hook, key in with_kwargs, key in always)
            for hooks, with_kwargs, always in tables
            for key, hook in hooks.items()
        ]

    def _call_left_over(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, called: set[int]
    ) -> None:
        """Call the forward hooks that are always called and whose turn did not come."""
        for key, hook, with_kwargs, always in self._after_forward():
            if always and key not in called:
                try:
                    _call_after(hook, with_kwargs, self, args, kwargs, output)
                except Exception as error:  # the first exception is the one to raise
                    warnings.warn(
                        "forward hook with always_call=True raised an exception that was silenced "
                        f"as another error was raised in forward: {error}",
                        stacklevel=2,
                    )


def _hook_last_node(
    module: Any, hooks: list[Callable[..., Any]], args: tuple[Any, ...], output: Any
) -> None:
    """Register `hooks` at the operation that made the first tensor of `output`."""
    first = output
    while not isinstance(first, Tensor):
        if isinstance(first, dict):
            first = next(v for v in first.values() if isinstance(v, Tensor))
        else:
            first = first[0]
    node = first.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(functools.partial(hook, module))
    _warn_of_other_nodes(node, args, output)


def _warn_of_other_nodes(node: Any, args: tuple[Any, ...], output: Any) -> None:
    """Warn where the hooks of `node` do not see all of a module's gradients."""
    outputs = output if isinstance(output, tuple) else (output,)
    if not all(isinstance(o, Tensor) for o in outputs):
        what = "does not return a single Tensor or a tuple of Tensors"
        end = "This hook will be missing some of the grad_output."
    elif not all(isinstance(a, Tensor) for a in args):
        what = "does not take as input a single Tensor or a tuple of Tensors"
        end = "This hook will be missing some of the grad_input."
    elif len({o.grad_fn for o in outputs if o.grad_fn is not None}) > 1:
        what = "has outputs of different autograd Nodes"
        end = "This hook will be missing some grad_output."
    else:
        made = {a.grad_fn for a in args if a.grad_fn is not None}
        if {before for before, _ in node.next_functions} == made:
            return
        what = "contains multiple autograd Nodes"
        end = "This hook will be missing some grad_input."
    warnings.warn(
        f"Using a non-full backward hook when the forward {what} is deprecated and will be removed in "
        f"future versions. {end} Please use register_full_backward_hook to get the documented behavior.",
        FutureWarning,
        stacklevel=4,
    )


def _call_after(
    hook: Callable[..., Any],
    with_kwargs: bool,
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output: Any,
) -> Any:
    if with_kwargs:
        return hook(module, args, kwargs, output)
    return hook(module, args, output)


def _replaced_args(args: tuple[Any, ...], result: Any) -> tuple[Any, ...]:
    if result is None:
        return args
    return result if isinstance(result, tuple) else (result,)
