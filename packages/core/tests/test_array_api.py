"""rabbet.array_api: names and signatures of the standard, editions, dtypes, special cases and refusals; NumPy is the oracle."""

import inspect
import math
import subprocess
import sys

import numpy as np
import pytest
import rabbet
from rabbet import array_api as xp

NAN, INF = math.nan, math.inf
# The standard's signatures, without annotations, and the functions that have them.
SIGNATURES = {
    "(x, /)": "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf "
    "isnan log log10 log1p log2 logical_not matrix_transpose negative nonzero positive real reciprocal round sign signbit "
    "sin sinh sqrt square tan tanh trunc unique_all unique_counts unique_inverse unique_values linalg.det linalg.eig "
    "linalg.eigh linalg.eigvals linalg.eigvalsh linalg.inv linalg.matrix_transpose linalg.slogdet linalg.svdvals",
    "(x1, x2, /)": "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide "
    "equal floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor matmul "
    "maximum minimum multiply nextafter not_equal pow remainder subtract linalg.matmul linalg.outer linalg.solve",
    "(x, /, min=None, max=None)": "clip",
    "(start, /, stop=None, step=1, *, dtype=None, device=None)": "arange",
    "(obj, /, *, dtype=None, device=None, copy=None)": "asarray",
    "(x, /, *, device=None, copy=None)": "from_dlpack",
    "(shape, *, dtype=None, device=None)": "empty ones zeros",
    "(shape, fill_value, *, dtype=None, device=None)": "full",
    "(x, /, *, dtype=None, device=None)": "empty_like ones_like zeros_like",
    "(x, /, fill_value, *, dtype=None, device=None)": "full_like",
    "(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)": "eye",
    "(start, stop, /, num, *, dtype=None, device=None, endpoint=True)": "linspace",
    "(*arrays, indexing='xy')": "meshgrid",
    "(x, /, *, k=0)": "tril triu",
    "(x, dtype, /, *, copy=True, device=None)": "astype",
    "(from_, to, /)": "can_cast",
    "(type, /)": "finfo iinfo",
    "(dtype, kind)": "isdtype",
    "(*arrays_and_dtypes)": "result_type",
    "(*arrays)": "broadcast_arrays",
    "(*shapes)": "broadcast_shapes",
    "(x, /, shape)": "broadcast_to",
    "(arrays, /, *, axis=0)": "concat stack",
    "(x, /, axis)": "expand_dims squeeze",
    "(x, /, *, axis=None)": "flip",
    "(x, source, destination, /)": "moveaxis",
    "(x, /, axes)": "permute_dims",
    "(x, repeats, /, *, axis=None)": "repeat",
    "(x, /, shape, *, copy=None)": "reshape",
    "(x, /, shift, *, axis=None)": "roll",
    "(x, repetitions, /)": "tile",
    "(x, /, *, axis=0)": "unstack",
    "(x1, x2, /, *, axes=2)": "tensordot linalg.tensordot",
    "(x1, x2, /, *, axis=-1)": "vecdot linalg.vecdot linalg.cross",
    "(x, indices, /, *, axis=None)": "take",
    "(x, indices, /, *, axis=-1)": "take_along_axis",
    "(x, /, *, axis=None, keepdims=False)": "all any argmax argmin count_nonzero max mean min",
    "(x, /, *, axis=None, dtype=None, keepdims=False)": "prod sum",
    "(x, /, *, axis=None, correction=0.0, keepdims=False)": "std var",
    "(x, /, *, axis=None, dtype=None, include_initial=False)": "cumulative_prod cumulative_sum",
    "(x, /, *, axis=-1, n=1, prepend=None, append=None)": "diff",
    "(x1, x2, /, *, side='left', sorter=None)": "searchsorted",
    "(condition, x1, x2, /)": "where",
    "(x, /, *, axis=-1, descending=False, stable=True)": "argsort sort",
    "(x1, x2, /, *, invert=False)": "isin",
    "()": "__array_namespace_info__",
    "(x, /, *, upper=False)": "linalg.cholesky",
    "(x, /, *, offset=0)": "linalg.diagonal",
    "(x, /, *, keepdims=False, ord='fro')": "linalg.matrix_norm",
    "(x, n, /)": "linalg.matrix_power",
    "(x, /, *, rtol=None)": "linalg.matrix_rank linalg.pinv",
    "(x, /, *, mode='reduced')": "linalg.qr",
    "(x, /, *, full_matrices=True)": "linalg.svd",
    "(x, /, *, offset=0, dtype=None)": "linalg.trace",
    "(x, /, *, axis=None, keepdims=False, ord=2)": "linalg.vector_norm",
    "(x, /, *, n=None, axis=-1, norm='backward')": "fft.fft fft.hfft fft.ifft fft.ihfft fft.irfft fft.rfft",
    "(x, /, *, s=None, axes=None, norm='backward')": "fft.fftn fft.ifftn fft.irfftn fft.rfftn",
    "(n, /, *, d=1.0, dtype=None, device=None)": "fft.fftfreq fft.rfftfreq",
    "(x, /, *, axes=None)": "fft.fftshift fft.ifftshift",
}
VALUES = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64",
    "complex128", "e", "inf", "nan", "newaxis", "pi", "fft", "linalg", "__array_api_version__",
}  # fmt: skip
PAIRS = [(name, text) for text, names in SIGNATURES.items() for name in names.split()]
RNG = np.random.default_rng(5)
MATRIX = RNG.normal(size=(4, 4))
TALL = RNG.normal(size=(2, 4, 3))


