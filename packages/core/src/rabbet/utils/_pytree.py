"""Nested containers under the names of `torch.utils._pytree`; `rabbet._pytree` does the work."""

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .. import _pytree
from .._pytree import (
    BUILTIN_TYPES,
    LEAF,
    STANDARD_DICT_TYPES,
    SUPPORTED_NODES,
    GetAttrKey,
    IsLeaf,
    LeafSpec,
    MappingKey,
    NodeDef,
    SequenceKey,
    TreeSpec,
    _defaultdict_flatten,
    _defaultdict_flatten_with_keys,
    _defaultdict_unflatten,
    _deque_flatten,
    _deque_flatten_with_keys,
    _deque_unflatten,
    _dict_flatten,
    _dict_flatten_with_keys,
    _dict_unflatten,
    _list_flatten,
    _list_flatten_with_keys,
    _list_unflatten,
    _namedtuple_flatten,
    _namedtuple_flatten_with_keys,
    _namedtuple_unflatten,
    _ordereddict_flatten,
    _ordereddict_flatten_with_keys,
    _ordereddict_unflatten,
    _tuple_flatten,
    _tuple_flatten_with_keys,
    _tuple_unflatten,
    is_namedtuple_class,
    is_structseq_class,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_structure,
    tree_unflatten,
)
from .._pytree import node_type as _get_node_type
from ._pytree_text import (
    DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL,
    SERIALIZED_TYPE_TO_PYTHON_TYPE,
    SUPPORTED_SERIALIZED_TYPES,
    _register_namedtuple,
    register_text,
    treespec_dumps,
    treespec_loads,
)

__all__ = [
    "BUILTIN_TYPES", "CONSTANT_NODES", "DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL", "STANDARD_DICT_TYPES",
    "SERIALIZED_TYPE_TO_PYTHON_TYPE", "SUPPORTED_NODES", "SUPPORTED_SERIALIZED_TYPES", "ConstantNode", "Context",
    "DumpableContext", "FlattenFn", "FlattenFunc", "FlattenWithKeysFn", "FlattenWithKeysFunc", "FromDumpableContextFn",
    "GetAttrKey", "KeyEntry", "KeyPath", "LeafSpec", "MappingKey", "NodeDef", "PyTree", "PyTreeSpec", "SequenceKey",
    "ToDumpableContextFn", "TreeSpec", "UnflattenFn", "UnflattenFunc", "arg_tree_leaves", "is_constant_class",
    "is_namedtuple", "is_namedtuple_class", "is_namedtuple_instance", "is_structseq", "is_structseq_class",
    "is_structseq_instance", "key_get", "keystr", "map_only", "register_constant", "register_dataclass",
    "register_pytree_node", "tree_all", "tree_all_only", "tree_any", "tree_any_only", "tree_flatten",
    "tree_flatten_with_path", "tree_is_leaf", "tree_iter", "tree_leaves", "tree_leaves_with_path", "tree_map",
    "tree_map_", "tree_map_only", "tree_map_only_", "tree_map_with_path", "tree_structure", "tree_unflatten",
    "treespec_dict", "treespec_dumps", "treespec_leaf", "treespec_loads", "treespec_pprint", "treespec_tuple",
    # imported by packages
    "_broadcast_to_and_flatten", "_defaultdict_flatten", "_defaultdict_flatten_with_keys", "_defaultdict_unflatten",
    "_deque_flatten", "_deque_flatten_with_keys", "_deque_unflatten", "_deregister_pytree_node", "_dict_flatten",
    "_dict_flatten_with_keys", "_dict_unflatten", "_get_node_type", "_is_leaf", "_is_namedtuple_instance",
    "_list_flatten", "_list_flatten_with_keys", "_list_unflatten", "_namedtuple_flatten",
    "_namedtuple_flatten_with_keys", "_namedtuple_unflatten", "_odict_flatten", "_odict_unflatten",
    "_ordereddict_flatten", "_ordereddict_flatten_with_keys", "_ordereddict_unflatten", "_private_register_pytree_node",
    "_register_namedtuple", "_register_pytree_node", "_tuple_flatten", "_tuple_flatten_with_keys", "_tuple_unflatten",
]  # fmt: skip

PyTree = Any
PyTreeSpec = TreeSpec
Context = Any
DumpableContext = Any
FlattenFn = Callable[[Any], tuple[list[Any], Any]]
FlattenFunc = FlattenFn
UnflattenFn = Callable[[Iterable[Any], Any], Any]
UnflattenFunc = UnflattenFn
ToDumpableContextFn = Callable[[Any], Any]
FromDumpableContextFn = Callable[[Any], Any]
KeyEntry = Any  # SequenceKey, MappingKey, GetAttrKey, or an object with their get() and __str__()
KeyPath = tuple[KeyEntry, ...]
FlattenWithKeysFn = Callable[[Any], tuple[list[tuple[KeyEntry, Any]], Any]]
FlattenWithKeysFunc = FlattenWithKeysFn

