"""A module called with other parameters than its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rabbet import Tensor


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call `module` with the given parameters and buffers in place of its own.

    Args:
        module: a `rabbet.nn.Module`; it is left as it was.
        parameter_and_buffer_dicts: tensors by name, as in `named_parameters()` and `named_buffers()`, in one
            dict or several; what they do not name stays the module's own.
        args: a tuple of positional arguments, or the one argument.
        kwargs: keyword arguments.
        tie_weights: whether a tensor that the module has under several names is replaced under all of them.
        strict: whether every parameter and buffer must be given.

    Raises:
        ValueError: if two dicts have a name in common, or tied names get different tensors.
        RuntimeError: for a name that the module does not have, and with `strict` for one that is missing.
    """
    given = _merged(parameter_and_buffer_dicts)
    places = _places(module)
    _check_names(module, given, places, strict, tie_weights)
    if tie_weights:
        given = _tied(given, places)
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    kept = [(table, key, table[key]) for table, key in (places[name] for name in given)]
    try:
        for name, value in given.items():
            table, key = places[name]
            table[key] = value
        return module(*arguments, **(kwargs or {}))
    finally:
        for table, key, value in kept:
            table[key] = value


def _merged(dicts: Any) -> dict[str, Tensor]:
    if isinstance(dicts, (dict, Mapping)):
        dicts = (dicts,)
    merged: dict[str, Tensor] = {}
    for d in dicts if isinstance(dicts, (tuple, Sequence)) else (dicts,):
        if not isinstance(d, (dict, Mapping)):
            raise ValueError(
                f"functional_call: expected a dict of tensors or a sequence of dicts, got {type(dicts).__name__}"
            )
        before = len(merged)
        merged.update(d)
        if len(merged) != before + len(d):
            counts = Counter(name for given in dicts for name in given)
            twice = sorted(name for name, n in counts.items() if n > 1)
            raise ValueError(f"functional_call: {twice} are in more than one dict")
    for name, value in merged.items():
        if not isinstance(value, Tensor) and value is not None:
            raise TypeError(
                f"functional_call: expected a Tensor for '{name}', got {type(value).__name__}"
            )
    return merged


_Place = tuple[dict[str, Any], str]  # a module's dict of tensors, and the key in it


def _places(module: Any) -> dict[str, _Place]:
    """Where each tensor of the module is kept, by its full name, tied ones under every name."""
    if not hasattr(module, "named_modules"):
        raise TypeError(f"functional_call: expected a Module, got {type(module).__name__}")
    found: dict[str, _Place] = {}
    _add_places(module, "", found)
    return found


def _add_places(module: Any, prefix: str, found: dict[str, _Place]) -> None:
    # Straight from the tables: the generators of Module take several times as long.
    tables = module.__dict__
    for table in (tables["_parameters"], tables["_buffers"]):
        for key in table:
            found[prefix + key] = (table, key)
    for name, child in tables["_modules"].items():
        if child is not None:
            _add_places(child, f"{prefix}{name}.", found)


def _names_by_tensor(places: dict[str, _Place]) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {}
    for name, (table, key) in places.items():
        if table[key] is not None:
            names.setdefault(id(table[key]), []).append(name)
    return names


def _check_names(
    module: Any, given: dict[str, Tensor], places: dict[str, _Place], strict: bool, tie: bool
) -> None:
    if not given.keys() <= places.keys():
        unknown = sorted(given.keys() - places.keys())
        raise RuntimeError(
            f"functional_call: {type(module).__name__} has no parameters or buffers {unknown}"
        )
    if not strict:
        return
    covered = set(given)
    if tie:
        for names in _names_by_tensor(places).values():
            if covered & set(names):
                covered |= set(names)
    missing = sorted(n for n, (t, k) in places.items() if t[k] is not None and n not in covered)
    if missing:
        raise RuntimeError(f"functional_call: strict=True, and {missing} are not given")


def _tied(given: dict[str, Tensor], places: dict[str, _Place]) -> dict[str, Tensor]:
    held = [id(table[key]) for table, key in places.values() if table[key] is not None]
    if len(set(held)) == len(held):
        return given
    complete = dict(given)
    for names in _names_by_tensor(places).values():
        values = [given[name] for name in names if name in given]
        if not values or len(names) == 1:
            continue
        if any(value is not values[0] for value in values):
            raise ValueError(
                f"functional_call: {names} are tied and got different tensors; consider tie_weights=False"
            )
        complete.update(dict.fromkeys(names, values[0]))
    return complete
