"""Trees of containers."""

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass

import pytest
import rabbet
from hypothesis import given
from hypothesis import strategies as st
from rabbet import _pytree as pytree
from rabbet._pytree import tree_flatten, tree_unflatten
from rabbet.utils import _pytree as public
from rabbet.utils._pytree import register_dataclass

Point = namedtuple("Point", "x y")
SPEC = pytree.tree_structure((1, 2))
trees = st.recursive(
    st.integers() | st.none() | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3).map(OrderedDict)
        | st.tuples(inner, inner).map(lambda pair: Point(*pair))
    ),
    max_leaves=12,
)


@given(trees)
def test_round_trip(tree):
    leaves, spec = pytree.tree_flatten(tree)
    again = pytree.tree_unflatten(leaves, spec)
    assert again == tree and type(again) is type(tree)
    assert spec == pytree.tree_structure(again) and spec.num_leaves == len(leaves)


@given(trees)
def test_map_and_prefix(tree):
    doubled = pytree.tree_map(lambda a, b: (str(a), b), tree, tree)
    expected = [(str(leaf), leaf) for leaf in pytree.tree_leaves(tree)]
    assert pytree.flatten_up_to(doubled, pytree.tree_structure(tree), "test") == expected
    spec = pytree.tree_structure(tree)
    assert pytree.broadcast_prefix(7, spec, "test") == [7] * len(expected)
    assert pytree.broadcast_prefix(tree, spec, "test") == pytree.tree_leaves(tree)


def test_order_of_keys():
    assert pytree.tree_leaves({"b": 1, "a": 2}) == [1, 2]
    assert pytree.tree_map(lambda a, b: (a, b), {"b": 1, "a": 2}, {"a": 20, "b": 10}) == {
        "b": (1, 10),
        "a": (2, 20),
    }


def test_prefix_of_one_level():
    spec = pytree.tree_structure(([1, 2], {"a": 3}))
    assert pytree.broadcast_prefix((0, None), spec, "test") == [0, 0, None]
    spec = pytree.tree_structure({"a": 1, "b": (2, 3)})
    assert pytree.broadcast_prefix({"b": 5, "a": 4}, spec, "test") == [4, 5, 5]


