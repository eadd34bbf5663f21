"""Resolves dotted torch names to modules and objects of rabbet."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import rabbet

VERSION = "2.13.0+rabbet"  # the release of PyTorch whose interface rabbet follows

# Modules of PyTorch, and their submodules, that are a module of another name in rabbet. A private name of PyTorch
# resolves only if it is listed here or refused by `_absent`: rabbet's own private modules are unrelated.
_MODULES = {
    "_C": "rabbet._as_torch.c",
    "_C._nn": "rabbet._as_torch.c_nn",
    "_C._distributed_c10d": "rabbet.distributed.distributed_c10d",
    "_C._distributed_rpc": "rabbet.distributed.rpc",
    "_C._autograd": "rabbet.profiler._c_names",
    "_C._functorch": "rabbet._as_torch.c_functorch",
    "_C._profiler": "rabbet.profiler._c_names",
    "_VF": "rabbet._as_torch.vf",
    "_custom_ops": "rabbet._as_torch.custom_ops",
    "_dynamo": "rabbet._as_torch.dynamo",
    "_ops": "rabbet._as_torch.ops",
    "_subclasses": "rabbet._as_torch.subclasses",
    "_tensor": "rabbet._as_torch.tensor",
    "_jit_internal": "rabbet._as_torch.jit_internal",
    "_tensor_str": "rabbet._as_torch.tensor_str",
    "_utils": "rabbet._as_torch.utils",
    "version": "rabbet._as_torch.version",
}
# The modules of PyTorch that define the classes and functions of these modules of rabbet.
_HOMES = {
    "rabbet._functions": "torch",
    "rabbet._settings": "torch",
    "rabbet._streams": "torch",
    "rabbet.autograd._function_ctx": "torch.autograd.function",
    "rabbet.autograd._modes": "torch.autograd.grad_mode",
    "rabbet.autograd._roots": "torch.autograd.graph",
    "rabbet.distributions._transform": "torch.distributions.transforms",
    "rabbet.nn.modules.attention": "torch.nn.modules.activation",
    "rabbet.nn.modules.linear_loss": "torch.nn.modules.loss",
    "rabbet.optim._scheduler": "torch.optim.lr_scheduler",
    "rabbet.optim.adafactor": "torch.optim",
    "rabbet.optim.muon": "torch.optim",
    "rabbet.utils._selective_checkpoint": "torch.utils.checkpoint",
}
# Likewise, where the module of that name imports them.
_IMPORTED_BY = {
    "rabbet.profiler._event_list": "torch.autograd.profiler_util",
    "rabbet.profiler._events": "torch.autograd.profiler_util",
    "rabbet.profiler._one_recording": "torch.autograd.profiler",
    "rabbet.profiler._record_function": "torch.autograd.profiler",
    "rabbet.profiler._schedule": "torch.profiler.profiler",
    "rabbet.profiler._step_tracker": "torch.autograd.profiler",
}
_FUNCTIONAL = "rabbet.nn.functional"  # one file in PyTorch
_FUNCTIONS = "rabbet._as_torch.functions"  # private functions of the module torch


def is_active() -> bool:
    """Whether `torch` means rabbet in this process."""
    return getattr(sys.modules.get("torch"), "__rabbet__", None) is rabbet


def framework() -> str:
    """The framework's name in strings that programs compare, such as the type 'torch.FloatTensor'."""
    return "torch" if is_active() else "rabbet"


def missing_attribute(path: str, name: str) -> AttributeError:
    """The error for an attribute that a module of rabbet lacks, by its path without the package."""
    return AttributeError(f"{framework()}.{path}.{name} is not in rabbet yet", name=name)


def home_of(module: str) -> str:
    """The module of PyTorch that defines the names of `module` of rabbet."""
    if module.startswith(f"{_FUNCTIONAL}."):
        module = _FUNCTIONAL
    for theirs, ours in _MODULES.items():
        if module == ours:
            return f"torch.{theirs}"
    home = _HOMES.get(module) or _IMPORTED_BY.get(module)
    return home or f"torch{module.removeprefix('rabbet')}"


