"""First and second derivatives of every differentiable operator, against finite differences."""

import pytest
import rabbet
from rabbet.autograd import gradcheck, gradgradcheck
from rabbet_testing import cases, differentiable_ops, differentiable_part


def _all(name, dtype):
    found = list(cases(name, dtype, requires_grad=True))
    for case in found:
        call, inputs = differentiable_part(case)
        if inputs and call(*inputs):
            yield case, call, inputs


@pytest.mark.parametrize("name", differentiable_ops())
def test_gradient_matches_finite_differences(name):
    checked = 0
    for case, call, inputs in _all(name, rabbet.float64):
        assert gradcheck(call, inputs), str(case)
        checked += 1
    assert checked or name in WITHOUT_CASES, f"no case for {name}: add one to rabbet_testing.cases"


# Operators that only exist in place or between devices; tests of their own cover them.
WITHOUT_CASES = {"copy", "fill", "zero", "to_device", "as_strided", "as_strided_copy", "dropout", "sgn_vjp", "mask_indices", "nonzero",
                 "count_nonzero", "signbit", "argsort", "fused_adam", "fused_sgd", "fused_rmsprop", "fused_adagrad", "fused_adamax", "fused_nadam",
                 "fused_radam", "foreach_norm", "foreach_scale", "foreach_clamp"}  # fmt: skip


@pytest.mark.parametrize("name", differentiable_ops())
def test_second_derivative_matches_finite_differences(name):
    for case, call, inputs in _all(name, rabbet.float64):
        assert gradgradcheck(call, inputs, atol=1e-4), str(case)


COMPLEX = ["add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "reciprocal", "sin", "cos", "tanh", "abs", "conj",
           "real", "imag", "sum", "mean", "matmul", "clone", "sigmoid"]  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradient_matches_finite_differences(name):
    for case, call, inputs in _all(name, rabbet.complex128):
        assert gradcheck(call, inputs), str(case)
