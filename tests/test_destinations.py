"""`out=`: on which device a destination may lie, and which memory it may share with what is read."""

import warnings
from typing import Any

import pytest
import rabbet
from rabbet_testing.cases import Case, cases, op_names
from rabbet_testing.judges.calls import REFUSALS, moved, results
from rabbet_testing.judges.reference import has_out


def first_case(op: str) -> tuple[Case, list[Any]]:
    """The first call that the CPU takes, of any dtype, and its results."""
    for dtype in (rabbet.float32, rabbet.int64, rabbet.complex64):
        for case in cases(op, dtype):
            try:
                return case, results(case)
            except REFUSALS:
                continue
    raise LookupError(f"{op}: the CPU takes no example of its record")


def write(case: Case, out: list[Any]) -> Any:
    return rabbet.ops(case.op)(
        *case.args, **case.kwargs, out=out[0] if len(out) == 1 else tuple(out)
    )


# Without a tensor among its arguments a call goes where its destination is.
MAKERS = {"randperm", "tril_indices", "triu_indices"}


@pytest.mark.parametrize("op", [n for n in op_names() if has_out(n) and n not in MAKERS])
def test_a_destination_on_another_device_is_refused(op):
    case, values = first_case(op)
    far = [rabbet.empty(v.shape, dtype=v.dtype, device="meta") for v in values]
    versions = [t._version for t in far]
    with pytest.raises(rabbet.DeviceError, match=f"{op}.*meta.*cpu") as refused:
        write(case, far)
    assert "destination" in str(refused.value)
    assert [t._version for t in far] == versions
    here = [rabbet.full(v.shape, 7).to(v.dtype) for v in values]
    try:
        results(moved(case, "meta"))
    except REFUSALS + (RuntimeError,):
        return  # it needs the data
    with pytest.raises(rabbet.DeviceError, match=f"{op}.*cpu.*meta"):
        write(moved(case, "meta"), here)
    assert all(rabbet.equal(t, rabbet.full(t.shape, 7).to(t.dtype)) for t in here)


@pytest.mark.parametrize("op", [n for n in op_names() if has_out(n)])
def test_a_destination_that_requires_grad_is_refused(op):
    case, values = first_case(op)
    out = [v.clone() for v in values]
    differentiable = [t for t in out if t.is_floating_point() or t.is_complex()]
    if not differentiable:
        return
    before = [t.clone() for t in out]
    for made in (lambda t: t.requires_grad_(), lambda t: t.detach_().requires_grad_().mul(1)):
        target = made(differentiable[-1])
        given = [target if t is differentiable[-1] else t for t in out]
        with pytest.raises(RuntimeError, match=r"out= does not support gradients|leaf Variable"):
            write(case, given)
        assert all(rabbet.equal(t, b) for t, b in zip(given, before))
        with rabbet.no_grad():
            write(case, [t.detach() for t in given])


@pytest.mark.parametrize(
    "make",
    [
        lambda **k: rabbet.zeros(2, **k),
        lambda **k: rabbet.full((2,), 3.0, **k),
        lambda **k: rabbet.arange(2.0, **k),
        lambda **k: rabbet.linspace(0, 1, 2, **k),
    ],
)
def test_a_factory_fills_its_destination_where_that_is(make):
    out = rabbet.empty(2, device="meta")
    assert make(out=out) is out and out.is_meta
    assert make(out=out, device="meta") is out
    for device, other in (("cpu", "meta"), ("meta", "cpu")):
        with pytest.raises(rabbet.DeviceError, match=f"destination is on {device}.*on {other}"):
            make(out=rabbet.empty(2, device=device), device=other)
    assert make(out=rabbet.empty(2)).tolist() == make().tolist()


def test_a_destination_without_elements_takes_no_other_device():
    for device, other in (("cpu", "meta"), ("meta", "cpu")):
        x, out = rabbet.ones(2, device=device), rabbet.empty(0, device=other)
        with pytest.raises(rabbet.DeviceError, match=f"on {other}, but the result is on {device}"):
            rabbet.add(x, x, out=out)
        assert out.shape == (0,)


