"""Nested containers of values (pytrees): tuples, named tuples, lists, deques and dicts of all kinds, to any depth.

A tree is flattened into its leaves, in order, and a `TreeSpec` that rebuilds it. Everything that is not a
registered container is a leaf, None too. Dicts keep the order of their keys; two dicts fit if they have
the same keys, whatever their order. `rabbet.utils._pytree` has the public names around this.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from . import _C
from ._C import Tensor

IsLeaf = Callable[[Any], bool] | None


class NodeDef(NamedTuple):
    """How a type is taken apart: to (children, context), and built again from both."""

    type: Any
    flatten_fn: Callable[[Any], tuple[Sequence[Any], Any]]
    unflatten_fn: Callable[[Sequence[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[Sequence[tuple[Any, Any]], Any]] | None = None


# By type; the function `namedtuple` stands for all classes that it makes, whose context is the class.
SUPPORTED_NODES: dict[Any, NodeDef] = {}


def register_pytree_node(
    kind: type,
    flatten: Callable[[Any], tuple[Sequence[Any], Any]],
    unflatten: Callable[[Sequence[Any], Any], Any],
    flatten_with_keys: Callable[[Any], tuple[Sequence[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Make a type a container: `flatten` gives (children, context), `unflatten` builds it from both.

    `flatten_with_keys` gives ((key, child) pairs, context).

    Raises:
        TypeError: if `kind` is not a type.
        ValueError: if it is registered already.
    """
    if not isinstance(kind, type):
        raise TypeError(f"register_pytree_node: expected a type, got {kind!r}")
    if kind in SUPPORTED_NODES:
        raise ValueError(f"{kind!r} is already registered as pytree node.")
    SUPPORTED_NODES[kind] = NodeDef(kind, flatten, unflatten, flatten_with_keys)


# ---- keys, which lead from a tree to a leaf


class SequenceKey(NamedTuple):
    """An index of a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The child of a sequence that the key names."""
        return sequence[self.idx]


class MappingKey(NamedTuple):
    """A key of a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The child of a mapping that the key names."""
        return mapping[self.key]


class GetAttrKey(NamedTuple):
    """An attribute of an object."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The child of an object that the key names."""
        return getattr(obj, self.name)


def _with_indices(children: Iterable[Any]) -> list[tuple[SequenceKey, Any]]:
    return [(SequenceKey(i), child) for i, child in enumerate(children)]


def _with_keys(tree: dict[Any, Any]) -> list[tuple[MappingKey, Any]]:
    return [(MappingKey(key), child) for key, child in tree.items()]


# ---- the containers of Python


def _list_flatten(tree: list[Any]) -> tuple[list[Any], None]:
    return tree, None


def _list_flatten_with_keys(tree: list[Any]) -> tuple[list[Any], None]:
    return _with_indices(tree), None


def _list_unflatten(children: Iterable[Any], context: Any) -> list[Any]:
    return list(children)


def _tuple_flatten(tree: tuple[Any, ...]) -> tuple[list[Any], None]:
    return list(tree), None


def _tuple_flatten_with_keys(tree: tuple[Any, ...]) -> tuple[list[Any], None]:
    return _with_indices(tree), None


def _tuple_unflatten(children: Iterable[Any], context: Any) -> tuple[Any, ...]:
    return tuple(children)


