"""The same kernels through rabbet: records, promotion, out= and in-place forms, threads."""

from typing import Any

import numpy as np
import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rabbet import _C

# Elementwise operators of plain tensors, from the records themselves.
PLAIN = [
    name
    for name in _C.record_names()
    if "." not in name
    for info in [_C.op_info(name)]
    if info["kind"] == "elementwise"
    and info["ref"].startswith("numpy.")
    and info["function"]
    and not info["dtypes"]
    and all(p["type"] == "Tensor" for p in info["params"] if not p["has_default"])
    and name not in {"where", "pow", "div", "acosh"}  # acosh has no value below 1
]


def strided(draw: Any, array: np.ndarray) -> tuple[Any, np.ndarray]:
    """A tensor that views the values through a drawn permutation and step."""
    order = draw(st.permutations(range(array.ndim)))
    base = rabbet.tensor(
        np.ascontiguousarray(np.transpose(array, order)).repeat(2, 0) if array.ndim else array
    )
    inverse = [order.index(d) for d in range(array.ndim)]
    return (base[::2].permute(inverse) if array.ndim else base), array


@pytest.mark.parametrize("name", PLAIN)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_any_strides_and_broadcasting(name: str, data: st.DataObject) -> None:
    info = _C.op_info(name)
    count = sum(p["type"] == "Tensor" for p in info["params"])
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=count, max_dims=3, max_side=4))
    rng = np.random.default_rng(1)
    pairs = [strided(data.draw, np.asarray(rng.uniform(0.1, 0.9, s))) for s in shapes.input_shapes]
    got = getattr(rabbet, name)(*[t for t, _ in pairs])
    want = getattr(np, info["ref"].split(".", 1)[1])(*[a for _, a in pairs])
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-10, atol=1e-12)


def test_out_and_in_place_write_to_strided_memory() -> None:
    base = rabbet.zeros(4, 6)
    target = base[:, ::2]
    x = rabbet.tensor(np.arange(12.0, dtype=np.float32).reshape(4, 3))
    rabbet.add(x, x, out=target)
    np.testing.assert_array_equal(np.asarray(base)[:, ::2], 2 * np.asarray(x))
    target.mul_(3)
    np.testing.assert_array_equal(np.asarray(base)[:, ::2], 6 * np.asarray(x))
    assert (np.asarray(base)[:, 1::2] == 0).all()


def test_results_do_not_depend_on_threads() -> None:
    before = rabbet.get_num_threads()
    x = rabbet.tensor(np.random.default_rng(2).normal(size=(400, 700)).astype(np.float32))
    found = []
    for threads in (1, 2):
        rabbet.set_num_threads(threads)
        found.append([np.asarray(t) for t in (x.sum(), x @ x.T, x.softmax(0), x.var(0), x.exp())])
    rabbet.set_num_threads(before)
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "call,error",
    [
        (lambda x: x.index_select(0, rabbet.tensor([7])), IndexError),
        (lambda x: x @ x, ValueError),
        (lambda x: rabbet.tensor([1, 2]) // 0, ValueError),
        (lambda x: rabbet.zeros(0, 3).amax(0), IndexError),
    ],
    ids=["index", "matmul", "division", "empty"],
)
def test_bad_input_raises(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(rabbet.ones(2, 3))


@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64, rabbet.bfloat16])
@pytest.mark.parametrize("rows", [2, 3, 7, 100, 1001])
def test_columns_of_equal_numbers_have_no_variance(dtype, rows):
    x = rabbet.randn(1, 33).to(dtype).expand(rows, 33)
    for t in (x, x.contiguous()):
        assert rabbet.var(t, 0).abs().max() == 0 and rabbet.std(t, 0).max() == 0


def test_the_mean_of_a_column_with_infinity_is_infinite():
    x = rabbet.ones(4, 3)
    x[1, 1] = float("inf")
    var, mean = rabbet.var_mean(x, 0)
    assert mean.tolist() == [1.0, float("inf"), 1.0] and var[::2].tolist() == [0.0, 0.0]
    norm = rabbet.nn.BatchNorm1d(3)
    norm(x)
    assert norm.running_mean[1] == float("inf")


# Sums of `source` (6 x 300) by columns of equal index, 0 to 3, added to ones.
SUMS = {
    "scatter_add": lambda ones, at, source: ones.scatter_add(1, at.expand(6, 300), source),
    "scatter_add, few rows": lambda ones, at, source: rabbet.cat(
        [ones[i : i + 1].scatter_add(1, at.expand(1, 300), source[i : i + 1]) for i in range(6)]
    ),
    "scatter_add_, first dimension": lambda ones, at, source: (
        ones.t().clone().scatter_add_(0, at[:, None].expand(300, 6), source.t()).t()
    ),
    "index_add": lambda ones, at, source: ones.index_add(1, at, source),
    "index_add, whole rows": lambda ones, at, source: (
        ones.t().repeat(1, 8).index_add(0, at, source.t().repeat(1, 8))[:, :6].t()
    ),
    "index_put": lambda ones, at, source: ones.index_put(
        (rabbet.arange(6)[:, None], at), source, accumulate=True
    ),
    "embedding": lambda ones, at, source: (
        ones + rabbet.ops.embedding_backward(source.t(), at, [4, 6], -1).t()
    ),
}


@pytest.mark.parametrize("dtype", [rabbet.float16, rabbet.bfloat16])
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_16_bit_floats_are_rounded_once(name, dtype):
    rng = np.random.default_rng(3)
    at = rng.integers(0, 4, 300)
    source = rabbet.tensor(rng.random((6, 300)) + 0.5, dtype=dtype)
    expected = np.ones((6, 4))
    for column, k in enumerate(at):
        expected[:, k] += source[:, column].double().numpy()
    if name == "embedding":  # adds the rounded sums to the ones
        expected = rabbet.tensor(expected - 1, dtype=dtype).double().numpy() + 1
    got = SUMS[name](rabbet.ones(6, 4, dtype=dtype), rabbet.tensor(at), source)
    assert got.dtype == dtype
    assert got.tolist() == rabbet.tensor(expected, dtype=dtype).tolist()
