"""`Module`: a part of a network, with the parameters, buffers and parts that it holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import rabbet
from rabbet import Tensor
from rabbet.autograd import no_grad
from rabbet.utils.hooks import RemovableHandle as RemovableHandle

from ..parameter import Buffer, Parameter, is_lazy
from . import _hooks
from ._hooks import (
    HookedModule,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from ._hooks import registered as _registered
from ._state import _EXTRA_STATE_KEY_SUFFIX, StatefulModule
from ._state import IncompatibleKeys as _IncompatibleKeys
from ._state import WrappedHook as _WrappedHook

__all__ = [
    "Module",
    "_EXTRA_STATE_KEY_SUFFIX",
    "_IncompatibleKeys",
    "_WrappedHook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_backward_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

T = TypeVar("T", bound="Module")

_global_forward_pre_hooks = _hooks.global_forward_pre_hooks
_global_forward_hooks = _hooks.global_forward_hooks
_global_forward_hooks_with_kwargs = _hooks.global_forward_hooks_with_kwargs
_global_forward_hooks_always_called = _hooks.global_forward_hooks_always_called
_global_backward_pre_hooks = _hooks.global_backward_pre_hooks
_global_backward_hooks = _hooks.global_backward_hooks
_global_is_full_backward_hook = _hooks.global_is_full_backward_hook
_global_parameter_registration_hooks = _hooks.global_parameter_registration_hooks
_global_buffer_registration_hooks = _hooks.global_buffer_registration_hooks
_global_module_registration_hooks = _hooks.global_module_registration_hooks


class Module(HookedModule, StatefulModule):
    """A part of a network; subclasses hold parts and parameters as attributes and define `forward`.

    Parameters, buffers and modules that are assigned to attributes are found by `parameters()`,
    `state_dict()`, `to()` and the others. Calling a module runs `forward` and its hooks.
    """

    training: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            got = f"{len(args)} positional" if args else f"keyword {next(iter(kwargs))!r}"
            raise TypeError(f"{type(self).__name__}.__init__: Module takes no arguments, got {got}")
        own = self.__dict__
        own["training"] = True
        own["_hooked"] = self._replaces_call_impl
        own["_parameters"] = {}
        own["_buffers"] = {}
        own["_non_persistent_buffers_set"] = set()
        own["_modules"] = {}
        for name in _HOOK_DICTS:
            own[name] = OrderedDict()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result of a call; every subclass defines it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_call_impl" in vars(cls):
            cls._replaces_call_impl = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:  # entering it costs nothing
            if (  # as _runs_hooks, without a call
                self._hooked
                or _global_forward_hooks
                or _global_forward_pre_hooks
                or _global_backward_hooks
                or _global_backward_pre_hooks
            ):
                if self._compiled_call_impl is not None:
                    return self._compiled_call_impl(*args, **kwargs)
                if self._replaces_call_impl:
                    return self._call_impl(*args, **kwargs)
                return self._call_with_hooks(args, kwargs)
            return self.forward(*args, **kwargs)
        except Exception as error:
            _note_path(self, error)
            raise

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` and its hooks: what a call does unless a class or an object replaces this method."""
        return self._call_with_hooks(args, kwargs)

    # Under the name that packages call.
    _wrapped_call_impl = __call__

    def _runs_hooks(self) -> bool:
        # One attribute instead of four dicts: a look-up on a class with __getattr__ costs about 50 ns.
        return bool(
            self._hooked
            or _global_forward_hooks
            or _global_forward_pre_hooks
            or _global_backward_hooks
            or _global_backward_pre_hooks
        )

    # ---- attributes

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for group in ("_parameters", "_buffers", "_modules"):
            held = own.get(group)
            if held is not None and name in held:
                return held[name]
        if any(name in vars(cls) for cls in type(self).__mro__):
            # A property raised AttributeError, which Python forgets before it comes here: raise it once more.
            return object.__getattribute__(self, name)
        raise AttributeError(
            f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self
        )

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        parameters = own.get("_parameters")
        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_buffers", "_modules")
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as parameter '{name}' "
                    "(rabbet.nn.Parameter or None expected)"
                )
            self.register_parameter(name, None)
        elif isinstance(value, Module):
            modules = own.get("_modules")
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_parameters", "_buffers")
            modules[name] = _registered(_global_module_registration_hooks, self, name, value)
        elif (modules := own.get("_modules")) is not None and name in modules:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as child module '{name}' "
                    "(rabbet.nn.Module or None expected)"
                )
            modules[name] = _registered(_global_module_registration_hooks, self, name, None)
        elif isinstance(value, Buffer):
            if parameters is None:
                raise AttributeError("cannot assign buffers before Module.__init__() call")
            self._forget(name, "_parameters", "_modules", "_buffers")
            self.register_buffer(name, value, value.persistent)
        elif (buffers := own.get("_buffers")) is not None and name in buffers:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as buffer '{name}' (rabbet.Tensor or None expected)"
                )
            buffers[name] = _registered(_global_buffer_registration_hooks, self, name, value)
        else:
            object.__setattr__(self, name, value)
            if name == "_call_impl":
                own["_replaces_call_impl"] = own["_hooked"] = True

    def __delattr__(self, name: str) -> None:
        for group in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__.get(group, ()):
                self._forget(name, group, plain=False)
                return
        object.__delattr__(self, name)

    def _forget(self, name: str, *groups: str, plain: bool = True) -> None:
        """Drop `name` from the groups named, so that another kind of attribute can take it."""
        own = self.__dict__
        if plain:
            own.pop(name, None)
        for group in groups:
            own[group].pop(name, None)
            if group == "_buffers":
                own["_non_persistent_buffers_set"].discard(name)

    def __dir__(self) -> list[str]:
        names = set(object.__dir__(self))
        names.update(self._parameters, self._buffers, self._modules)
        return sorted(name for name in names if not name[:1].isdigit())

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)  # as in PyTorch a copy runs eagerly
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in _HOOK_DICTS:
            self.__dict__.setdefault(name, OrderedDict())
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__["_hooked"] = self._has_hooks()

    # ---- registration

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter (or None, which reserves the name) under `name`."""
        self._check_name(name, "parameter", "_parameters")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{type(param).__name__}' object to parameter '{name}' "
                "(rabbet.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created "
                "explicitly. To express it as a function of another Tensor, compute the value in forward()."
            )
        self._parameters[name] = _registered(
            _global_parameter_registration_hooks, self, name, param
        )

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is moved and saved with the module but not trained.

        Args:
            name: the attribute's name.
            tensor: the values, or None to reserve the name.
            persistent: whether it is part of `state_dict`.
        """
        self._check_name(name, "buffer", "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' (rabbet.Tensor or None required)"
            )
        self._buffers[name] = _registered(_global_buffer_registration_hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module (or None, which reserves the name) under `name`."""
        self._check_name(name, "module", "_modules")
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._modules[name] = _registered(_global_module_registration_hooks, self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """Another name of `add_module`."""
        self.add_module(name, module)

    def _check_name(self, name: str, what: str, group: str) -> None:
        if group not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain ".", got: {name!r}')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if name not in self.__dict__[group] and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    # ---- finding parts

    def get_submodule(self, target: str) -> Module:
        """Return the module at a dotted path; '' is this one."""
        module: Module = self
        for part in target.split(".") if target else ():
            if not hasattr(module, part):
                raise AttributeError(f"{type(module).__name__} has no attribute `{part}`")
            module = getattr(module, part)
            if not isinstance(module, Module):
                raise AttributeError(f"`{part}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at a dotted path; with `strict` something must be there already."""
        path, _, name = target.rpartition(".")
        if not name:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        parent = self.get_submodule(path)
        if strict and not isinstance(getattr(parent, name, None), Module):
            raise AttributeError(f"{type(parent).__name__} has no module `{name}`")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter at a dotted path."""
        return self._get_owned(target, Parameter, "_parameters", "an nn.Parameter")

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer at a dotted path."""
        return self._get_owned(target, Tensor, "_buffers", "a buffer")

    def _get_owned(self, target: str, kind: type, group: str, what: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        if not isinstance(module.__dict__[group].get(name), kind):
            raise AttributeError(f"`{name}` is not {what}")
        return module.__dict__[group][name]

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Iterate over this module and all below it, with their dotted paths."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """Iterate over this module and all below it, each once."""
        for _, module in self.named_modules():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Iterate over the modules directly below, with their names, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """Iterate over the modules directly below, each once."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self, group: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules: Iterable[tuple[str, Module]] = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, value in module.__dict__[group].items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield f"{path}.{name}" if path else name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Iterate over the parameters with their dotted paths."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Iterate over the parameters, each once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Iterate over the buffers with their dotted paths."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Iterate over the buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # ---- acting on all parts

    def apply(self: T, fn: Callable[[Module], Any]) -> T:
        """Call `fn` with every module below and then with this one; returns self."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self: T, mode: bool = True) -> T:
        """Set training mode (or evaluation mode) in this module and all below; returns self."""
        if not isinstance(mode, bool):
            raise ValueError(f"training mode is expected to be boolean, got {type(mode).__name__}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: T) -> T:
        """Set evaluation mode; returns self."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Set whether the parameters want gradients; returns self."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros."""
        for parameter in self.parameters():
            if parameter.grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                parameter.grad = parameter.grad.detach()
                parameter.grad.zero_()

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Have calls of this module run in a region: `rabbet.compile` with the same arguments, in place.

        Without the wheel rabbet-compile the module goes on running eagerly, which a warning says once.
        """
        own_call = self._call_impl
        compiled = rabbet.compile(own_call, *args, **kwargs)
        self.__dict__["_compiled_call_impl"] = None if compiled == own_call else compiled
        self.__dict__["_hooked"] = self._has_hooks()

    def share_memory(self: T) -> T:
        """Move parameters, their gradients and buffers to memory that processes share; see `Tensor.share_memory_`."""
        return self._apply(lambda t: t.share_memory_())

    # ---- conversion

    def _apply(self: T, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> T:
        """Replace every parameter, its gradient and every buffer by `fn` of it; parameters stay the same objects."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for parameter in self._parameters.values():
            if parameter is None:
                continue
            grad = parameter.grad
            with no_grad():
                moved = fn(parameter)
                moved_grad = None if grad is None else fn(grad)
            if moved is not parameter:
                parameter.grad = None
                parameter.data = moved
                parameter.grad = moved_grad
        for name, buffer in self._buffers.items():
            if buffer is None:
                continue
            if is_lazy(buffer):
                buffer.data = fn(buffer)
            else:
                self._buffers[name] = fn(buffer)
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Move to a device and cast floating tensors to a dtype, in place; returns self.

        Called as `to(device=None, dtype=None, non_blocking=False)`, `to(dtype)`, `to(tensor)` or
        `to(memory_format=channels_last)`, which goes to the parameters and buffers of 4 and 5 dimensions.
        """
        device, dtype, memory_format = _parse_to(args, kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )
        waits_not = bool(kwargs.get("non_blocking")) or any(arg is True for arg in args)
        target = {} if device is None else {"device": device, "non_blocking": waits_not}

        def convert(t: Tensor) -> Tensor:
            to = dict(target)
            if dtype is not None and (t.is_floating_point() or t.is_complex()):
                to["dtype"] = dtype
            if memory_format is not None and t.ndim in (4, 5):
                to["memory_format"] = memory_format
            return t.to(**to) if to else t

        return self._apply(convert)

    def to_empty(self: T, *, device: Any, recurse: bool = True) -> T:
        """Move to a device without copying values, which are then not set; returns self."""
        return self._apply(lambda t: rabbet.empty_like(t, device=device), recurse)

    def cpu(self: T) -> T:
        """Move to the CPU; returns self."""
        return self._apply(lambda t: t.to(device="cpu"))

    def cuda(self: T, device: int | Any | None = None) -> T:
        """Move to a CUDA device (the current one if None); returns self."""
        target = "cuda" if device is None else device
        target = f"cuda:{target}" if isinstance(target, int) else target
        return self._apply(lambda t: t.to(device=target))

    def type(self: T, dst_type: Any) -> T:
        """Cast all parameters and buffers to a dtype; returns self."""
        return self._apply(lambda t: t.to(dtype=dst_type))

    def float(self: T) -> T:
        """Cast floating parameters and buffers to float32; returns self."""
        return self._cast_floating(rabbet.float32)

    def double(self: T) -> T:
        """Cast floating parameters and buffers to float64; returns self."""
        return self._cast_floating(rabbet.float64)

    def half(self: T) -> T:
        """Cast floating parameters and buffers to float16; returns self."""
        return self._cast_floating(rabbet.float16)

    def bfloat16(self: T) -> T:
        """Cast floating parameters and buffers to bfloat16; returns self."""
        return self._cast_floating(rabbet.bfloat16)

    def _cast_floating(self: T, dtype: Any) -> T:
        return self._apply(lambda t: t.to(dtype=dtype) if t.is_floating_point() else t)

    # ---- text

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What `repr` shows of this module besides its parts; override it."""
        return ""

    def __repr__(self) -> str:
        lines = self.extra_repr().split("\n") if self.extra_repr() else []
        parts = [f"({n}): " + indented(repr(m)) for n, m in self._modules.items()]
        if len(lines) == 1 and not parts:
            return f"{self._get_name()}({lines[0]})"
        if not lines and not parts:
            return f"{self._get_name()}()"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + parts) + "\n)"


_HOOK_DICTS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_state_dict_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def _note_path(module: Module, error: Exception) -> None:
    """Say in a note of `error` in which part of the model it was raised; each caller extends the path."""
    known: tuple[Module, str, str] | None = getattr(error, "_rabbet_module", None)
    if known is None:
        path, kind = "", type(module).__name__
    else:
        inner, path, kind = known
        if inner is module:  # forward called the module itself
            return
        step = next((name for name, child in module.named_modules() if child is inner), None)
        if step is None:  # another model, called from this one's forward
            return
        path = f"{step}.{path}" if path else step
        error.__notes__.pop(error._rabbet_note)  # type: ignore[attr-defined]
    error.add_note(f"in forward of {type(module).__name__}{'.' + path if path else ''} ({kind})")
    try:
        error._rabbet_module = (module, path, kind)  # type: ignore[attr-defined]
        error._rabbet_note = len(error.__notes__) - 1  # type: ignore[attr-defined]
    except AttributeError:  # a class with slots
        return


def indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Device, dtype and memory format of a call of `Module.to`; None where not given."""
    allowed = {"device", "dtype", "tensor", "other", "non_blocking", "memory_format"}
    for name in kwargs:
        if name not in allowed:
            raise TypeError(f"to() got an unexpected keyword argument {name!r}")
    memory_format = kwargs.get("memory_format")
    if memory_format is not None and not isinstance(memory_format, rabbet.memory_format):
        raise TypeError(
            f"to: expected a rabbet.memory_format, got {type(memory_format).__name__} "
            f"{memory_format!r}"
        )
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    like = kwargs.get("tensor", kwargs.get("other"))
    for arg in args:
        if isinstance(arg, Tensor):
            like = arg
        elif isinstance(arg, rabbet.dtype):
            dtype = arg
        elif isinstance(arg, (str, rabbet.device)) or (
            isinstance(arg, int) and not isinstance(arg, bool)
        ):
            device = arg
        elif arg is not None and not isinstance(arg, bool):  # a bool is non_blocking
            raise TypeError(
                f"to: expected a device, a dtype or a Tensor, got {type(arg).__name__} {arg!r}"
            )
    if like is not None:
        return like.device, like.dtype, memory_format
    return device, dtype, memory_format