def found(path, space=xp):
    for part in path.split("."):
        space = getattr(space, part)
    return space


def both(array):
    """The array as NumPy's and as rabbet's."""
    array = np.asarray(array)
    return array, rabbet.from_numpy(array.copy())


def assert_same(got, want, rtol=1e-6):
    """Shape, dtype and values agree, of single results and of several."""
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_same(g, w, rtol)
        return
    want = np.asarray(want)
    assert tuple(got.shape) == want.shape and got.dtype.name == str(want.dtype)
    np.testing.assert_allclose(got.numpy(), want, rtol, 1e-7)


# ---- the namespace


@pytest.mark.parametrize("name,text", PAIRS, ids=[name for name, _ in PAIRS])
def test_signatures_are_the_standards(name, text):
    signature = inspect.signature(found(name))
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == text
    assert inspect.getdoc(found(name))


def test_the_namespace_has_the_names_of_the_standard_and_no_others():
    names = {name for name, _ in PAIRS}
    assert {n for n in names if "." not in n} | VALUES == set(xp.__all__)
    for extension in ("linalg", "fft"):
        below = {n.split(".")[1] for n in names if n.startswith(extension)}
        assert below == set(found(extension).__all__)
    assert all(hasattr(xp, name) for name in xp.__all__) and dir(xp) == sorted(xp.__all__)
    assert xp.linalg.matmul is xp.matmul and xp.linalg.vecdot is xp.vecdot


def test_a_tensor_names_its_namespace():
    x = rabbet.ones(2)
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version=None) is xp
    assert x.__array_namespace__(api_version="2025.12") is xp
    assert xp.__array_api_version__ == "2025.12"


@pytest.mark.parametrize("version", ["2021.12", "2023.12", "2026.12", "", "latest", 2024])
def test_editions_that_are_not_implemented_are_refused(version):
    with pytest.raises(
        ValueError, match=r"__array_namespace__: api_version must be one of 2024\.12, 2025\.12"
    ):
        rabbet.ones(2).__array_namespace__(api_version=version)


def test_the_edition_before_returns_lists():
    old = rabbet.ones(2).__array_namespace__(api_version="2024.12")
    assert old.__array_api_version__ == "2024.12" and old.add is xp.add and old.linalg is xp.linalg
    x = old.asarray([1.0, 2.0])
    for space, kind in ((old, list), (xp, tuple)):
        assert type(space.meshgrid(x, x)) is kind
        assert type(space.broadcast_arrays(x, x)) is kind
        assert type(space.__array_namespace_info__().devices()) is kind
    assert_same(old.meshgrid(x, x + 1), np.meshgrid(np.float32([1, 2]), np.float32([2, 3])))


def test_the_module_loads_when_it_is_first_used():
    program = (
        "import sys, rabbet\n"
        "loaded = lambda: [m for m in sys.modules if m.startswith('rabbet.array_api')]\n"
        "assert not loaded(), loaded()\n"
        "rabbet.ones(2).__array_namespace__()\n"
        "assert 'rabbet.array_api' in loaded() and 'rabbet.array_api.v2024_12' not in loaded()\n"
        "assert 'array_api' in dir(rabbet)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_inspection():
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True,
        "data-dependent shapes": True,
        "max dimensions": 32,
    }
    assert rabbet.ones([1] * 32).ndim == 32
    with pytest.raises((ValueError, RuntimeError), match="32"):
        rabbet.ones([1] * 33)
    assert info.default_device() == rabbet.device("cpu") and rabbet.device("cpu") in info.devices()
    defaults = {"real floating": xp.float32, "complex floating": xp.complex64, "integral": xp.int64}
    assert info.default_dtypes() == {**defaults, "indexing": xp.int64}
    assert info.dtypes(kind="signed integer") == {
        f"int{n}": getattr(rabbet, f"int{n}") for n in (8, 16, 32, 64)
    }
    assert list(info.dtypes(kind=("bool", "real floating"))) == ["bool", "float32", "float64"]
    assert len(info.dtypes(device="cpu")) == 13
    with pytest.raises(ValueError, match="isdtype: kind must be one of"):
        info.dtypes(kind="floats")
    with pytest.raises((RuntimeError, ValueError)):
        info.default_dtypes(device="nowhere")


def test_default_dtypes_follow_the_settings(monkeypatch):
    rabbet.set_default_dtype(rabbet.float64)
    try:
        info = xp.__array_namespace_info__()
        assert info.default_dtypes()["complex floating"] is xp.complex128
        assert xp.eye(2).dtype is xp.float64 and xp.arange(3.0).dtype is xp.float64
    finally:
        rabbet.set_default_dtype(rabbet.float32)


# ---- dtypes


INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
KINDS = [["bool"], INTEGERS, ["float32", "float64"], ["complex64", "complex128"]]
PROMOTING = [
    (a, b)
    for kind in [*KINDS, KINDS[2] + KINDS[3]]
    for a in kind
    for b in kind
    if not ((a == "uint64" and b.startswith("int")) or (b == "uint64" and a.startswith("int")))
]


