"""A layer: every operator with it on and off, errors, nests, threads, and what it costs where it is off."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import rabbet
from rabbet import library

from rabbet_testing.cases import op_names
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
    if find_spec("rabbet.func") is None or find_spec("rabbet.autograd") is None:
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


COST = """
import sys, time, rabbet
from rabbet_testing.conformance.subject import find_layer
from rabbet_testing.judges import layers
from rabbet_testing.judges.reasons import Reason
x = rabbet.ones(4)
x + x
if len(sys.argv) > 1:
    subject = find_layer(sys.argv[1])
    t = layers.through(subject.name, subject.params("layer"))
    t(lambda y: (y + y,), rabbet.ones(4, dtype=getattr(rabbet, t.dtype)))
def once():
    start = time.perf_counter()
    for _ in range(5000):
        x + x
    return (time.perf_counter() - start) / 5000 * 1e9
print(min(once() for _ in range(60)))
"""


def cost(*arguments):
    command = [sys.executable, "-c", COST, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_what_is_off_costs_nothing(through, layer, report):
    """L4 of a layer: the best of many rounds, in processes of their own, with a bound for noisy machines."""
    without, off = min(cost() for _ in range(2)), min(cost(layer) for _ in range(2))
    report.note(
        f"an addition takes {without:.0f} ns; after {layer} was used and switched off {off:.0f} ns"
    )
    assert off <= 1.5 * without + 50, (
        f"{layer} is off, but an addition takes {off:.0f} ns instead of {without:.0f}"
    )