def _dict_flatten(tree: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return list(tree.values()), list(tree)


def _dict_flatten_with_keys(tree: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return _with_keys(tree), list(tree)


def _dict_unflatten(children: Iterable[Any], keys: Any) -> dict[Any, Any]:
    return dict(zip(keys, children, strict=True))


def _ordereddict_unflatten(children: Iterable[Any], keys: Any) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(keys, children, strict=True))


def _defaultdict_flatten(tree: defaultdict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return list(tree.values()), [tree.default_factory, list(tree)]


def _defaultdict_flatten_with_keys(tree: defaultdict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return _with_keys(tree), [tree.default_factory, list(tree)]


def _defaultdict_unflatten(children: Iterable[Any], context: Any) -> defaultdict[Any, Any]:
    factory, keys = context
    return defaultdict(factory, zip(keys, children, strict=True))


def _deque_flatten(tree: deque[Any]) -> tuple[list[Any], int | None]:
    return list(tree), tree.maxlen


def _deque_flatten_with_keys(tree: deque[Any]) -> tuple[list[Any], int | None]:
    return _with_indices(tree), tree.maxlen


def _deque_unflatten(children: Iterable[Any], maxlen: Any) -> deque[Any]:
    return deque(children, maxlen)


def _namedtuple_flatten(tree: Any) -> tuple[list[Any], type]:
    return list(tree), type(tree)


def _namedtuple_flatten_with_keys(tree: Any) -> tuple[list[Any], type]:
    return [
        (GetAttrKey(name), x) for name, x in zip(tree._fields, tree, strict=True)
    ], type(tree)  # fmt: skip


def _namedtuple_unflatten(children: Iterable[Any], kind: Any) -> Any:
    return kind(*children)


_ordereddict_flatten = _dict_flatten
_ordereddict_flatten_with_keys = _dict_flatten_with_keys

SUPPORTED_NODES.update(
    (node.type, node)
    for node in (
        NodeDef(tuple, _tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys),
        NodeDef(list, _list_flatten, _list_unflatten, _list_flatten_with_keys),
        NodeDef(dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
        NodeDef(
            namedtuple, _namedtuple_flatten, _namedtuple_unflatten, _namedtuple_flatten_with_keys
        ),
        NodeDef(
            OrderedDict,
            _ordereddict_flatten,
            _ordereddict_unflatten,
            _ordereddict_flatten_with_keys,
        ),
        NodeDef(
            defaultdict,
            _defaultdict_flatten,
            _defaultdict_unflatten,
            _defaultdict_flatten_with_keys,
        ),
        NodeDef(deque, _deque_flatten, _deque_unflatten, _deque_flatten_with_keys),
        NodeDef(_C.Size, _tuple_flatten, lambda c, _: _C.Size(tuple(c)), _tuple_flatten_with_keys),
    )
)
BUILTIN_TYPES = frozenset({tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque})
STANDARD_DICT_TYPES = frozenset({dict, OrderedDict, defaultdict})


def is_namedtuple_class(cls: Any) -> bool:
    """Whether a class comes from `namedtuple` or `typing.NamedTuple`, or is a subclass of one."""
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(fields := getattr(cls, "_fields", None), tuple)
        and all(type(field) is str for field in fields)
        and callable(getattr(cls, "_make", None))
        and callable(getattr(cls, "_asdict", None))
    )


def is_structseq_class(cls: Any) -> bool:
    """Whether a class is a struct sequence of C, as the classes of operators with several results are."""
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and all(
            isinstance(getattr(cls, name, None), int)
            for name in ("n_sequence_fields", "n_fields", "n_unnamed_fields")
        )
    )


def node_type(tree: Any) -> Any:
    """The key of SUPPORTED_NODES for a value: its type, or `namedtuple`; a leaf's is not there."""
    kind = type(tree)
    if kind in SUPPORTED_NODES or not isinstance(tree, tuple):
        return kind
    if is_namedtuple_class(kind):
        return namedtuple
    if kind.__module__ in ("rabbet.return_types", "torch.return_types") and is_structseq_class(
        kind
    ):
        register_pytree_node(
            kind, _tuple_flatten, lambda children, _: kind(children), _tuple_flatten_with_keys
        )
    return kind


def node_of(tree: Any) -> NodeDef | None:
    """How a value is taken apart; None for a leaf."""
    found = SUPPORTED_NODES.get(type(tree))
    if found is None and isinstance(tree, tuple):
        return SUPPORTED_NODES.get(node_type(tree))
    return found


# ---- structures


class TreeSpec:
    """The structure of a tree without its leaves, never changed; `type` None is one leaf.

    Attributes:
        type: the type of the container, `namedtuple` for named tuples.
        context: what the container holds besides its children, such as the keys of a dict.
        num_nodes, num_leaves, num_children: of the whole tree, of the whole tree, directly below.
    """

    __slots__ = ("_children", "context", "num_children", "num_leaves", "num_nodes", "type")

    type: Any
    context: Any
    num_nodes: int
    num_leaves: int
    num_children: int

    def __init__(self, type: Any, context: Any, children_specs: Sequence[TreeSpec]) -> None:
        self.type = type
        self.context = context
        self._children = children_specs
        self.num_children = len(children_specs)
        if type is None:
            self.num_nodes = self.num_leaves = 1
            return
        nodes, leaves = 1, 0
        for child in children_specs:
            nodes += child.num_nodes
            leaves += child.num_leaves
        self.num_nodes, self.num_leaves = nodes, leaves

    @property
    def children_specs(self) -> list[TreeSpec]:
        """The structures of the children; `children()` in newer programs."""
        warnings.warn(
            "`treespec.children_specs` is deprecated. Use `treespec.child(index)` to access a single child, "
            "or `treespec.children()` to get all children.",
            FutureWarning,
            stacklevel=2,
        )
        return self.children()

    def children(self) -> list[TreeSpec]:
        """The structures of the children."""
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        """The structure of one child."""
        return self._children[index]

    def is_leaf(self) -> bool:
        """Whether the structure is one leaf."""
        return self.type is None

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of `tree` at the places of this structure's leaves, which may be trees themselves.

        Raises:
            ValueError: if `tree` has another structure above them.
        """
        found: list[Any] = []
        _match(tree, self, found)
        return found

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree of this structure with these leaves.

        Raises:
            ValueError: if the number of leaves is not that of the structure.
        """
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree "
                f"that holds {self.num_leaves} items ({self})."
            )
        return _build(iter(leaves), self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (
            self.type is other.type
            and self.num_children == other.num_children
            and self.num_leaves == other.num_leaves
            and self.context == other.context
            and all(map(TreeSpec.__eq__, self._children, other._children))
        )

    def __hash__(self) -> int:
        return hash((self.type, _hashable(self.context), tuple(self._children)))

    def __repr__(self) -> str:
        return self._text(0)

    def _text(self, indent: int) -> str:
        if self.type is None:
            return "*"
        inner = indent + 2
        children = f",\n{' ' * inner}".join(child._text(inner) for child in self._children)
        return f"TreeSpec({self.type.__name__}, {self.context!r}, [{children}])"


def _hashable(context: Any) -> Any:
    return tuple(map(_hashable, context)) if isinstance(context, (list, tuple)) else context


class _LeafSpecType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        warnings.warn(
            "`isinstance(treespec, LeafSpec)` is deprecated, "
            "use `isinstance(treespec, TreeSpec) and treespec.is_leaf()` instead.",
            FutureWarning,
            stacklevel=2,
        )
        return isinstance(instance, TreeSpec) and instance.is_leaf()


class LeafSpec(TreeSpec, metaclass=_LeafSpecType):
    """The structure that is one leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, ())


LEAF = LeafSpec()


# ---- flattening and building


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree, in order, and its structure; what `is_leaf` holds for is a leaf."""
    node = None if is_leaf is not None and is_leaf(tree) else node_of(tree)
    if node is None:
        return [tree], LEAF
    leaves: list[Any] = []
    return leaves, _flatten_into(tree, node, leaves, is_leaf)


def _flatten_into(tree: Any, node: NodeDef, leaves: list[Any], is_leaf: IsLeaf) -> TreeSpec:
    children, context = node.flatten_fn(tree)
    specs: list[TreeSpec] = []
    known = SUPPORTED_NODES.get
    for child in children:
        below = known(type(child))
        if below is None and isinstance(child, tuple):
            below = node_of(child)
        if below is None or (is_leaf is not None and is_leaf(child)):
            leaves.append(child)
            specs.append(LEAF)
        else:
            specs.append(_flatten_into(child, below, leaves, is_leaf))
    return TreeSpec(node.type, context, specs)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of that structure with these leaves.

    Raises:
        TypeError: if `treespec` is not a TreeSpec.
        ValueError: if the number of leaves is not that of the structure.
    """
    return checked_spec(treespec).unflatten(leaves)


def checked_spec(treespec: Any) -> TreeSpec:
    """The argument, if it is a TreeSpec.

    Raises:
        TypeError: if it is not.
    """
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}."
        )
    return treespec


def _build(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    parts = [next(leaves) if child is LEAF else _build(leaves, child) for child in spec._children]
    return SUPPORTED_NODES[spec.type].unflatten_fn(parts, spec.context)


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree, in order; what `is_leaf` holds for is a leaf."""
    return tree_flatten(tree, is_leaf)[0]


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of nested mappings, lists and tuples, in order; other containers are not searched."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (list, tuple)) else []


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> TreeSpec:
    """The structure of a tree; what `is_leaf` holds for is a leaf."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply `func` to the leaves of trees of one structure; a tree of the results.

    The trees in `rests` may have whole trees at the places of the first tree's leaves.

    Raises:
        ValueError: if the structures differ.
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(other) for other in rests)]
    return spec.unflatten(map(func, *columns))


def flatten_up_to(tree: Any, spec: TreeSpec, what: str) -> list[Any]:
    """`spec.flatten_up_to(tree)`, with an error that names `what`.

    Raises:
        ValueError: if `tree` has another structure above the leaves of `spec`.
    """
    try:
        return spec.flatten_up_to(tree)
    except ValueError as error:
        raise ValueError(
            f"{what}: expected the structure {spec}, got {tree_structure(tree)}: {error}"
        ) from None


def _match(tree: Any, spec: TreeSpec, found: list[Any]) -> None:
    if spec.type is None:
        found.append(tree)
        return
    kind = node_type(tree)
    are_dicts = kind in STANDARD_DICT_TYPES and spec.type in STANDARD_DICT_TYPES
    if kind is not spec.type and not are_dicts:
        raise ValueError(f"Node type mismatch; expected {spec.type!r}, but got {kind!r}.")
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    if len(children) != spec.num_children:
        raise ValueError(
            f"Node arity mismatch; expected {spec.num_children}, but got {len(children)}."
        )
    if are_dicts:
        expected = keys_of(spec)
        if tree.keys() != set(expected):
            raise ValueError(
                f"Node keys mismatch; missing key(s): {set(expected) - tree.keys()}; "
                f"extra key(s): {tree.keys() - set(expected)}."
            )
        children = [tree[key] for key in expected]
    elif context != spec.context and kind is not deque:
        raise ValueError(f"Node context mismatch; expected {spec.context!r}, but got {context!r}.")
    for child, child_spec in zip(children, spec._children, strict=True):
        _match(child, child_spec, found)


def keys_of(spec: TreeSpec) -> list[Any]:
    """The keys of the dict that a structure describes."""
    keys: list[Any] = spec.context[1] if spec.type is defaultdict else spec.context
    return keys


def broadcast_prefix(prefix: Any, spec: TreeSpec, what: str, is_leaf: IsLeaf = None) -> list[Any]:
    """A value for each leaf of a tree of structure `spec` from `prefix`, which has that structure or
    ends earlier: a leaf of it then holds for all below.

    Raises:
        ValueError: if `prefix` is no prefix of the structure; names `what`.
    """
    found: list[Any] = []
    _broadcast(prefix, spec, what, is_leaf, found)
    return found


def _broadcast(prefix: Any, spec: TreeSpec, what: str, is_leaf: IsLeaf, found: list[Any]) -> None:
    node = None if is_leaf is not None and is_leaf(prefix) else node_of(prefix)
    if node is None:
        found += [prefix] * spec.num_leaves
        return
    values, context = node.flatten_fn(prefix)
    fits = node.type is spec.type and len(values) == spec.num_children
    if fits and node.type in STANDARD_DICT_TYPES:
        keys = keys_of(spec)
        fits = prefix.keys() == set(keys)
        values = [prefix[key] for key in keys] if fits else values
    elif fits:
        fits = context == spec.context
    if not fits:
        own = TreeSpec(node.type, context, [LEAF] * len(values))
        raise ValueError(f"{what}: expected the structure {own}, got {spec}")
    for value, child in zip(values, spec._children, strict=True):
        _broadcast(value, child, what, is_leaf, found)
