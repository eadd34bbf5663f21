"""Programs written for PyTorch: `import torch` and every `torch.*` mean rabbet."""

import sys
from types import ModuleType

from . import finder
from .names import is_active

__all__ = ["as_torch", "is_active"]


def as_torch() -> ModuleType:
    """Make `import torch` and `import torch.*` mean rabbet in this process; returns the module `torch`.

    The submodules are rabbet's own module objects, so that classes are identical under both names. A name that
    rabbet does not have is an error where it is used.

    Raises:
        RuntimeError: if PyTorch itself was imported before.
    """
    there = sys.modules.get("torch")
    if there is not None and not is_active():
        raise RuntimeError(
            f"as_torch: PyTorch was imported already, from {getattr(there, '__file__', 'nowhere')}; "
            "call as_torch() before anything imports torch"
        )
    return finder.install()
