"""testing.assert_close and make_tensor, and utils._pytree."""

import re

import numpy as np
import pytest
import rabbet
from rabbet.testing import assert_allclose, assert_close, make_tensor
from rabbet.utils import _pytree

T = rabbet.tensor


@pytest.mark.parametrize(
    "actual, expected, options",
    [
        (T([1.0, 2.0]), T([1.0, 2.0 + 1e-6]), {}),
        (1, 1, {}),
        (1.0, 1, {}),
        (1.0, 1.0 + 1e-8, {}),
        ([T([1]), 2], (T([1]), 2), {}),
        ({"a": T([1.0]), "b": [1]}, {"b": [1], "a": T([1.0])}, {}),
        (np.ones(2), np.ones(2), {}),
        (float("nan"), float("nan"), {"equal_nan": True}),
        (T([1.0]), T([1.4]), {"rtol": 0, "atol": 0.5}),
        (T([1.0]), T([1.0]).double(), {"check_dtype": False}),
        (T([[1.0, 2.0]]).t(), T([[1.0], [2.0]]), {}),
        (rabbet.zeros(0), rabbet.zeros(0), {}),
        (T([1.0], dtype=rabbet.bfloat16), T([1.007], dtype=rabbet.bfloat16), {}),
        (T([True]), T([True]), {}),
        (None, None, {}),
    ],
)
def test_values_that_agree(actual, expected, options):
    assert_close(actual, expected, **options)


@pytest.mark.parametrize(
    "actual, expected, options, error, text",
    [
        (T([1.0, 2.0, 3.0]), T([1.0, 2.5, 3.0]), {}, AssertionError,
         "Tensor-likes are not close!\n\nMismatched elements: 1 / 3 (33.3%)\n"
         "Greatest absolute difference: 0.5 at index (1,) (up to 1e-05 allowed)"),
        (T([1, 2]), T([1, 3]), {}, AssertionError, "Tensor-likes are not equal!"),
        (1.0, 1.1, {}, AssertionError, "Scalars are not close!\n\nExpected 1.1 but got 1.0."),
        (float("nan"), float("nan"), {}, AssertionError, "Scalars are not close!"),
        ([T([1]), T([2])], [T([1]), T([3])], {}, AssertionError, "The failure occurred for item [1]"),
        ({"a": [T([1])]}, {"a": [T([3])]}, {}, AssertionError, "The failure occurred for item ['a'][0]"),
        ({"a": 1}, {"b": 1}, {}, AssertionError, "Missing keys in the actual mapping: ['b']"),
        ([1, 2], [1], {}, AssertionError, "The length of the sequences mismatch: 2 != 1"),
        (rabbet.ones(2), rabbet.ones(3), {}, AssertionError, "attribute 'shape' do not match"),
        (T([1.0]), T([1.0]).double(), {}, AssertionError, "attribute 'dtype' do not match"),
        (rabbet.ones(2), rabbet.ones(2, device="meta"), {}, AssertionError, "attribute 'device' do not match"),
        (T([[1.0, 2.0]]).t(), T([[1.0], [2.0]]), {"check_stride": True}, AssertionError, "'stride()' do not match"),
        (T([1.0]), None, {}, AssertionError, "None mismatch"),
        (T([1.0]), [1.0], {}, TypeError, "No comparison pair was able to handle inputs of type"),
        (T([1.0]), np.ones(1), {}, TypeError, "Except for scalars, type equality is required"),
        (object(), object(), {}, TypeError, "No comparison pair was able to handle inputs of type"),
        (1, 1, {"rtol": 1}, ValueError, "Both 'rtol' and 'atol' must be either specified or omitted, but got no atol"),
        (T([1.0]), T([2.0]), {"msg": "mine"}, AssertionError, "mine"),
        (T([1.0]), T([2.0]), {"msg": lambda m: "Mine: " + m[:12]}, AssertionError, "Mine: Tensor-likes"),
    ],
)  # fmt: skip
def test_values_that_differ(actual, expected, options, error, text):
    with pytest.raises(error, match=re.escape(text)):
        assert_close(actual, expected, **options)


def test_subclasses_may_be_refused():
    class Mine(rabbet.Tensor):
        pass

    mine = rabbet.Tensor._make_subclass(Mine, rabbet.ones(2))
    assert_close(mine, rabbet.ones(2))
    with pytest.raises(TypeError, match="type equality is required"):
        assert_close(mine, rabbet.ones(2), allow_subclasses=False)


def test_the_older_name_ignores_dtypes():
    assert_allclose(T([1.0]), T([1.0]).double())
    with pytest.raises(AssertionError, match="not close"):
        assert_allclose(T([1.0]), T([1.1]))


# ---- tensors to test with

DTYPES = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "complex64",
    "int64",
    "int8",
    "uint8",
    "bool",
]


