"""Products with something added to them, and with an activation: against NumPy and against the steps."""

from typing import Any

import numpy as np
import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from rabbet import ops

FLOATS = [rabbet.float64, rabbet.float32, rabbet.float16, rabbet.bfloat16]
TOLERANCE = {
    rabbet.float64: 1e-12,
    rabbet.float32: 2e-5,
    rabbet.float16: 2e-3,
    rabbet.bfloat16: 2e-2,
}


def random(dtype: Any, *shape: int, seed: int = 0) -> Any:
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    if dtype in (rabbet.complex64, rabbet.complex128):
        values = values + 1j * np.random.default_rng([seed + 1, *shape]).standard_normal(shape)
    elif dtype not in FLOATS:
        values = np.round(values * 5)
    return rabbet.tensor(values).to(dtype)


def exact(t: Any) -> np.ndarray:
    return np.asarray(t.to(rabbet.complex128 if t.is_complex() else rabbet.float64))


def close(got: Any, want: np.ndarray, tolerance: float) -> None:
    got = exact(got)
    assert got.shape == want.shape
    np.testing.assert_allclose(
        got, want, rtol=tolerance, atol=tolerance * (abs(want).max(initial=1))
    )


@pytest.mark.parametrize("dtype", FLOATS)
@given(
    m=st.integers(0, 70),
    n=st.integers(1, 70),
    k=st.integers(0, 70),
    kind=st.sampled_from(["row", "column", "matrix", "turned", "one"]),
    turned=st.tuples(st.booleans(), st.booleans()),
    beta=st.sampled_from([0, 1, 0.5, -2]),
    alpha=st.sampled_from([1, 0, -1.5]),
)
@settings(max_examples=25, deadline=None)
def test_addmm(
    dtype: Any, m: int, n: int, k: int, kind: str, turned: Any, beta: float, alpha: float
) -> None:
    a = random(dtype, k, m).t() if turned[0] else random(dtype, m, k)
    b = random(dtype, n, k).t() if turned[1] else random(dtype, k, n)
    shape = {"row": (n,), "column": (m, 1), "matrix": (m, n), "turned": (n, m), "one": ()}[kind]
    c = random(dtype, *shape, seed=3)
    if kind == "turned":
        c = c.t()
    want = beta * exact(c) + alpha * (exact(a) @ exact(b))
    close(rabbet.addmm(c, a, b, beta=beta, alpha=alpha), want, TOLERANCE[dtype])
    whole = c.expand(m, n).clone()
    whole.addmm_(a, b, beta=beta, alpha=alpha)
    close(whole, want, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [*FLOATS, rabbet.int32, rabbet.complex64])
@given(
    b=st.integers(0, 5),
    m=st.integers(0, 40),
    n=st.integers(1, 40),
    k=st.integers(0, 40),
    kind=st.sampled_from(["each", "one", "vector", "turned", "column", "gaps"]),
    beta=st.sampled_from([0, 1, -2]),
)
@settings(max_examples=25, deadline=None)
def test_a_row_for_each_product(
    dtype: Any, b: int, m: int, n: int, k: int, kind: str, beta: int
) -> None:
    x, y = random(dtype, b, m, k), random(dtype, b, n, k).transpose(1, 2)
    c = {
        "each": lambda: random(dtype, b, 1, n, seed=3),
        "one": lambda: random(dtype, 1, 1, n, seed=3),
        "vector": lambda: random(dtype, n, seed=3),
        "turned": lambda: random(dtype, n, 1, b, seed=3).transpose(0, 2),
        "column": lambda: random(dtype, b, m, 1, seed=3),
        "gaps": lambda: random(dtype, 2 * b, 1, n, seed=3)[::2],
    }[kind]()
    want = beta * exact(c) + exact(x) @ exact(y)
    close(rabbet.baddbmm(c, x, y, beta=beta), want, TOLERANCE.get(dtype, 2e-5))
    whole = c.expand(b, m, n).clone()  # of one row: the result is what is added
    whole.baddbmm_(x, y, beta=beta)
    close(whole, want, TOLERANCE.get(dtype, 2e-5))


@pytest.mark.parametrize("dtype", [*FLOATS, rabbet.int32, rabbet.uint8, rabbet.complex64])
@pytest.mark.parametrize("shape", [(3, 9, 4), (9, 4), (1, 1, 4), (4,)])
def test_baddbmm(dtype: Any, shape: tuple[int, ...]) -> None:
    a, b = random(dtype, 3, 9, 40), random(dtype, 3, 40, 4)
    c = random(dtype, *shape, seed=5)
    alpha = 2 - 1j if dtype == rabbet.complex64 else 2
    got = rabbet.baddbmm(c, a, b, beta=3, alpha=alpha)
    assert got.dtype == dtype
    want = 3 * exact(c) + alpha * (exact(a) @ exact(b))
    if dtype == rabbet.uint8:
        want = want % 256
    close(got, want, TOLERANCE.get(dtype, 2e-5))


