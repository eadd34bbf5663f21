"""Nested containers under the names of `torch.utils._pytree`; `rabbet._pytree` does the work."""

import dataclasses
from collections.abc import Callable
from typing import Any

from .. import _pytree
from .._pytree import TreeSpec, tree_flatten, tree_structure

__all__ = [
    "PyTree", "TreeSpec", "register_dataclass", "register_pytree_node", "tree_all", "tree_all_only", "tree_any", "tree_any_only",
    "tree_flatten", "tree_iter", "tree_leaves", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_",
    "tree_structure", "tree_unflatten",
]  # fmt: skip

PyTree = Any
_Leaf = Callable[[Any], Any]
_IsLeaf = Callable[[Any], bool] | None


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[list[Any], Any]],
    unflatten_fn: Callable[[Any, Any], Any],
    **options: Any,
) -> None:
    """Make a type a container: `flatten_fn` gives (children, context), `unflatten_fn` takes both.

    `options` (names for serialising, keys) are taken for PyTorch's sake.
    """
    _pytree.register_pytree_node(
        cls, flatten_fn, lambda children, context: unflatten_fn(children, context)
    )


_register_pytree_node = register_pytree_node


def register_dataclass(
    cls: type,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Make a dataclass a container of its fields; those that are None belong to its structure.

    Args:
        field_names: the fields, which the class takes by keyword; left out: all that its constructor takes.
        drop_field_names: fields that are left out, and have defaults.
        serialized_type_name: taken for PyTorch's sake.

    Raises:
        ValueError: without names for a class that is no dataclass, or if the names are not those of its fields.
    """
    names = field_names
    if dataclasses.is_dataclass(cls):
        known = [f.name for f in dataclasses.fields(cls) if f.init]
        names = known if names is None else names
        dropped = set(drop_field_names or ())
        missing = sorted(set(known) - set(names) - dropped)
        unexpected = sorted(set(names) - set(known))
        if missing or unexpected:
            raise ValueError(
                f"register_dataclass: field_names does not include all dataclass fields of {cls.__name__}, or others: "
                f"missing {missing}, unexpected {unexpected}; name what is left out in drop_field_names"
            )
        names = [name for name in names if name not in dropped]
    elif names is None:
        raise ValueError(
            "register_dataclass: field_names must be specified with a list of all fields used to initialize "
            f"{cls}, as it is not a dataclass."
        )
    order = tuple(names)

    def flatten(tree: Any) -> tuple[list[Any], tuple[str, ...]]:
        values = [(name, getattr(tree, name)) for name in order]
        return [v for _, v in values if v is not None], tuple(n for n, v in values if v is not None)

    def unflatten(children: Any, present: tuple[str, ...]) -> Any:
        absent = dict.fromkeys(name for name in order if name not in present)
        return cls(**dict(zip(present, children, strict=True)), **absent)

    _pytree.register_pytree_node(cls, flatten, unflatten)


def _with_leaves(f: _Leaf, is_leaf: Callable[[Any], bool] | None, tree: Any) -> Any:
    """The tree with `f` applied to its leaves; a container that `is_leaf` names is one, too."""
    if is_leaf is None:
        return _pytree.tree_map(f, tree)
    if is_leaf(tree):
        return f(tree)
    spec = tree_structure(tree)
    if spec.kind is None:
        return f(tree)
    container = _pytree._container_of(tree)
    assert container is not None
    children, context = container.flatten(tree)
    return container.unflatten([_with_leaves(f, is_leaf, c) for c in children], context)


def tree_map(
    func: Callable[..., Any],
    tree: Any,
    *rests: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Apply a function to the leaves of trees of one structure; a tree of the results."""
    if rests and is_leaf is not None:
        raise NotImplementedError("tree_map: is_leaf is taken for one tree")
    return _pytree.tree_map(func, tree, *rests) if rests else _with_leaves(func, is_leaf, tree)


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """The tree of that structure with these leaves."""
    return _pytree.tree_unflatten(leaves, treespec)


def tree_map_(func: _Leaf, tree: Any, *rests: Any, is_leaf: _IsLeaf = None) -> Any:
    """Call a function with the leaves; returns the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _only(kinds: Any, func: _Leaf) -> _Leaf:
    def applied(leaf: Any) -> Any:
        fits = isinstance(leaf, kinds) if isinstance(kinds, (type, tuple)) else kinds(leaf)
        return func(leaf) if fits else leaf

    return applied


def tree_map_only(
    type_or_types_or_pred: Any,
    func: _Leaf | None = None,
    tree: Any = None,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Apply a function to the leaves of the given types, or for which the given function holds."""
    if func is None:
        raise TypeError("tree_map_only: expected a function for the leaves, got None")
    return tree_map(_only(type_or_types_or_pred, func), tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any, func: _Leaf, tree: Any, is_leaf: _IsLeaf = None
) -> Any:
    """Call a function with the leaves of the given types; returns the tree itself."""
    tree_map_only(type_or_types_or_pred, func, tree, is_leaf)
    return tree


def tree_leaves(tree: Any, is_leaf: _IsLeaf = None) -> list[Any]:
    """The leaves, first to last; a container for which `is_leaf` holds is one leaf."""
    if is_leaf is None:
        return _pytree.tree_leaves(tree)
    container = None if is_leaf(tree) else _pytree._container_of(tree)
    if container is None:
        return [tree]
    children, _ = container.flatten(tree)
    return [leaf for child in children for leaf in tree_leaves(child, is_leaf)]


def tree_iter(tree: Any, is_leaf: _IsLeaf = None) -> Any:
    """An iterator over the leaves."""
    return iter(tree_leaves(tree, is_leaf))


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: _IsLeaf = None) -> bool:
    """Whether a function holds for all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: _IsLeaf = None) -> bool:
    """Whether a function holds for a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(
    type_or_types: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: _IsLeaf = None
) -> bool:
    """Whether a function holds for all leaves of the given types."""
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(
    type_or_types: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: _IsLeaf = None
) -> bool:
    """Whether a function holds for a leaf of the given types."""
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, type_or_types))
