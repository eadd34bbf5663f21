"""The composite tensors of a layer: operators, derivatives, copies, writes, readers, threads, and what files may hold."""

import pytest

from rabbet_testing.cases import op_names
from rabbet_testing.conformance.subject import Subject, is_installed
from rabbet_testing.judges import composites, layers
from rabbet_testing.judges.processes import run_module
from rabbet_testing.judges.reasons import Reason


def pytest_generate_tests(metafunc):
    if "op" in metafunc.fixturenames:
        metafunc.parametrize("op", op_names())


@pytest.fixture(scope="session")
def through(plugin):
    return layers.through(plugin.name, plugin.params("layer"))


def test_operators_see_the_values(op, through):
    composites.judge_results(through, op)


def test_operators_in_place_see_the_values(op, through):
    composites.judge_results(through, op, inplace=True)


def test_wrong_shapes_are_refused(op, through):
    composites.judge_errors(through, op)


def test_derivatives_and_batches(op, through, report):
    if not (is_installed("rabbet.func") and is_installed("rabbet.autograd")):
        report.not_implemented(
            "it needs other wheels: pip install rabbet-autograd rabbet-vmap", Reason.NO_WHEEL
        )
    composites.judge_transforms(through, op)


def test_copies_are_whole(through):
    composites.judge_copies(through)


def test_writes_are_seen(through):
    composites.judge_writes(through)


def test_views_and_bases_see_writes(through):
    composites.judge_views(through)


def test_readers_get_copies_of_the_values(through):
    composites.judge_reading(through)


def test_several_threads(through):
    composites.judge_threads(through)


def test_nothing_is_left(through):
    composites.judge_leaks(through)


def test_damaged_composites_are_refused(plugin: Subject):
    """As a file may hold them; in a process of its own, which a layer that believes it takes down."""
    given = ("damage", "layer", plugin.name, plugin.library, plugin.module)
    findings = run_module("probes", *given)[0]
    assert not findings, "\n".join(findings)


def test_calls_on_plain_tensors_cost_nothing(layer, report):
    layers.judge_cost(layer, report.note)
