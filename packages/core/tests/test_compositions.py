"""Functions that are records with a decomposition in Python, beside NumPy and PyTorch's documented errors."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import rabbet
import scipy.linalg
from rabbet import _C, _decompositions

X = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
V = numpy.arange(3, dtype=numpy.float32)
C = numpy.random.default_rng(0).standard_normal((2, 3, 4)).astype(numpy.float32)


def both(f: Callable[..., Any], g: Callable[..., Any], *arrays: Any) -> tuple[Any, Any]:
    return f(*(rabbet.tensor(a) for a in arrays)), g(*arrays)


VALUES: dict[str, tuple[Any, Any]] = {
    "einsum inner": both(lambda a, b: rabbet.einsum("ij,kj->ik", a, b), lambda a, b: a @ b.T, X, X),
    "einsum implicit": both(lambda a: rabbet.einsum("ba", a), lambda a: a.T, X),
    "einsum list": both(lambda a, b: rabbet.einsum("ij,kj", [a, b]), lambda a, b: a @ b.T, X, X),
    "einsum sublists": both(
        lambda a, b: rabbet.einsum(a, [0, 1], b, [2, 1], [0, 2]), lambda a, b: a @ b.T, X, X
    ),
    "einsum ellipsis": both(lambda a: rabbet.einsum("...i->...", a), lambda a: a.sum(-1), C),
    "tensordot 1": both(lambda a, b: rabbet.tensordot(a, b, 1), lambda a, b: a @ b, X, V),
    "tensordot 0": both(
        lambda a, b: rabbet.tensordot(a, b, 0), lambda a, b: numpy.multiply.outer(a, b), X, V
    ),
    "tensordot lists": both(
        lambda a, b: rabbet.tensordot(a, b, dims=([1, 0], [1, 0])),
        lambda a, b: numpy.tensordot(a, b, ([1, 0], [1, 0])),
        X,
        X,
    ),
    "tensordot size 1": both(
        lambda a: rabbet.tensordot(a, rabbet.ones(1, 3), dims=([0], [0])),
        lambda a: numpy.multiply.outer(a.sum(0), numpy.ones(3)),
        X,
    ),
    "kron": both(rabbet.kron, numpy.kron, X, V),
    "cov": both(rabbet.cov, numpy.cov, X),
    "cov weights": both(
        lambda x: rabbet.cov(
            x, fweights=rabbet.tensor([1, 2, 3]), aweights=rabbet.tensor([0.1, 0.2, 0.3])
        ),
        lambda x: numpy.cov(x, fweights=[1, 2, 3], aweights=[0.1, 0.2, 0.3]),
        X,
    ),
    "cov of integers": both(rabbet.cov, numpy.cov, numpy.array([[1, 2], [3, 5]])),
    "block_diag": both(
        lambda a, b: rabbet.block_diag(a, b), scipy.linalg.block_diag, X, numpy.ones((1, 2))
    ),
    "cartesian_prod": both(
        lambda a: rabbet.cartesian_prod(a, a),
        lambda a: numpy.array([[x, y] for x in a for y in a]),
        V,
    ),
    "hstack": both(lambda a: rabbet.hstack((a, a)), lambda a: numpy.hstack((a, a)), X),
    "hstack numbers": both(
        lambda a: rabbet.hstack((a[0], a)), lambda a: numpy.hstack((a[0], a)), V
    ),
    "row_stack": both(lambda a: rabbet.row_stack((a, a)), lambda a: numpy.vstack((a, a)), V),
    "dstack": both(lambda a: rabbet.dstack([a, a]), lambda a: numpy.dstack([a, a]), V),
    "column_stack": both(
        lambda a: rabbet.column_stack([a, a]), lambda a: numpy.column_stack([a, a]), V
    ),
    "tile": both(lambda a: a.tile(2, 2), lambda a: numpy.tile(a, (2, 2)), V),
    "diag": both(lambda a: rabbet.diag(a, 1), lambda a: numpy.diag(a, 1), V),
    "diag of a matrix": both(lambda a: rabbet.diag(a, -1), lambda a: numpy.diag(a, -1), X),
    "trace": both(rabbet.trace, numpy.trace, X),
    "diff": both(lambda a: rabbet.diff(a, 2), lambda a: numpy.diff(a, 2), C),
    "diff beyond": both(lambda a: rabbet.diff(a, 5), lambda a: numpy.diff(a, 5), V),
    "diff of bools": both(rabbet.diff, numpy.diff, numpy.array([True, False, False])),
    "diff joined": both(
        lambda a: rabbet.diff(a, prepend=rabbet.zeros(2, 1), append=a),
        lambda a: numpy.diff(a, prepend=numpy.zeros((2, 1)), append=a),
        X,
    ),
    "norm 3": both(lambda a: rabbet.norm(a, 3, 1), lambda a: numpy.linalg.norm(a, 3, axis=1), X),
    "norm inf": both(lambda a: a.norm(math.inf), lambda a: numpy.abs(a).max(), X),
    "norm fro": both(
        lambda a: rabbet.norm(a, "fro", (0, 1), True),
        lambda a: numpy.sqrt((a * a).sum())[None, None],
        X,
    ),
    "std_mean": both(lambda a: rabbet.std_mean(a, 1)[0], lambda a: a.std(1, ddof=1), X),
    "var_mean": both(
        lambda a: rabbet.var_mean(a, 1, correction=0, keepdim=True).var,
        lambda a: a.var(1, keepdims=True),
        X,
    ),
    "nan_to_num": both(
        lambda a: rabbet.nan_to_num(a, 1.0, posinf=2.0),
        lambda a: numpy.nan_to_num(a, nan=1.0, posinf=2.0),
        numpy.array([math.nan, math.inf, -math.inf, 1], numpy.float32),
    ),
    "nan_to_num of complex": both(
        rabbet.nan_to_num,
        lambda a: numpy.array([complex(0, numpy.finfo(numpy.float32).max)]),
        numpy.array([complex(math.nan, math.inf)], numpy.complex64),
    ),
    "isclose": both(
        lambda a: rabbet.isclose(a, a + 1, rtol=0.2), lambda a: numpy.isclose(a, a + 1, rtol=0.2), X
    ),
    "isclose nan": both(
        lambda a: rabbet.isclose(a, a, equal_nan=True),
        lambda a: numpy.isclose(a, a, equal_nan=True),
        numpy.array([math.nan, math.inf, 1]),
    ),
    "isclose unsigned": both(
        lambda a: rabbet.isclose(a, a.flip(0), atol=1),
        lambda a: numpy.array([True, True]),
        numpy.array([1, 2], numpy.uint8),
    ),
    "clamp_min": both(
        lambda a: rabbet.clamp_min(a, rabbet.tensor(2.0)), lambda a: numpy.maximum(a, 2), X
    ),
    "clamp_max_": both(lambda a: a.clamp_max_(2), lambda a: numpy.minimum(a, 2), X),
    "bincount": both(
        lambda a: rabbet.bincount(a, minlength=6),
        lambda a: numpy.bincount(a, minlength=6),
        numpy.array([1, 4, 1]),
    ),
    "bincount weights": both(
        lambda a, w: a.bincount(w), lambda a, w: numpy.bincount(a, w), numpy.array([1, 4, 1]), V
    ),
    "logspace": both(
        lambda a: rabbet.logspace(0, 3, 4, base=-2.0), lambda a: numpy.logspace(0, 3, 4, base=-2), V
    ),
    "logspace of integers": both(
        lambda a: rabbet.logspace(0, 1, 3, dtype=rabbet.int64), lambda a: numpy.array([1, 3, 10]), V
    ),
    "broadcast_to": both(
        lambda a: a.broadcast_to((2, 3)), lambda a: numpy.broadcast_to(a, (2, 3)), V
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_those_of_numpy(name: str) -> None:
    made, expected = VALUES[name]
    expected = numpy.asarray(expected)
    assert tuple(made.shape) == expected.shape
    numpy.testing.assert_allclose(made.numpy(), expected, rtol=2e-6)


def many(f: Callable[..., Any], g: Callable[..., Any], *arrays: Any) -> tuple[Any, Any]:
    return f(*(rabbet.tensor(a) for a in arrays)), g(*arrays)


LISTS: dict[str, tuple[Any, Any]] = {
    "tensor_split": many(lambda a: a.tensor_split(2, -1), lambda a: numpy.array_split(a, 2, -1), X),
    "tensor_split indices": many(
        lambda a: rabbet.tensor_split(a, (1, -1), 1), lambda a: numpy.split(a, (1, -1), 1), X
    ),
    "tensor_split tensor": many(
        lambda a: rabbet.tensor_split(a, rabbet.tensor([1, 2])), lambda a: numpy.split(a, (1, 2)), V
    ),
    "hsplit": many(lambda a: rabbet.hsplit(a, 3), lambda a: numpy.hsplit(a, 3), X),
    "hsplit of a line": many(lambda a: rabbet.hsplit(a, [1]), lambda a: numpy.hsplit(a, [1]), V),
    "vsplit": many(lambda a: a.vsplit(2), lambda a: numpy.vsplit(a, 2), X),
    "dsplit": many(lambda a: rabbet.dsplit(a, [1, 3]), lambda a: numpy.dsplit(a, [1, 3]), C),
    "meshgrid": many(
        lambda a: rabbet.meshgrid(a, a[:2], indexing="xy"), lambda a: numpy.meshgrid(a, a[:2]), V
    ),
    "broadcast_tensors": many(
        lambda a, b: rabbet.broadcast_tensors(a, b), lambda a, b: numpy.broadcast_arrays(a, b), V, X
    ),
    "atleast_1d": many(
        lambda a: rabbet.atleast_1d(a[0], a), lambda a: numpy.atleast_1d(a[0], a), V
    ),
    "atleast_2d": many(lambda a: rabbet.atleast_2d([a, a]), lambda a: numpy.atleast_2d(a, a), V),
    "atleast_3d": many(
        lambda a, b: rabbet.atleast_3d((a, b)), lambda a, b: numpy.atleast_3d(a, b), V, X
    ),
    "unique": many(
        lambda a: rabbet.unique(a, return_inverse=True, return_counts=True),
        lambda a: numpy.unique(a, return_inverse=True, return_counts=True),
        numpy.array([[3, 1, 3], [1, 2, 3]]),
    ),
    "unique rows": many(
        lambda a: rabbet.unique(a, dim=0, return_inverse=True, return_counts=True),
        lambda a: numpy.unique(a, axis=0, return_inverse=True, return_counts=True),
        numpy.array([[3, 1], [1, 2], [3, 1], [1, 0]]),
    ),
    "unique columns": many(
        lambda a: rabbet.unique(a, dim=-1, return_counts=True),
        lambda a: numpy.unique(a, axis=-1, return_counts=True),
        numpy.array([[3, 1, 3], [1, 2, 1]]),
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_those_of_numpy(name: str) -> None:
    made, expected = LISTS[name]
    assert isinstance(made, tuple) and len(made) == len(expected)
    for m, e in zip(made, expected, strict=True):
        assert tuple(m.shape) == e.shape
        numpy.testing.assert_array_equal(m.numpy(), e)


def t(*shape: int) -> Any:
    return rabbet.ones(shape)


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "einsum few": (lambda: rabbet.einsum("ij,jk", t(2, 3)), RuntimeError, "2 operands, got 1"),
    "einsum rank": (lambda: rabbet.einsum("i", t(2, 3)), RuntimeError, "does not fit"),
    "einsum label": (lambda: rabbet.einsum("i1", t(2, 3)), RuntimeError, "must be a letter"),
    "einsum repeated": (lambda: rabbet.einsum("ij->jj", t(2, 3)), RuntimeError, "repeats a label"),
    "einsum unknown": (lambda: rabbet.einsum("ij->ijk", t(2, 3)), RuntimeError, "no operand has"),
    "einsum sizes": (
        lambda: rabbet.einsum("ij,kj->ik", t(2, 3), t(3, 2)), RuntimeError, "sizes 3 and 2"),
    "einsum sublist": (lambda: rabbet.einsum(t(2, 3), [0, 60]), ValueError, "must be 0 to 51"),
    "tensordot many": (lambda: rabbet.tensordot(t(2, 3), t(3), 2), RuntimeError, "0 to 1"),
    "tensordot sizes": (
        lambda: rabbet.tensordot(t(2, 3), t(2, 3), ([1], [0])), RuntimeError, "sizes differ: 3"),
    "tensordot lists": (
        lambda: rabbet.tensordot(t(2, 3), t(2, 3), ([1], [0, 1])), RuntimeError, "one length"),
    "tensordot twice": (
        lambda: rabbet.tensordot(t(2, 2), t(2, 2), ([0, 0], [0, 1])), RuntimeError, "twice"),
    "tensordot range": (
        lambda: rabbet.tensordot(t(2), t(2), ([1], [0])), IndexError, "out of range"),
    "tensordot dtype": (
        lambda: rabbet.tensordot(t(2), t(2).double(), 1), RuntimeError, "one dtype"),
    "cov rank": (lambda: rabbet.cov(t(2, 2, 2)), RuntimeError, "at most 2"),
    "cov bool": (lambda: rabbet.cov(t(2) > 0), RuntimeError, "bool"),
    "cov fweights": (lambda: rabbet.cov(t(2, 3), fweights=t(3)), RuntimeError, "integers"),
    "cov aweights": (lambda: rabbet.cov(t(2, 3), aweights=t(3).long()), RuntimeError, "floating"),
    "cov count": (lambda: rabbet.cov(t(2, 3), aweights=t(2)), RuntimeError, "3 observations"),
    "cov negative": (lambda: rabbet.cov(t(2, 3), aweights=-t(3)), RuntimeError, "negative"),
    "meshgrid none": (lambda: rabbet.meshgrid([], indexing="ij"), RuntimeError, "at least one"),
    "meshgrid word": (lambda: rabbet.meshgrid(t(2), indexing="xx"), RuntimeError, "'ij' or 'xy'"),
    "meshgrid rank": (lambda: rabbet.meshgrid(t(2, 2), indexing="ij"), RuntimeError, "tensor 0"),
    "meshgrid dtype": (
        lambda: rabbet.meshgrid(t(2), t(2).long(), indexing="ij"), RuntimeError, "one dtype"),
    "cartesian_prod": (lambda: rabbet.cartesian_prod(t(2, 2), t(2)), RuntimeError, "1-d"),
    "block_diag": (lambda: rabbet.block_diag(t(2), t(1, 1, 1)), RuntimeError, "tensor 1"),
    "hstack": (lambda: rabbet.hstack([]), RuntimeError, "at least one tensor"),
    "vstack type": (lambda: rabbet.vstack(t(2)), TypeError, "tuple of Tensors"),
    "diag": (lambda: rabbet.diag(t(2, 2, 2)), RuntimeError, "1 or 2 dimensions"),
    "trace": (lambda: rabbet.trace(t(2)), RuntimeError, "a matrix"),
    "diff scalar": (lambda: rabbet.diff(t()), RuntimeError, "at least 1"),
    "diff n": (lambda: rabbet.diff(t(2), -1), RuntimeError, "negative, got -1"),
    "diff rank": (lambda: rabbet.diff(t(2), prepend=t(2, 2)), RuntimeError, "prepend"),
    "norm word": (lambda: rabbet.norm(t(2), "abc"), RuntimeError, "'abc'"),
    "norm nuclear": (lambda: rabbet.norm(t(2, 2), "nuc", 0), RuntimeError, "two dimensions"),
    "norm dtype": (lambda: rabbet.norm(t(2).long()), RuntimeError, "floating"),
    "isclose dtype": (lambda: rabbet.isclose(t(2), t(2).double()), RuntimeError, "one dtype"),
    "isclose rtol": (lambda: rabbet.isclose(t(2), t(2), rtol=-1), RuntimeError, "rtol"),
    "isclose number": (lambda: rabbet.isclose(t(2), "a"), TypeError, "other"),
    "equal number": (lambda: rabbet.equal(t(2), 1), TypeError, "must be Tensor, not int"),
    "tensor_split 0": (lambda: rabbet.tensor_split(t(2), 0), RuntimeError, "positive, got 0"),
    "tensor_split scalar": (lambda: rabbet.tensor_split(t(), 2), RuntimeError, "at least 1"),
    "tensor_split floats": (
        lambda: rabbet.tensor_split(t(3), t(2)), RuntimeError, "an int64 tensor"),
    "hsplit": (lambda: rabbet.hsplit(t(2, 3), 2), RuntimeError, "dimension 1 of size 3"),
    "vsplit": (lambda: rabbet.vsplit(t(3), 1), RuntimeError, "at least 2 dimensions"),
    "dsplit": (lambda: rabbet.dsplit(t(2, 2), [1]), RuntimeError, "at least 3 dimensions"),
    "bincount dtype": (lambda: rabbet.bincount(t(2)), NotImplementedError, "integers"),
    "bincount negative": (
        lambda: rabbet.bincount(rabbet.tensor([-1])), RuntimeError, "not negative"),
    "bincount weights": (
        lambda: rabbet.bincount(rabbet.tensor([1, 2]), t(1)), RuntimeError, "weights"),
    "bincount minlength": (
        lambda: rabbet.bincount(rabbet.tensor([1]), minlength=-1), RuntimeError, "minlength"),
    "unique dim": (lambda: rabbet.unique(t(2), dim=5), IndexError, "5"),
    "unique empty": (lambda: rabbet.unique(t(0, 3), dim=1), RuntimeError, "no elements"),
    "logspace": (lambda: rabbet.logspace(0, 1, -1), RuntimeError, "-1"),
    "randint order": (lambda: rabbet.randint(5, 1, (2,)), RuntimeError, "low < high"),
    "randint range": (
        lambda: rabbet.randint(0, 300, (2,), dtype=rabbet.uint8), RuntimeError, "0 to 255"),
    "normal std": (lambda: rabbet.normal(t(2), -1.0), RuntimeError, "std"),
    "normal dtype": (lambda: rabbet.normal(t(2).long(), 1.0), TypeError, "expected float"),
    "normal size": (lambda: rabbet.normal(0, 1), TypeError, "size"),
    "normal both": (lambda: rabbet.normal(t(2), t(2), (2,)), TypeError, "size"),
    "multinomial dtype": (lambda: rabbet.multinomial(t(2).long(), 1), RuntimeError, "floating"),
    "multinomial many": (lambda: rabbet.multinomial(t(2), 5), RuntimeError, "replacement"),
    "multinomial few": (
        lambda: rabbet.multinomial(rabbet.tensor([0.0, 1.0]), 2), RuntimeError, "replacement"),
    "multinomial nan": (
        lambda: rabbet.multinomial(rabbet.tensor([math.nan]), 1), RuntimeError, "finite"),
    "multinomial zero": (lambda: rabbet.multinomial(t(2) * 0, 1), RuntimeError, "positive sum"),
    "multinomial none": (lambda: rabbet.multinomial(t(2), 0), RuntimeError, "num_samples"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_was_wrong(name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call()


def test_meshgrid_without_indexing_warns() -> None:
    with pytest.warns(UserWarning, match="indexing"):
        rabbet.meshgrid(t(2), t(2))


def test_cov_without_degrees_of_freedom_warns() -> None:
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert not rabbet.cov(t(2, 3), correction=5).isfinite().any()


def test_what_needs_no_copy_is_a_view_or_the_tensor_itself() -> None:
    x = t(2, 3)
    assert rabbet.atleast_1d(x) is x and rabbet.atleast_2d(x) is x
    for made in (
        rabbet.atleast_3d(x), rabbet.broadcast_to(x, (4, 2, 3)), rabbet.hsplit(x, 3)[0],
        rabbet.tensor_split(x, 2)[0], rabbet.meshgrid(x[0], indexing="ij")[0],
        rabbet.broadcast_tensors(x, x)[0], rabbet.cartesian_prod(x[0]), rabbet.einsum("ij->ji", x),
    ):  # fmt: skip
        assert made.data_ptr() == x.data_ptr()
    for made in (rabbet.diag(x), rabbet.diff(x, 0), rabbet.hstack([x])):
        assert made.data_ptr() != x.data_ptr()


def test_gradients_pass_through_functions() -> None:
    rabbet.manual_seed(0)
    x = rabbet.randn(3, 3, dtype=rabbet.float64, requires_grad=True)
    calls: list[Callable[[Any], Any]] = [
        lambda x: rabbet.einsum("ij,jk,kl->il", x, x, x),
        lambda x: rabbet.kron(x, x),
        rabbet.cov,
        lambda x: rabbet.norm(x, 3, 1),
        lambda x: rabbet.block_diag(x, x),
        lambda x: rabbet.tensordot(x, x, ([0], [1])),
        lambda x: rabbet.var_mean(x, 0).var,
        lambda x: rabbet.cartesian_prod(x[0], x[1]),
        lambda x: rabbet.column_stack((x[0], x)),
        lambda x: rabbet.diff(x, 2),
        lambda x: rabbet.nan_to_num(x),
    ]
    for call in calls:
        assert rabbet.autograd.gradcheck(call, (x,))


def test_draws_are_records_that_a_seed_repeats() -> None:
    def draw() -> list[Any]:
        rabbet.manual_seed(3)
        return [
            rabbet.rand(2, 3), rabbet.randn([4]), rabbet.randint(5, (3,)), rabbet.randint(1, 5, size=(3,)),
            rabbet.rand_like(t(2)), rabbet.randn_like(t(2)), rabbet.randint_like(t(2), 5),
            rabbet.randint_like(t(2), 1, 5), rabbet.normal(0, 1, (2,)), rabbet.normal(t(2), 2.0),
            rabbet.normal(1.0, t(2)), rabbet.normal(t(2, 2), t(2)), rabbet.multinomial(t(4), 2),
            rabbet.multinomial(t(2, 4), 6, True),
        ]  # fmt: skip

    first, second = draw(), draw()
    assert all(rabbet.equal(a, b) for a, b in zip(first, second, strict=True))
    assert first[7].dtype is rabbet.float32 and ((first[7] >= 1) & (first[7] < 5)).all()
    assert sorted(first[12].tolist()) != [first[12].tolist()[0]] * 2  # without replacement
    assert rabbet.rand(2, dtype=rabbet.float64, requires_grad=True).requires_grad
    assert rabbet.rand(2, 3, device="meta").shape == (2, 3)


def test_results_go_where_out_says() -> None:
    out = rabbet.empty(0)
    made = rabbet.hstack([t(2), t(1)], out=out)
    assert made is out and out.shape == (3,)


def test_python_decompositions_are_in_the_module_of_their_family() -> None:
    native = {
        "as_strided",
        "contiguous",
        "recurrent_layer",
        "recurrent_layer_backward",
        "repeat",
        "reshape",
        "stack",
    }
    found = 0
    for name in _C.record_names():
        decomp = _C.op_info(name)["formulas"].get("decomp", "")
        function = decomp.removeprefix("function ")
        if function == decomp or function in native:
            continue
        family = Path(_C.op_info(name)["file"]).name.split(".")[0]
        module = __import__(f"rabbet._decompositions.{family}", fromlist=[function])
        assert callable(getattr(module, function)), name
        found += 1
    assert found > 30


def test_a_decomposition_that_is_nowhere_is_refused_with_its_record() -> None:
    text = "lost_function(Tensor input) -> Tensor\n  kind composite\n  decomp function nowhere\n"
    with pytest.raises(
        RuntimeError,
        match=r"reduce\.rec:1: lost_function: no decomposition function 'nowhere'",
    ):
        _C.add_ops(text, "reduce.rec", "test")
    assert "lost_function" not in _C.op_names()


def test_loading_twice_registers_once() -> None:
    _decompositions.load("trace", "reduce", "trace")
    _decompositions.load("trace", "reduce", "trace")
    assert float(rabbet.trace(t(2, 2))) == 2
