"""Decompositions of records that no formula holds, `decomp function NAME`: one module for each family of records."""

import _thread
import importlib

from .. import _C

_lock = _thread.allocate_lock()
_loaded: set[str] = set()


def load(op: str, family: str, function: str) -> None:
    """Register the function of that name in the family's module as the decomposition of `op`."""
    with _lock:
        if op in _loaded:
            return
        module = importlib.import_module(f"{__name__}.{family}")
        provider = f"rabbet-core {_C.__version__}"
        _C.add_python_kernel(op, "decomp", getattr(module, function), provider)
        _loaded.add(op)


def install() -> None:
    """Let core load decompositions when they are first needed."""
    _C.set_decomp_loader(load)