@pytest.mark.parametrize("a,b", PROMOTING)
def test_dtypes_promote_by_the_table(a, b):
    want = str(np.result_type(a, b))
    one, other = (xp.ones((2,), dtype=getattr(xp, name)) for name in (a, b))
    number = xp.ones((), dtype=getattr(xp, b))  # counts as any other tensor
    assert xp.result_type(one.dtype, other.dtype).name == want
    assert xp.result_type(one, number).name == want
    assert xp.where(xp.asarray([True, False]), one, number).dtype.name == want
    assert xp.concat([one, other]).dtype.name == xp.stack([one, other]).dtype.name == want
    assert xp.can_cast(one.dtype, other.dtype) == (want == b) == np.can_cast(a, b)
    if want != "bool":
        assert xp.add(one, number).dtype.name == xp.multiply(other, one).dtype.name == want
        assert xp.matmul(one, other).dtype.name == want
    assert xp.equal(one, number).dtype is xp.bool


@pytest.mark.parametrize("signed", ["int8", "int64"])
def test_uint64_and_signed_integers_have_no_common_dtype(signed):
    x, y = xp.ones(2, dtype=xp.uint64), xp.ones(2, dtype=getattr(xp, signed))
    with pytest.raises(TypeError, match=f"add: uint64 and {signed} have no common integer dtype"):
        xp.add(x, y)
    assert not xp.can_cast(xp.uint64, y.dtype) and not xp.can_cast(y.dtype, xp.uint64)


def test_python_numbers_take_the_dtype_of_the_tensor():
    for dtype, number in [(xp.int8, 3), (xp.uint16, 3), (xp.float32, 3), (xp.float64, 1.5),
                          (xp.complex64, 2), (xp.complex64, 1j), (xp.bool, True)]:  # fmt: skip
        x = xp.ones((2,), dtype=dtype)
        assert xp.result_type(x, number) is xp.result_type(number, dtype) is dtype
        assert xp.maximum(x, number).dtype is dtype if not x.is_complex() else True
        if dtype is not xp.bool:
            assert xp.add(number, x).dtype is xp.add(x, number).dtype is dtype
    assert xp.result_type(xp.float32, 1j) is xp.complex64
    assert xp.result_type(xp.float64, 1j) is xp.complex128
    assert xp.greater(1, xp.asarray([0, 2])).tolist() == [True, False]
    with pytest.raises(
        TypeError, match="result_type: at least one argument must be a Tensor or a dtype"
    ):
        xp.result_type(1, 2.0)
    with pytest.raises(
        TypeError, match="result_type: expected tensors, dtypes and numbers, got str"
    ):
        xp.result_type("float32")


def test_kinds_of_dtypes():
    for name in (*INTEGERS, "bool", "float32", "complex128"):
        dtype = getattr(xp, name)
        for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating",
                     "complex floating", "numeric"):  # fmt: skip
            assert xp.isdtype(dtype, kind) == np.isdtype(np.dtype(name), kind)
        assert xp.isdtype(dtype, dtype) and xp.isdtype(dtype, ("bool", "numeric"))
    assert xp.isdtype(rabbet.bfloat16, "real floating")
    assert not xp.isdtype(xp.int8, (xp.int16, "bool"))
    with pytest.raises(ValueError, match=r"isdtype: kind must be one of .* got 'int'"):
        xp.isdtype(xp.int8, "int")
    with pytest.raises(TypeError, match="isdtype: kind must be a dtype, a str or a tuple"):
        xp.isdtype(xp.int8, 8)
    with pytest.raises(TypeError, match=r"isdtype: expected a rabbet\.dtype, got 'int8'"):
        xp.isdtype("int8", "integral")


def test_limits():
    for name in ("float32", "float64"):
        limits, want = xp.finfo(getattr(xp, name)), np.finfo(name)
        for field in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(limits, field) == getattr(want, field)
        assert limits.dtype is getattr(xp, name) and type(limits.eps) is float
    assert xp.finfo(xp.ones(2, dtype=xp.complex64)).dtype is xp.float32
    for name in INTEGERS:
        limits, want = xp.iinfo(getattr(xp, name)), np.iinfo(name)
        assert (limits.bits, limits.max, limits.min) == (want.bits, want.max, want.min)
    for function, dtype in ((xp.finfo, xp.int8), (xp.iinfo, xp.float32), (xp.iinfo, xp.bool)):
        with pytest.raises(TypeError, match=f"{function.__name__}: expected"):
            function(dtype)


def test_astype():
    x = xp.asarray([0.0, 1.5, NAN])
    assert xp.astype(x, xp.float32) is not x and xp.astype(x, xp.float32, copy=False) is x
    assert xp.astype(x, xp.bool).tolist() == [False, True, True]
    z = xp.asarray([0j, 1j])
    assert xp.astype(z, xp.bool).tolist() == [False, True]
    assert xp.astype(z, xp.complex128).dtype is xp.complex128
    with pytest.raises(TypeError, match="astype: complex numbers cannot be cast to float32"):
        xp.astype(z, xp.float32)
    with pytest.raises(TypeError, match=r"astype: expected a rabbet\.dtype, got <class 'float'>"):
        xp.astype(x, float)


@pytest.mark.parametrize("name,want", [("int8", "int64"), ("int64", "int64"), ("uint8", "uint64"),
                                       ("uint32", "uint64"), ("float32", "float32"), ("complex64", "complex64")])  # fmt: skip
