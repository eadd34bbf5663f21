"""Composite tensors: tensors that are made of parts, which a layer keeps (docs/reference/composite).

A plugin makes them through `rabbet/composite.h`. Here is what they are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _C
from ._C import Tensor
from ._plugins import require_layer

__all__ = ["blob", "compose", "is_composite", "layer", "parts", "values"]


def compose(
    name: str,
    shape: Sequence[int],
    dtype: Any,
    parts: Sequence[Tensor | None],
    blob: bytes = b"",
    layout: Any = _C.strided,
) -> Tensor:
    """A composite of the loaded layer whose composites have that name, on the device of its first part.

    Args:
        shape, dtype, layout: what it shows.
        parts, blob: what it is made of, as the layer reads it; the layer checks them.
    """
    device = next((str(part.device) for part in parts if part is not None), "cpu")
    return _C.load_composite(name, list(shape), dtype, device, tuple(parts), blob, layout)


def is_composite(tensor: Tensor) -> bool:
    """Whether the tensor is made of parts; a transform's wrapper is not meant."""
    return _C.composite(tensor) is not None


def parts(tensor: Tensor) -> tuple[Tensor | None, ...]:
    """The tensors that a composite is made of, in the order of its layer; they are shared."""
    found: tuple[Tensor | None, ...] = _described(tensor, "parts")["parts"]
    return found


def blob(tensor: Tensor) -> bytes:
    """The bytes in which the layer says what the parts mean."""
    found: bytes = _described(tensor, "blob")["blob"]
    return found


def layer(tensor: Tensor) -> str:
    """The name of the layer that owns a composite."""
    found: str = _described(tensor, "layer")["layer"]
    return found


def values(tensor: Tensor) -> Tensor:
    """A tensor with memory that holds the values: `tensor` itself, or what its layer makes of it.

    Raises:
        RuntimeError: naming the layer, if it has no values to give.
    """
    return _C.composite_values(tensor)


def _described(tensor: Tensor, what: str) -> dict[str, Any]:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{what}: expected a Tensor, got {type(tensor).__name__}")
    found = _C.composite(tensor)
    if found is None:
        raise ValueError(
            f"{what}: expected a composite tensor, got a plain one of shape {tuple(tensor.shape)}"
        )
    return found


# ---- files and pickles


def state(tensor: Tensor) -> dict[str, Any] | None:
    """What is stored of a composite beside its parts; None for any other tensor."""
    found = _C.composite(tensor)
    if found is None:
        return None
    stored = {
        "name": found["name"],
        "layer": found["layer"],
        "wheel": found["provider"],
        "blob": found["blob"],
        "dtype": tensor.dtype.name,
        "shape": tuple(tensor.shape),
    }
    if tensor.layout is not _C.strided:
        stored["layout"] = layout_name(tensor.layout)
    return stored


LAYOUTS = tuple(name for name, value in vars(_C).items() if isinstance(value, _C.layout))


def layout_name(layout: Any) -> str:
    """The name of a layout in `rabbet`."""
    return next(name for name in LAYOUTS if getattr(_C, name) is layout)


def rebuild(stored: dict[str, Any], parts: tuple[Tensor | None, ...]) -> Tensor:
    """The composite that `state` described, of these parts, on the device of the first one.

    Raises:
        PluginError: naming the wheel to install, if its layer is not there.
    """
    layout = getattr(_C, stored.get("layout", "strided"))
    shown = (stored["shape"], getattr(_C, stored["dtype"]), parts, stored["blob"], layout)
    try:
        return compose(stored["name"], *shown)
    except LookupError:
        _load_layer(stored)
    return compose(stored["name"], *shown)


def _load_layer(stored: dict[str, Any]) -> None:
    wheel = stored["wheel"].split(" ")[0]
    try:
        require_layer(stored["layer"])
        if any(found["name"] == stored["layer"] for found in _C.layers()):
            return
        why = "its plugin does not register that layer"
    except _C.PluginError as error:
        why = str(error)
    raise _C.PluginError(
        f"a composite tensor '{stored['name']}' needs the layer '{stored['layer']}', which the wheel "
        f"'{wheel}' provides ({stored['wheel']} wrote it): pip install {wheel} ({why})"
    )


def rebuild_pickled(
    stored: dict[str, Any], parts: tuple[Tensor | None, ...], requires_grad: bool, cls: type
) -> Tensor:
    """What a pickle of a composite calls."""
    made = rebuild(stored, parts)
    if cls is not Tensor:
        return Tensor._make_subclass(cls, made, requires_grad)
    if requires_grad:
        made.requires_grad = True
    return made
