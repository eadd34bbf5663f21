"""What all optimizers share: parameter groups, state, state dicts, hooks."""

from __future__ import annotations

import copy
import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import rabbet
from rabbet import Tensor
from rabbet._C import range_begin, range_end
from rabbet.utils.hooks import RemovableHandle, add_hook

# What optimizers take.
ParamsT = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]

_HOOK_DICTS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


# Hooks that run around the steps of every optimizer.
_global_optimizer_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(optimizer, args, kwargs)` before each step of every optimizer; it may return new ones."""
    return add_hook(_global_optimizer_pre_hooks, hook, "register_optimizer_step_pre_hook")


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run `hook(optimizer, args, kwargs)` after each step of every optimizer."""
    return add_hook(_global_optimizer_post_hooks, hook, "register_optimizer_step_post_hook")


_VARARGS, _VARKEYWORDS = 0x04, 0x08  # flags of code objects


class _Required:
    """Marks an option that every group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A class's `step` that runs the hooks, too."""
    code = getattr(step, "__code__", None)
    usual = (
        code is not None
        and code.co_varnames[: code.co_argcount] == ("self", "closure")
        and not code.co_kwonlyargcount
        and not code.co_flags & (_VARARGS | _VARKEYWORDS)
    )

    @functools.wraps(step)
    def plain(self: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        own = self.__dict__  # a wrapper that was not initialized has no hooks
        if (
            own.get("_optimizer_step_pre_hooks")
            or own.get("_optimizer_step_post_hooks")
            or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks
        ):
            return hooked(self) if closure is None else hooked(self, closure)
        return step(self, closure)

    @functools.wraps(step)
    def hooked(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        for hook in [
            *_global_optimizer_pre_hooks.values(),
            *own.get("_optimizer_step_pre_hooks", {}).values(),
        ]:
            result = hook(self, args, kwargs)
            if result is not None:
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise RuntimeError(
                        f"{step.__qualname__} must return None or a tuple of (new_args, new_kwargs), but got {result}."
                    )
                args, kwargs = result
        value = step(self, *args, **kwargs)
        for hook in [
            *own.get("_optimizer_step_post_hooks", {}).values(),
            *_global_optimizer_post_hooks.values(),
        ]:
            hook(self, args, kwargs)
        return value

    chosen = plain if usual else hooked  # without a tuple and a dict per step where that will do
    chosen.hooked = True  # type: ignore[attr-defined]
    return chosen


class Optimizer:
    """Base of all optimizers; subclasses define `step`.

    Args:
        params: tensors, (name, tensor) pairs, or dicts that each hold such `params` and options.
        defaults: the options of groups that do not give their own.
    """

    # Entries of a parameter's state that are Python numbers here and 0-d tensors in state dicts.
    _number_state: frozenset[str] = frozenset()

    state: defaultdict[Tensor, Any]
    param_groups: list[dict[str, Any]]
    _optimizer_step_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_step_post_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {type(params).__name__}"
            )
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        for name in _HOOK_DICTS:
            setattr(self, name, OrderedDict())
        self._patch_step_function()
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group) if isinstance(group, dict) else group)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "state" in state and not isinstance(self.state, defaultdict):
            self.state = defaultdict(dict, self.state)
        for name in _HOOK_DICTS:
            self.__dict__.setdefault(name, OrderedDict())
        self._patch_step_function()

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """The function `step` of a class, with the hooks around it."""
        return _with_hooks(func)

    def _patch_step_function(self) -> None:
        """Let the class's `step` run the hooks: of classes whose objects were initialized, once.

        A wrapper around another optimizer that never calls `super().__init__()` keeps its `step` as it is.
        """
        cls = type(self)
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{cls.__name__}.zero_grad"
        if not getattr(cls.step, "hooked", False):
            cls.step = self.profile_hook_step(cls.step)  # type: ignore[method-assign]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own; missing options come from the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        given = param_group["params"]
        if isinstance(given, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but "
                "the ordering of tensors in sets will change between runs. Please use a list instead."
            )
        listed = [given] if isinstance(given, Tensor) else list(given)
        names = []
        params = []
        for item in listed:
            if isinstance(item, tuple) and len(item) == 2:
                names.append(item[0])
                item = item[1]
            params.append(item)
        if names and len(names) != len(params):
            raise ValueError(
                "all optimizer params should be with/without names. Some param names are missing"
            )
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(param).__name__}"
                )
            if not self.defaults.get("differentiable") and not (
                param.is_leaf or getattr(param, "retains_grad", False)
            ):
                raise ValueError("can't optimize a non-leaf Tensor")
        param_group["params"] = params
        if names:
            param_group["param_names"] = names
        named = "param_names" in param_group
        if any(("param_names" in group) != named for group in self.param_groups):
            raise ValueError(
                "all optimizer param groups should be with/without names. "
                f"cannot add param group {'with' if named else 'without'} names to the optimizer"
            )
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    f"parameter group didn't specify a value of required optimization parameter {name}"
                )
            param_group.setdefault(name, default)
        if len({id(p) for p in params}) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; "
                "in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        known = {id(p) for group in self.param_groups for p in group["params"]}
        if any(id(p) in known for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros."""
        name = self.__dict__.get("_zero_grad_profile_name")  # a wrapper may lack it
        seen = range_begin(name, True) if name else 0
        try:
            for group in self.param_groups:
                for param in group["params"]:
                    if set_to_none:
                        param.grad = None
                    elif param.grad is not None:
                        param.grad = param.grad.detach()
                        param.grad.zero_()
        finally:
            range_end(seen)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients; every subclass defines it.

        Args:
            closure: computes the loss again and returns it.
        """
        raise NotImplementedError(f"{type(self).__name__}: `step` is not defined")

    # ---- hooks

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(optimizer, args, kwargs)` before each step; it may return new `(args, kwargs)`."""
        return add_hook(self._optimizer_step_pre_hooks, hook, "register_step_pre_hook")

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run `hook(optimizer, args, kwargs)` after each step."""
        return add_hook(self._optimizer_step_post_hooks, hook, "register_step_post_hook")

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run `hook(optimizer)` before `state_dict`."""
        what = "register_state_dict_pre_hook"
        return add_hook(self._optimizer_state_dict_pre_hooks, hook, what, prepend=prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run `hook(optimizer, state_dict)` after `state_dict`; a result replaces it."""
        what = "register_state_dict_post_hook"
        return add_hook(self._optimizer_state_dict_post_hooks, hook, what, prepend=prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run `hook(optimizer, state_dict)` before `load_state_dict`; a result replaces `state_dict`."""
        what = "register_load_state_dict_pre_hook"
        return add_hook(self._optimizer_load_state_dict_pre_hooks, hook, what, prepend=prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run `hook(optimizer)` after `load_state_dict`."""
        what = "register_load_state_dict_post_hook"
        return add_hook(self._optimizer_load_state_dict_post_hooks, hook, what, prepend=prepend)

    # ---- state dicts

    def state_dict(self) -> dict[str, Any]:
        """Return `{"state": ..., "param_groups": ...}` with parameters named by their number."""
        for hook in list(self._optimizer_state_dict_pre_hooks.values()):
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                numbers.setdefault(id(param), len(numbers))
            packed = {name: value for name, value in group.items() if name != "params"}
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {
            (numbers[id(key)] if isinstance(key, Tensor) else key): self._packed(value)
            for key, value in self.state.items()
        }
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in list(self._optimizer_state_dict_post_hooks.values()):
            replaced = hook(self, result)
            result = result if replaced is None else replaced
        return result

    def _packed(self, state: Any) -> Any:
        if not self._number_state or not isinstance(state, dict):
            return state
        return {
            name: rabbet.tensor(float(value), dtype=rabbet.float32)
            if name in self._number_state and not isinstance(value, Tensor)
            else value
            for name, value in state.items()
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` returned; state is cast to its parameter's dtype and device.

        Raises:
            ValueError: if the groups differ in number or size.
        """
        state_dict = dict(state_dict)
        for hook in list(self._optimizer_load_state_dict_pre_hooks.values()):
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        for key in ("state", "param_groups"):
            if key not in state_dict:
                raise ValueError(
                    f"{type(self).__name__}.load_state_dict: expected keys 'state' and 'param_groups', "
                    f"got {sorted(map(str, state_dict))}"
                )
        groups, saved = self.param_groups, copy.deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved, strict=True)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        params = dict(
            zip(
                chain.from_iterable(s["params"] for s in saved),
                chain.from_iterable(g["params"] for g in groups),
                strict=True,
            )
        )
        counted_there = {
            key
            for s in saved
            for key in s["params"]
            if s.get("capturable") or (s.get("fused") and not params[key].is_cpu)
        }
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                state[params[key]] = self._unpacked(params[key], value, key in counted_there)
            else:
                state[key] = value
        for group, own in zip(saved, groups, strict=True):
            group["params"] = own["params"]
            if "param_names" in own and "param_names" not in group:
                group["param_names"] = own["param_names"]
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in list(self._optimizer_load_state_dict_post_hooks.values()):
            hook(self)

    def _unpacked(
        self, param: Tensor, value: Any, counted_there: bool = False, name: str | None = None
    ) -> Any:
        """A copy of loaded state for `param`; with `counted_there` its numbers become tensors on the device."""
        if isinstance(value, Tensor):
            if name in self._number_state:
                if counted_there:
                    return value.detach().to(param.device, rabbet.float32, copy=True)
                return value.item()
            if name == "step":
                return value.detach().clone()
            if param.is_floating_point():
                moved = value.to(device=param.device, dtype=param.dtype)
            else:
                moved = value.to(device=param.device)
            return moved.detach().clone()
        if isinstance(value, Mapping):
            return {
                key: self._unpacked(param, entry, counted_there, key)
                for key, entry in value.items()
            }
        if isinstance(value, (list, tuple)):
            return type(value)(self._unpacked(param, entry) for entry in value)
        return copy.deepcopy(value)

    @staticmethod
    def _group_tensors_by_device_and_dtype(
        tensorlistlist: list[list[Tensor | None]], with_indices: bool = False
    ) -> dict[tuple[Any, Any], tuple[list[list[Tensor | None]], list[int]]]:
        """Lists of tensors that belong together, such as parameters and their gradients, by device and dtype.

        Args:
            tensorlistlist: lists of one length; the tensors of the first choose the group.
            with_indices: whether the places in the lists are wanted, else an empty list.
        """
        groups: dict[tuple[Any, Any], tuple[list[list[Tensor | None]], list[int]]] = {}
        for index, row in enumerate(zip(*tensorlistlist, strict=True)):
            first = row[0]
            if first is None:
                raise RuntimeError("_group_tensors_by_device_and_dtype: the first list holds None")
            lists, indices = groups.setdefault(
                (first.device, first.dtype), ([[] for _ in tensorlistlist], [])
            )
            for values, value in zip(lists, row, strict=True):
                values.append(value)
            if with_indices:
                indices.append(index)
        return groups


# ---- what optimizers of packages use of PyTorch's


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Whether PyTorch would choose (fused, foreach) forms of a step: for parameters on CUDA devices only."""
    if differentiable:
        return False, False
    on_device = all(p is None or p.device.type == "cuda" for p in params)
    fused = use_fused and on_device and all(p is None or p.is_floating_point() for p in params)
    return fused, not fused and on_device


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The kinds of devices on which a step can be captured into a graph."""
    return ["cuda"]


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for `step`: gradients are recorded in it only if the optimizer is differentiable."""

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with rabbet.set_grad_enabled(self.defaults["differentiable"]):
            return func(self, *args, **kwargs)

    return step