@pytest.mark.parametrize("name", DTYPES)
def test_made_tensors_are_in_their_range(name):
    dtype = getattr(rabbet, name)
    x = make_tensor(50, 4, dtype=dtype, device="cpu")
    assert x.shape == (50, 4) and x.dtype is dtype and (x != x[0]).any()
    if not dtype.is_complex:
        low, high = {"bool": (0, 1), "uint8": (0, 9)}.get(name, (-9, 9))
        assert low <= x.double().min() and x.double().max() <= high
    y = make_tensor((9,), dtype=dtype, device="cpu", exclude_zero=True)
    assert (y != 0).all()


def test_made_tensors_take_options():
    x = make_tensor((5, 4), dtype=rabbet.float32, device="cpu", low=2, high=3, noncontiguous=True)
    assert not x.is_contiguous() and x.min() >= 2 and x.max() <= 3
    images = make_tensor(
        1, 2, 3, 4, dtype=rabbet.float32, device="cpu", memory_format=rabbet.channels_last
    )
    assert images.is_contiguous(memory_format=rabbet.channels_last)
    assert make_tensor(3, dtype=rabbet.int64, device="cpu", low=5, high=6).tolist() == [5, 5, 5]
    assert make_tensor((), dtype=rabbet.float32, device="meta").is_meta


@pytest.mark.parametrize(
    "options, text",
    [
        ({"low": 3, "high": 3}, "`low` must be less than `high`, but got 3 >= 3"),
        ({"low": float("nan")}, "`low` and `high` cannot be NaN"),
        ({"dtype": rabbet.uint8, "low": 300, "high": 400}, "only supports"),
        ({"dtype": rabbet.int64, "requires_grad": True}, "`requires_grad` must be False"),
        ({"noncontiguous": True, "memory_format": rabbet.contiguous_format}, "mutually exclusive"),
    ],
)  # fmt: skip
def test_wrong_options_for_tensors_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        make_tensor((2,), **{"dtype": rabbet.float32, "device": "cpu", **options})


# ---- trees


def test_trees_are_flattened_and_mapped():
    tree = {"a": [1, (2, None)], "b": "x"}
    leaves, spec = _pytree.tree_flatten(tree)
    assert leaves == [1, 2, None, "x"] and _pytree.tree_unflatten(leaves, spec) == tree
    assert _pytree.tree_map(str, {"a": [1, (2,)]}) == {"a": ["1", ("2",)]}
    assert _pytree.tree_map(lambda a, b: a + b, [1, 2], [3, 4]) == [4, 6]
    is_pair = lambda x: isinstance(x, list) and len(x) == 2 and x[0] == 1  # noqa: E731
    assert _pytree.tree_map(str, [[1, 2], [3]], is_leaf=is_pair) == ["[1, 2]", ["3"]]
    assert _pytree.tree_map_only(int, lambda x: -x, [1, "a", (2,)]) == [-1, "a", (-2,)]
    assert _pytree.tree_any(lambda x: x == 2, tree) and not _pytree.tree_all(lambda x: x == 2, tree)
    assert (
        _pytree.tree_all_only(int, lambda x: x > 0, tree)
        and list(_pytree.tree_iter(tree)) == leaves
    )
    seen = []
    assert _pytree.tree_map_(seen.append, tree) is tree and seen == leaves


def test_containers_of_ones_own_are_taken_apart():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    _pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda c, _: Pair(*c))
    made = _pytree.tree_map(lambda x: x + 1, [Pair(1, 2)])
    assert (made[0].a, made[0].b) == (2, 3)
    with pytest.raises(ValueError, match="already registered as pytree node"):
        _pytree.register_pytree_node(Pair, lambda p: ([], None), lambda c, _: None)


def test_a_container_that_is_leaf_names_is_one_leaf():
    tree, pair = {"a": (1, 2), "b": [3, (4,)]}, lambda x: isinstance(x, tuple)
    assert _pytree.tree_leaves(tree, pair) == [(1, 2), 3, (4,)]
    assert list(_pytree.tree_iter(tree, is_leaf=pair)) == [(1, 2), 3, (4,)]
    assert _pytree.tree_leaves(tree, lambda x: True) == [tree]
    assert _pytree.tree_leaves(tree) == [1, 2, 3, 4]
    assert _pytree.tree_any(pair, tree, pair) and not _pytree.tree_any(pair, tree)
    assert not _pytree.tree_all(pair, tree, is_leaf=pair)
    assert _pytree.tree_all_only(tuple, len, tree, pair)
    assert _pytree.tree_any_only(tuple, pred=len, tree=tree, is_leaf=pair)
    seen = []
    assert _pytree.tree_map_(seen.append, tree, is_leaf=pair) is tree
    assert _pytree.tree_map_only_(tuple, seen.append, tree, pair) is tree
    assert seen == [(1, 2), 3, (4,), (1, 2), (4,)]


def test_is_leaf_of_several_trees_and_errors_in_it_reach_the_caller():
    assert _pytree.tree_map(max, [1], [2], is_leaf=callable) == [2]
    with pytest.raises(TypeError, match="not callable"):
        _pytree.tree_leaves([1], is_leaf=3)
