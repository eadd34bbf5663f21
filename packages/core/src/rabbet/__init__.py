"""Rabbet: tensors and deep learning with PyTorch's programming model, in parts that fit together.

This package is `rabbet-core`. Every operator with a record is a function here (`rabbet.add`); `rabbet.ops` has all
of them, hidden ones included. `rabbet.nn`, `rabbet.optim`, `rabbet.autograd`, `rabbet.amp` and the backends are
other wheels.
"""

import os as _os
import sys as _sys
from types import ModuleType as _ModuleType

from . import _C
from ._C import (
    ArgumentError,
    DeviceError,
    DTypeError,
    Generator,
    InternalError,
    NotImplementedForError,
    Op,
    OutOfMemoryError,
    OutOfRangeError,
    PluginError,
    RabbetError,
    Size,
    StateError,
    Tensor,
    device,
    dtype,
    layout,
    memory_format,
)

__version__: str = _C.__version__

_DTYPE_ALIASES = {
    "short": "int16", "int": "int32", "long": "int64", "half": "float16", "float": "float32", "double": "float64",
    "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip
_OTHER_WHEELS = {
    "autograd": "rabbet-autograd",
    "nn": "rabbet-nn",
    "optim": "rabbet-optim",
    "func": "rabbet-vmap",
    "vmap": "rabbet-vmap",
    "amp": "rabbet-autocast",
}
_OWN_MODULES = {"accelerator", "composite", "library", "serialization", "testing"}
_FROM_STREAMS = {"Event", "Stream"}


# The modules of names that are loaded when first used.
_HOMES = {
    **dict.fromkeys(
        (
            "no_grad",
            "enable_grad",
            "inference_mode",
            "set_grad_enabled",
            "is_grad_enabled",
            "is_inference_mode_enabled",
        ),
        "autograd",
    ),
    **dict.fromkeys(
        (
            "autocast",
            "autocast_decrement_nesting",
            "autocast_increment_nesting",
            "clear_autocast_cache",
            "get_autocast_dtype",
            "is_autocast_cache_enabled",
            "is_autocast_enabled",
            "set_autocast_cache_enabled",
            "set_autocast_dtype",
            "set_autocast_enabled",
        ),
        "amp",
    ),
    **dict.fromkeys(
        (
            "load",
            "save",
        ),
        "serialization",
    ),
}


def get_include() -> str:
    """Return the folder of the public headers: compile plugins with `-I` this."""
    here = _os.path.join(_os.path.dirname(_C.__file__), "include")
    if _os.path.isdir(here):
        return here
    return _os.path.normpath(_os.path.join(_os.path.dirname(__file__), "..", "..", "include"))


def _extend_path() -> None:
    """Find the parts of this package that other wheels, perhaps editable ones, keep elsewhere."""
    for entry in _sys.path:
        folder = _os.path.join(entry or ".", "rabbet")
        if folder not in __path__ and _os.path.isdir(folder):
            __path__.append(folder)


class _Namespace:
    """The operators of a namespace: `ops.mine.scale` is "mine::scale". They may come and go."""

    def __init__(self, space: str) -> None:
        self._space = space

    def __getattr__(self, name: str) -> Op:
        try:
            return _C.op(f"{self._space}::{name}")
        except KeyError:
            raise AttributeError(f"there is no operator '{self._space}::{name}'") from None

    def __dir__(self) -> list[str]:
        prefix = f"{self._space}::"
        return sorted(n.removeprefix(prefix) for n in _C.op_names() if n.startswith(prefix))

    def __repr__(self) -> str:
        return f"<operators rabbet.ops.{self._space}: {', '.join(dir(self)) or 'none'}>"


class _Ops:
    """Every operator by name, hidden ones and overloads included: `ops.linear`, `ops("max.dim")`, `ops.mine.scale`."""

    def __getattr__(self, name: str) -> object:
        try:
            found = _C.op(name)
        except KeyError:
            if [n for n in _C.op_names() if n.startswith(f"{name}::")]:
                return _Namespace(name)
            raise AttributeError(f"there is no operator and no namespace '{name}'") from None
        setattr(self, name, found)
        return found

    def __call__(self, name: str) -> Op:
        return _C.op(name)

    def __dir__(self) -> list[str]:
        return sorted(set(_C.record_names()) | set(_C.op_names()))


ops = _Ops()


def _fill_namespace() -> None:
    scope = globals()
    for name in _C.op_names():
        if not name.startswith("_"):
            scope.setdefault(name, _C.op(name))
    for name in _C.dtype_names():
        scope[name] = getattr(_C, name)
    for alias, name in _DTYPE_ALIASES.items():
        scope[alias] = getattr(_C, name)
    for name in (
        "strided",
        "contiguous_format",
        "preserve_format",
        "channels_last",
        "channels_last_3d",
    ):
        scope[name] = getattr(_C, name)
    scope.update(
        inf=1e999, nan=1e999 - 1e999, pi=3.141592653589793, e=2.718281828459045, newaxis=None
    )


_fill_namespace()
_extend_path()

from . import _decompositions, _plugins  # noqa: E402
from ._functions import *  # noqa: E402, F403
from ._random import *  # noqa: E402, F403
from ._tensor import install as _install  # noqa: E402


def _library() -> _ModuleType:
    return _submodule("library")


_install()
_decompositions.install()
_plugins.install(_library)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(_submodule(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in _FROM_STREAMS:
        return getattr(_submodule("_streams"), name)
    if name == "default_generator":
        return _C.default_generator("cpu")
    if name in _OTHER_WHEELS or name in _OWN_MODULES:
        return _submodule(name)
    raise AttributeError(f"module 'rabbet' has no attribute '{name}'")


def _submodule(name: str) -> _ModuleType:
    import importlib

    try:
        return importlib.import_module(f"rabbet.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"rabbet.{name}":
            raise
    _extend_path()
    try:
        return importlib.import_module(f"rabbet.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"rabbet.{name}":
            raise
        wheel = _OTHER_WHEELS.get(name, "rabbet-core")
        raise ImportError(f"rabbet.{name} needs the wheel '{wheel}': pip install {wheel}") from None
