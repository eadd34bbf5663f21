"""Lists as indices: a list of numbers is one index, a list that holds other indices is read as a tuple."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import rabbet

x = rabbet.arange(12).reshape(3, 4)
AS_TUPLES = [
    [slice(0, 1), slice(0, 2)], [[0, 1], [1, 0]], [rabbet.tensor([0, 1]), rabbet.tensor([1, 0])],
    [None, 0], [..., 0], [slice(0, 2), 0], [[0, 1], 1], [range(2), [1, 0]], [[]],
]  # fmt: skip
AS_ONE = [[0, 2], [np.int64(1), 0], [True, False, True], range(2), [], [[0]] * 32]


@pytest.mark.parametrize("key", AS_TUPLES, ids=repr)
def test_a_list_of_indices_is_read_as_a_tuple_with_a_warning(key):
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        found = x[key]
    np.testing.assert_array_equal(found.numpy(), x[tuple(key)].numpy())
    written = x.clone()
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        written[key] = 7
    want = x.numpy().copy()
    want[tuple(k.numpy() if isinstance(k, rabbet.Tensor) else k for k in key)] = 7
    np.testing.assert_array_equal(written.numpy(), want)


@pytest.mark.parametrize("key", AS_ONE, ids=repr)
def test_a_list_of_numbers_is_one_index(key):
    dtype = bool if key and isinstance(key[0], bool) else int
    np.testing.assert_array_equal(x[key].numpy(), x.numpy()[np.array(key, dtype)])


def test_an_array_is_one_index():
    key = np.array([[0, 1], [1, 0]])
    np.testing.assert_array_equal(x[key].numpy(), x.numpy()[key])


def test_masks_of_uint8_warn():
    mask = rabbet.tensor([1, 0, 2], dtype=rabbet.uint8)
    with pytest.warns(UserWarning, match="indexing with dtype torch.uint8 is now deprecated"):
        found = x[mask]
    assert found.equal(x[mask != 0])
    written = x.clone()
    with pytest.warns(UserWarning, match="uint8"):
        written[mask] = 7
    assert written.equal(rabbet.where((mask != 0)[:, None], 7, x))
    with pytest.warns(UserWarning, match="uint8"):
        assert x.index_put([mask], rabbet.tensor(7.0)).equal(written)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="uint8"):
            x[mask]


UINT8_CONDITIONS = """
import warnings
import rabbet
mask, x = rabbet.tensor([1, 0, 2], dtype=rabbet.uint8), rabbet.arange(3.0)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    results = [
        rabbet.where(mask, x, -x),
        x.where(mask, -x),
        rabbet.where(mask, x, 9.0),
        rabbet.where(condition=mask, input=x, other=x),
        rabbet.where(mask, x, -x, out=rabbet.empty(3)),
    ]
print([r.tolist() for r in results])
print([str(w.message).partition(".")[0] for w in caught])
for wrong in (mask.int(), x):
    try:
        rabbet.where(wrong, x, -x)
    except RuntimeError as error:
        print(error)
"""


def test_a_condition_of_uint8_warns_once():
    done = subprocess.run([sys.executable, "-c", UINT8_CONDITIONS], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "[[0.0, -1.0, 2.0], [0.0, -1.0, 2.0], [0.0, 9.0, 2.0], [0.0, 1.0, 2.0], [0.0, -1.0, 2.0]]",
        "['where received a uint8 condition tensor']",
        "where: expected a bool condition, got int32",
        "where: expected a bool condition, got float32",
    ], done.stderr
