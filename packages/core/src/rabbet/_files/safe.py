"""What a user declares to be safe: classes and functions that files may name, beside our own."""

from collections.abc import Sequence
from typing import Any

from .._as_torch import names

_BLOCKED = ("sys", "os", "posix", "nt")  # as in PyTorch: never allowed, whoever declares them
_declared: list[Any] = []


def name_of(value: Any) -> str:
    """The name of a class or function: rabbet's for its own, also where they name PyTorch's modules."""
    return f"{names.own_name(value.__module__)}.{value.__qualname__}"


def _checked(value: Any) -> Any:
    is_pair = isinstance(value, tuple)
    if is_pair and len(value) != 2:
        raise ValueError(
            f"add_safe_globals: expected pairs of a class or function and its name in files, got {len(value)} values"
        )
    if is_pair and type(value[1]) is not str:
        raise TypeError(
            f"add_safe_globals: the name in files must be a str, got {type(value[1]).__name__}"
        )
    target = value[0] if is_pair else value
    if not callable(target) or not (is_pair or hasattr(target, "__qualname__")):
        raise TypeError(
            "add_safe_globals: expected classes, functions, or pairs of one and its name in files, got "
            f"{type(target).__name__}"
        )
    return value


def declare(values: Sequence[Any]) -> None:
    """Add classes, functions, or pairs of one and its name in files."""
    for value in [_checked(v) for v in values]:
        if value not in _declared:
            _declared.append(value)


def declared() -> list[Any]:
    """What was declared, in order."""
    return list(_declared)


def replace(values: Sequence[Any]) -> None:
    """Forget what was declared and declare these."""
    _declared[:] = values


def by_name() -> dict[str, Any]:
    """The declared classes and functions by their names in files; rabbet's own have PyTorch's names, too."""
    names = {}
    for value in _declared:
        value, name = value if isinstance(value, tuple) else (value, name_of(value))
        names[name] = value
        if name.startswith("rabbet."):
            names[f"torch.{name.removeprefix('rabbet.')}"] = value
    return names


def is_blocked(module: str) -> bool:
    """Whether nothing of a module is ever allowed."""
    return module in _BLOCKED
