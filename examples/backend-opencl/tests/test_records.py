"""Every operator that core's records describe, on the device and on the CPU, from the cases of the conformance kit.

Composites run here by their decompositions, so this is also the test that the kernels are enough.
"""

import pytest
import rabbet
from rabbet import _C
from rabbet_testing import assert_close, cases

# The kit draws nothing for these that the CPU takes; test_kernels.py has them, or the training does.
WITHOUT_CASES = {"random", "randperm", "bernoulli.tensor", "softmax_vjp", "log_softmax_vjp"}
WITHOUT_CASES |= {n for n in _C.record_names() if _C.op_info(n)["accepts"] == "int"}
# What a device without complex dtypes does not have.
MISSING = {"complex": "no kernel for 'opencl'"}
NAMES = [
    n for n in _C.record_names() if _C.op_info(n)["kind"] != "creation" and n not in WITHOUT_CASES
]
PRIMITIVES = [
    n for n in _C.record_names() if not _C.op_info(n)["has_decomp"] and not _C.op_info(n)["view"]
]


def moved(value):
    if isinstance(value, rabbet.Tensor):
        return value.to("opencl")
    if isinstance(value, (list, tuple)):
        return type(value)(moved(v) for v in value)
    return value


def tensors(value):
    if isinstance(value, rabbet.Tensor):
        return [value]
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


def agree(name, dtype, **tolerances):
    for host, case in zip(list(cases(name, dtype)), list(cases(name, dtype)), strict=True):
        case.args = [moved(a) for a in case.args]
        rabbet.manual_seed(0)
        expected = tensors(host.run()) or tensors(host.args)
        rabbet.manual_seed(0)
        if str(case) in MISSING:
            with pytest.raises(RuntimeError, match=MISSING[str(case)]):
                case.run()
            continue
        found = tensors(case.run()) or tensors(case.args)
        assert len(found) == len(expected)
        for there, here in zip(found, expected, strict=True):
            assert there.device.type == ("cpu" if name == "to_device" else "opencl"), str(case)
            assert (there.dtype, there.shape) == (here.dtype, here.shape), str(case)
            assert_close(there.cpu(), here, **tolerances)


@pytest.mark.parametrize("name", NAMES)
def test_operators_agree_with_the_cpu_in_float32(name):
    agree(name, rabbet.float32, rtol=2e-4, atol=2e-5)


# One of each family: the text of the kernels is one for all dtypes.
@pytest.mark.parametrize(
    "name",
    ["add", "pow", "gelu", "clamp", "sum", "max.dim", "softmax", "sort", "matmul", "convolution", "convolution_dx",
     "convolution_dw", "avg_pool", "index_put", "scatter_add", "layer_norm", "normal", "uniform", "fused_adam"],
)  # fmt: skip
def test_operators_agree_with_the_cpu_in_float64(name):
    agree(name, rabbet.float64, rtol=1e-9, atol=1e-10)


def test_every_primitive_has_a_kernel_but_the_complex_one():
    rabbet.zeros(1, device="opencl")
    by_core = {"empty", "empty_like", "to_device", "contiguous_clone"}
    without = {n for n in PRIMITIVES if "opencl" not in _C.op_info(n)["kernels"]}
    assert without - by_core == {"complex"} and len(PRIMITIVES) > 140
