"""Reductions and scans of one dtype to another convert as they read: the same results, no copy."""

import subprocess
import sys

import numpy as np
import pytest
import rabbet
from rabbet import accelerator

INTEGERS = ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
DTYPES = ["bool", *INTEGERS, *FLOATS, "complex64", "complex128"]
SHAPES = {  # name: (shape, dimensions reduced, how the tensor lies)
    "all": ((300_007,), None),
    "rows": ((70, 1500), 1),
    "few long rows": ((3, 40_000), 1),
    "columns": ((600, 40), 0),
    "short rows": ((500, 5), 1),
    "a middle dimension": ((5, 37, 11), 1),
    "two dimensions": ((6, 7, 50), (0, 2)),
    "nothing": ((0, 3), 0),
}


def numbers(shape, dtype, seed=0):
    """Small whole numbers and halves, which every sum below holds exactly in float64."""
    values = np.random.default_rng(seed).integers(0, 5, shape) / 2
    return rabbet.tensor(values).to(getattr(rabbet, dtype))


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype in (rabbet.float16, rabbet.bfloat16):
        a, b = a.float(), b.float()
    np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("result", DTYPES)
def test_a_sum_in_another_dtype_is_that_of_the_cast_tensor(source, result):
    dtype = getattr(rabbet, result)
    for shape, dim in SHAPES.values():
        x = numbers(shape, source)
        same(x.sum(dim, dtype=dtype), x.to(dtype).sum(dim, dtype=dtype))
    x = numbers((40, 60, 3), source)
    for view in (x.transpose(0, 2), x[::2, 1:, 1:], x[:, 5], x[:, :, :1].expand(40, 60, 9)):
        same(view.sum(1, dtype=dtype), view.to(dtype).sum(1, dtype=dtype))
        same(view.sum(dtype=dtype), view.to(dtype).sum(dtype=dtype))


@pytest.mark.parametrize("source", DTYPES)
def test_sums_are_numpys(source):
    x = numbers((50, 70), source)
    exact = x.to(rabbet.complex128 if "complex" in source else rabbet.float64).numpy()
    for dim in (None, 0, 1):
        expected = exact.sum(dim)
        np.testing.assert_array_equal(x.sum(dim, dtype=rabbet.complex128).numpy(), expected)
        np.testing.assert_array_equal(x.sum(dim, dtype=rabbet.float64).numpy(), expected.real)
        if source in INTEGERS or source == "bool":
            assert x.sum(dim).dtype == rabbet.int64
            np.testing.assert_array_equal(x.sum(dim).numpy(), expected)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("result", ["bool", "uint8", "int64", "float16", "float32", "complex128"])
def test_products_and_scans_in_another_dtype_are_those_of_the_cast_tensor(source, result):
    dtype = getattr(rabbet, result)
    for shape, dim in (((13, 900), 1), ((30, 17), 0), ((4, 5, 6), 1), ((2, 70_000), 1), ((0,), 0)):
        x = numbers(shape, source)
        for name in ("prod", "cumsum", "cumprod"):
            op = getattr(rabbet, name)
            same(op(x, dim, dtype=dtype), op(x.to(dtype), dim, dtype=dtype))
        view = x.movedim(0, -1)
        at = dim - 1 if dim else x.ndim - 1
        same(view.cumsum(at, dtype=dtype), view.to(dtype).cumsum(at, dtype=dtype))


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("result", [*FLOATS, "complex64"])
def test_a_mean_in_another_dtype_is_that_of_the_cast_tensor(source, result):
    dtype = getattr(rabbet, result)
    for shape, dim in (((70, 1500), 1), ((600, 40), 0), ((5, 37, 11), None)):
        x = numbers(shape, source)
        same(x.mean(dim, dtype=dtype), x.to(dtype).mean(dim))


@pytest.mark.parametrize("source", [*INTEGERS, "bool"])
def test_logsumexp_of_integers_is_that_of_floats(source):
    x = numbers((40, 60), source)
    for dim in (0, 1):
        same(rabbet.logsumexp(x, dim), rabbet.logsumexp(x.float(), dim))


@pytest.mark.parametrize("source", FLOATS)
def test_nansum_leaves_out_nan(source):
    x = numbers((50, 700), source)
    x[3:30:4, ::3] = float("nan")
    exact = x.double().numpy()
    for dim in (None, 0, 1, (0, 1)):
        expected = np.nansum(exact, dim)
        np.testing.assert_array_equal(x.nansum(dim, dtype=rabbet.float64).numpy(), expected)
        same(x.nansum(dim), rabbet.tensor(expected).to(x.dtype))
    same(x.nansum(1, dtype=rabbet.int64), x.nan_to_num(0.0).to(rabbet.int64).sum(1))
    y = x.double().requires_grad_()
    y.nansum().backward()
    np.testing.assert_array_equal(y.grad.numpy(), ~np.isnan(exact))


def test_nansum_of_integers_is_their_sum():
    x = numbers((7, 9), "int32")
    same(x.nansum(0), x.sum(0))
    with pytest.raises(TypeError, match="nansum"):
        rabbet.ones(3, dtype=rabbet.complex64).nansum()


def test_wide_integers_wrap_as_their_casts_do():
    x = rabbet.tensor([2**40 + 3, -(2**33), 5, 2**62]).repeat(400)
    for dtype in (rabbet.int8, rabbet.uint16, rabbet.int32, rabbet.uint64):
        same(x.sum(dtype=dtype), x.to(dtype).sum(dtype=dtype))
        same(x.prod(dtype=dtype), x.to(dtype).prod(dtype=dtype))


