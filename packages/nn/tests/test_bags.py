"""embedding_bag through the kernel for sums of rows: values, gradients, and what is refused."""

import numpy as np
import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from rabbet.nn import functional as F


def expected(index, bag, bags, table, factors, padding):
    sums = np.zeros((bags, table.shape[1]))
    for entry, (row, own) in enumerate(zip(index, bag, strict=True)):
        if row != padding:
            sums[own] += table[row] * (1 if factors is None else factors[entry])
    return sums


@settings(max_examples=80, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(["float32", "float64", "float16", "bfloat16"]))
def test_sums_of_generated_bags(data, dtype):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    rows, width = data.draw(st.integers(1, 9)), data.draw(st.sampled_from([0, 1, 3, 16, 67, 130]))
    bags, count = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 120))
    index, bag = rng.integers(0, rows, count), rng.integers(0, bags, count)
    if data.draw(st.booleans()):
        bag = np.sort(bag)
    kind = getattr(rabbet, dtype)
    table = rabbet.tensor(rng.normal(size=(rows, width))).to(kind)
    factors = rabbet.tensor(rng.normal(size=count)).to(kind) if data.draw(st.booleans()) else None
    padding = data.draw(st.integers(-1, rows - 1))
    at = rabbet.tensor(index, dtype=data.draw(st.sampled_from([rabbet.int32, rabbet.int64])))
    if data.draw(st.booleans()):  # a table that is not row-major
        table = table.t().contiguous().t()
    found = rabbet.ops.bag_sums(table, at, rabbet.tensor(bag), bags, factors, padding)
    wide = None if factors is None else factors.double().numpy()
    want = expected(index, bag, bags, table.double().numpy(), wide, padding)
    near = {"float64": 1e-12, "float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-1}[dtype]
    assert found.dtype == kind and found.shape == (bags, width)
    np.testing.assert_allclose(found.double().numpy(), want, near, near)


@pytest.mark.parametrize("padding_idx", [None, 1, -1])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_of_bags(mode, padding_idx):
    rabbet.manual_seed(0)
    table = rabbet.randn(5, 3, dtype=rabbet.float64, requires_grad=True)
    index, offsets = rabbet.tensor([0, 4, 4, 1, 2, 4]), rabbet.tensor([0, 2, 2, 5])
    factors = None
    if mode == "sum":
        factors = rabbet.randn(6, dtype=rabbet.float64, requires_grad=True)

    def bags(table, factors):
        return F.embedding_bag(
            index, table, offsets, mode=mode, per_sample_weights=factors, padding_idx=padding_idx
        )

    assert rabbet.autograd.gradcheck(bags, (table, factors), check_forward_ad=True)
    assert rabbet.autograd.gradgradcheck(bags, (table, factors))
    square = index.reshape(2, 3)
    weights = None if factors is None else factors.reshape(2, 3)
    flat = F.embedding_bag(
        index, table, rabbet.tensor([0, 3]), mode=mode, per_sample_weights=factors, padding_idx=padding_idx
    )  # fmt: skip
    both = F.embedding_bag(
        square, table, mode=mode, per_sample_weights=weights, padding_idx=padding_idx
    )
    np.testing.assert_allclose(flat.detach().numpy(), both.detach().numpy(), 1e-14)


def test_a_row_that_does_not_count_may_hold_anything():
    table = rabbet.ones(3, 2)
    table[1] = float("nan")
    found = F.embedding_bag(rabbet.tensor([[0, 1], [1, 1]]), table, mode="sum", padding_idx=1)
    assert found.tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize(
    "change, error, text",
    [
        ({"indices": [0, 5]}, IndexError, "index 5 is out of range for dimension 0 with size 5"),
        ({"indices": [0, -1]}, IndexError, "index -1 is out of range"),
        ({"bag": [0, 2]}, IndexError, "index 2 is out of range for dimension 0 with size 2"),
        ({"bag": [0, 1, 1]}, ValueError, r"'bag' must be int64 of shape \(2,\)"),
        ({"factors": [1.0]}, ValueError, r"'factors' must be float32 of shape \(2,\)"),
        ({"bags": -1}, ValueError, "the number of bags must not be negative, got -1"),
        ({"indices": [0.0, 1.0]}, ValueError, "'indices' must be integers of one dimension"),
    ],
)
def test_bad_bags_are_refused(change, error, text):
    given = {"indices": [0, 1], "bag": [0, 1], "bags": 2, "factors": None, **change}
    tensors = [
        rabbet.tensor(v) if isinstance(v, list) else v
        for v in (given["indices"], given["bag"], given["bags"], given["factors"])
    ]
    with pytest.raises(error, match=text):
        rabbet.ops.bag_sums(rabbet.ones(5, 3), *tensors)
