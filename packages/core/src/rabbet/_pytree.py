"""Nested containers of values: tuples, named tuples, lists, deques and dicts of all kinds, to any depth.

A tree is flattened into its leaves, in order, and a `TreeSpec` that rebuilds it. Everything that is no
registered container is a leaf, None too. Dicts keep the order of their keys; two dicts fit if they have
the same keys, whatever their order.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class _Container(NamedTuple):
    """How a type is taken apart: to (children, context), and built again from both."""

    flatten: Callable[[Any], tuple[Sequence[Any], Any]]
    unflatten: Callable[[Sequence[Any], Any], Any]


_containers: dict[type, _Container] = {}


def register_pytree_node(
    kind: type,
    flatten: Callable[[Any], tuple[Sequence[Any], Any]],
    unflatten: Callable[[Sequence[Any], Any], Any],
) -> None:
    """Make a type a container: `flatten` gives (children, context), `unflatten` builds it from both.

    Raises:
        TypeError: if `kind` is not a type.
        ValueError: if it is registered already.
    """
    if not isinstance(kind, type):
        raise TypeError(f"register_pytree_node: expected a type, got {kind!r}")
    if kind in _containers:
        raise ValueError(f"register_pytree_node: {kind.__name__} is registered already")
    _containers[kind] = _Container(flatten, unflatten)


def _flatten_dict(tree: dict[Any, Any]) -> tuple[list[Any], tuple[Any, ...]]:
    return list(tree.values()), tuple(tree)


register_pytree_node(tuple, lambda t: (t, None), lambda children, _: tuple(children))
register_pytree_node(list, lambda t: (t, None), lambda children, _: list(children))
register_pytree_node(
    dict, _flatten_dict, lambda children, keys: dict(zip(keys, children, strict=True))
)
register_pytree_node(
    OrderedDict, _flatten_dict, lambda children, keys: OrderedDict(zip(keys, children, strict=True))
)


class _DefaultKeys(tuple[Any, ...]):
    """The keys of a defaultdict, and what makes its missing values."""

    factory: Callable[[], Any] | None


def _flatten_defaultdict(tree: defaultdict[Any, Any]) -> tuple[list[Any], _DefaultKeys]:
    keys = _DefaultKeys(tree)
    keys.factory = tree.default_factory
    return list(tree.values()), keys


register_pytree_node(
    defaultdict,
    _flatten_defaultdict,
    lambda children, keys: defaultdict(keys.factory, zip(keys, children, strict=True)),
)
register_pytree_node(
    deque, lambda t: (list(t), t.maxlen), lambda children, maxlen: deque(children, maxlen)
)
_NAMED_TUPLE = _Container(lambda t: (t, type(t)), lambda children, kind: kind(*children))
_RESULTS = _Container(lambda t: (t, type(t)), lambda children, kind: kind(children))


def _container_of_tuple(kind: type) -> _Container | None:
    if hasattr(kind, "_fields"):
        return _NAMED_TUPLE
    if hasattr(kind, "n_sequence_fields"):  # several results of an operator
        return _RESULTS
    return None


def _container_of(tree: Any) -> _Container | None:
    found = _containers.get(type(tree))
    if found is None and isinstance(tree, tuple):
        return _container_of_tuple(type(tree))
    return found


@dataclass(slots=True, unsafe_hash=True)
class TreeSpec:
    """The structure of a tree without its leaves, never changed. `kind` None: one leaf."""

    kind: type | None
    context: Any = None
    children: tuple[TreeSpec, ...] = ()
    num_leaves: int = field(default=1, compare=False)

    def __str__(self) -> str:
        if self.kind is None:
            return "*"
        parts = [str(child) for child in self.children]
        if issubclass(self.kind, dict):
            parts = [f"{key!r}: {part}" for key, part in zip(self.context, parts, strict=True)]
        return f"{self.kind.__name__}({', '.join(parts)})"


LEAF = TreeSpec(None)


def tree_flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree, in order, and its structure."""
    container = _container_of(tree)
    if container is None:
        return [tree], LEAF
    leaves: list[Any] = []
    return leaves, _flatten_into(tree, container, leaves)


