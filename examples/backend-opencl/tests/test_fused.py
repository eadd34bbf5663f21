"""An elementwise operator is one record: core writes the kernels of its formulas, for the CPU and for this device."""

from pathlib import Path

import numpy as np
import pytest
import rabbet
from rabbet import _C
from rabbet.nn import functional as F

RNG = np.random.default_rng(0)
ROOT = Path(__file__).parents[1]
# Operators that no source of this backend names.
OPERATORS = {
    "sigmoid": rabbet.sigmoid,
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "elu": lambda x: F.elu(x, 0.7),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "hardswish": F.hardswish,
    "rsqrt": lambda x: rabbet.rsqrt(x * x + 1.0),
}


def gradient(f, x):
    leaf = x.detach().requires_grad_()
    f(leaf).sum().backward()
    return leaf.grad


@pytest.mark.parametrize("name", OPERATORS)
def test_one_record_is_one_kernel_on_both_devices(name, both):
    f = OPERATORS[name]
    kernels = _C.op_info(name)["formula_kernels"]
    assert set(kernels["decomp"]) >= {"cpu", "opencl"}
    assert set(kernels["vjp input"]) >= {"cpu", "opencl"}
    for source in (*ROOT.glob("csrc/*"), *ROOT.glob("kernels/*")):
        assert f'"{name}"' not in source.read_text(), source.name
    x = RNG.standard_normal((7, 33)).astype(np.float32) * 3
    for view in (lambda a: a, lambda a: a.t(), lambda a: a[::2, 1::3], lambda a: a[:0]):
        both(lambda a, view=view: f(view(a)), x, rtol=1e-5, atol=1e-6)
        both(lambda a, view=view: gradient(f, view(a)), x, rtol=1e-5, atol=1e-6)


def test_operands_that_broadcast_and_numbers_in_their_place(both):
    x, y, row = (RNG.standard_normal(s).astype(np.float32) for s in ((4, 5), (4, 5), (5,)))
    both(lambda x, y, r: rabbet.lerp(x, y, r), x, y, row, rtol=1e-5, atol=1e-6)
    both(lambda x, y: rabbet.lerp(x, y.t().contiguous().t(), 0.25), x, y, rtol=1e-5, atol=1e-6)
    both(lambda x, r: rabbet.addcmul(x, r, r, value=0.5), x, row, rtol=1e-5, atol=1e-6)
    both(lambda x, r: rabbet.logaddexp(x, r), x, row, rtol=1e-5, atol=1e-6)


def test_what_is_fused_writes_no_temporary():
    x = rabbet.tensor(RNG.standard_normal((64, 256)).astype(np.float32)).to("opencl")
    F.mish(x)
    before = _C.memory_stats("opencl")["allocation.all.allocated"]
    kept = F.mish(x)
    assert _C.memory_stats("opencl")["allocation.all.allocated"] - before == 1
    assert kept.shape == x.shape


def test_a_record_given_at_run_time_is_fused_too(run):
    """The catalogue is made when the backend loads: one more record, and nothing else."""
    code = """
import rabbet
from rabbet import _C, library
@library.op("mine::bump(Tensor input, Scalar height=1) -> Tensor", decomp="height * exp(-input * input)",
            vjp={"input": "-2 * grad * out * input"})
def bump(input, height=1):
    raise AssertionError("the formula runs in place of this")
x = rabbet.tensor([0.0, 1.0, -2.0])
there = x.to("opencl")
print("opencl" in _C.op_info("mine::bump")["formula_kernels"].get("decomp", {}))
print(rabbet.allclose(rabbet.ops.mine.bump(there, 3).cpu(), 3 * (-x * x).exp(), rtol=1e-5))
"""
    assert run(code).split() == ["True", "True"]


def test_integers_run_the_formula(both):
    both(
        lambda x: rabbet.addcmul(x, x, x + 2, value=3),
        RNG.integers(0, 9, 20).astype(np.int32),
        rtol=1e-6,
    )
