"""Batching: `rabbet.vmap(f)` maps a function over a dimension of its arguments, as batched operators.

The module is the function: `import rabbet.vmap` and call `rabbet.vmap(f)`.
"""

import sys
from types import ModuleType
from typing import Any

from rabbet._plugins import module_imported, require_layer

require_layer("vmap")

from ._vmap import vmap  # noqa: E402  (the binding needs the plugin)

__all__ = ["vmap"]


def rabbet_tensor_attributes() -> dict[str, object]:
    """The plugin adds no attribute to Tensor."""
    return {}


class _Vmap(ModuleType):
    """This module, which is called as its function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return vmap(*args, **kwargs)


_Vmap.__call__.__doc__ = vmap.__doc__
sys.modules[__name__].__class__ = _Vmap

module_imported(sys.modules[__name__])