def test_the_number_of_threads_does_not_change_a_converted_sum():
    x = (rabbet.rand(400_001) * 100).half()
    threads, sums = rabbet.get_num_threads(), set()
    try:
        for n in (1, 2, 3):
            rabbet.set_num_threads(n)
            sums.add(
                (x.sum(dtype=rabbet.float32).item(), x.cumsum(0, dtype=rabbet.float64)[-1].item())
            )
    finally:
        rabbet.set_num_threads(threads)
    assert len(sums) == 1


def test_the_destination_may_share_memory_with_the_input():
    memory = rabbet.arange(64, dtype=rabbet.int64)
    narrow = memory.view(rabbet.uint8)[:64]
    expected = narrow.to(rabbet.int64).cumsum(0)
    rabbet.cumsum(narrow, 0, dtype=rabbet.int64, out=memory)
    same(memory, expected)


SOME = ["bool", "int32", "int64", "float16", "float64", "complex128"]
REDUCTIONS = {
    "sum": (lambda x, dtype: x.sum(dtype=dtype), DTYPES),
    "sum of rows": (lambda x, dtype: x.view(64, -1).sum(1, dtype=dtype), SOME),
    "sum of columns": (lambda x, dtype: x.view(-1, 64).sum(0, dtype=dtype), SOME),
    "mean": (lambda x, dtype: x.mean(dtype=dtype), [*FLOATS, "complex128"]),
    "prod": (lambda x, dtype: x.prod(dtype=dtype), SOME),
    "nansum": (lambda x, dtype: x.nansum(dtype=dtype), FLOATS),
}
ALONE = {  # in the dtype of the input, or their own
    "sum": (lambda x: x.sum(), DTYPES),
    "prod": (lambda x: x.prod(), DTYPES),
    "nansum": (lambda x: x.nansum(), ["bool", *INTEGERS, *FLOATS]),
    "mean": (lambda x: x.mean(), [*FLOATS, "complex64", "complex128"]),
    "var": (lambda x: x.var(), [*FLOATS, "complex64", "complex128"]),
    # Of 16-bit floats std computes in a float32 copy, to round once.
    "std": (lambda x: x.std(), ["float32", "float64"]),
    "logsumexp": (lambda x: x.logsumexp(0), ["bool", *INTEGERS, *FLOATS]),
    "any": (lambda x: x.any(), DTYPES),
    "all": (lambda x: x.all(), DTYPES),
    "count_nonzero": (lambda x: x.count_nonzero(), DTYPES),
    "amax": (lambda x: x.amax(), ["bool", *INTEGERS, *FLOATS]),
    "amin": (lambda x: x.amin(), ["bool", *INTEGERS, *FLOATS]),
    "argmax": (lambda x: x.argmax(), ["bool", *INTEGERS, *FLOATS]),
    "argmin": (lambda x: x.argmin(), ["bool", *INTEGERS, *FLOATS]),
    "max of dim": (lambda x: x.max(0), ["bool", *INTEGERS, *FLOATS]),
}
COUNT = 1 << 21
ROOM = 1_200_000  # bytes for the buffers of two threads; a copy of the input takes 2 MB at least


def extra_bytes(call):
    """What the allocator of the CPU handed out at most while `call` ran."""
    accelerator.reset_peak_memory_stats("cpu")
    before = accelerator.memory_allocated("cpu")
    call()
    return accelerator.max_memory_allocated("cpu") - before


@pytest.fixture
def two_threads():
    threads = rabbet.get_num_threads()
    rabbet.set_num_threads(2)
    yield
    rabbet.set_num_threads(threads)


@pytest.mark.parametrize("source", DTYPES)
def test_no_reduction_copies_its_input(source, two_threads):
    x = numbers((COUNT,), source)
    for name, (op, dtypes) in REDUCTIONS.items():
        if name == "nansum" and source not in FLOATS:
            continue
        for result in dtypes:
            used = extra_bytes(lambda: op(x, getattr(rabbet, result)))  # noqa: B023
            assert used < ROOM, f"{name} of {source} to {result} takes {used} bytes"
    for name, (alone, dtypes) in ALONE.items():
        if source in dtypes:
            used = extra_bytes(lambda: alone(x))  # noqa: B023
            assert used < ROOM, f"{name} of {source} takes {used} bytes"
    for name in ("cumsum", "cumprod"):
        for result in SOME:
            dtype = getattr(rabbet, result)
            used = extra_bytes(lambda: getattr(x, name)(0, dtype=dtype))  # noqa: B023
            assert used < ROOM + COUNT * dtype.itemsize, f"{name} of {source} to {result}: {used}"


RSS = """
import resource, rabbet
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
x = rabbet.ones(40_000_000, dtype=rabbet.bool)
x[:1000].sum(dtype=rabbet.float64)
before = peak()
assert x.sum().item() == x.sum(dtype=rabbet.float64).item() == 40_000_000
assert x.view(100, -1).sum(1, dtype=rabbet.float32).tolist() == [400_000.0] * 100
assert x.view(-1, 100).mean(0, dtype=rabbet.float32).tolist() == [1.0] * 100
print(peak() - before)
"""


def test_the_process_does_not_grow_by_a_sum_of_bools():
    done = subprocess.run([sys.executable, "-c", RSS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 20_000_000, "the input in int64 would be 320 MB"
