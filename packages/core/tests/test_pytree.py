"""Trees of containers."""

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass

import pytest
import rabbet
from hypothesis import given
from hypothesis import strategies as st
from rabbet import _pytree as pytree
from rabbet._pytree import tree_flatten, tree_unflatten
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
    with pytest.raises(ValueError, match="Box is registered already"):
        pytree.register_pytree_node(Box, lambda box: ([], None), lambda c, _: Box(None))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pytree.tree_unflatten([1], pytree.tree_structure((1, 2))), "expected 2 leaves"),
        (lambda: pytree.tree_map(max, (1, 2), [1, 2]), r"expected the structure tuple\(\*, \*\)"),
        (lambda: pytree.tree_map(max, (1, 2), (1, 2, 3)), r"got tuple\(\*, \*, \*\)"),
        (lambda: pytree.tree_map(max, {"a": 1}, {"b": 1}), "expected the structure dict"),
        (
            lambda: pytree.broadcast_prefix((0,), SPEC, "in_dims"),
            r"in_dims: expected .*tuple\(\*\),",
        ),
        (lambda: pytree.broadcast_prefix([0, 0], SPEC, "in_dims"), r"expected .* list\(\*, \*\)"),
        (lambda: pytree.broadcast_prefix({"a": 0, "b": 0}, SPEC, "in_dims"), "got tuple"),
    ],
)
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
    assert leaves == [1, 2, 3] and str(spec) == "defaultdict('a': *, 'b': deque(*, *))"
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
