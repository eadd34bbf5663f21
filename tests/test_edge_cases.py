"""0-d, empty, size-1, 5-d and strided inputs: generated calls of all simple records beside PyTorch, and
the answers that follow from NumPy or from the definition."""

import itertools
from typing import Any

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet import _C

SHAPES = [(), (0,), (1,), (3,), (0, 3), (1, 4), (2, 0, 3), (2, 1, 3, 1, 2)]

# Where PyTorch's answer is another one on purpose, or there is none.
DIFFERENT = {
    "detach_copy": "PyTorch's is not cut from the graph",
    "dropout": "other signature",
    "expand_as": "broadcasts both ways inside formulas",
    "fill": "the value may have any shape that broadcasts",
    "floor_divide": "PyTorch defines no derivative",
    "imag": "0 for real tensors, as in NumPy",
    "mT": "an attribute",
    "linear": "tests below",
    "masked_select": "takes a bool mask: tests below",
    "prelu": "the weight may broadcast",
    "searchsorted": "1-d sequences only",
}
# Records whose derivative is known to be zero leave `.grad` unset; PyTorch fills in zeros.
ZERO_GRADIENT = {"ceil", "fill", "floor", "floor_divide", "round", "sgn", "sign", "trunc"}


def generated() -> list[str]:
    names = []
    for name in _C.record_names():
        info = _C.op_info(name)
        if info["kind"] in ("creation", "random") or name in DIFFERENT:
            continue
        if not (info["function"] or info["method"]):
            continue  # what torch has under this name may be something else
        if required_types(name) in (
            ["Tensor"],
            ["Tensor", "Tensor"],
            ["Tensor", "dim"],
            ["Tensor", "newdim"],
            ["Tensor", "dim[]"],
        ):
            names.append(name)
    return names


def required_types(name: str) -> list[str]:
    return [
        p["type"]
        for p in _C.op_info(name)["params"]
        if not p["keyword_only"] and not p["has_default"]
    ]


def torch_function(torch: Any, name: str) -> Any:
    base = name.split(".")[0]
    for space in (torch, torch.Tensor, torch.nn.functional, torch.special):
        if callable(getattr(space, base, None)):
            return getattr(space, base)
    return None


