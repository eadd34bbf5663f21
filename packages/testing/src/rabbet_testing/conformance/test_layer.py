"""A layer: every operator with it on and off, errors, nests, threads, and what it costs where it is off."""

import pytest
import rabbet
from rabbet import library

from rabbet_testing.cases import op_names
from rabbet_testing.conformance.subject import is_installed
from rabbet_testing.judges import layers
from rabbet_testing.judges.reasons import Reason


def pytest_generate_tests(metafunc):
    if "op" in metafunc.fixturenames:
        metafunc.parametrize("op", op_names())


@pytest.fixture(scope="session")
def through(plugin):
    return layers.through(plugin.name, plugin.params("layer"))


@pytest.fixture(scope="session")
def opaque():
    @library.op("conformance::opaque(Tensor x) -> Tensor", kind="opaque", shape="x.shape")
    def opaque(x):
        return x.detach() * 2 - x.sum()

    return opaque


@pytest.fixture(scope="session")
def failing():
    @library.op("conformance::failing(Tensor x) -> Tensor", kind="opaque", shape="x.shape")
    def failing(x):
        raise layers.Boom("from a kernel")

    return failing


def test_results_are_kept(op, through):
    layers.judge_results(through, op)


def test_results_in_place_are_kept(op, through):
    layers.judge_results(through, op, inplace=True)


def test_errors_pass_through(op, through):
    layers.judge_errors(through, op)


def test_nests_with_grad_and_vmap(op, through, report):
    if not (is_installed("rabbet.func") and is_installed("rabbet.autograd")):
        report.not_implemented(
            "it needs other wheels: pip install rabbet-autograd rabbet-vmap", Reason.NO_WHEEL
        )
    layers.judge_nests(through, op)


def test_it_is_off_outside(through):
    layers.judge_off(through)


def test_exceptions_leave_nothing_behind(through):
    layers.judge_exceptions(through)


def test_threads_are_independent(through):
    layers.judge_threads(through)


def test_it_nests_with_itself(through):
    layers.judge_nesting(through)


def test_an_operator_without_rules_is_right_or_refused(through, opaque):
    layers.judge_unknown_operator(through, opaque)


def test_an_exception_of_a_kernel_comes_through(through, failing):
    layers.judge_kernel_errors(through, failing)


def test_tensors_are_given_back(through):
    x = rabbet.linspace(0.5, 2.0, 5, dtype=getattr(rabbet, through.dtype))
    for _ in range(3):
        through(lambda y: ((y * y).sum(),), x)
    before = rabbet._C.live_counts()["tensors"]
    for _ in range(50):
        through(lambda y: ((y * y).sum(),), x)
    left = rabbet._C.live_counts()["tensors"] - before
    assert left <= 0, f"{through.name}: 50 uses leave {left} tensors"


def test_what_is_off_costs_nothing(layer, report):
    layers.judge_cost(layer, report.note)