def test_sums_and_products_of_integers_have_64_bits(name, want):
    x = xp.ones((2, 3), dtype=getattr(xp, name))
    for function in (xp.sum, xp.prod, xp.linalg.trace):
        assert function(x).dtype.name == want
        assert function(x, dtype=xp.float64 if name != "complex64" else x.dtype).dtype.name in (
            "float64",
            name,
        )
    assert (
        xp.cumulative_sum(x, axis=0).dtype.name == xp.cumulative_prod(x, axis=1).dtype.name == want
    )
    assert xp.sum(x, axis=()).shape == (2, 3) and xp.sum(x, axis=()).dtype.name == want


# ---- special cases where PyTorch's functions differ


def test_special_cases_of_elementwise_functions():
    x = xp.asarray([NAN, -2.0, 0.0, -0.0, INF])
    np.testing.assert_array_equal(xp.sign(x).numpy(), np.sign(x.numpy()))
    z = xp.asarray([3 + 4j, 0j])
    assert xp.sign(z).tolist() == [0.6000000238418579 + 0.800000011920929j, 0j]
    zeros, divisors = xp.asarray([0.0, -0.0, 0.0, -0.0]), xp.asarray([1.0, 1.0, -1.0, -1.0])
    left = xp.remainder(zeros, divisors)
    assert xp.signbit(left).tolist() == [False, False, True, True] and left.tolist() == [0.0] * 4
    a, b = both([7.5, -7.5, 7.5, -7.5, INF, 1.0, -1.0]), both([2.0, 2.0, -2.0, -2.0, 2.0, INF, INF])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(xp.remainder(a[1], b[1]).numpy(), np.remainder(a[0], b[0]))
    assert xp.imag(xp.asarray([1.0, 2.0])).tolist() == [0.0, 0.0]
    assert xp.clip(xp.asarray([1.0, NAN, 3.0]), NAN, 2.0).isnan().all()
    assert xp.clip(xp.asarray([1, 5, 9]), 2, xp.asarray([9, 4, 9])).tolist() == [2, 4, 9]
    y = xp.asarray([1.0])
    assert xp.clip(y) is not y and xp.clip(y).tolist() == [1.0]


@pytest.mark.parametrize("args", [(5,), (2, 7), (2, 7, 2), (7, 2), (7, 2, -2), (2, 7, -1), (0, 0), (1.5,), (2.0,),
                                  (0.0,), (0, 1, 0.25), (5, 2.0)])  # fmt: skip
def test_ranges(args):
    want = np.arange(*args)
    got = xp.arange(*args)
    assert_same(got, want.astype("int64" if all(isinstance(a, int) for a in args) else "float32"))
    assert xp.arange(*args, dtype=xp.float64).dtype is xp.float64


def test_creation():
    for args in ((0, 1, 5), (2.0, -3.0, 4), (0, 1, 0), (0, 1, 1)):
        for endpoint in (True, False):
            want = np.linspace(*args, endpoint=endpoint, dtype=np.float32)
            assert_same(xp.linspace(*args, endpoint=endpoint), want)
    assert_same(xp.linspace(0, 1j, 3), np.linspace(0, 1j, 3).astype("complex64"))
    for shape in ((3,), (3, 5), (5, 2), (0, 3)):
        for k in (-7, -1, 0, 2, 9, 2**70, -(2**70)):
            want = np.eye(*shape, k=max(-99, min(k, 99)), dtype=np.float32)
            assert_same(xp.eye(*shape, k=k), want)
    assert (
        xp.zeros(3).shape == (3,) and xp.ones((2, 0)).shape == (2, 0) and xp.empty(()).shape == ()
    )
    assert [xp.full((), v).dtype for v in (True, 1, 1.0, 1j)] == [
        xp.bool,
        xp.int64,
        xp.float32,
        xp.complex64,
    ]
    assert xp.full_like(xp.ones(2, dtype=xp.int8), 3).tolist() == [3, 3]
    for k in (-9, -4, -1, 0, 3, 4, 2**70, -(2**70)):
        assert_same(xp.tril(both(MATRIX)[1], k=k), np.tril(MATRIX, max(-9, min(k, 9))))
        assert_same(xp.triu(both(MATRIX)[1], k=k), np.triu(MATRIX, max(-9, min(k, 9))))
    for indexing in ("xy", "ij"):
        axes = [np.arange(2), np.arange(3), np.arange(4)]
        got = xp.meshgrid(*map(rabbet.from_numpy, axes), indexing=indexing)
        assert_same(got, np.meshgrid(*axes, indexing=indexing))
    assert xp.meshgrid() == ()


def test_asarray_copies_as_told():
    x = rabbet.ones(3)
    assert xp.asarray(x) is x and xp.asarray(x, copy=False) is x
    assert xp.asarray(x, copy=True).data_ptr() != x.data_ptr()
    with pytest.raises(
        ValueError, match="asarray: copy=False, but a tensor of float32 on cpu must be copied"
    ):
        xp.asarray(x, dtype=xp.float64, copy=False)
    array = np.ones(3)
    assert xp.asarray(array).data_ptr() == array.ctypes.data
    assert xp.asarray(array, copy=True).data_ptr() != array.ctypes.data
    with pytest.raises(ValueError, match="asarray: copy=False"):
        xp.asarray([1, 2], copy=False)
    with pytest.raises(ValueError, match="asarray: copy=False"):
        xp.asarray(array, dtype=xp.float32, copy=False)
    assert [xp.asarray(v).dtype for v in (True, 1, 1.0, [1j], [1, 2.0])] == [
        xp.bool, xp.int64, xp.float32, xp.complex64, xp.float32,
    ]  # fmt: skip
    assert xp.asarray(memoryview(b"ab")).tolist() == [97, 98]
    leaf = rabbet.ones(2, requires_grad=True)
    assert xp.asarray(leaf * 2).requires_grad


