"""Functions and methods that PyTorch keeps for old programs, and methods that call Python functions."""

import numpy as np
import pytest
import rabbet


@pytest.mark.parametrize(
    "arguments, want",
    [
        ((1, 4), [1.0, 2.0, 3.0, 4.0]),
        ((4, 1, -1), [4.0, 3.0, 2.0, 1.0]),
        ((1, 2.75, 0.5), [1.0, 1.5, 2.0, 2.5]),
        ((3, 3), [3.0]),
    ],
)
def test_range_includes_its_end(arguments, want):
    with pytest.warns(UserWarning, match="range is deprecated"):
        made = rabbet.range(*arguments)
    assert made.tolist() == want and made.dtype is rabbet.float32


def test_range_takes_a_dtype_and_a_destination():
    out = rabbet.empty(0, dtype=rabbet.int64)
    with pytest.warns(UserWarning, match="range is deprecated"):
        assert rabbet.range(2**53, 2**53 + 1, dtype=rabbet.int64).tolist() == [2**53, 2**53 + 1]
        assert rabbet.range(1, 3, out=out) is out and out.tolist() == [1, 2, 3]
        assert rabbet.range(1, 2, requires_grad=True).requires_grad
        with pytest.raises(RuntimeError, match="does not match dtype"):
            rabbet.range(1, 3, out=out, dtype=rabbet.float32)


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ((3,), TypeError, '"end"'),
        ((1, 4, 0), RuntimeError, "step must be nonzero"),
        ((1, 4, -1), RuntimeError, "inconsistent with step sign"),
        ((0, float("inf")), RuntimeError, "unsupported range"),
        ((float("nan"), 1), RuntimeError, "unsupported range"),
    ],
)
@pytest.mark.filterwarnings("ignore:range is deprecated")
def test_bounds_that_range_refuses(arguments, error, words):
    with pytest.raises(error, match=words):
        rabbet.range(*arguments)


def test_norms_of_matrices_under_their_old_names():
    x = rabbet.arange(24.0).reshape(2, 3, 4)
    want = np.linalg.norm(x.numpy(), "nuc", (1, 2))
    np.testing.assert_allclose(rabbet.nuclear_norm(x, [1, 2]).numpy(), want, 1e-5)
    assert rabbet.nuclear_norm(x[0], True).shape == (1, 1)
    np.testing.assert_allclose(rabbet.nuclear_norm(x[1]).item(), want[1], 1e-5)
    want = np.linalg.norm(x.numpy(), "fro", (0, 1), True)
    np.testing.assert_allclose(rabbet.frobenius_norm(x, [0, 1], True).numpy(), want, 1e-6)
    with pytest.raises(RuntimeError, match="nuclear_norm: expected a matrix"):
        rabbet.nuclear_norm(x)


def test_resize_returns_the_elements_in_another_shape():
    x = rabbet.arange(6.0).reshape(2, 3)
    with pytest.warns(UserWarning, match="non-inplace resize"):
        assert x.resize(3, 2).tolist() == [[0, 1], [2, 3], [4, 5]]
        assert x.t().resize((6,)).tolist() == [0, 3, 1, 4, 2, 5]
        assert x.resize_as(rabbet.ones(6)).shape == (6,)
        with pytest.raises(RuntimeError, match=r"resize to 4 \(4 elements in total\)"):
            x.resize(4)


@pytest.mark.parametrize("name", ["eig", "symeig", "lstsq", "solve"])
def test_removed_methods_say_what_took_their_place(name):
    with pytest.raises(RuntimeError, match=f"{name}: .*removed; use linalg"):
        getattr(rabbet.ones(2, 2), name)(rabbet.ones(2, 2))


def test_other_removed_members():
    x = rabbet.ones(2)
    with pytest.warns(UserWarning, match="volatile was removed"):
        assert x.volatile is False
    with pytest.raises(RuntimeError, match=r"reinforce\(\) was removed"):
        x.reinforce(1)
    assert x.name is None


