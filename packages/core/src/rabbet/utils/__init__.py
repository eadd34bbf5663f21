"""Utilities around training; `rabbet.utils.data` has datasets and loaders. Submodules load when they are used."""

from pkgutil import extend_path as _extend_path
from typing import TYPE_CHECKING, Any

__path__ = _extend_path(__path__, __name__)  # other wheels may bring parts

__all__ = [
    "benchmark",
    "checkpoint",
    "collect_env",
    "cpp_extension",
    "data",
    "dlpack",
    "flop_counter",
    "hooks",
    "model_zoo",
    "module_tracker",
    "tensorboard",
]

_SUBMODULES = {
    *__all__, "_contextlib", "_device", "_foreach_utils", "_python_dispatch", "_pytree", "_triton",
    "deterministic", "weak",
}  # fmt: skip


def set_module(obj: Any, mod: str) -> None:
    """Set `obj.__module__`, the module that an object's repr names.

    Raises:
        TypeError: if `mod` is not a string.
    """
    if not isinstance(mod, str):
        raise TypeError(f"set_module: 'mod' must be a string, got {type(mod).__name__}")
    obj.__module__ = mod


def _load(name: str) -> object:
    import importlib

    if name == "swap_tensors":
        return importlib.import_module("rabbet.utils._swap").swap_tensors
    if name not in _SUBMODULES:
        raise AttributeError(f"module 'rabbet.utils' has no attribute '{name}'", name=name)
    return importlib.import_module(f"rabbet.utils.{name}")


if TYPE_CHECKING:
    from . import (  # noqa: F401
        _contextlib,
        _device,
        _foreach_utils,
        _pytree,
        _triton,
        benchmark,
        checkpoint,
        collect_env,
        cpp_extension,
        data,
        deterministic,
        dlpack,
        hooks,
        model_zoo,
        tensorboard,
        weak,
    )
    from ._swap import swap_tensors as swap_tensors
else:
    __getattr__ = _load


def __dir__() -> list[str]:
    from importlib.util import find_spec

    there = {name for name in _SUBMODULES if find_spec(f"rabbet.utils.{name}")}
    if not find_spec("tensorboard"):
        there.discard("tensorboard")  # it needs that package
    return sorted({*globals(), *there, "swap_tensors"})