def test_dlpack_goes_both_ways():
    x = xp.arange(4.0)
    assert xp.from_dlpack(x).data_ptr() == x.data_ptr()
    assert xp.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert np.array_equal(np.from_dlpack(x), x.numpy())
    assert xp.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(TypeError, match="__dlpack__"):
        xp.from_dlpack([1.0])


# ---- functions beside NumPy's of the same name


CALLS = {
    "argmax": [((TALL,), {"axis": 1, "keepdims": True}), ((TALL,), {})],
    "argmin": [((TALL,), {"axis": -1})],
    "argsort": [((np.array([3, 1, 3, 2, 1]),), {"stable": True})],
    "all": [((TALL > 0,), {"axis": (0, 2), "keepdims": True}), ((TALL,), {})],
    "any": [((TALL > 9,), {"axis": -1}), ((np.zeros((0, 2)),), {"axis": 0})],
    "broadcast_to": [((np.arange(3), (2, 3)), {})],
    "concat": [(([TALL, TALL[:1]],), {}), (([TALL, MATRIX],), {"axis": None})],
    "copysign": [((np.array([1.0, -2.0, 0.0]), np.array([-0.0, 3.0, -1.0])), {})],
    "count_nonzero": [((TALL > 0,), {"axis": (0, 1)}), ((TALL,), {"keepdims": True})],
    "cumulative_prod": [((TALL,), {"axis": 1, "include_initial": True})],
    "cumulative_sum": [((TALL,), {"axis": -1}), ((np.arange(4),), {"include_initial": True})],
    "diff": [((TALL,), {"axis": 1, "n": 2}), ((np.arange(4.0),), {"prepend": np.array([7.0])})],
    "expand_dims": [((TALL, (0, -1, 2)), {}), ((TALL, -1), {})],
    "fft.fft": [((TALL,), {"n": 5, "axis": 1, "norm": "ortho"})],
    "fft.fftfreq": [((7,), {"d": 0.5, "dtype": "float64"})],
    "fft.fftn": [((TALL,), {"axes": (0, 2)})],
    "fft.fftshift": [((TALL,), {"axes": (1,)}), ((TALL,), {})],
    "fft.hfft": [((TALL + 1j,), {"axis": 1})],
    "fft.ifft": [((TALL + 0j,), {"norm": "forward"})],
    "fft.ifftn": [((TALL + 0j,), {"s": (3, 2), "axes": (1, 2)})],
    "fft.ifftshift": [((TALL,), {"axes": 1})],
    "fft.ihfft": [((TALL,), {"axis": 1})],
    "fft.irfft": [((TALL + 1j,), {"axis": 1, "n": 6})],
    "fft.irfftn": [((TALL + 0j,), {"axes": (0, 1)})],
    "fft.rfft": [((TALL,), {"axis": 0})],
    "fft.rfftfreq": [((6,), {"dtype": "float64"})],
    "fft.rfftn": [((TALL,), {})],
    "flip": [((TALL,), {}), ((TALL,), {"axis": (0, -1)})],
    "isin": [((np.arange(6).reshape(2, 3), np.array([1, 4])), {"invert": True})],
    "linalg.cholesky": [((MATRIX @ MATRIX.T + np.eye(4),), {"upper": True})],
    "linalg.cross": [((TALL, TALL[:, :1]), {})],
    "linalg.det": [((MATRIX,), {})],
    "linalg.diagonal": [((TALL,), {"offset": -1})],
    "linalg.eigvalsh": [((MATRIX + MATRIX.T,), {})],
    "linalg.inv": [((MATRIX,), {})],
    "linalg.matrix_norm": [((TALL,), {"ord": o, "keepdims": True}) for o in ("fro", "nuc", 1, -2, INF)],
    "linalg.matrix_power": [((MATRIX, n), {}) for n in (-2, 0, 3)],
    "linalg.matrix_rank": [((TALL,), {}), ((MATRIX,), {"rtol": 0.5})],
    "linalg.outer": [((np.arange(3), np.arange(4)), {})],
    "linalg.pinv": [((TALL,), {}), ((TALL,), {"rtol": 0.5})],
    "linalg.slogdet": [((MATRIX,), {})],
    "linalg.solve": [((MATRIX, MATRIX[0]), {}), ((TALL @ TALL.mT + np.eye(4), TALL), {})],
    "linalg.svdvals": [((TALL,), {})],
    "linalg.trace": [((TALL,), {"offset": 1}), ((np.arange(6).reshape(2, 3),), {})],
    "linalg.vector_norm": [((TALL,), {"axis": (0, 1), "ord": 3}), ((TALL,), {"keepdims": True})],
    "matmul": [((TALL, TALL.mT), {}), ((np.arange(3), np.arange(6).reshape(3, 2)), {})],
    "max": [((TALL,), {"axis": (0, 1)}), ((np.array([1, 3], np.uint16),), {})],
    "mean": [((TALL,), {"axis": (0, 1), "keepdims": True}), ((TALL,), {"axis": ()})],
    "min": [((TALL,), {}), ((np.array([1.0, NAN]),), {})],
    "moveaxis": [((TALL, (0, 1), (-1, 0)), {}), ((TALL, 0, 2), {})],
    "nonzero": [((TALL > 0,), {})],
    "permute_dims": [((TALL, (2, -3, 1)), {})],
    "prod": [((TALL,), {"axis": (0, 2)}), ((np.arange(1, 5),), {})],
    "repeat": [((TALL, 2), {"axis": 1}), ((TALL, np.array([2, 0, 1])), {"axis": -1}), ((MATRIX, 2), {})],
    "roll": [((TALL, 2), {}), ((TALL, (1, -1)), {"axis": (0, 2)}), ((TALL, 1), {"axis": (0, 1)})],
    "round": [((np.array([0.5 + 1.5j, -2.5 - 0.2j]),), {}), ((np.array([2.5, -0.2]),), {}), ((np.arange(3),), {})],
    "searchsorted": [((np.array([1.0, 2.0, 2.0, 4.0]), np.array([[2.0], [5.0]])), {"side": "right"})],
    "sort": [((TALL,), {"axis": 0}), ((np.array([2.0, NAN, -1.0]),), {})],
    "squeeze": [((TALL[:1, :, :1], (0, -1)), {})],
    "std": [((TALL,), {"axis": (0, 2), "correction": 1.5})],
    "sum": [((TALL,), {"axis": (0, 2)}), ((np.array([200, 100], np.uint8),), {})],
    "take": [((TALL, np.array([-1, 0, 0])), {"axis": 1})],
    "take_along_axis": [((TALL, np.array([[[-1], [0], [2], [1]]])), {"axis": 2})],
    "tensordot": [((TALL, TALL), {"axes": ((1, -1), (1, 2))}), ((MATRIX, TALL[0]), {"axes": 1})],
    "tile": [((TALL, (2, 1, 2, 1)), {}), ((TALL, (2,)), {})],
    "unique_all": [((np.array([[3, 1], [1, 2]]),), {}), ((np.array([2.0, -1.0, 2.0]),), {})],
    "unique_counts": [((np.array([1 + 1j, 2j, 1 + 1j, 1 - 1j]),), {})],
    "unique_inverse": [((np.array([[1 + 1j, 2j], [1 + 1j, 1 - 1j]]),), {})],
    "unique_values": [((np.array([3, 1, 3]),), {})],
    "unstack": [((TALL,), {"axis": 1})],
    "var": [((TALL,), {}), ((TALL,), {"axis": 1, "correction": 1, "keepdims": True})],
    "vecdot": [((TALL + 1j, TALL[0] - 2j), {}), ((np.arange(3), np.arange(3)), {})],
}  # fmt: skip
CASES = [(name, args, options) for name, calls in CALLS.items() for args, options in calls]