def test_methods_that_call_a_function_for_each_element():
    x = rabbet.arange(6.0).reshape(2, 3).t()
    assert x.map_(rabbet.tensor([10.0, 20.0]), lambda a, b: a + b) is x
    assert x.tolist() == [[10, 23], [11, 24], [12, 25]]
    x.map2_(rabbet.ones(3, 2), rabbet.tensor(2.0), lambda a, b, c: a * c - b)
    assert x.tolist() == [[19, 45], [21, 47], [23, 49]]
    assert x.apply_(lambda a: a + 1).tolist() == [[20, 46], [22, 48], [24, 50]]
    assert rabbet.tensor(3).apply_(lambda a: -a).item() == -3


def test_what_these_methods_refuse():
    x, double = rabbet.ones(2), rabbet.ones(2, dtype=rabbet.float64)
    with pytest.raises(TypeError, match=r"map_: expected rabbet.float32 .* 'other', got"):
        x.map_(double, lambda a, b: a)
    with pytest.raises(TypeError, match=r"map2_\(\): argument 'y' must be Tensor, not int"):
        x.map2_(x, 3, lambda a, b, c: a)
    with pytest.raises(RuntimeError, match="expand"):
        x.map_(rabbet.ones(3), lambda a, b: a)
    with pytest.raises(TypeError, match="apply_ is only implemented on CPU tensors"):
        rabbet.ones(2, device="meta").apply_(lambda a: a)


def test_in_place_forms():
    x = rabbet.tensor([0.5, 2.0], dtype=rabbet.float64)
    assert x.clone().float_power_(2).tolist() == [0.25, 4.0]
    for wrong in (rabbet.ones(2), rabbet.ones(2, dtype=rabbet.int64)):
        with pytest.raises(RuntimeError, match="float_power"):
            wrong.float_power_(2)
        with pytest.raises(RuntimeError, match="float_power"):
            rabbet.float_power(x, 2, out=wrong)
    assert x.clone().mvlgamma_(1).tolist() == rabbet.lgamma(x).tolist()
    assert x.clone().polygamma_(1).tolist() == rabbet.polygamma(1, x).tolist()
    with pytest.raises(RuntimeError, match="polygamma_: result type"):
        rabbet.ones(2, dtype=rabbet.int64).polygamma_(1)
    assert rabbet.i0_(x.clone()).tolist() == x.i0().tolist()


def test_copies_of_views_of_complex_numbers():
    z = rabbet.tensor([1 + 2j, 3 - 4j])
    pairs = rabbet.view_as_real_copy(z)
    assert pairs.tolist() == [[1, 2], [3, -4]] and pairs._storage_id() != z._storage_id()
    assert rabbet.view_as_complex_copy(pairs).tolist() == z.tolist()
    with pytest.raises(TypeError, match="view_as_real_copy: expected complex dtypes"):
        rabbet.view_as_real_copy(pairs)


def test_numbers_that_stand_for_symbols():
    assert rabbet.sym_sqrt(9) == 3.0
    rabbet.sym_constrain_range(3, min=1, max=5)
    rabbet.sym_constrain_range_for_size(3)
    with pytest.raises(RuntimeError, match=r"Invalid value range for 7 between \[1, 5\]"):
        rabbet.sym_constrain_range(7, min=1, max=5)
    with pytest.raises(RuntimeError, match="Invalid value range for -1"):
        rabbet.sym_constrain_range_for_size(-1)


def test_what_a_module_swaps_a_tensor_for_when_it_loads():
    x, other = rabbet.zeros(2), rabbet.ones(2)
    loaded = x.module_load(other)
    assert loaded is not x and loaded._storage_id() == x._storage_id() and x.tolist() == [1, 1]
    assert x.module_load(other, assign=True)._storage_id() == other._storage_id()


def test_histogram_is_a_method_too():
    assert rabbet.tensor([1.0, 2.0, 2.0]).histogram(2).hist.tolist() == [1, 2]
