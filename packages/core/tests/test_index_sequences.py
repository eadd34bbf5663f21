"""Lists as indices: a list of numbers is one index, a list that holds other indices is read as a tuple."""

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