# Calls that read other places than they write, from a tensor x that is their destination too.
REORDERING = [
    (rabbet.arange(4.0), lambda x, out: rabbet.flip(x, [0], out=out)),
    (rabbet.arange(4.0), lambda x, out: rabbet.roll(x, 1, 0, out=out)),
    (rabbet.arange(4.0), lambda x, out: rabbet.cat([x[2:], x[:2]], out=out)),
    (rabbet.arange(9.0).reshape(3, 3), lambda x, out: rabbet.matmul(x, x, out=out)),
    (rabbet.arange(9.0).reshape(3, 3), lambda x, out: rabbet.scatter(x, 0, rabbet.tensor([[2, 2, 2]]), x[:1], out=out)),
    (rabbet.arange(4.0), lambda x, out: rabbet.index_add(x, 0, rabbet.tensor([3, 2]), x[:2], out=out)),
    (rabbet.tensor([3.0, 1, 2]), lambda x, out: rabbet.sort(x, out=(out, rabbet.empty(3, dtype=rabbet.int64)))[0]),
    (rabbet.arange(4.0), lambda x, out: rabbet.cumsum(x, 0, out=out)),
    (rabbet.arange(9.0).reshape(3, 3), lambda x, out: rabbet.tril(x, out=out)),
]  # fmt: skip


@pytest.mark.parametrize("x, call", REORDERING)
def test_a_destination_that_is_read_too_gets_the_right_elements(x, call):
    want = call(x.clone(), rabbet.empty(0, dtype=x.dtype)).tolist()
    out = x.clone()
    assert call(out, out).tolist() == want


@pytest.mark.parametrize(
    "call",
    [
        lambda x: rabbet.gather(x, 0, rabbet.tensor([2, 1, 0]), out=x),
        lambda x: rabbet.gather(x, 0, rabbet.tensor([1, 0]), out=x[1:]),
        lambda x: rabbet.index_select(x, 0, rabbet.tensor([2, 1, 0]), out=x),
        lambda x: rabbet.take(x, rabbet.tensor([2, 1, 0]), out=x),
        lambda x: rabbet.masked_select(x, x > 1, out=x),
        lambda x: rabbet.kthvalue(x, 2, out=(x, rabbet.tensor(0))),
    ],
)
def test_destinations_that_share_memory_with_an_argument_are_refused(call):
    x = rabbet.tensor([3.0, 1.0, 2.0])
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        call(x)
    assert x.tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        (lambda x, out: rabbet.gather(x, 0, rabbet.tensor([0]), out=out), rabbet.float64),
        (lambda x, out: rabbet.complex(x, x, out=out), rabbet.complex128),
        (lambda x, out: rabbet.signbit(x, out=out), rabbet.int64),
        (lambda x, out: rabbet.isin(x, x, out=out), rabbet.float32),
        (lambda x, out: rabbet.multinomial(x, 1, out=out), rabbet.float32),
    ],
)
def test_destinations_of_another_dtype_are_refused_where_pytorch_does_not_cast(call, wrong):
    out = rabbet.empty(0, dtype=wrong)
    with pytest.raises(
        RuntimeError, match=f"Expected out tensor to have dtype .*, but got {wrong.name}"
    ):
        call(rabbet.ones(2), out)
    assert out.shape == (0,)