def test_registered_container():
    class Box:
        def __init__(self, value):
            self.value = value

    pytree.register_pytree_node(Box, lambda box: ([box.value], None), lambda c, _: Box(*c))
    assert pytree.tree_map(lambda v: v + 1, Box([1, 2])).value == [2, 3]
    with pytest.raises(ValueError, match="already registered as pytree node"):
        pytree.register_pytree_node(Box, lambda box: ([], None), lambda c, _: Box(None))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pytree.tree_unflatten([1], SPEC), "has length 1 but the spec refers to a pytree that holds 2"),
        (lambda: pytree.tree_map(max, (1, 2), [1, 2]), "type mismatch; expected <class 'tuple'>, but got <class 'list'>"),
        (lambda: pytree.tree_map(max, (1, 2), (1, 2, 3)), "arity mismatch; expected 2, but got 3"),
        (lambda: pytree.tree_map(max, {"a": 1}, {"b": 1}), r"missing key\(s\): {'a'}; extra key\(s\): {'b'}"),
        (lambda: pytree.tree_map(max, Point(1, 2), (1, 2)), "type mismatch; expected <function namedtuple"),
        (lambda: pytree.flatten_up_to([1], SPEC, "in_dims"), r"in_dims: expected the structure TreeSpec\(tuple"),
        (lambda: pytree.broadcast_prefix((0,), SPEC, "in_dims"), r"in_dims: expected .*\(tuple, None, \[\*\]\), got"),
        (lambda: pytree.broadcast_prefix([0, 0], SPEC, "in_dims"), r"expected .*\(list, None, "),
        (lambda: pytree.broadcast_prefix({"a": 0, "b": 0}, SPEC, "in_dims"), r"got TreeSpec\(tuple"),
    ],
)  # fmt: skip
def test_wrong_structure(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_registering_no_type():
    with pytest.raises(TypeError, match="expected a type"):
        pytree.register_pytree_node("box", None, None)


def test_results_of_operators_are_containers():
    found = rabbet.tensor([[1.0, 3.0, 2.0]]).max(1)
    leaves, spec = pytree.tree_flatten((found, 1))
    assert len(leaves) == 3 and "max" in str(spec)
    again = pytree.tree_unflatten(leaves, spec)[0]
    assert type(again) is type(found) and again.values is found.values


def test_deques_and_defaultdicts_keep_what_makes_them():
    tree = defaultdict(list, a=1, b=deque([2, 3], maxlen=5))
    leaves, spec = tree_flatten(tree)
    assert leaves == [1, 2, 3] and spec.context == [list, ["a", "b"]] and spec.child(1).context == 5
    again = tree_unflatten([4, 5, 6], spec)
    assert again == {"a": 4, "b": deque([5, 6])} and again.default_factory is list
    assert again["b"].maxlen == 5 and again["c"] == []


def test_dataclasses_can_be_registered():
    @dataclass
    class Place:
        x: object
        y: object = None
        note: str = "n"

    with pytest.raises(ValueError, match=r"missing \['note', 'y'\], unexpected \['z'\]"):
        register_dataclass(Place, field_names=["x", "z"])
    register_dataclass(Place, drop_field_names=["note"])
    leaves, spec = tree_flatten(Place(1, None, "m"))
    assert leaves == [1] and tree_unflatten([7], spec) == Place(7, None, "n")
    assert tree_flatten([Place(1, 2)])[0] == [1, 2]

    class Plain:
        def __init__(self, *, a):
            self.a = a

    with pytest.raises(ValueError, match="field_names must be specified"):
        register_dataclass(Plain)
    register_dataclass(Plain, field_names=["a"])
    leaves, spec = tree_flatten(Plain(a=3))
    assert leaves == [3] and tree_unflatten([4], spec).a == 4


def test_the_text_of_a_structure_is_pytorchs():
    spec = pytree.tree_structure({"b": [1, (2, None)], "a": deque([3], maxlen=4), "n": Point(1, 2)})
    assert str(spec) == repr(spec) == (
        "TreeSpec(dict, ['b', 'a', 'n'], [TreeSpec(list, None, [*,\n    TreeSpec(tuple, None, [*,\n      *])]),\n"
        "  TreeSpec(deque, 4, [*]),\n"
        f"  TreeSpec(namedtuple, {Point!r}, [*,\n    *])])"
    )  # fmt: skip
    assert (
        public.treespec_pprint(spec)
        == "{'b': [*, (*, *)], 'a': deque([*], maxlen=4), 'n': Point(x=*, y=*)}"
    )
    assert (spec.num_nodes, spec.num_leaves, spec.num_children) == (11, 6, 3)
    assert (
        spec.type is dict
        and spec.child(2).type is namedtuple
        and spec.child(0).children()[0].is_leaf()
    )


@given(trees)
def test_a_structure_survives_its_text(tree):
    public._register_namedtuple(Point, serialized_type_name="tests.Point")
    spec = pytree.tree_structure(tree)
    again = public.treespec_loads(public.treespec_dumps(spec))
    assert again == spec and hash(again) == hash(spec) and again.num_nodes == spec.num_nodes


def test_the_text_is_the_one_that_pytorch_reads():
    spec = pytree.tree_structure([defaultdict(list, q=5), OrderedDict(x=(1,))])
    leaf = '{"type": null, "context": null, "children_spec": []}'
    assert public.treespec_dumps(spec) == (
        '[1, {"type": "builtins.list", "context": "null", "children_spec": [{"type": "collections.defaultdict", '
        '"context": {"default_factory_module": "builtins", "default_factory_name": "list", "dict_context": ["q"]}, '
        f'"children_spec": [{leaf}]}}, {{"type": "collections.OrderedDict", "context": "[\\"x\\"]", "children_spec": '
        f'[{{"type": "builtins.tuple", "context": "null", "children_spec": [{leaf}]}}]}}]}}]'
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: public.treespec_loads("[]"), ValueError, "not enough values"),
        (lambda: public.treespec_loads("[1, 2]"), ValueError, "no structure"),
        (lambda: public.treespec_loads("{"), ValueError, "Expecting property name"),
        (lambda: public.treespec_loads('[7, {"type": null}]'), ValueError, "Unknown protocol 7"),
        (lambda: public.treespec_dumps(SPEC, protocol=2), ValueError, "Unknown protocol 2"),
        (lambda: public.treespec_dumps([1]), TypeError, "Expected `treespec`"),
        (lambda: public.treespec_dumps(pytree.tree_structure({1.5j: 1})), TypeError, "json dump-able"),
        (lambda: public.tree_map_only(5, str, [1]), TypeError, "a type, a tuple of types, or a callable"),
        (lambda: public.tree_unflatten([1], [2]), TypeError, "instance of PyTreeSpec"),
        (lambda: public.register_constant(type("K", (), {})), TypeError, "non-default `__eq__`"),
        (lambda: public.register_pytree_node(type("K", (), {}), 1, 2, to_dumpable_context=str), ValueError, "Both"),
        (lambda: public._deregister_pytree_node(int), KeyError, "int"),
    ],
)  # fmt: skip
def test_bad_input_to_the_public_functions(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_text_names_no_function_to_call():
    text = public.treespec_dumps(pytree.tree_structure(defaultdict(list)))
    text = text.replace('"builtins"', '"os"').replace('"list"', '"getcwd"')
    with pytest.raises(ValueError, match="not a class"):
        public.treespec_loads(text)


def test_is_leaf_ends_the_tree():
    leaves, spec = public.tree_flatten([1, (2, 3)], is_leaf=lambda x: isinstance(x, tuple))
    assert leaves == [1, (2, 3)] and spec == pytree.tree_structure([0, 0])
    assert public.tree_map(lambda x, y: (x, y), [(1, 2), 3], [4, 5], is_leaf=lambda x: type(x) is tuple) == [
        ((1, 2), 4),
        (3, 5),
    ]  # fmt: skip
    assert public.tree_leaves((1, 2), is_leaf=lambda x: True) == [(1, 2)]


def test_paths_lead_to_the_leaves():
    tree = {"n": Point(1, [2]), "d": deque([3]), "r": rabbet.tensor([[1.0, 3.0]]).max(1)}
    pairs, spec = public.tree_flatten_with_path(tree)
    assert [public.keystr(path) for path, _ in pairs] == [
        "['n'].x", "['n'].y[0]", "['d'][0]", "['r'][0]", "['r'][1]",
    ]  # fmt: skip
    assert all(public.key_get(tree, path) is leaf for path, leaf in pairs)
    assert spec == pytree.tree_structure(tree)
    assert pairs[0][0] == (public.MappingKey("n"), public.GetAttrKey("x"))
    assert repr(pairs[1][0][2]) == "SequenceKey(idx=0)"
    named = public.tree_map_with_path(
        lambda p, x, y: public.keystr(p) + str(x + y), [1, {"a": 2}], [3, {"a": 4}]
    )
    assert named == ["[0]4", {"a": "[1]['a']6"}]


def test_a_container_without_keys_has_no_paths():
    class Bare:
        pass

    public.register_pytree_node(Bare, lambda b: ([1], None), lambda c, _: Bare())
    with pytest.raises(ValueError, match="flatten_with_keys_fn"):
        public.tree_leaves_with_path([Bare()])
    public._deregister_pytree_node(Bare)
    assert public.tree_is_leaf(Bare())


def test_constants_belong_to_the_structure():
    class Unit:
        def __eq__(self, other):
            return isinstance(other, Unit)

        def __hash__(self):
            return 3

    public.register_constant(Unit)
    one = Unit()
    leaves, spec = public.tree_flatten([one, 1])
    assert (
        leaves == [1]
        and spec == pytree.tree_structure([Unit(), 2])
        and public.is_constant_class(Unit)
    )
    assert public.tree_unflatten([5], spec)[0] is one


def test_tables_and_functions_that_packages_use():
    assert public.SUPPORTED_NODES[list].flatten_fn([1, 2]) == ([1, 2], None)
    assert public._get_node_type(Point(1, 2)) is namedtuple and public._get_node_type(1) is int
    assert public._dict_flatten_with_keys({"a": 1}) == ([(public.MappingKey("a"), 1)], ["a"])
    assert public._broadcast_to_and_flatten([1, 2], pytree.tree_structure([1, [2, 3]])) == [1, 2, 2]
    assert public._broadcast_to_and_flatten([1], SPEC) is None
    assert public.arg_tree_leaves(1, [2], a={"b": 3}) == [1, 2, 3]
    assert public.treespec_dict(a=SPEC) == pytree.tree_structure({"a": (1, 2)})
    assert public.treespec_tuple([public.treespec_leaf()] * 2) == SPEC
    assert public.tree_map_only(int | str, lambda x: x * 2, [1, "a", None]) == [2, "aa", None]
    assert public.tree_flatten(rabbet.Size([2, 3]))[0] == [2, 3]


def test_older_names_of_structures_warn():
    with pytest.warns(FutureWarning, match="children_specs"):
        assert SPEC.children_specs[0].is_leaf()
    with pytest.warns(FutureWarning, match="LeafSpec"):
        assert isinstance(pytree.LEAF, public.LeafSpec) and not isinstance(SPEC, public.LeafSpec)
    assert public.LeafSpec() == pytree.LEAF