def calls(name: str, ndim: int) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Further arguments: none, or every dim, with and without keepdim."""
    types, params = required_types(name), {p["name"]: p for p in _C.op_info(name)["params"]}
    dims: list[Any] = list(range(-max(ndim, 1), max(ndim, 1)))
    if types[1:2] == ["newdim"]:
        return [((d,), {}) for d in [*dims, -ndim - 1, ndim]]
    keep = [{}, {"keepdim": True}] if "keepdim" in params else [{}]
    if types[1:2] in (["dim"], ["dim[]"]):
        lists = types[1] == "dim[]"
        return [(([d] if lists else d,), k) for d, k in itertools.product(dims, keep)]
    made: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((), {})]
    if "dim" in params and types == ["Tensor"]:
        lists = "[]" in params["dim"]["type"]
        made += [((), {"dim": [d] if lists else d, **k}) for d, k in itertools.product(dims, keep)]
    return made


def arrays(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).uniform(-1.9, 2.1, size=shape))


def both(torch: Any, x: np.ndarray, strided: bool) -> tuple[Any, Any]:
    """The values as leaves of both libraries, each a transposed view if wanted."""
    made = []
    for library in (rabbet, torch):
        t = library.from_numpy(np.array(x.T, order="C") if strided else x.copy())
        t = t.permute(list(range(x.ndim))[::-1]) if strided else t
        made.append(t.detach().requires_grad_())
    return made[0], made[1]


def attempt(call: Any) -> tuple[Any, Exception | None]:
    try:
        got = call()
    except Exception as error:
        return None, error
    return list(got) if isinstance(got, (list, tuple)) else [got], None


def check(torch: Any, name: str, ours: Any, theirs: Any, inputs: list[Any], label: str) -> None:
    mine, their = [i[0] for i in inputs], [i[1] for i in inputs]
    got, error = attempt(lambda: ours(*mine))
    want, expected = attempt(lambda: theirs(*their))
    if expected:  # PyTorch refuses more: unequal parameters, shapes without elements
        return
    assert error is None, f"{label}: {error!r}"
    assert len(got) == len(want), label
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b, label
            continue
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().numpy(), rtol=1e-6, atol=1e-9, err_msg=label
        )
        assert tuple(a.shape) == tuple(b.shape), label
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1], label
    roots = [(a, b) for a, b in zip(got, want, strict=True) if getattr(b, "requires_grad", False)]
    if not roots or name in ZERO_GRADIENT:
        return
    weights = [np.asarray(arrays(tuple(b.shape), 7)) for _, b in roots]
    rabbet.autograd.backward(
        [a for a, _ in roots],
        [rabbet.from_numpy(w).to(a.dtype) for w, (a, _) in zip(weights, roots, strict=True)],
    )
    torch.autograd.backward(
        [b for _, b in roots],
        [torch.from_numpy(w).to(b.dtype) for w, (_, b) in zip(weights, roots, strict=True)],
    )
    for a, b in inputs:
        assert (a.grad is None) == (b.grad is None), label
        if b.grad is not None:
            np.testing.assert_allclose(
                a.grad.numpy(), b.grad.numpy(force=True), rtol=1e-6, atol=1e-9, err_msg=label
            )


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", generated())
def test_edge_shapes_agree_with_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch_function(torch, name)
    if theirs is None:
        pytest.skip("PyTorch has no such function")
    ours = rabbet.ops(name)
    for shape, strided in itertools.product(SHAPES, (False, True)):
        if strided and len(shape) < 2:
            continue
        x = arrays(shape, 1)
        label = f"{name}{shape}{' strided' if strided else ''}"
        if required_types(name) == ["Tensor", "Tensor"]:
            for other in {shape, (), shape[-1:]}:
                y = arrays(other, 2)
                inputs = [both(torch, x, strided), both(torch, y, False)]
                check(torch, name, ours, theirs, inputs, f"{label} {other}")
                check(torch, name, ours, theirs, inputs_again(inputs), f"{label} {other} swapped")
            continue
        for args, kwargs in calls(name, len(shape)):
            check(
                torch,
                name,
                lambda t, a=args, k=kwargs: ours(t, *a, **k),
                lambda t, a=args, k=kwargs: theirs(t, *a, **k),
                [both(torch, x, strided)],
                f"{label} {args} {kwargs}",
            )


def inputs_again(inputs: list[Any]) -> list[Any]:
    """Fresh leaves in the opposite order."""
    return [tuple(t.detach().requires_grad_() for t in pair) for pair in reversed(inputs)]


# ---- what the sweep does not draw


def leaf(x: Any) -> Any:
    return rabbet.tensor(np.asarray(x, dtype=np.float64), requires_grad=True)


@pytest.mark.parametrize("mask", [True, False])
def test_masked_select_of_a_number_is_1d(mask: bool) -> None:
    x = leaf(2.5)
    y = rabbet.masked_select(x, rabbet.tensor(mask))
    assert y.tolist() == ([2.5] if mask else [])
    y.sum().backward()
    assert x.grad.item() == float(mask)


def test_masked_select_broadcasts_a_number_mask() -> None:
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    rabbet.masked_select(x, rabbet.tensor(True)).sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("name", ["prod", "cumprod"])
def test_products_along_the_dim_of_a_number(name: str) -> None:
    x = leaf(3.0)
    y = getattr(rabbet, name)(x, 0)
    assert y.item() == 3.0
    y.backward()
    assert x.grad.item() == 1.0


def test_product_of_nothing_has_an_empty_gradient() -> None:
    x = leaf(np.zeros((2, 0)))
    y = rabbet.prod(x, 1)
    assert y.tolist() == [1.0, 1.0]
    y.sum().backward()
    assert x.grad.shape == (2, 0)


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_cat_skips_the_empty_1d_tensor_wherever_it_stands(dim: int, place: int) -> None:
    a, b, nothing = leaf(np.ones((2, 3))), leaf(np.full((2, 3), 2.0)), leaf(np.zeros(0))
    tensors = [a, b]
    tensors.insert(place, nothing)
    y = rabbet.cat(tensors, dim)
    weights = np.arange(12.0).reshape(y.shape)
    assert np.array_equal(
        y.detach().numpy(), np.concatenate([np.ones((2, 3)), np.full((2, 3), 2.0)], dim)
    )
    y.backward(rabbet.tensor(weights))
    first, second = np.split(weights, 2, dim)
    assert np.array_equal(a.grad.numpy(), first)
    assert np.array_equal(b.grad.numpy(), second)
    assert nothing.grad.shape == (0,)


def test_cat_of_empty_1d_tensors_only_knows_dim_0() -> None:
    nothing = rabbet.zeros(0)
    assert rabbet.cat([nothing, nothing]).shape == (0,)
    with pytest.raises(IndexError, match="cat: dim 1 is out of range"):
        rabbet.cat([nothing, nothing], 1)


@pytest.mark.parametrize(
    "shape,out", [((0, 4), 5), ((2, 0, 4), 5), ((3, 0), 5), ((3, 4), 0), ((4,), 5), ((0,), 2)]
)
def test_linear_of_empty_inputs(shape: tuple[int, ...], out: int) -> None:
    x, w = leaf(arrays(shape, 1)), leaf(arrays((out, shape[-1]), 2))
    b = leaf(arrays((out,), 3))
    y = F.linear(x, w, b)
    assert np.allclose(
        y.detach().numpy(), arrays(shape, 1) @ arrays((out, shape[-1]), 2).T + arrays((out,), 3)
    )
    y.sum().backward()
    rows = int(np.prod(shape[:-1]))
    assert np.allclose(w.grad.numpy(), arrays(shape, 1).reshape(rows, shape[-1]).sum(0))
    assert b.grad.tolist() == [rows] * out
    assert x.grad.shape == shape


def test_logsumexp_of_nothing_is_minus_infinity() -> None:
    x = leaf(np.zeros((2, 0, 3)))
    assert rabbet.logsumexp(x, 1).tolist() == [[-np.inf] * 3] * 2
    assert rabbet.logsumexp(x, [0, 1], True).shape == (1, 1, 3)
    assert rabbet.logsumexp(x, 0).shape == (0, 3)
    rabbet.logsumexp(x, 1).sum().backward()
    assert x.grad.shape == (2, 0, 3)


def test_chunks_of_nothing_are_as_many_as_wanted() -> None:
    assert [c.shape for c in rabbet.chunk(rabbet.zeros(0, 2), 3)] == [(0, 2)] * 3


@pytest.mark.parametrize("width", [0, 3])
def test_embedding_of_one_index_and_of_empty_rows(width: int) -> None:
    w = leaf(arrays((4, width), 1))
    F.embedding(rabbet.tensor(2), w).sum().backward()
    assert w.grad.sum().item() == width


@pytest.mark.parametrize("index", [[], [0, 0]])
def test_a_number_has_one_element_to_select(index: list[int]) -> None:
    index = rabbet.tensor(index, dtype=rabbet.int64)
    with pytest.raises(IndexError, match="index_select: a 0-dimensional input has one element"):
        rabbet.index_select(rabbet.tensor(1.0), 0, index)
    with pytest.raises(rabbet.ArgumentError, match="index_add: 'source'"):
        rabbet.index_add(rabbet.tensor(1.0), 0, index, rabbet.tensor(1.0))


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "int8", "uint8", "bool"]
)
def test_the_sign_of_zero(dtype):
    numbers = [0.0, 1.0, 7.0]
    if not dtype.startswith(("u", "b")):
        numbers += [-1.0, -7.0]
    if "float" in dtype:
        numbers += [-0.0, np.inf, -np.inf, 1e-45, -1e-45, np.nan, np.copysign(np.nan, -1.0)]
    x = rabbet.tensor(numbers, dtype=rabbet.float64).to(getattr(rabbet, dtype))
    wanted = [bool(np.signbit(n)) for n in numbers]
    assert rabbet.signbit(x).dtype is rabbet.bool and x.signbit().tolist() == wanted


def test_the_sign_of_zero_is_seen_through_strides_and_levels():
    x = np.array([[0.0, -0.0, 1.0], [-1.0, np.nan, -0.0]], np.float32)
    wanted = np.signbit(x)
    assert np.array_equal(rabbet.from_numpy(x).t().signbit().numpy(), wanted.T)
    assert np.array_equal(rabbet.vmap(rabbet.signbit)(rabbet.from_numpy(x)).numpy(), wanted)


@pytest.mark.parametrize("name", ["atanh", "asinh", "tanh", "sinh", "atan", "asin", "expm1"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_odd_functions_keep_the_sign_of_zero(name, dtype):
    x = rabbet.tensor([0.0, -0.0], dtype=getattr(rabbet, dtype))
    found = getattr(rabbet, name)(x)
    assert found.tolist() == [0.0, 0.0] and found.signbit().tolist() == [False, True]


def test_atanh_of_integers_and_bools_is_computed_in_floats():
    wanted = [0.0, np.inf]
    for dtype in (rabbet.uint8, rabbet.int64, rabbet.bool):
        assert rabbet.atanh(rabbet.tensor([0, 1], dtype=dtype)).tolist() == wanted


@pytest.mark.parametrize("diagonal", [-2, 0, 1])
def test_diag_of_a_vector_and_of_a_matrix(diagonal):
    vector = np.arange(1.0, 4.0, dtype=np.float32)
    matrix = rabbet.diag(rabbet.from_numpy(vector), diagonal)
    assert np.array_equal(matrix.numpy(), np.diag(vector, diagonal))
    assert np.array_equal(rabbet.diag(matrix, diagonal).numpy(), vector)


def test_diag_refuses_three_dimensions():
    with pytest.raises(RuntimeError, match="diag: expected 1 or 2 dimensions, got shape"):
        rabbet.diag(rabbet.ones(2, 2, 2))


def test_sums_and_products_of_bools_as_bools():
    x = rabbet.tensor([[False, True, False], [True, True, True]])
    assert x.cumsum(1, dtype=rabbet.bool).tolist() == [[False, True, True], [True] * 3]
    assert x.clone().cumprod_(1).tolist() == [[False] * 3, [True] * 3]
    assert x.prod(1, dtype=rabbet.bool).tolist() == [False, True]
    assert rabbet.tensor([0.5, 2.0]).prod(dtype=rabbet.bool).item() is True


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_sorted_lies_as_the_input(order):
    x = rabbet.rand(3, 4, 5).permute(order)
    assert [r.stride() for r in rabbet.sort(x)] == [x.stride()] * 2
    assert rabbet.sort(rabbet.ones(4).expand(3, 4)).values.stride() == (4, 1)


def test_ravel_of_a_line_with_gaps_is_a_copy():
    x = rabbet.arange(24.0).reshape(4, 6)
    assert x.ravel().data_ptr() == x.data_ptr()
    line = x[:, ::2].ravel()
    assert line.stride() == (1,) and line.data_ptr() != x.data_ptr()
    assert line.tolist() == list(range(0, 24, 2))


def test_logaddexp_of_complex_numbers():
    a = np.array([1 + 2j, -3 + 1j, complex(-np.inf, 0), 700 + 1j, 2])
    b = np.array([1 - 2j, 4 - 9j, 1 + 1j, 699 - 2j, -np.inf])
    got = rabbet.logaddexp(rabbet.tensor(a), rabbet.tensor(b)).numpy()
    with np.errstate(over="ignore"):
        assert np.allclose(
            np.exp(got[[0, 1, 2, 4]]), np.exp(a[[0, 1, 2, 4]]) + np.exp(b[[0, 1, 2, 4]])
        )
    assert np.allclose(np.exp(got[3] - 700), np.exp(a[3] - 700) + np.exp(b[3] - 700))
    both = rabbet.logaddexp(rabbet.tensor(complex(-np.inf, 0)), rabbet.tensor(complex(-np.inf, 0)))
    assert both.real.item() == -np.inf
    x = rabbet.tensor([-3 + 1j, 2 + 0.5j], dtype=rabbet.complex128, requires_grad=True)
    assert rabbet.autograd.gradcheck(
        rabbet.logaddexp, (x, rabbet.tensor([1 - 1j, 1 + 1j]).to(x.dtype))
    )


@pytest.mark.parametrize(
    "call, error, says",
    [(lambda x: rabbet.einsum("ii->i", x), ValueError, "subscript i is repeated .* sizes 3 and 4 differ"),
     (lambda x: rabbet.select_scatter(x, x[0], 0, 3), IndexError, "index 3 is out of range for dimension 0"),
     (lambda x: x[[[0, 1], [0, 1]], [0, 1, 2]], IndexError, "do not broadcast"),
     (lambda x: rabbet.index_select(x, 0, rabbet.zeros(1, 1, dtype=rabbet.int64)), IndexError, "1 dimension"),
     (lambda x: x.masked_fill(x > 0, rabbet.tensor(1j)), ValueError, "'value' is of complex64"),
     (lambda x: x.var(correction=1j), TypeError, "'correction' must be a real number, got 0\\+1j"),
     (lambda x: F.hardtanh(x.to(rabbet.uint8)), ValueError, "without overflow: 'min_val' is -1"),
     (lambda x: rabbet.hardtanh(x.to(rabbet.uint8)), ValueError, "negative limits -1 and 1 of unsigned uint8"),
     (lambda x: rabbet.lerp(x, x, rabbet.tensor([1] * 4, dtype=rabbet.uint8)), TypeError, "'input' and 'weight'"),
     (lambda x: rabbet.group_norm(x, 2, rabbet.ones(4).int()), TypeError, "weight of a floating dtype, got int32"),
     (lambda x: F.layer_norm(x, (4,), None, rabbet.ones(4).int()), TypeError, "bias of a floating dtype"),
     (lambda x: F.layer_norm(x, (4,), None, rabbet.ones(4) * 1j), TypeError, "bias of a floating dtype"),
     (lambda x: rabbet.where(x > 0, 300, x.to(rabbet.int8)), ValueError, "where: .* without overflow: 'input' is 300"),
     (lambda x: x.long().addcdiv(x.long(), x.long()), TypeError, "a floating or complex dtype of 'tensor1'"),
     (lambda x: x.norm(2j), ValueError, "norm: p must be a real number"),
     (lambda x: F.hardtanh(x, 2, 1), ValueError, "min_val cannot be greater than max_val"),
     (lambda x: x.to(rabbet.int8).add(x.to(rabbet.int8), alpha=300), ValueError, "without overflow: 'alpha' is 300"),
     (lambda x: x.to(rabbet.uint8).index_add(0, rabbet.tensor([0]), x.to(rabbet.uint8)[:1], alpha=300), ValueError,
      "index_add: .* 'alpha' is 300"),
     (lambda x: x[:, :3].byte().addmm(x[:, :3].byte(), x[:, :3].byte(), beta=300), ValueError, "'beta' is 300")],
)  # fmt: skip
def test_what_the_fuzzer_found_accepted(call, error, says):
    with pytest.raises(error, match=says):
        call(rabbet.rand(3, 4))


@pytest.mark.parametrize("dtypes", [("bfloat16", "int32", "float64"), ("float32", "int64", "float32"),
                                    ("float16", "float32", "float64"), ("int8", "int8", "float32")])  # fmt: skip
def test_addcdiv_of_mixed_dtypes(dtypes):
    x, a, b = (
        rabbet.tensor(v).to(getattr(rabbet, d))
        for v, d in zip(([1.0, 2.0], [4.0, 8.0], 2.0), dtypes)
    )
    for given in ((x, a, b), (x, a, b.expand(2)), (x.expand(3, 2), a, b)):
        result = rabbet.addcdiv(*given, value=2)
        assert result.dtype is rabbet.addcmul(*given).dtype
        assert result.reshape(-1, 2)[0].tolist() == [5.0, 10.0]


def test_a_number_that_is_nan_in_xlogy():
    x = rabbet.tensor([[0.0, 1.0], [2.0, 3.0]], dtype=rabbet.float16)
    result = rabbet.xlogy(x, float("nan"))
    assert result.shape == x.shape and result.dtype is x.dtype and bool(result.isnan().all())
    assert rabbet.xlogy(0, rabbet.tensor([np.nan, 0.0])).tolist()[1] == 0.0


def test_a_formula_that_gives_a_number_alone_is_refused():
    rabbet.library.register_records(
        "edge::alone(Tensor a) -> Tensor\n  kind elementwise\n  decomp where(a.ndim == 1, 1.0, 0.0)\n"
    )
    try:
        with pytest.raises(RuntimeError, match=r"alone: the formula gave shape .* says \(3,\)"):
            rabbet.ops.edge.alone(rabbet.ones(3))
    finally:
        _C.remove_op("edge::alone")


def test_masks_among_the_indices_of_index_put():
    x, rows = rabbet.zeros(3, 4), rabbet.tensor([True, False, True])
    columns = rabbet.tensor([True, False, False, True])
    assert x.index_put((rows,), rabbet.tensor(5.0)).sum(1).tolist() == [20.0, 0.0, 20.0]
    with pytest.warns(UserWarning, match="uint8"):
        found = x.index_put((rows.byte(),), rabbet.tensor(5.0))
    assert found.sum(1).tolist() == [20.0, 0.0, 20.0]
    got = x.clone().index_put_([rabbet.tensor([0, 1]), columns], rabbet.tensor([1.0, 2.0]))
    assert got.nonzero().tolist() == [[0, 0], [1, 3]] and got.sum().item() == 3
    assert rabbet.equal(x.index_put((x == 0,), rabbet.tensor(1.0)), rabbet.ones(3, 4))
    with pytest.raises(
        IndexError, match=r"mask \(4,\) at index 0 does not match .* \(3, 4\) at index 0"
    ):
        x.index_put((columns,), rabbet.tensor(1.0))
    with pytest.raises(IndexError, match=r"mask \(3, 4\) at index 0 .* at index 1"):
        x.index_put((rows, x == 0), rabbet.tensor(1.0))


@pytest.mark.parametrize("dtype", [rabbet.int64, rabbet.uint8, rabbet.bool])
def test_means_are_no_integers(dtype):
    x = rabbet.ones(3, 4)
    with pytest.raises(RuntimeError, match="mean: expected a floating or complex dtype, got"):
        rabbet.mean(x, dtype=dtype)
    with pytest.raises(RuntimeError, match="mean: a result of dtype float32 cannot be written"):
        rabbet.mean(x, 0, out=rabbet.empty(4, dtype=dtype))
    assert rabbet.mean(x, 0, out=rabbet.empty(4, dtype=rabbet.float16)).dtype is rabbet.float16


def test_the_tangent_of_a_standard_deviation_of_equal_numbers_is_zero():
    x, t = rabbet.ones(5), rabbet.arange(5.0)
    for f in (rabbet.std, lambda x: rabbet.std_mean(x, 0)[0]):
        assert rabbet.func.jvp(f, (x,), (t,))[1] == 0 and not rabbet.func.grad(f)(x).any()


@pytest.mark.parametrize("args", [(-1, -1.5, 2), (0, 0.5, -1), (0.9, 0.1, 1)])
def test_a_range_of_integers_has_the_sign_of_what_was_given(args):
    with pytest.raises(RuntimeError, match="inconsistent with step sign"):
        rabbet.arange(*args, dtype=rabbet.int64)