# PyTorch computes these without the step that casts results: their destinations have the dtype of the result.
UNCAST = [
    "all", "any", "avg_pool", "scatter.reduce", "scatter.reduce_value", "tensordot_dims", "hash_tensor", "tril",
    "triu", "amax", "amin", "argmax", "argmin", "linalg_cholesky", "linalg_cholesky_ex", "linalg_det", "linalg_eigh",
    "linalg_eigvalsh", "linalg_inv", "linalg_inv_ex", "linalg_ldl_factor", "linalg_ldl_factor_ex", "linalg_ldl_solve",
    "linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_qr", "linalg_slogdet",
    "linalg_solve", "linalg_solve_ex", "linalg_solve_triangular", "linalg_svd", "linalg_svdvals", "scatter_reduce",
    "abs", "addbmm", "addmm", "addmv", "alias_copy", "as_strided_copy", "baddbmm", "bmm", "ceil", "cross", "cummax",
    "cummin", "diag", "diagonal_copy", "dot", "expand_copy", "floor", "frac", "frexp", "gather", "gelu", "hardshrink",
    "heaviside", "histc", "index_add", "index_copy", "index_reduce", "logcumsumexp", "log_softmax", "logsigmoid",
    "lu_solve", "lu_unpack", "matmul", "max.dim", "min.dim", "mm", "mode", "msort", "mv", "nan_to_num", "narrow_copy",
    "neg", "nonzero", "norm", "ormqr", "permute_copy", "qr", "quantile", "nanquantile", "renorm", "round", "scatter",
    "scatter_add", "sgn", "sign", "slice_scatter", "softmax", "softplus", "softshrink", "sort",
    "split_with_sizes_copy", "squeeze_copy", "svd", "t_copy", "take_along_dim", "topk", "transpose_copy",
    "triangular_solve", "trunc", "unbind_copy", "unfold_copy", "unsqueeze_copy", "vdot", "view_copy", "where",
]  # fmt: skip
CAST = [
    "linalg_eigvals",
    "linalg_pinv",
    "linalg_matrix_exp",
    "add",
    "exp",
    "mul",
    "sum",
    "mean",
    "atan2",
    "cat",
    "stack",
    "sigmoid",
    "fft_fft",
]


def with_other_dtypes(values: list[Any]) -> list[Any]:
    wider = {rabbet.float32: rabbet.float64, rabbet.complex64: rabbet.complex128}
    return [rabbet.full(v.shape, 7).to(wider.get(v.dtype, rabbet.float64)) for v in values]


@pytest.mark.parametrize("op", UNCAST)
def test_a_destination_of_a_wider_dtype_is_refused_where_pytorch_does_not_cast(op):
    case, values = first_case(op)
    out = with_other_dtypes(values)
    with pytest.raises(rabbet.DTypeError, match="Expected out tensor to have dtype"):
        write(case, out)
    assert all(rabbet.equal(t, rabbet.full(t.shape, 7).to(t.dtype)) for t in out)


@pytest.mark.parametrize("op", CAST)
def test_a_destination_of_a_wider_dtype_holds_the_cast_result(op):
    case, values = first_case(op)
    out = with_other_dtypes(values)
    write(case, out)
    for got, value in zip(out, values, strict=True):
        assert rabbet.allclose(got, value.to(got.dtype), rtol=1e-5)


def test_lists_of_results_have_lists_of_destinations():
    x = rabbet.arange(6.0).reshape(3, 2)
    out = [rabbet.empty(2), rabbet.empty(0), rabbet.empty(2)]
    assert rabbet.unbind_copy(x, out=out) is None
    assert [t.tolist() for t in out] == x.tolist()
    parts = (rabbet.empty(1, 2), rabbet.empty(2, 2))
    rabbet.split_with_sizes_copy(x, [1, 2], out=parts)
    assert parts[1].tolist() == x[1:].tolist()
    with pytest.warns(UserWarning, match="was resized since it had shape"):
        rabbet.split_copy(x, 2, out=[rabbet.empty(1), rabbet.empty(1, 2)])
    with pytest.raises(
        RuntimeError, match="unbind_copy: expected an out= argument of size 3, got size 1"
    ):
        rabbet.unbind_copy(x, out=out[:1])
    with pytest.raises(TypeError, match="argument 'out' must be tuple of Tensors"):
        rabbet.unbind_copy(x, out=out[0])
    with pytest.raises(TypeError, match="must be tuple of Tensors, one for each result, not int"):
        rabbet.unbind_copy(x, out=[1, 2, 3])
    with pytest.raises(RuntimeError, match="cannot be written to a destination of dtype"):
        rabbet.unbind_copy(x, out=[rabbet.empty(2, dtype=rabbet.int64)] * 3)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float32"):
        rabbet.unbind_copy(x, out=[rabbet.empty(2, dtype=rabbet.float64)] * 3)