def own_name(module: str) -> str:
    """rabbet's name of a module, given that name or PyTorch's, which classes show while `torch` means rabbet."""
    is_ours = module.partition(".")[0] == "torch" and is_active()
    return f"rabbet{module.removeprefix('torch')}" if is_ours else module


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _missing(path: str) -> Callable[[str], Any]:
    """A module's `__getattr__` that names the missing torch name."""

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):  # protocols of the language ask for what may be missing
            raise AttributeError(f"module '{path}' has no attribute '{name}'", name=name)
        below = module_of(
            f"{path}.{name}".removeprefix("torch.")
        )  # PyTorch imports most of its modules
        if below is not None:
            return below
        raise AttributeError(f"{path}.{name} is not in rabbet yet", name=name)

    return __getattr__


def _marked(module: ModuleType, path: str) -> ModuleType:
    """Make AttributeErrors of a module and its imported submodules name the missing torch name."""
    prefix = f"{module.__name__}."
    for name, other in [(module.__name__, module), *sys.modules.items()]:
        is_below = name == module.__name__ or name.startswith(prefix)
        if is_below and isinstance(
            other, ModuleType
        ):  # None marks a module that must not be imported
            below = name.removeprefix(module.__name__)
            vars(other).setdefault("__getattr__", _missing(f"torch.{path}{below}"))
    return module


def _module_name(name: str) -> str | None:
    """The name of the module of rabbet for `torch.NAME`; None for a private name that is not listed."""
    top = name
    while top:
        if top in _MODULES:
            return _MODULES[top] + name.removeprefix(top)
        top = top.rpartition(".")[0]
    if _is_private(name) and importlib.import_module("rabbet._absent").row(name) is None:
        return None
    return f"rabbet.{name}"


def show_as_torchs(module: ModuleType) -> None:
    """Set `__module__` of a module's classes to PyTorch's module, which programs and pickles read."""
    name = module.__name__
    home = home_of(name)
    if home.startswith("torch._as_torch"):  # PyTorch has no such module
        return
    for key, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == name:
            value.__module__ = home
            if home in _HOMES.values() and not _is_private(key):  # pickle looks for it there
                ours = importlib.import_module(own_name(home))
                if not hasattr(ours, key):
                    setattr(ours, key, value)
    path = home.removeprefix("torch.")
    if _module_name(path) == name and home not in sys.modules:
        # typing.get_type_hints reads annotations in the namespace of that module.
        sys.modules[home] = _marked(module, path)


def module_of(name: str) -> ModuleType | None:
    """The module that `torch.NAME` means, imported; None if there is none.

    Raises:
        ImportError: if a wheel is missing, or the module fails.
    """
    ours = _module_name(name)
    if ours is None:
        return None
    try:
        return _marked(importlib.import_module(ours), name)
    except ModuleNotFoundError as error:
        # rabbet may have an object where PyTorch has a module, or the parent may not be a package.
        if error.name is None or not f"{ours}.".startswith(f"{error.name}."):
            raise
    found = (
        getattr(rabbet, name, None) if "." not in name else None
    )  # names a wheel that is missing
    return found if isinstance(found, ModuleType) else None


def attribute(name: str) -> Any:
    """What `torch.NAME` means, for one name.

    Raises:
        AttributeError: if rabbet has nothing of that name.
    """
    if name in _MODULES:
        return module_of(name)
    if name == "torch":
        return sys.modules["torch"]
    if not _is_private(name):
        try:
            found = getattr(rabbet, name)
        except AttributeError as error:
            if error.name != name:  # raised while the attribute was computed
                raise
        else:
            return _marked(found, name) if isinstance(found, ModuleType) else found
    elif name in (functions := importlib.import_module(_FUNCTIONS)).__all__:
        return getattr(functions, name)
    elif (module := module_of(name)) is not None:
        return module
    raise AttributeError(f"torch.{name} is not in rabbet yet", name=name, obj=rabbet)


def resolve(dotted: str) -> Any:
    """The object of a whole name such as 'torch.nn.functional.relu', as a program would get it by imports.

    Attributes of objects that are neither modules nor classes are not looked at.

    Raises:
        AttributeError: naming the part that is missing.
    """
    found: Any = None
    path = ""
    for part in dotted.split(".")[1:]:
        path = f"{path}.{part}" if path else part
        if found is None:
            found = module_of(path) if path in _MODULES else attribute(part)
        elif isinstance(found, (ModuleType, type)):
            if hasattr(found, part):
                found = getattr(found, part)
            elif not isinstance(found, ModuleType) or (found := module_of(path)) is None:
                raise AttributeError(f"torch.{path} is not in rabbet yet")
        else:
            return found
    return found
