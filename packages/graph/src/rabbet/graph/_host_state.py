"""What programs keep outside of tensors' memory: attributes of modules, and the state and options of optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .._C import Tensor

_KEPT = (Tensor, bool, int, float, complex, str, type(None))


def host_state(owners: Iterable[Any]) -> dict[str, Any]:
    """The tensors, numbers and strings that modules and optimizers refer to, by where they do."""
    found: dict[str, Any] = {}
    for owner in owners:
        entries: Iterable[tuple[str, Any]] = ()
        if hasattr(owner, "named_modules"):
            entries = _of_module(owner)
        elif hasattr(owner, "param_groups"):
            entries = _of_optimizer(owner)
        found.update((where, item) for where, item in entries if isinstance(item, _KEPT))
    return found


def changed(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    """The first entry that differs; None if all are equal. Tensors are compared by identity."""
    for where in [*before, *after]:
        old, new = before.get(where), after.get(where)
        both = isinstance(old, Tensor) or isinstance(new, Tensor)
        if old is not new and (both or type(old) is not type(new) or old != new):
            return where
    return None


def _of_module(module: Any) -> Iterator[tuple[str, Any]]:
    for path, part in module.named_modules():
        prefix = f"{type(module).__name__}.{path}." if path else f"{type(module).__name__}."
        for name, item in vars(part).items():
            if name in ("_parameters", "_buffers"):
                yield from ((prefix + key, tensor) for key, tensor in item.items())
            else:
                yield prefix + name, item


def _of_optimizer(optimizer: Any) -> Iterator[tuple[str, Any]]:
    what = type(optimizer).__name__
    for i, group in enumerate(optimizer.param_groups):
        yield from ((f"{what}.param_groups[{i}][{name!r}]", item) for name, item in group.items())
    for i, entry in enumerate(optimizer.state.values()):
        if isinstance(entry, dict):
            yield from (
                (f"{what}.state[parameter {i}][{name!r}]", item) for name, item in entry.items()
            )