def test_what_beta_0_leaves_out_is_not_read() -> None:
    nan = rabbet.full([2, 2], float("nan"))
    eye = rabbet.eye(2)
    assert rabbet.equal(rabbet.addmm(nan, eye, eye, beta=0), eye)
    nan.addmm_(eye, eye, beta=0)
    assert rabbet.equal(nan, eye)
    c = rabbet.ones(2, 2, requires_grad=True)
    w = rabbet.ones(2, 2, requires_grad=True)
    rabbet.addmm(c, eye, w, beta=0).sum().backward()
    assert c.grad.tolist() == [[0, 0], [0, 0]] and w.grad is not None


def test_operands_may_be_the_destination() -> None:
    x = random(rabbet.float32, 20, 20)
    want = exact(x) + exact(x) @ exact(x)
    x.addmm_(x, x)
    close(x, want, 2e-5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"])
@pytest.mark.parametrize("shape", [(1, 3), (5, 7), (2, 40, 33), (70, 300)])
def test_activation_of_a_linear_map(dtype: Any, activation: str, shape: tuple[int, ...]) -> None:
    x, w = random(dtype, *shape), random(dtype, 45, shape[-1]) / shape[-1] ** 0.5
    for bias in (random(dtype, 45, seed=2), None):
        y = ops.linear(x.double(), w.double(), None if bias is None else bias.double())
        name, rest = (
            ("gelu", {"approximate": "tanh"}) if activation == "gelu_tanh" else (activation, {})
        )
        want = exact(getattr(ops, name)(y, **rest))
        got = ops.linear_activation(x, w, bias, activation=activation)
        assert got.dtype == dtype
        close(got, want, TOLERANCE[dtype])


def test_activation_is_recorded_as_its_steps() -> None:
    x, w = random(rabbet.float64, 3, 4), random(rabbet.float64, 5, 4).requires_grad_()
    ops.linear_activation(x, w, None, activation="gelu").sum().backward()
    got, w.grad = w.grad, None
    ops.gelu(ops.linear(x, w, None)).sum().backward()
    assert rabbet.equal(got, w.grad)


@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.bfloat16])
@pytest.mark.parametrize("sizes", [(1, 768, 3072), (8, 513, 900), (36, 64, 512), (900, 300, 5)])
def test_threads_change_no_bit(dtype: Any, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    x, w, b = random(dtype, m, k), random(dtype, n, k), random(dtype, n)
    before, results = rabbet.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            rabbet.set_num_threads(threads)
            results.append(ops.linear_activation(x, w, b, activation="tanh"))
    finally:
        rabbet.set_num_threads(before)
    assert all(rabbet.equal(r, results[0]) for r in results)
    close(
        results[0],
        np.tanh(exact(x) @ exact(w).T + exact(b)),
        2e-2 if dtype != rabbet.float32 else 1e-4,
    )


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda z: rabbet.addmm(z(3), z(2, 4), z(4, 2)), ValueError, ["addmm", "'input'", "(3,)", "(2, 2)"]),
        (lambda z: rabbet.addmm(z(2, 2, 2), z(2, 4), z(4, 2)), ValueError, ["addmm", "'input'"]),
        (lambda z: rabbet.addmm(z(2), z(2, 4), z(3, 2)), ValueError, ["addmm", "mat1 is (2, 4)", "mat2 is (3, 2)"]),
        (lambda z: rabbet.addmm(z(2), z(4), z(4, 2)), ValueError, ["addmm", "'mat1'", "2 dimensions"]),
        (lambda z: rabbet.baddbmm(z(2), z(2, 3, 4), z(3, 4, 2)), ValueError, ["baddbmm", "b differs: batch1 has 2, batch2 3"]),
        (lambda z: z(1, 2).addmm_(z(3, 4), z(4, 2)), ValueError, ["addmm"]),
        (lambda z: ops.linear_activation(z(2, 3), z(4, 3), activation="mish"), ValueError, ["'activation'", "'mish'"]),
        (lambda z: ops.linear_activation(z(2, 3), z(4, 2)), ValueError, ["linear_activation", "in_features differs: input has 3, weight 2"]),
    ],
)  # fmt: skip
def test_bad_input(call: Any, error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        call(rabbet.zeros)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_factors_of_integers_lose_their_fractions_as_in_pytorch():
    x = rabbet.ones(2, 2, dtype=rabbet.int64)
    assert rabbet.addmm(x, x, x, beta=0.9, alpha=1.9).tolist() == [[2, 2], [2, 2]]
    assert rabbet.baddbmm(x, x[None], x[None], beta=0.9, alpha=2.5).tolist() == [[[4, 4], [4, 4]]]
    assert rabbet.addbmm(x, x[None], x[None], beta=1.5, alpha=0.5).tolist() == [[1, 1], [1, 1]]
    assert rabbet.addmv(x[0], x, x[0], beta=0.9, alpha=1.9).tolist() == [2, 2]