def test_several_results_are_named_after_they_are_written():
    out = [rabbet.empty(2), rabbet.empty(2, dtype=rabbet.int64)]
    found = rabbet.max(rabbet.tensor([[1.0, 4.0], [3.0, 2.0]]), 0, out=out)
    assert found.values is out[0] and found.indices is out[1]
    assert out[0].tolist() == [3, 4] and out[1].tolist() == [1, 0]


def test_writes_in_place_that_read_their_target_again():
    x, places = rabbet.arange(4), rabbet.tensor([3, 2, 1, 0])
    assert x.clone().index_put_((places,), x).tolist() == [3, 2, 1, 0]
    for name in ("scatter_", "index_add_"):
        t = x.clone()
        want = getattr(t.clone(), name)(0, places, t.clone()).tolist()
        assert getattr(t, name)(0, places, t).tolist() == want


# ---- destinations of another shape

X = rabbet.arange(6.0).reshape(2, 3)


def test_a_destination_of_another_shape_is_resized_with_a_warning():
    out = rabbet.ones(4)
    with pytest.warns(
        UserWarning, match=r"An output with one or more elements was resized .* \[4\].* \[2, 3\]"
    ):
        assert rabbet.add(X, X, out=out) is out
    assert rabbet.equal(out, X * 2)
    with pytest.warns(UserWarning, match="resized"):
        values, indices = rabbet.sort(X, out=(rabbet.empty(1), rabbet.empty(1, dtype=rabbet.int64)))
    assert values.shape == indices.shape == (2, 3)


def test_ranges_say_how_many_elements_they_have(recwarn):
    text = (
        r"out tensor of shape \[2, 2\] is 4 which does not match the computed number of elements 3"
    )
    with pytest.warns(UserWarning, match=text):
        assert rabbet.arange(3, out=rabbet.empty(2, 2)).tolist() == [0, 1, 2]
    assert rabbet.arange(4, out=rabbet.empty(4)).tolist() == [0, 1, 2, 3]
    with pytest.warns(UserWarning, match=r"An output .* resized .* \[5\].* \[2\]"):
        rabbet.normal(rabbet.zeros(2), rabbet.ones(2), out=rabbet.empty(5))
    assert rabbet.zeros(2, out=rabbet.empty(5)).shape == (2,)
    assert rabbet.normal(0.0, 1.0, (2,), out=rabbet.empty(5)).shape == (2,)
    assert rabbet.linspace(rabbet.tensor(0.0), 1, 2, out=rabbet.empty(5)).tolist() == [0, 1]
    assert not recwarn.list


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0, 3)])
def test_a_destination_without_elements_is_resized_silently(shape, recwarn):
    assert rabbet.equal(rabbet.mul(X, 3, out=rabbet.empty(shape)), X * 3)
    assert not recwarn.list


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_resized_destination_lies_as_the_result_would(device):
    turned = X.to(device).t()
    out = rabbet.empty(0, device=device)
    assert rabbet.exp(turned, out=out).stride() == (1, 3)
    product = rabbet.mm(turned, X.to(device), out=rabbet.empty(0, device=device))
    assert product.stride() == (3, 1)


