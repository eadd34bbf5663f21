"""State dicts of a module: its parameters and persistent buffers by name, out and in."""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rabbet import Tensor
from rabbet.autograd import no_grad
from rabbet.utils.hooks import RemovableHandle, add_hook

from ..parameter import Parameter, is_lazy

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _Keys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]


class IncompatibleKeys(_Keys):
    """What a state dict lacked and what it had too much."""

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class WrappedHook:
    """A hook and the module that it is called with first, if any; pickles of modules hold it so.

    The module is held weakly, as it holds the hook.
    """

    def __init__(self, hook: Callable[..., Any], module: Any = None) -> None:
        self.hook = hook
        self.with_module = module is not None
        if module is not None:
            self.module = weakref.ref(module)
        functools.update_wrapper(self, hook)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.with_module:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state = {"hook": self.hook, "with_module": self.with_module}
        return {**state, "module": self.module()} if self.with_module else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["hook"], state.get("module"))  # type: ignore[misc]


# Pickles, PyTorch's too, know it as `nn.modules.module._WrappedHook`.
WrappedHook.__module__ = "rabbet.nn.modules.module"
WrappedHook.__name__ = WrappedHook.__qualname__ = "_WrappedHook"


class StatefulModule:
    """The part of `Module` that makes and takes state dicts."""

    _version: int = 1

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _state_dict_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(module, prefix, keep_vars)` before the module's state is collected."""
        return add_hook(self._state_dict_pre_hooks, hook, "register_state_dict_pre_hook")

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(module, state_dict, prefix, local_metadata)` after the module's state is collected."""
        return add_hook(self._state_dict_hooks, hook, "register_state_dict_post_hook")

    _register_state_dict_hook = register_state_dict_post_hook

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run a hook before the module takes its part of a state dict.

        It is called as `hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)` and may change `state_dict`.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        """As `register_load_state_dict_pre_hook`; without `with_module` the hook does not get the module."""
        if not callable(hook):  # add_hook would only see the wrapper
            raise TypeError(
                f"register_load_state_dict_pre_hook: expected a callable, got {type(hook).__name__}"
            )
        wrapped = WrappedHook(hook, self if with_module else None)
        return add_hook(
            self._load_state_dict_pre_hooks, wrapped, "register_load_state_dict_pre_hook"
        )

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(module, incompatible_keys)` after the module and its children took their state."""
        return add_hook(
            self._load_state_dict_post_hooks, hook, "register_load_state_dict_post_hook"
        )

    def get_extra_state(self) -> Any:
        """What else belongs into the state dict; override together with `set_extra_state`."""
        raise RuntimeError(
            f"{type(self).__name__}.get_extra_state: not defined, although set_extra_state is"
        )

    def set_extra_state(self, state: Any) -> None:
        """Take what `get_extra_state` returned; override together with it."""
        raise RuntimeError(
            f"{type(self).__name__}.set_extra_state: not defined, although the state dict holds extra state"
        )

    def state_dict(
        self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Return parameters and persistent buffers by name, sharing memory with the module.

        Args:
            destination: a dict to fill instead of a new one.
            prefix: put before each name.
            keep_vars: give the tensors themselves, not detached from the graph.
        """
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook in list(self._state_dict_hooks.values()):
            result = hook(self, destination, prefix, local_metadata)
            destination = destination if result is None else result
        return destination

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        for name, value in self._own_state().items():
            kept = keep_vars or is_lazy(value)
            destination[prefix + name] = value if kept else value.detach()
        if type(self).get_extra_state is not StatefulModule.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def _own_state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {n: p for n, p in self._parameters.items() if p is not None}
        kept_back = self._non_persistent_buffers_set
        state.update(
            (n, b) for n, b in self._buffers.items() if b is not None and n not in kept_back
        )
        return state

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy parameters and buffers from `state_dict` into the module and its children.

        Args:
            state_dict: tensors by name, as `state_dict()` gives them.
            strict: whether missing and unexpected names are errors.
            assign: put the given tensors in place of the module's own instead of copying values.

        Raises:
            RuntimeError: naming every missing and unexpected key and every tensor of another shape.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state: dict[str, Any] = OrderedDict(state_dict)
        _load(self, state, "", metadata, strict, assign, missing, unexpected, errors)
        if strict:
            if unexpected:
                errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
            if missing:
                errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
        if errors:
            listed = "\n\t".join(errors)
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}"
            )
        return IncompatibleKeys(missing, unexpected)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take the module's own tensors (not its children's) out of `state_dict`."""
        for hook in list(self._load_state_dict_pre_hooks.values()):
            hook(
                state_dict,
                prefix,
                local_metadata,
                strict,
                missing_keys,
                unexpected_keys,
                error_msgs,
            )
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = self._own_state()
        for name, current in own.items():
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            problem = self._take(name, current, state_dict[key], key, assign)
            if problem:
                error_msgs.append(problem)
        key = prefix + _EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not StatefulModule.set_extra_state:
            if key in state_dict:
                self.set_extra_state(state_dict[key])
            elif strict:
                missing_keys.append(key)
        elif strict and key in state_dict:
            unexpected_keys.append(key)
        if strict:
            unexpected_keys += self._unknown_keys(state_dict, prefix, own)

    def _unknown_keys(
        self, state_dict: dict[str, Any], prefix: str, own: dict[str, Tensor]
    ) -> list[str]:
        unknown = []
        for key in state_dict:
            if not key.startswith(prefix) or key == prefix + _EXTRA_STATE_KEY_SUFFIX:
                continue
            head, *rest = key[len(prefix) :].split(".", 1)
            # A dotted name belongs to a child if there is one; every other name must be ours.
            known = head in self._modules if rest else head in own
            if not known:
                unknown.append(key)
        return unknown

    def _take(self, name: str, current: Tensor, new: Any, key: str, assign: bool) -> str:
        """Put `new` into the place of `current`; returns what is wrong, or ''."""
        if not isinstance(new, Tensor):
            return (
                f'While copying the parameter named "{key}", expected a rabbet.Tensor '
                f"from checkpoint but received {type(new)}"
            )
        if is_lazy(current) and is_lazy(new):  # neither has values
            return ""
        # A 0-d value was once saved with shape (1,).
        if current.ndim == 0 and tuple(new.shape) == (1,):
            new = new[0]
        if tuple(new.shape) != tuple(current.shape):
            return (
                f"size mismatch for {key}: copying a param with shape {new.shape} from checkpoint, "
                f"the shape in current model is {current.shape}."
            )
        if not assign:
            with no_grad():
                current.copy_(new)
        elif name in self._parameters:
            if not isinstance(new, Parameter):
                new = Parameter(new, requires_grad=current.requires_grad)
            elif new.requires_grad != current.requires_grad:
                new.requires_grad_(current.requires_grad)
            self._parameters[name] = new
        else:
            self._buffers[name] = new
        return ""


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)


def _load(
    module: Any,
    state: dict[str, Any],
    prefix: str,
    metadata: Any,
    strict: bool,
    assign: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
    if assign:
        local_metadata = {**local_metadata, "assign_to_params_buffers": True}
    # Collected even if not strict: the result lists them.
    module._load_from_state_dict(state, prefix, local_metadata, True, missing, unexpected, errors)
    for name, child in module._modules.items():
        if child is None:
            continue
        child_prefix = f"{prefix}{name}."
        child_state = OrderedDict((k, v) for k, v in state.items() if k.startswith(child_prefix))
        _load(
            child, child_state, child_prefix, metadata, strict, assign, missing, unexpected, errors
        )
    for hook in list(module._load_state_dict_post_hooks.values()):
        result = hook(module, IncompatibleKeys(missing, unexpected))
        if result is not None:
            raise RuntimeError(
                "load_state_dict post hook: expected it to change incompatible_keys in place and "
                f"return None, got {type(result).__name__}"
            )
