"""A module called with other parameters than its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
            dict or several; what they do not name stays the module's own. Names that the module does not have become
            attributes for the call, unless `strict`.
        args: a tuple of positional arguments, or the one argument.
        kwargs: keyword arguments.
        tie_weights: whether a tensor that the module has under several names is replaced under all of them.
        strict: whether the names must be those of the module's parameters and buffers, all of them.

    Raises:
        ValueError: if two dicts have a name in common, or tied names get different tensors.
        RuntimeError: with `strict` for a name that the module does not have, or one that is missing.
        AttributeError: for a name inside a module that is not there.
    """
    given = _merged(parameter_and_buffer_dicts)
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with reparametrized(module, given, tie_weights=tie_weights, strict=strict):
        return module(*arguments, **(kwargs or {}))


@contextmanager
def reparametrized(
    module: Any, given: dict[str, Tensor], *, tie_weights: bool, strict: bool
) -> Iterator[None]:
    """A block in which the module has other tensors under these names."""
    places = _places(module)
    if strict:
        _check_names(module, given, places, tie_weights)
    if tie_weights:
        given = _tied(given, places)
    if not given.keys() <= places.keys():
        places.update({name: _new_place(module, name) for name in given.keys() - places.keys()})
    kept = [(table, key, table.get(key, _ABSENT)) for table, key in (places[n] for n in given)]
    try:
        for name, value in given.items():
            table, key = places[name]
            table[key] = value
        yield
    finally:
        for table, key, value in kept:
            if value is _ABSENT:
                del table[key]
            else:
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
            raise ValueError(
                f"functional_call: {twice} appeared in multiple dictionaries; behavior of functional call is ambiguous"
            )
    for name, value in merged.items():
        if not isinstance(value, Tensor) and value is not None:
            raise TypeError(
                f"functional_call: expected a Tensor for '{name}', got {type(value).__name__}"
            )
    return merged


_ABSENT = object()
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


def _new_place(module: Any, name: str) -> _Place:
    """A place for a tensor that the module does not have: an attribute."""
    *path, key = name.split(".")
    for part in path:
        child = module._modules.get(part)
        if child is None:
            raise AttributeError(
                f"functional_call: {type(module).__name__} has no module '{part}', which '{name}' names"
            )
        module = child
    return module.__dict__, key


def _check_names(
    module: Any, given: dict[str, Tensor], places: dict[str, _Place], tie: bool
) -> None:
    covered = set(given)
    if tie:
        for names in _names_by_tensor(places).values():
            if covered & set(names):
                covered |= set(names)
    missing = sorted(n for n, (t, k) in places.items() if t[k] is not None and n not in covered)
    unexpected = sorted(given.keys() - places.keys())
    if missing or unexpected:
        lines = [f"Error(s) in reparametrizing for {type(module).__name__}:"]
        for what, names in (("Unexpected", unexpected), ("Missing", missing)):
            if names:
                lines.append(f"\t{what} key(s): {', '.join(map(repr, names))}.")
        raise RuntimeError("\n".join(lines))


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
                f"functional_call got multiple values for keys {names}, which are tied. Consider using tie_weights=False"
            )
        complete.update(dict.fromkeys(names, values[0]))
    return complete
