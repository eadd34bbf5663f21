"""NumPy's scalars and arrays as tensor data: they keep their dtype; as operands they are numbers."""

import subprocess
import sys

import numpy as np
import pytest
import rabbet

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "float32", "float64", "complex64", "complex128"]  # fmt: skip
MAKERS = [rabbet.tensor, rabbet.as_tensor, rabbet.asarray]


def scalar(name):
    return np.dtype(name).type(1)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("name", DTYPES)
def test_a_scalar_keeps_its_dtype(make, name):
    one = scalar(name)
    dtype = getattr(rabbet, name)
    forms = [
        one,
        [one],
        (one, one),
        [[one], [one]],
        np.array(one),
        [np.array(one)],
        [np.array([one])],
        [[one, one], np.array([one, one])],
    ]
    for form in forms:
        made = make(form)
        assert made.dtype is dtype and (made == 1).all(), form
        assert made.shape == np.array(form).shape


@pytest.mark.parametrize(
    "name", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
)
def test_arrays_have_the_types_that_numpy_names(name):
    array = rabbet.ones(2).to(getattr(rabbet, name)).numpy()
    assert array.dtype.num == np.dtype(name).num and array.dtype.type is getattr(np, name)
    assert memoryview(rabbet.tensor([2, 3], dtype=getattr(rabbet, name))).tolist() == [2, 3]


def test_long_integers_of_c_are_int64():
    assert rabbet.tensor(np.longlong(3)).dtype is rabbet.int64
    assert rabbet.tensor(np.intc(3)).dtype is rabbet.int32
    assert rabbet.tensor(np.uint64(2**63 + 1)).item() == 2**63 + 1


@pytest.mark.parametrize(
    "data, dtype",
    [
        ([np.float32(1), np.float64(1)], "float64"),
        ([np.float16(1), np.float32(1)], "float32"),
        ([np.int8(1), np.float16(1)], "float16"),
        ([1.5, np.float16(1)], "float32"),
        ([1, np.int8(1)], "int64"),
        ([True, np.int8(1)], "int8"),
        ([np.complex64(1), np.float64(1)], "complex128"),
    ],
)
def test_several_dtypes_promote(data, dtype):
    assert rabbet.tensor(data).dtype is getattr(rabbet, dtype)


def test_the_exact_number_is_kept():
    assert rabbet.tensor(np.float64(0.1)).item() == 0.1
    assert rabbet.tensor([np.float64(0.1)]).tolist() == [0.1]


def test_where_the_dtype_is_another_ones_it_stays():
    x = rabbet.ones(2)
    one = np.float64(1)
    assert x.new_tensor(one).dtype is rabbet.float32
    assert rabbet.scalar_tensor(one).dtype is rabbet.float32
    assert rabbet.full((2,), one).dtype is rabbet.float32
    assert rabbet.full((2,), np.int8(1)).dtype is rabbet.int64
    assert rabbet.Tensor([one]).dtype is rabbet.float32
    assert rabbet.tensor(one, dtype=rabbet.int8).dtype is rabbet.int8


@pytest.mark.parametrize("name", [n for n in DTYPES if n != "bool"])
def test_an_operand_is_a_number(name):
    one = scalar(name)
    kind = np.dtype(name).kind
    for x in (
        rabbet.ones(2),
        rabbet.ones(2, dtype=rabbet.int8),
        rabbet.ones(2, dtype=rabbet.float16),
    ):
        python = {"c": 1j, "f": 1.0}.get(kind, 1)
        assert (x + one).dtype is (x + python).dtype
        assert rabbet.mul(x, one).dtype is (x * python).dtype
        assert (one * x).dtype is (x * python).dtype
        assert type(one + x) is rabbet.Tensor
        assert rabbet.result_type(x, one) is rabbet.result_type(x, python)


def test_long_doubles_are_numbers_but_no_data():
    number = np.longdouble(1.5)
    assert rabbet.full((2,), number).tolist() == [1.5, 1.5]
    assert (rabbet.ones(2) * number).tolist() == [1.5, 1.5]
    assert rabbet.tensor(number, dtype=rabbet.float64).item() == 1.5
    if np.dtype(np.longdouble).itemsize > 8:
        for data in (number, [number], np.array(number), [np.array(number)]):
            with pytest.raises(TypeError):
                rabbet.tensor(data)


@pytest.mark.parametrize(
    "bad",
    [np.datetime64("2020"), np.timedelta64(1, "s"), np.void(b"ab"), np.str_("a"), np.bytes_(b"a")],
)
def test_scalars_that_are_no_numbers_are_refused(bad):
    for data in (bad, [bad], [1.0, bad]):
        with pytest.raises((TypeError, ValueError)):
            rabbet.tensor(data)


def test_numpy_is_not_imported():
    code = "import sys, rabbet; rabbet.tensor([1.5, 2]); assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_asarray_shares_an_array_or_refuses_with_copy_false():
    array = np.ones((2, 3))
    assert rabbet.asarray(array.T, copy=False).data_ptr() == array.ctypes.data
    assert rabbet.asarray(np.ones((0, 3)), copy=False).shape == (0, 3)
    assert rabbet.asarray(array, dtype=rabbet.float32).dtype is rabbet.float32
    for obj, options in (
        (array, {"dtype": rabbet.float32}),
        ([1.0], {}),
        (1.0, {}),
        (np.float64(1.0), {}),
    ):
        with pytest.raises(ValueError, match="asarray: copy=False, but this data cannot be shared"):
            rabbet.asarray(obj, copy=False, **options)
