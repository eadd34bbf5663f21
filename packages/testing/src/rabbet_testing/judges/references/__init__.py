"""What operators are compared with: the NumPy or SciPy function that a record names, or a short definition here.

A definition takes arguments by their names in the record, as arrays, and gives the results. `dtype_name` is the dtype
under test: of random numbers it decides how many bits each takes. Nothing here calls an operator.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from rabbet import _C

from . import (  # noqa: F401, each writes down its definitions
    along,
    create,
    elementwise,
    fourier,
    index,
    linalg,
    movement,
    nn,
    optimizers,
    products,
    random,
    special,
    windows,
)
from .definitions import DEFINITIONS, WHOLE, NoReference, Unset, axis_of

__all__ = ["OF_STORAGE", "NoReference", "Unset", "reference"]

# Views of the memory below a tensor, for which it matters how that lies.
OF_STORAGE = {
    "as_strided",
    "as_strided_copy",
    "as_strided_scatter",
    "strided_view",
    "view_as_complex",
}


def reference(name: str) -> Callable[[dict[str, Any]], tuple[Any, ...]] | None:
    """A function from all arguments by name to the results, or None where nothing is written down."""
    info = _C.op_info(name)
    if name in WHOLE:
        return WHOLE[name]
    if name in DEFINITIONS:
        function = DEFINITIONS[name]
        wanted = list(inspect.signature(function).parameters)

        def defined(given: dict[str, Any]) -> tuple[Any, ...]:
            found = function(**{k: given[k] for k in wanted})
            return found if isinstance(found, tuple) else (found,)

        return defined
    if not info["ref"]:
        return None
    module, attribute = info["ref"].rsplit(".", 1)
    found = getattr(importlib.import_module(module), attribute)
    has_axis = info["kind"] in ("reduction", "along")
    numbers = ("Scalar", "float", "int") if info["kind"] == "elementwise" else ()

    def named(given: dict[str, Any]) -> tuple[Any, ...]:
        own = [
            p
            for p in info["params"]
            if p["type"] == "Tensor" or (p["type"] in numbers and not p["has_default"])
        ]
        values = [given[p["name"]] for p in own]
        others = {p["name"]: p for p in info["params"] if p not in own}
        kwargs = {}
        if has_axis and "dim" in others:
            kwargs["axis"] = axis_of(given["dim"])
            others.pop("dim")
        if has_axis and "keepdim" in others:
            kwargs["keepdims"] = given["keepdim"]
            others.pop("keepdim")
        for other, param in others.items():
            if given[other] != param["default"]:
                raise NoReference(f"{info['ref']} is called without '{other}'")
        return (found(*values, **kwargs),)

    return named
