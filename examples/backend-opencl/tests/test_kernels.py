"""What the records' cases do not reach: integers and bools, strides, empty and 0-d tensors, sizes that split the work."""

import numpy as np
import pytest
import rabbet

RNG = np.random.default_rng(0)
DTYPES = ("bool", "int32", "int64", "float32", "float64")


def array(dtype, *shape):
    if dtype == "bool":
        return np.asarray(RNG.random(shape) < 0.5)
    return np.asarray(RNG.standard_normal(shape) * 5, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_and_strides(dtype, both):
    a, b, row = array(dtype, 4, 6), array(dtype, 6, 4), array(dtype, 6)
    both(lambda a, b: a + b.t(), a, b)
    both(lambda a, b: (a[:, ::2] * b.t()[:, 1::2], a[1:3, None] == b.t()[None, 2:4]), a, b)
    both(lambda a, r: (rabbet.maximum(a, r), a > r, a.expand(2, 4, 6) * r), a, row)
    both(lambda a: (a.sum(), a.sum(0), a.any(1), a.all(), a.t().cumsum(0)), a)
    both(lambda a: (a.amax(1), a.argmin(0), a.max(1)[1], a.sort(1)[0], a.sort(0, True)[1]), a)
    both(lambda a: (a.flip(0), a.roll(3), a.tril(1), rabbet.cat([a, a[:1]]), a.t().clone()), a)
    both(lambda a: (a.to(rabbet.float32), a.to(rabbet.bool), a.to(rabbet.int64)), a)
    both(lambda a: (a[[2, 0]], a[:, [1, 1]], a[a != 0], (a != 0).nonzero()), a)


@pytest.mark.parametrize("dtype", ("int32", "int64", "float64"))
def test_quotients_round_as_on_the_cpu(dtype, both):
    a, b = array(dtype, 50), array(dtype, 50)
    b[b == 0] = 3
    both(lambda a, b: (a // b, a % b, rabbet.fmod(a, b), a / b), a, b)
    both(lambda a, b: (rabbet.div(a, b, rounding_mode="trunc"), rabbet.clamp(a, -2, 2)), a, b)
    both(lambda a: (a**2, abs(a), -a, a.sign(), rabbet.clamp(a, min=1)), a)


def test_bits_and_shifts(both):
    a, b = array("int64", 40), array("int64", 40)
    both(lambda a, b: (a & b, a | b, a ^ b, ~a, a << (b % 5), a >> (b % 5)), a, b)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1)])
def test_empty_and_0d(shape, both):
    x = array("float32", *shape)
    both(lambda x: (x + 1, x.exp(), x.sum(), x * x, x.clone(), x > 0, x.reshape(-1), x.all()), x)
    both(lambda x: (x.softmax(-1) if x.ndim else x, x.cumsum(0) if x.ndim else x), x)
    both(lambda x: x.reshape(-1, 1) @ x.reshape(1, -1), x)


def test_special_values(both):
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 1.5, 2.5, -2.5], "float32")
    both(lambda x: (x.isnan(), x.isinf(), x.isfinite(), x.round(), x.relu(), x.clamp(-1, 1)), x)
    both(lambda x: (x.max(), x.argmax(), x.sort()[0], x.sort()[1], x.sort(descending=True)[1]), x)
    both(lambda x: (rabbet.maximum(x, x.flip(0)), x // 2, x % 2, x.sgn()), x)


def test_sizes_that_split_the_work(both):
    x = array("float32", 3, 100_003)
    both(lambda x: (x.sum(), x.sum(1), x.mean(), x.t().sum(1)), x, rtol=1e-5, atol=2e-2)
    both(lambda x: (x.max(1)[0], x.max(1)[1], x.argmin(), x.amin(), (x > -100).all()), x)
    both(lambda x: (x.sort(1)[0][:, ::1000], x.topk(7)[1]), x)
    assert abs(rabbet.full((1 << 22,), 0.1, device="opencl").sum().item() - 0.1 * (1 << 22)) < 1


@pytest.mark.parametrize("m,n,k", [(1, 1, 1), (65, 63, 17), (130, 70, 200), (3, 200, 0)])
def test_products_of_any_size_and_stride(m, n, k, both):
    a, b = array("float32", m, k), array("float32", k, n)
    close = {"rtol": 1e-4, "atol": 1e-3}
    both(lambda a, b: (a @ b, (b.t() @ a.t()).t(), a @ b[:, 0]), a, b, **close)
    batch = array("float32", 2, 1, m, k)
    both(lambda x, b: x.expand(2, 3, *x.shape[2:]) @ b, batch, b, **close)


def test_results_with_strides_of_their_own(both):
    def write(x):
        out = rabbet.zeros(5, 4, device=x.device).t()
        rabbet.matmul(x, x.t() @ x.new_ones(4, 5) if x.shape[0] != 4 else x.new_ones(5, 5), out=out)
        other = rabbet.zeros(5, 4, device=x.device).t()
        rabbet.softmax(x, 1, out=other)
        other[1:3] += x[:2]
        return out, other

    both(write, array("float32", 4, 5))


def test_convolutions_with_all_their_numbers(both):
    conv = rabbet.ops("convolution")
    x, w, b = array("float32", 3, 4, 9, 8), array("float32", 6, 2, 3, 2), array("float32", 6)
    close = {"rtol": 1e-4, "atol": 1e-3}
    both(lambda x, w, b: conv(x, w, b, [2, 1], [1, 1], [1, 2], 2), x, w, b, **close)
    both(lambda x, w: conv(x[:, :, 0], w[:, :, 0], None, [2], [1], [1], 2), x, w, **close)
    both(lambda x, w: conv(x.to(memory_format=rabbet.channels_last) if hasattr(rabbet, "channels_last") else x,
                           w, None, [1], [0], [1], 2), x, w, **close)  # fmt: skip


def test_sums_with_repeated_indices_are_the_same_in_every_run(both):
    x, index = array("float32", 50, 8), RNG.integers(0, 5, 50)
    both(
        lambda x, i: rabbet.zeros(5, 8, device=x.device).index_add(0, i, x),
        x,
        index,
        rtol=1e-5,
        atol=1e-5,
    )
    runs = [
        rabbet.zeros(5, device="opencl").index_put(
            (rabbet.tensor(index, device="opencl"),), rabbet.tensor(x[:, 0], device="opencl"), accumulate=True
        ).tolist()
        for _ in range(3)
    ]  # fmt: skip
    assert runs[0] == runs[1] == runs[2]