def _flatten_into(tree: Any, container: _Container, leaves: list[Any]) -> TreeSpec:
    children, context = container.flatten(tree)
    before = len(leaves)
    specs = []
    known = _containers.get
    for child in children:
        below = known(type(child))
        if below is None and isinstance(child, tuple):
            below = _container_of_tuple(type(child))
        if below is None:
            leaves.append(child)
            specs.append(LEAF)
        else:
            specs.append(_flatten_into(child, below, leaves))
    return TreeSpec(type(tree), context, tuple(specs), len(leaves) - before)


def tree_unflatten(leaves: Iterable[Any], spec: TreeSpec) -> Any:
    """The tree of that structure with these leaves.

    Raises:
        ValueError: if the number of leaves is not that of the structure.
    """
    leaves = list(leaves)
    if len(leaves) != spec.num_leaves:
        raise ValueError(
            f"tree_unflatten: expected {spec.num_leaves} leaves for {spec}, got {len(leaves)}"
        )
    return _build(iter(leaves), spec)


def _build(leaves: Any, spec: TreeSpec) -> Any:
    if spec.kind is None:
        return next(leaves)
    parts = [next(leaves) if child is LEAF else _build(leaves, child) for child in spec.children]
    container = _containers.get(spec.kind) or _container_of_tuple(spec.kind)
    assert container is not None
    return container.unflatten(parts, spec.context)


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves of a tree, in order."""
    return tree_flatten(tree)[0]


def tree_structure(tree: Any) -> TreeSpec:
    """The structure of a tree."""
    return tree_flatten(tree)[1]


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Apply `f` to the leaves of trees of one structure; a tree of the results.

    Raises:
        ValueError: if the structures differ.
    """
    leaves, spec = tree_flatten(tree)
    columns = [leaves] + [flatten_up_to(other, spec, "tree_map") for other in rest]
    return tree_unflatten([f(*values) for values in zip(*columns, strict=True)], spec)


def flatten_up_to(tree: Any, spec: TreeSpec, what: str) -> list[Any]:
    """What stands in `tree` at the places of the leaves of `spec`, which may be trees themselves.

    Raises:
        ValueError: if `tree` has another structure above; names `what`.
    """
    found: list[Any] = []
    _match(tree, spec, spec, what, found)
    return found


def _match(tree: Any, spec: TreeSpec, whole: TreeSpec, what: str, found: list[Any]) -> None:
    if spec.kind is None:
        found.append(tree)
        return
    container = _container_of(tree)
    children: Sequence[Any] = ()
    fits = False
    if container is not None and type(tree) is spec.kind:
        children, context = container.flatten(tree)
        if isinstance(tree, dict):
            fits = set(context) == set(spec.context)
            children = [tree[key] for key in spec.context] if fits else ()
        else:
            fits = len(children) == len(spec.children) and context == spec.context
    if not fits:
        raise ValueError(f"{what}: expected the structure {whole}, got {tree_structure(tree)}")
    for child, child_spec in zip(children, spec.children, strict=True):
        _match(child, child_spec, whole, what, found)


def broadcast_prefix(prefix: Any, spec: TreeSpec, what: str) -> list[Any]:
    """A value for each leaf of a tree of structure `spec` from `prefix`, which has that structure or
    ends earlier: a leaf of it then holds for all below.

    Raises:
        ValueError: if `prefix` is no prefix of the structure; names `what`.
    """
    found: list[Any] = []
    _broadcast(prefix, spec, what, found)
    return found


def _broadcast(prefix: Any, spec: TreeSpec, what: str, found: list[Any]) -> None:
    container = _container_of(prefix)
    if container is None:
        found += [prefix] * spec.num_leaves
        return
    values, context = container.flatten(prefix)
    fits = type(prefix) is spec.kind and len(values) == len(spec.children)
    if fits and isinstance(prefix, dict):
        fits = set(context) == set(spec.context)
        values = [prefix[key] for key in spec.context] if fits else values
    elif fits:
        fits = context == spec.context
    if not fits:
        own = TreeSpec(type(prefix), context, (LEAF,) * len(values), len(values))
        raise ValueError(f"{what}: expected the structure {own}, got {spec}")
    for value, child in zip(values, spec.children, strict=True):
        _broadcast(value, child, what, found)