_Leaf = Callable[[Any], Any]
_odict_flatten = _ordereddict_flatten
_odict_unflatten = _ordereddict_unflatten


# ---- registration


def register_pytree_node(
    cls: type,
    flatten_fn: FlattenFn,
    unflatten_fn: UnflattenFn,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: ToDumpableContextFn | None = None,
    from_dumpable_context: FromDumpableContextFn | None = None,
    flatten_with_keys_fn: FlattenWithKeysFn | None = None,
) -> None:
    """Make a type a container.

    Args:
        cls: the type; its subclasses are not included.
        flatten_fn: gives (children, context).
        unflatten_fn: builds an object from children and context.
        serialized_type_name: the type's name in the text of treespec_dumps().
        to_dumpable_context, from_dumpable_context: turn the context into what JSON takes, and back.
        flatten_with_keys_fn: gives ((key, child) pairs, context), for tree_flatten_with_path().

    Raises:
        TypeError: if `cls` is not a type.
        ValueError: if it is registered, or only one of the two functions for contexts is given.

    Example:
        >>> from rabbet.utils import _pytree as pytree
        >>> class Pair:
        ...     def __init__(self, a, b):
        ...         self.a, self.b = a, b
        >>> pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda c, _: Pair(*c))
        >>> pytree.tree_leaves([Pair(1, 2), 3])
        [1, 2, 3]
    """
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(
            f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered."
        )
    _pytree.register_pytree_node(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    register_text(cls, serialized_type_name, to_dumpable_context, from_dumpable_context)


_private_register_pytree_node = register_pytree_node


def _register_pytree_node(
    cls: type,
    flatten_fn: FlattenFn,
    unflatten_fn: UnflattenFn,
    to_str_fn: Any = None,
    maybe_from_str_fn: Any = None,
    **options: Any,
) -> None:
    """register_pytree_node() as older programs call it."""
    register_pytree_node(cls, flatten_fn, unflatten_fn, **options)


def _deregister_pytree_node(cls: type) -> None:
    """Make a registered type a leaf again.

    Raises:
        KeyError: if it is not registered.
    """
    del SUPPORTED_NODES[cls]
    register_text(cls, None, None, None)


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
        serialized_type_name: the class's name in the text of treespec_dumps().

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

    def parts(tree: Any) -> tuple[list[tuple[str, Any]], list[list[str]]]:
        values = [(name, getattr(tree, name)) for name in order]
        present = [(name, value) for name, value in values if value is not None]
        return present, [[n for n, _ in present], [n for n, v in values if v is None]]

    def flatten(tree: Any) -> tuple[list[Any], list[list[str]]]:
        present, context = parts(tree)
        return [value for _, value in present], context

    def flatten_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], list[list[str]]]:
        present, context = parts(tree)
        return [(GetAttrKey(name), value) for name, value in present], context

    def unflatten(children: Any, context: Any) -> Any:
        present, absent = context
        return cls(**dict(zip(present, children, strict=True)), **dict.fromkeys(absent))

    register_pytree_node(
        cls,
        flatten,
        unflatten,
        serialized_type_name=serialized_type_name,
        flatten_with_keys_fn=flatten_with_keys,
    )


class ConstantNode(NamedTuple):
    """The context of a constant: the object itself."""

    value: Any


CONSTANT_NODES: set[type] = set()


def register_constant(cls: Any) -> None:
    """Make objects of a class parts of the structure, without leaves.

    Raises:
        TypeError: if the class has no `__eq__` and `__hash__` of its own, by which structures are compared.
    """
    if cls.__eq__ is object.__eq__:
        raise TypeError(
            "register_constant(cls) expects `cls` to have a non-default `__eq__` implementation."
        )
    if cls.__hash__ is None or cls.__hash__ is object.__hash__:
        raise TypeError(
            "register_constant(cls) expects `cls` to have a non-default `__hash__` implementation."
        )
    register_pytree_node(
        cls,
        lambda tree: ([], ConstantNode(tree)),
        lambda children, context: context.value,
        flatten_with_keys_fn=lambda tree: ([], ConstantNode(tree)),
    )
    CONSTANT_NODES.add(cls)


def is_constant_class(cls: type) -> bool:
    """Whether register_constant() was called for a class."""
    return isinstance(cls, type) and cls in CONSTANT_NODES


# ---- predicates


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether an object is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Whether an object is a named tuple or a class of named tuples."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_instance(obj: Any) -> bool:
    """Whether an object is a struct sequence of C."""
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    """Whether an object is a struct sequence of C or the class of some."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


_is_namedtuple_instance = is_namedtuple_instance


def tree_is_leaf(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether a value is a leaf: no registered container, or one that `is_leaf` holds for."""
    return (is_leaf is not None and is_leaf(tree)) or _pytree.node_of(tree) is None


_is_leaf = tree_is_leaf


