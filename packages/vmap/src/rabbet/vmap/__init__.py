"""Batching: `rabbet.vmap(f)` maps a function over a dimension of its arguments, as batched operators.

The module is the function: `import rabbet.vmap` and call `rabbet.vmap(f)`.
"""

import sys
from types import ModuleType
from typing import Any

from rabbet._plugins import module_imported, require_layer

require_layer("vmap")

from ._functionalize import functionalize  # noqa: E402  (the binding needs the plugin)
from ._vmap import vmap  # noqa: E402

__all__ = ["vmap"]


def rabbet_tensor_attributes() -> dict[str, object]:
    """The plugin adds no attribute to Tensor."""
    return {}


def rabbet_conformance_params(level: str) -> dict[str, Any]:
    """How the conformance kit calls functions through the two layers of this plugin."""
    if level != "layer":
        return {}

    def through_vmap(f: Any, *xs: Any) -> Any:
        results = vmap(f, randomness="same")(*(x.unsqueeze(0) for x in xs)) if xs else f()
        return tuple(r[0] if xs else r for r in results)

    def through_functionalize(f: Any, *xs: Any) -> Any:
        return functionalize(f)(*xs)

    import rabbet

    reason = "the shape of its result depends on the data"
    unknown = [n for n in rabbet._C.record_names() if rabbet._C.op_info(n)["data_shape"]]
    return {
        "layers": {
            "vmap": {
                "call": through_vmap,
                "changes": "rounding",
                "refuses": dict.fromkeys([*unknown, "masked_select", "mask_indices"], reason),
                "lenient": {"bernoulli.tensor": "`p` broadcasts behind the examples"},
            },
            "functionalize": {"call": through_functionalize},
        }
    }


class _Vmap(ModuleType):
    """This module, which is called as its function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return vmap(*args, **kwargs)


_Vmap.__call__.__doc__ = vmap.__doc__
sys.modules[__name__].__class__ = _Vmap

module_imported(sys.modules[__name__])