B = rabbet.arange(24.0).reshape(2, 4, 3)
A = rabbet.arange(32.0).reshape(2, 4, 4).sin() + rabbet.eye(4)
SQUARE = A @ A.mT + rabbet.eye(4)
REFLECTIONS = rabbet.geqrf(A)
LDL = rabbet.linalg.ldl_factor(SQUARE)
ROWS, COLUMNS, NARROW_ROWS, NARROW_COLUMNS = (16, 4, 1), (16, 1, 4), (12, 3, 1), (12, 1, 4)
# A call, the index of one of its results, and PyTorch's strides of that result, of an empty destination and of a larger one.
STRIDES = {
    "linalg.cholesky": (lambda **k: rabbet.linalg.cholesky(SQUARE, **k), 0, COLUMNS, COLUMNS, COLUMNS),
    "cholesky": (lambda **k: rabbet.cholesky(SQUARE, **k), 0, COLUMNS, ROWS, ROWS),
    "cholesky_solve": (lambda **k: rabbet.cholesky_solve(B, A.tril(), **k), 0, NARROW_COLUMNS, NARROW_ROWS, NARROW_ROWS),
    "cholesky_inverse": (lambda **k: rabbet.cholesky_inverse(A.tril(), **k), 0, COLUMNS, COLUMNS, ROWS),
    "linalg.inv": (lambda **k: rabbet.linalg.inv(A, **k), 0, COLUMNS, COLUMNS, COLUMNS),
    "linalg.solve": (lambda **k: rabbet.linalg.solve(A, B, **k), 0, NARROW_COLUMNS, NARROW_COLUMNS, NARROW_COLUMNS),
    "linalg.qr": (lambda **k: rabbet.linalg.qr(A, **k), 0, COLUMNS, COLUMNS, COLUMNS),
    "geqrf": (lambda **k: rabbet.geqrf(A, **k), 0, COLUMNS, COLUMNS, ROWS),
    "linalg.householder_product":
        (lambda **k: rabbet.linalg.householder_product(*REFLECTIONS, **k), 0, COLUMNS, COLUMNS, ROWS),
    "ormqr": (lambda **k: rabbet.ormqr(*REFLECTIONS, B, **k), 0, NARROW_COLUMNS, NARROW_COLUMNS, NARROW_ROWS),
    "linalg.eigh": (lambda **k: rabbet.linalg.eigh(SQUARE, **k), 1, COLUMNS, COLUMNS, COLUMNS),
    "linalg.eig": (lambda **k: rabbet.linalg.eig(A, **k), 1, COLUMNS, COLUMNS, ROWS),
    "linalg.lstsq": (lambda **k: rabbet.linalg.lstsq(A, B, **k), 0, NARROW_COLUMNS, NARROW_COLUMNS, NARROW_ROWS),
    "linalg.ldl_solve":
        (lambda **k: rabbet.linalg.ldl_solve(*LDL, B, **k), 0, NARROW_COLUMNS, NARROW_COLUMNS, NARROW_COLUMNS),
    "linalg.lu_solve":
        (lambda **k: rabbet.linalg.lu_solve(*rabbet.linalg.lu_factor(A), B, adjoint=True, **k), 0,
         NARROW_COLUMNS, NARROW_COLUMNS, NARROW_COLUMNS),
    "linalg.solve_triangular":
        (lambda **k: rabbet.linalg.solve_triangular(A.tril(), B.mT, upper=False, left=False, **k), 0,
         (12, 1, 3), (12, 1, 3), (12, 1, 3)),
    "nonzero": (lambda **k: rabbet.nonzero(X, **k), 0, (1, 5), (1, 5), (1, 5)),
    "linalg.tensorinv":
        (lambda **k: rabbet.linalg.tensorinv(A[0].reshape(4, 2, 2), ind=1, **k), 0, (2, 1, 4), (8, 4, 1), (8, 4, 1)),
    "fft.fft": (lambda **k: rabbet.fft.fft(B, 5, 1, **k), 0, (15, 1, 5), (15, 3, 1), (15, 3, 1)),
    "fft.irfft": (lambda **k: rabbet.fft.irfft(B, 6, 1, **k), 0, (18, 1, 6), (18, 3, 1), (18, 3, 1)),
    "fft.ihfft": (lambda **k: rabbet.fft.ihfft(B, 6, 1, **k), 0, (12, 1, 4), (12, 1, 4), (12, 1, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", STRIDES)
def test_resized_destinations_lie_as_those_of_pytorch(name):
    call, at, result, empty, larger = STRIDES[name]
    values = call()
    several = [values] if isinstance(values, rabbet.Tensor) else list(values)
    assert several[at].stride() == result
    for shape, strides in ((lambda t: (0,), empty), (lambda t: (*t.shape, 2), larger)):
        out = [rabbet.empty(shape(t), dtype=t.dtype) for t in several]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(out=out[0] if several[0] is values else tuple(out))
        assert out[at].stride() == strides
        assert rabbet.equal(out[at], several[at])


@pytest.mark.parametrize("name", ["irfft", "hfft", "irfft2", "hfft2", "irfftn", "hfftn"])
def test_real_results_of_transforms_refuse_complex_destinations(name):
    transform = getattr(rabbet.fft, name)
    out = rabbet.full((0,), 7, dtype=rabbet.complex64)
    with pytest.raises(rabbet.DTypeError, match=f"fft_{name}: expected a real destination"):
        transform(X, out=out)
    assert out.shape == (0,)
    wide = rabbet.empty(0, dtype=rabbet.float64)
    assert rabbet.allclose(transform(X, out=wide).float(), transform(X))


def test_memory_that_is_large_enough_is_kept():
    base = rabbet.zeros(4, 4)
    view = base[1:, :2]
    with pytest.warns(UserWarning):
        rabbet.add(X, 1, out=view)
    assert view.shape == (2, 3) and view.data_ptr() == base[1].data_ptr()
    assert base.flatten().tolist() == [0.0] * 4 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] + [0.0] * 6


def test_what_is_also_an_argument_is_not_resized():
    x = rabbet.ones(3)
    for call in (lambda: x.add_(X), lambda: rabbet.add(x, X, out=x), lambda: x.clamp_min_(X)):
        with pytest.raises(RuntimeError, match=r"destination has shape \(3,\).* \(2, 3\)"):
            call()
    assert x.tolist() == [1.0] * 3


def test_a_read_only_destination_is_not_resized():
    out = rabbet.frombuffer(bytes(16), dtype=rabbet.float32)
    with pytest.raises(RuntimeError, match="read-only"):
        rabbet.add(X, X, out=out)
    assert out.shape == (4,)


@pytest.mark.parametrize(
    "make",
    [lambda **k: rabbet.zeros(2, **k), lambda **k: rabbet.arange(3, **k), lambda **k: rabbet.eye(2, **k),
     lambda **k: rabbet.cumsum(X, 0, **k), lambda **k: rabbet.sum(X, 0, **k)],
)  # fmt: skip
def test_a_call_that_names_no_dtype_has_that_of_its_destination(make):
    out = rabbet.empty(0, dtype=rabbet.int16)
    assert make(out=out).dtype is rabbet.int16
    assert rabbet.equal(out, make(dtype=rabbet.int16))


@pytest.mark.parametrize(
    "call",
    [lambda out: rabbet.zeros(2, dtype=rabbet.int32, out=out),
     lambda out: rabbet.full((2,), 1, dtype=rabbet.int32, out=out),
     lambda out: rabbet.arange(2, dtype=rabbet.int32, out=out),
     lambda out: rabbet.linspace(rabbet.tensor(0.0), 1, 2, dtype=rabbet.int32, out=out),
     lambda out: rabbet.cumsum(rabbet.ones(2), 0, dtype=rabbet.int32, out=out),
     lambda out: out.cumsum_(0, dtype=rabbet.int32)],
)  # fmt: skip
def test_a_dtype_that_is_named_must_be_that_of_the_destination(call):
    with pytest.raises(TypeError, match="dtype int32 does not match dtype float32 of"):
        call(rabbet.zeros(2))


def test_sums_without_nan_leave_it_out_before_they_convert():
    x, whole = rabbet.tensor([1.5, float("nan"), 2.0]), rabbet.empty(0, dtype=rabbet.int64)
    assert rabbet.nansum(x, dtype=rabbet.int64).item() == 3
    assert rabbet.nansum(x, dtype=rabbet.int64, out=whole).item() == 3
    assert rabbet.nansum(rabbet.tensor([1, 2]), dtype=rabbet.int64).item() == 3
    assert rabbet.nansum(x, out=rabbet.empty(0, dtype=rabbet.float64)).item() == 3.5


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_is_made_of_others_is_resized_as_they_are(device):
    out = rabbet.empty(0, dtype=rabbet.bool, device=device)
    assert rabbet.signbit(X.to(device).t(), out=out).stride() == (1, 3)


def test_elements_of_nothing_may_share_memory():
    assert rabbet.zeros(1, 0).expand(3, 0).add_(1).shape == (3, 0)
    with pytest.raises(ValueError, match="one place in memory"):
        rabbet.zeros(1).expand(3).add_(1)
