"""The names of `torch._tensor` that packages import."""

from typing import Any

from .._C import Tensor

__all__ = ["Tensor", "_rebuild_from_type_v2"]


def _rebuild_from_type_v2(func: Any, new_type: type, args: tuple[Any, ...], state: Any) -> Any:
    """The tensor of a subclass with its attributes, as PyTorch's pickles make it."""
    found = func(*args)
    if type(found) is not new_type:
        found = found.as_subclass(new_type)
    set_state = getattr(type(found), "__setstate__", None)
    if set_state is not None and set_state is not getattr(Tensor, "__setstate__", None):
        found.__setstate__(state)
    elif isinstance(state, tuple):
        attributes, slots = state
        vars(found).update(attributes or {})
        for name, value in (slots or {}).items():
            setattr(found, name, value)
    else:
        vars(found).update(state)
    return found
