"""Below a level a formula with a kernel runs as one kernel on what the examples stand for."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import rabbet
from rabbet import _C
from rabbet.func import grad, vmap
from rabbet.nn import functional as F

# 64 examples of 256 float32: blocks that the allocator counts.
EXAMPLES, SIZE = 64, 256
CHAIN = 5


def allocations(run: Callable[[], Any]) -> int:
    run()  # what is made once
    before = _C.memory_stats("cpu")["allocation.all.allocated"]
    kept = run()
    made = _C.memory_stats("cpu")["allocation.all.allocated"] - before
    assert kept.shape == (EXAMPLES, SIZE)
    return int(made)


@pytest.fixture
def step_by_step() -> Iterator[None]:
    before = _C.use_formula_kernels(False)
    yield
    _C.use_formula_kernels(before)


def chain(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for _ in range(CHAIN):
            x = function(x)
        return x.sum()

    return run


CHAINS = [F.gelu, F.silu, F.mish, rabbet.sigmoid, F.softplus]


@pytest.mark.parametrize("function", CHAINS, ids=lambda f: f.__name__)
def test_grad_of_a_chain_allocates_results_only(function: Callable[[Any], Any]) -> None:
    """One block for each operator's result and one for each derivative: no temporaries."""
    x = rabbet.randn(EXAMPLES, SIZE)
    expand = 1  # the gradient of the sum
    made = allocations(lambda: vmap(grad(chain(function)))(x))
    assert made <= 2 * CHAIN + expand


def test_the_count_sees_temporaries(step_by_step: None) -> None:
    x = rabbet.randn(EXAMPLES, SIZE)
    assert allocations(lambda: vmap(grad(chain(F.silu)))(x)) > 4 * CHAIN


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "lerp": lambda x, y: rabbet.lerp(x, y, 0.3),
    "lerp of three": lambda x, y: rabbet.lerp(x, y, x * 0.5),
    "addcdiv": lambda x, y: rabbet.addcdiv(x, y, y * y + 2.0, value=0.7),
    "logaddexp": rabbet.logaddexp,
    "mul": lambda x, y: x * y,
    "pow": lambda x, y: (x * x + 1.0) ** y,
    "clamp": lambda x, y: x.clamp(-0.5, 0.5) * y,
    "prelu": rabbet.ops("prelu"),
    "mish": lambda x, y: F.mish(x) + y,
}


@pytest.mark.parametrize("dims", [(0, 0), (1, 0), (0, None), (None, 0)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_batched_gradients_are_those_of_each_example(name: str, dims: tuple[Any, Any]) -> None:
    rng = np.random.default_rng(3)
    f = FUNCTIONS[name]

    def loss(x: Any, y: Any) -> Any:
        return f(x, y).sum()

    def one(shape_of_dim: Any) -> Any:
        shape = {0: (4, 6), 1: (6, 4), None: (6,)}[shape_of_dim]
        return rabbet.tensor(rng.standard_normal(shape), dtype=rabbet.float64)

    x, y = one(dims[0]), one(dims[1])
    batched = vmap(grad(loss, argnums=(0, 1)), in_dims=dims)(x, y)
    for i in range(4):
        a, b = (t if d is None else t.select(d, i) for t, d in zip((x, y), dims, strict=True))
        for got, want in zip(batched, grad(loss, argnums=(0, 1))(a, b), strict=True):
            assert got[i].tolist() == want.tolist()  # the same kernel: the same bits


def test_an_example_of_numbers_and_two_levels() -> None:
    x = rabbet.randn(3, 4, dtype=rabbet.float64)
    twice = vmap(vmap(grad(lambda t: F.silu(t) * t)))(x)
    s = rabbet.sigmoid(x)
    want = 2 * x * s + x * x * s * (1 - s)
    np.testing.assert_allclose(twice.numpy(), want.numpy(), rtol=1e-12)


def test_mixed_dtypes_promote_as_without_a_level() -> None:
    x, y = rabbet.ones(3), rabbet.ones(3, dtype=rabbet.float64) * 2
    assert vmap(lambda a, b: rabbet.lerp(a, b, 0.5))(x, y).dtype == rabbet.float64
    row = rabbet.ones(5)
    out = vmap(lambda b: rabbet.lerp(row, b, 0.5))(y)  # a number beside a row: the row's dtype
    assert out.dtype == rabbet.float32 and out.tolist() == [[1.5] * 5] * 3


def test_second_derivatives_under_a_level_are_recorded() -> None:
    x = rabbet.randn(4, dtype=rabbet.float64)
    second = vmap(grad(grad(lambda t: rabbet.tanh(t))))(x)
    t = np.tanh(x.numpy())
    np.testing.assert_allclose(second.numpy(), -2 * t * (1 - t * t), rtol=1e-12)