# ---- leaves


def tree_iter(tree: Any, is_leaf: IsLeaf = None) -> Any:
    """An iterator over the leaves."""
    return iter(tree_leaves(tree, is_leaf))


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of all arguments, those by keyword last."""
    return [leaf for arg in (*args, *kwargs.values()) for leaf in tree_leaves(arg)]


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """Call a function with the leaves; returns the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def map_only(type_or_types_or_pred: Any, /) -> Callable[[_Leaf], _Leaf]:
    """A decorator for functions of leaves: leaves of other types, or that the predicate rejects, stay.

    Raises:
        TypeError: for what is neither types nor a function.
    """
    kinds = type_or_types_or_pred
    if isinstance(kinds, (type, tuple, types.UnionType)):

        def fits(leaf: Any) -> bool:
            return isinstance(leaf, kinds)

    elif callable(kinds):
        fits = kinds
    else:
        raise TypeError("Argument must be a type, a tuple of types, or a callable.")

    def wrapped(func: _Leaf) -> _Leaf:
        return lambda leaf: func(leaf) if fits(leaf) else leaf

    return wrapped


def tree_map_only(
    type_or_types_or_pred: Any, /, func: _Leaf, tree: Any, is_leaf: IsLeaf = None
) -> Any:
    """Apply a function to the leaves of the given types, or for which the given function holds."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any, /, func: _Leaf, tree: Any, is_leaf: IsLeaf = None
) -> Any:
    """Call a function with the leaves of the given types; returns the tree itself."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether a function holds for all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether a function holds for a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(
    type_or_types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None
) -> bool:
    """Whether a function holds for all leaves of the given types."""
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(
    type_or_types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None
) -> bool:
    """Whether a function holds for a leaf of the given types."""
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, type_or_types))


def _broadcast_to_and_flatten(
    tree: Any, treespec: TreeSpec, is_leaf: IsLeaf = None
) -> list[Any] | None:
    """A value for each leaf of a structure from a tree that may end earlier; None if it does not fit."""
    spec = _pytree.checked_spec(treespec)
    try:
        return _pytree.broadcast_prefix(tree, spec, "_broadcast_to_and_flatten", is_leaf)
    except ValueError:
        return None


# ---- paths


def keystr(kp: KeyPath) -> str:
    """The text of a path, as it would follow the tree in Python: `['a'][0].x`."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """The part of a tree that a path leads to."""
    for key in kp:
        obj = key.get(obj)
    return obj


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """The leaves, each with the keys that lead to it.

    Raises:
        ValueError: for a container that was registered without keys.
    """
    found: list[tuple[KeyPath, Any]] = []
    _add_paths((), tree, is_leaf, found)
    return found


def _add_paths(path: KeyPath, tree: Any, is_leaf: IsLeaf, found: list[tuple[KeyPath, Any]]) -> None:
    if tree_is_leaf(tree, is_leaf):
        found.append((path, tree))
        return
    node = _pytree.node_of(tree)
    assert node is not None
    if node.flatten_with_keys_fn is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {node.type}. "
            "Please pass a flatten_with_keys_fn argument to register_pytree_node."
        )
    for key, child in node.flatten_with_keys_fn(tree)[0]:
        _add_paths((*path, key), child, is_leaf, found)


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """The leaves, each with the keys that lead to it, and the structure.

    Example:
        >>> from rabbet.utils import _pytree as pytree
        >>> leaves, spec = pytree.tree_flatten_with_path({"a": [5, 6]})
        >>> [(pytree.keystr(path), leaf) for path, leaf in leaves]
        [("['a'][0]", 5), ("['a'][1]", 6)]
    """
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None
) -> Any:
    """tree_map() whose function takes the path of a leaf first."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [[p for p, _ in pairs], [x for _, x in pairs]]
    columns += [spec.flatten_up_to(other) for other in rests]
    return spec.unflatten(map(func, *columns))


# ---- structures


def treespec_leaf() -> TreeSpec:
    """The structure that is one leaf."""
    return LEAF


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The structure of a tuple with children of these structures."""
    return TreeSpec(tuple, None, [_pytree.checked_spec(spec) for spec in iterable])


def treespec_dict(
    mapping: Mapping[Any, TreeSpec] | Iterable[tuple[Any, TreeSpec]] = (), /, **kwargs: TreeSpec
) -> TreeSpec:
    """The structure of a dict with values of these structures."""
    specs = dict(mapping, **kwargs)
    return TreeSpec(dict, list(specs), [_pytree.checked_spec(spec) for spec in specs.values()])


class _Asterisk:
    def __repr__(self) -> str:
        return "*"


def treespec_pprint(treespec: TreeSpec) -> str:
    """The text of a tree of that structure with `*` for its leaves."""
    spec = _pytree.checked_spec(treespec)
    return repr(spec.unflatten([_Asterisk()] * spec.num_leaves))