def to_rabbet(value):
    if isinstance(value, np.ndarray):
        return rabbet.from_numpy(np.ascontiguousarray(value))
    return [to_rabbet(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name,args,options", CASES, ids=[f"{n}-{o}" for n, _, o in CASES])
def test_values_are_numpys(name, args, options):
    ours = {k: to_rabbet(v) for k, v in options.items()}
    theirs = dict(options)
    if "dtype" in options:
        ours["dtype"], _ = getattr(xp, options["dtype"]), theirs.pop("dtype")
    got = found(name)(*map(to_rabbet, args), **ours)
    if name == "repeat" and "axis" not in theirs:
        theirs["axis"] = None
    assert_same(got, found(name, np)(*args, **theirs))


def test_factorisations_give_the_matrices_back():
    x = rabbet.from_numpy(TALL)
    q, r = xp.linalg.qr(x, mode="complete")
    assert q.shape == (2, 4, 4) and r.shape == (2, 4, 3)
    np.testing.assert_allclose((q @ r).numpy(), TALL, atol=1e-12)
    found = xp.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose((found.U * found.S[:, None, :] @ found.Vh).numpy(), TALL, atol=1e-12)
    assert xp.linalg.svd(x).U.shape == (2, 4, 4)
    square = rabbet.from_numpy(MATRIX)
    pairs = xp.linalg.eig(square)
    left = xp.astype(square, xp.complex128) @ pairs.eigenvectors
    np.testing.assert_allclose(
        left.numpy(), (pairs.eigenvectors * pairs.eigenvalues).numpy(), atol=1e-12
    )
    low = xp.linalg.eigh(square + square.mT)
    rebuilt = low.eigenvectors * low.eigenvalues @ low.eigenvectors.mT
    np.testing.assert_allclose(rebuilt.numpy(), MATRIX + MATRIX.T, atol=1e-12)
    values = np.sort_complex(xp.linalg.eigvals(square).numpy())
    np.testing.assert_allclose(values, np.sort_complex(np.linalg.eigvals(MATRIX)), atol=1e-12)


def test_solve_takes_one_vector_only_where_x2_has_one_dimension():
    systems, matrices = RNG.normal(size=(3, 2, 2)), RNG.normal(size=(3, 2))
    with pytest.raises(ValueError, match=r"linalg\.solve: x2 must have 2 rows"):
        xp.linalg.solve(both(systems)[1], both(matrices)[1])  # PyTorch takes three vectors here
    right = RNG.normal(size=(2, 2))
    got = xp.linalg.solve(both(systems[:2])[1], both(right)[1])
    np.testing.assert_allclose(got.numpy(), np.linalg.solve(systems[:2], right), rtol=1e-9)


def test_unique_elements_of_complex_numbers_keep_nans_apart():
    x = xp.asarray([1 + 1j, complex(NAN, 0), 1 + 1j, complex(NAN, 0), -1j])
    found = xp.unique_all(x)
    assert found.counts.tolist() == [1, 2, 1, 1] and found.indices.tolist() == [4, 0, 1, 3]
    assert found.inverse_indices.tolist() == [1, 2, 1, 3, 0]
    empty = xp.unique_all(xp.asarray([], dtype=xp.complex64))
    assert [t.shape for t in empty] == [(0,)] * 4
    assert xp.unique_counts(xp.asarray([NAN, NAN, 1.0])).counts.tolist() == [1, 1, 1]


def test_sorting_keeps_the_order_of_equal_elements():
    x = rabbet.from_numpy(RNG.integers(0, 3, 200))
    for descending in (False, True):
        want = sorted(range(200), key=lambda i: -x[i].item() if descending else x[i].item())
        assert xp.argsort(x, descending=descending).tolist() == want
    assert xp.sort(xp.asarray([1, 3, 2]), descending=True).tolist() == [3, 2, 1]


def test_searchsorted_with_an_order_and_with_a_number():
    x = xp.asarray([3.0, 1.0, 2.0])
    order = xp.argsort(x)
    assert xp.searchsorted(x, xp.asarray([2.0, 4.0]), sorter=order).tolist() == [1, 3]
    assert xp.searchsorted(xp.asarray([1, 2, 3]), 2).item() == 1
    assert xp.isin(2, xp.asarray([1, 2])).item() and xp.isin(xp.asarray([1, 2]), 2).tolist() == [
        False,
        True,
    ]


def test_views_and_copies():
    x = xp.reshape(xp.arange(6), (2, 3))
    assert xp.reshape(x, (6,), copy=False).data_ptr() == x.data_ptr()
    assert xp.reshape(x, (6,), copy=True).data_ptr() != x.data_ptr()
    assert xp.reshape(x.mT, (6,)).tolist() == [0, 3, 1, 4, 2, 5]
    with pytest.raises(ValueError, match=r"reshape: copy=False, but strides \(1, 3\) cannot show"):
        xp.reshape(x.mT, (6,), copy=False)
    for view in (xp.permute_dims(x, (1, 0)), xp.expand_dims(x, 0), xp.matrix_transpose(x),
                 xp.unstack(x)[0], xp.broadcast_to(x, (4, 2, 3)), xp.linalg.diagonal(x)):  # fmt: skip
        assert view.data_ptr() == x.data_ptr()


def test_gradients_flow_through_the_namespace():
    x = rabbet.tensor([[1.0, 2.5], [3.0, 4.5]], dtype=rabbet.float64, requires_grad=True)

    def function(x):
        y = xp.linalg.solve(xp.matmul(x, x) + xp.eye(2, dtype=x.dtype), xp.exp(x))
        return xp.sum(xp.var(y, axis=0) * xp.remainder(x, 2.0)[0]) + xp.max(
            xp.concat([x, y], axis=None)
        )

    assert rabbet.autograd.gradcheck(function, x)


# ---- the array object, and refusals


def test_attributes_of_the_array_object():
    x = rabbet.ones(2, 3)
    assert x.device == rabbet.device("cpu") and x.mT.shape == (3, 2) and x.T.shape == (3, 2)
    assert x.to_device("cpu") is x and x.to_device(rabbet.device("cpu"), stream=None) is x
    assert x.to_device("meta").is_meta
    with pytest.raises(ValueError, match="to_device: stream must be None, got 1"):
        x.to_device("cpu", stream=1)
    assert [2, 3, 4][rabbet.tensor(1)] == 3 and complex(rabbet.tensor(1 + 2j)) == 1 + 2j


REFUSED = {
    "unary": (lambda: xp.sin("a"), TypeError, "sin"),
    "numbers": (lambda: xp.add(1, 2), TypeError, "add: at least one of x1 and x2 must be a Tensor"),
    "operand": (lambda: xp.add(xp.ones(2), "a"), TypeError, "add: x2 must be a Tensor or a number, got str"),
    "list": (lambda: xp.matmul([1], xp.ones(1)), TypeError, "matmul: x1 must be a Tensor, got list"),
    "axis": (lambda: xp.sum(xp.ones((2, 3)), axis=2), IndexError, r"sum: axis must be in \[-2, 1\] for 2 dimensions, got 2"),
    "axes": (lambda: xp.mean(xp.ones((2, 3)), axis=(0, -2)), ValueError, "mean: axis must not repeat an axis"),
    "axis type": (lambda: xp.flip(xp.ones(2), axis=0.5), TypeError, "flip: axis must be an int, got 0.5"),
    "squeeze": (lambda: xp.squeeze(xp.ones((2, 1)), 0), ValueError, r"squeeze: axis 0 has size 2, expected 1"),
    "expand": (lambda: xp.expand_dims(xp.ones(2), 3), IndexError, r"expand_dims: axis must be in \[-2, 1\]"),
    "permute": (lambda: xp.permute_dims(xp.ones((2, 1)), (0,)), ValueError, "permute_dims: axes must name each of 2 axes"),
    "moveaxis": (lambda: xp.moveaxis(xp.ones((2, 1)), (0, 1), 0), ValueError, "moveaxis: source and destination"),
    "shapes": (lambda: xp.broadcast_shapes((2,), (3,)), ValueError, "broadcast_shapes: .* do not broadcast"),
    "concat": (lambda: xp.concat([]), ValueError, "concat: expected at least one tensor"),
    "concat 0-d": (lambda: xp.concat([xp.ones(())]), ValueError, r"concat: arrays\[0\] has no dimensions"),
    "concat type": (lambda: xp.stack([xp.ones(1), 1]), TypeError, r"stack: arrays\[1\] must be a Tensor, got int"),
    "take": (lambda: xp.take(xp.ones((2, 2)), xp.arange(1)), ValueError, "take: axis may be None for 1 dimension only"),
    "indices": (lambda: xp.take(xp.ones(2), xp.ones((1, 1), dtype=xp.int64)), ValueError, "take: indices must have 1 dimension"),
    "index": (lambda: xp.take(xp.ones(2), xp.asarray([2])), IndexError, "2 is out of"),
    "nonzero": (lambda: xp.nonzero(xp.ones(())), ValueError, "nonzero: x must have at least 1 dimension"),
    "cumulative": (lambda: xp.cumulative_sum(xp.ones((2, 2))), ValueError, "cumulative_sum: axis may be None for 1 dimension"),
    "side": (lambda: xp.searchsorted(xp.ones(1), 1.0, side="up"), ValueError, "searchsorted: side must be 'left' or 'right'"),
    "where": (lambda: xp.where(xp.ones(1), 1, xp.ones(1)), TypeError, "where: condition must be bool, got float32"),
    "repeat": (lambda: xp.repeat(xp.ones(2), -1), ValueError, "repeat: repeats must not be negative, got -1"),
    "repeats": (lambda: xp.repeat(xp.ones(2), xp.asarray([1, -1])), ValueError, "repeat: repeats must not be negative"),
    "roll": (lambda: xp.roll(xp.ones(2), (1, 2), axis=0), ValueError, "roll: got 2 shifts for 1 axes"),
    "diff": (lambda: xp.diff(xp.ones(2), n=-1), ValueError, "diff: n must not be negative"),
    "step": (lambda: xp.arange(1, 2, 0), ValueError, "arange: step must not be 0"),
    "num": (lambda: xp.linspace(0, 1, -1), ValueError, "linspace: num must not be negative, got -1"),
    "tril": (lambda: xp.tril(xp.ones(2)), ValueError, r"tril: x must have at least 2 dimensions, got shape \(2,\)"),
    "indexing": (lambda: xp.meshgrid(xp.ones(1), indexing="yx"), ValueError, "meshgrid: indexing must be 'xy' or 'ij'"),
    "meshgrid dtypes": (lambda: xp.meshgrid(xp.ones(1), xp.arange(1)), RuntimeError, "meshgrid: expected tensors of one dtype"),
    "meshgrid": (lambda: xp.meshgrid(xp.ones((1, 1))), ValueError, r"meshgrid: arrays\[0\] must have at most 1 dimension"),
    "matmul": (lambda: xp.matmul(xp.ones((2, 3)), xp.ones((2, 3))), ValueError, "matmul: the last size of x1"),
    "matmul 0-d": (lambda: xp.matmul(xp.ones(()), xp.ones(1)), ValueError, "matmul: x1 must have at least 1 dimension"),
    "tensordot": (lambda: xp.tensordot(xp.ones((2, 3)), xp.ones((2, 3)), axes=1), ValueError, "tensordot: the axes must have equal sizes"),
    "tensordot n": (lambda: xp.tensordot(xp.ones(2), xp.ones(2), axes=2), ValueError, "tensordot: axes must be 0 to 1"),
    "vecdot": (lambda: xp.vecdot(xp.ones(3), xp.ones(1)), ValueError, "vecdot: axis -1 must have the same size"),
    "vecdot axis": (lambda: xp.vecdot(xp.ones(3), xp.ones((3, 3)), axis=-2), IndexError, "vecdot: axis -2 is out of range for x1"),
    "transpose": (lambda: xp.matrix_transpose(xp.ones(3)), ValueError, "matrix_transpose: x must have at least 2"),
    "square": (lambda: xp.linalg.inv(xp.ones((2, 3))), ValueError, r"linalg\.inv: x must hold square matrices"),
    "cross": (lambda: xp.linalg.cross(xp.ones(2), xp.ones(2)), ValueError, r"linalg\.cross: axis -1 of x1 must have size 3"),
    "outer": (lambda: xp.linalg.outer(xp.ones((2, 1)), xp.ones(2)), ValueError, r"linalg\.outer: x1 must have 1 dimension"),
    "qr": (lambda: xp.linalg.qr(xp.ones((2, 2)), mode="r"), ValueError, r"linalg\.qr: mode must be 'reduced' or 'complete'"),
    "singular": (lambda: xp.linalg.inv(xp.zeros((2, 2))), RuntimeError, "singular"),
    "norm": (lambda: xp.fft.fft(xp.ones(2), norm="half"), ValueError, r"fft\.fft: norm must be 'backward', 'ortho' or 'forward'"),
    "fftfreq": (lambda: xp.fft.fftfreq(4, dtype=xp.int64), ValueError, r"fft\.fftfreq: dtype must be a real floating dtype, got int64"),
    "fftshift": (lambda: xp.fft.fftshift(xp.ones(2), axes=1), IndexError, r"fft\.fftshift: axes must be in \[-1, 0\]"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_by_name(case):
    call, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        call()
