"""L3: derivatives, batching, mixed precision and their nests, over every operator on the device."""

import warnings

import pytest

from rabbet_testing.cases import differentiable_ops, op_names
from rabbet_testing.conformance.subject import is_installed
from rabbet_testing.judges import batching, gradients, nests, policies
from rabbet_testing.judges.reasons import Reason
from rabbet_testing.judges.reference import meaningful

WHEELS = {
    "autograd": "rabbet-autograd",
    "func": "rabbet-vmap",
    "vmap": "rabbet-vmap",
    "amp": "rabbet-autocast",
}
OPERATORS = {
    "differentiable": differentiable_ops,
    "complex": lambda: [n for n in differentiable_ops() if meaningful(n, "complex128")],
    "batched": lambda: batching.OPS,
    "batched_complex": lambda: [n for n in batching.OPS if meaningful(n, "complex128")],
    "cast": lambda: [n for n in op_names() if "::" not in n],
    "cast_gradients": lambda: [n for n in op_names() if "::" not in n and policies.policy_of(n) != "pass"],
}  # fmt: skip


def operators(which, *modules):
    """Parametrise a test by operators; it needs wheels, whose absence is no failure of the device."""

    def mark(test):
        test.operators, test.modules = which, modules
        return test

    return mark


def pytest_generate_tests(metafunc):
    if hasattr(metafunc.function, "operators"):
        metafunc.parametrize("op", OPERATORS[metafunc.function.operators]())


@pytest.fixture(autouse=True)
def wheels(request, report):
    for module in getattr(request.function, "modules", ()):
        if not is_installed(f"rabbet.{module}"):
            report.not_implemented(
                f"it needs another wheel: pip install {WHEELS[module]}", Reason.NO_WHEEL
            )
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "vmap: ", UserWarning
        )  # running example by example is right
        yield


@operators("differentiable", "autograd")
def test_gradient_matches_finite_differences(op, device):
    gradients.judge_first(op, device)


@operators("differentiable", "autograd")
def test_second_derivative_matches_finite_differences(op, device):
    gradients.judge_second(op, device)


@operators("complex", "autograd")
def test_complex_gradient_matches_finite_differences(op, device):
    gradients.judge_complex(op, device)


@operators("complex", "autograd")
def test_complex_second_derivative_matches_finite_differences(op, device):
    gradients.judge_complex_second(op, device)


@operators("differentiable", "autograd")
def test_forward_mode_matches_finite_differences(op, device):
    gradients.judge_forward(op, device, is_complex=False)


@operators("complex", "autograd")
def test_complex_forward_mode_matches_finite_differences(op, device):
    gradients.judge_forward(op, device, is_complex=True)


@operators("differentiable", "autograd", "func")
def test_forward_mode_agrees_with_backward_mode(op, device):
    gradients.judge_modes(op, device)


@operators("batched", "vmap")
def test_vmap_is_the_loop(op, device):
    batching.judge(op, device)


@operators("batched_complex", "vmap")
def test_vmap_is_the_loop_of_complex_numbers(op, device):
    batching.judge_complex(op, device)


@pytest.mark.parametrize("low", policies.LOW)
@operators("cast", "amp")
def test_autocast_obeys_the_policy(op, low, device):
    policies.judge(op, low, device)


@pytest.mark.parametrize("low", policies.LOW)
@operators("cast_gradients", "autograd", "amp")
def test_gradients_through_autocast(op, low, device):
    policies.judge_gradients(op, low, device)


@operators("differentiable", "autograd", "func")
def test_vmap_of_vmap(op, device):
    nests.judge_vmap_of_vmap(op, device)


@operators("differentiable", "autograd", "func")
def test_grad_and_vmap(op, device):
    nests.judge_grad_and_vmap(op, device)


@operators("differentiable", "autograd", "func")
def test_second_derivatives_in_every_order(op, device):
    nests.judge_second_derivatives(op, device)


@operators("differentiable", "autograd", "func")
def test_second_derivatives_of_examples(op, device):
    nests.judge_second_derivatives_of_examples(op, device)
