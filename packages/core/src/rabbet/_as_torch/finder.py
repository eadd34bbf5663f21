"""The import finder for `torch`, and the module `torch` itself."""

import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import rabbet

from .. import _C
from .._C import Tensor
from ..torch_version import TorchVersion
from . import children
from .names import VERSION, attribute, module_of, show_as_torchs


class _Distribution(importlib.metadata.Distribution):
    """What `importlib.metadata.version("torch")` reads."""

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\n"
        return None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"torch is rabbet in this process: there is no file {path}")


class _Loader:
    """Returns an existing module and keeps its own spec."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = getattr(module, "__spec__", None)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


class _ShowingLoader(importlib.machinery.SourceFileLoader):
    """Loads a module of rabbet and sets `__module__` of its classes to PyTorch's modules."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        show_as_torchs(module)


class Finder:
    """Finds `torch` and every `torch.*` in rabbet, before any other finder looks for PyTorch."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of rabbet under its torch name; None for other modules and for missing ones."""
        if fullname == "torch":
            module: ModuleType | None = _torch
        elif fullname.startswith("torch."):
            module = module_of(fullname.removeprefix("torch."))
            # importlib would find the spec of the module imported meanwhile and load it a second time.
            sys.modules.pop(fullname, None)
        elif fullname == "functorch":  # a package of its own, which PyTorch brings
            module = importlib.import_module("rabbet._as_torch.functorch")
        elif fullname.startswith("rabbet."):
            return _showing_spec(fullname, path)
        else:
            return None
        if module is None:
            return None
        is_package = hasattr(module, "__path__")
        loader: Any = _Loader(module)
        return importlib.machinery.ModuleSpec(
            fullname, loader, origin=getattr(module, "__file__", None), is_package=is_package
        )

    def find_distributions(self, context: Any = None) -> Iterator[importlib.metadata.Distribution]:
        """Say that `torch` is installed, in the version whose interface rabbet follows."""
        if context is None or context.name is None or context.name.lower() == "torch":
            yield _Distribution()

    def invalidate_caches(self) -> None:
        """Nothing is cached."""


def _showing_spec(
    fullname: str, path: Sequence[str] | None
) -> importlib.machinery.ModuleSpec | None:
    """The spec of a module of rabbet that is a file of Python; other modules are found as usual."""
    spec = importlib.machinery.PathFinder.find_spec(fullname, path)
    if spec is None or type(spec.loader) is not importlib.machinery.SourceFileLoader:
        return None
    spec.loader = _ShowingLoader(spec.loader.name, spec.loader.path)
    return spec


def _getattr(name: str) -> Any:
    if name == "__all__":
        return [n for n in dir(rabbet) if not n.startswith("_")]
    if name.startswith("__") and name != "__config__":
        raise AttributeError(f"module 'torch' has no attribute '{name}'", name=name)
    value = attribute(name)
    if name != "default_generator":
        setattr(_torch, name, value)
    return value


def _dir() -> list[str]:
    return sorted({*vars(_torch), *dir(rabbet)})


def _make_torch() -> ModuleType:
    """The module `torch`: rabbet's names, PyTorch's version, and errors that name what is missing."""
    module = ModuleType("torch", rabbet.__doc__)
    vars(module).update(
        __rabbet__=rabbet,
        __version__=TorchVersion(VERSION),
        __file__=rabbet.__file__,
        __path__=[],
        __getattr__=_getattr,
        __dir__=_dir,
        torch=module,
    )
    return module


_torch = _make_torch()
_finder = Finder()


def install() -> ModuleType:
    """Put the finder before all others and `torch` among the modules; once."""
    if _finder not in sys.meta_path:
        finder: Any = _finder
        sys.meta_path.insert(0, finder)
        _torch.__spec__ = _finder.find_spec("torch")
        sys.modules["torch"] = _torch
        children.install()
        rabbet._C.set_shown_module("torch")  # programs read the texts of dtypes
        _C.Generator.__module__ = "torch._C"
        for shown in (Tensor, _C.Size, _C.device, _C.dtype, _C.layout, _C.memory_format):
            shown.__module__ = "torch"
        for name, there in list(sys.modules.items()):
            if name.startswith("rabbet.") and isinstance(there, ModuleType):
                show_as_torchs(there)
    return _torch
