"""A pack of operators: for each of them what rabbet.library.opcheck judges, over calls that fit its schema."""

import pytest
from rabbet import _C

from rabbet_testing.conformance.plugin import subject_of
from rabbet_testing.conformance.subject import is_installed
from rabbet_testing.judges import packs
from rabbet_testing.judges.reasons import Reason
from rabbet_testing.judges.reference import Judgement


def pytest_generate_tests(metafunc):
    subject = subject_of(metafunc.config)
    ops, given = packs.operators(subject.name), packs.given_calls(subject.params("ops"))
    if "dtype" in metafunc.fixturenames:
        pairs = [(op, d) for op in ops for d in packs.dtypes(op, given)]
        metafunc.parametrize(("op", "dtype"), pairs, ids=[f"{op}-{d}" for op, d in pairs])
    elif "op" in metafunc.fixturenames:
        metafunc.parametrize("op", ops)


@pytest.fixture(scope="session")
def given(plugin):
    return packs.given_calls(plugin.params("ops"))


def judge(op, test, dtype, given, report):
    try:
        notes = packs.judge(op, test, dtype, given)
    except packs.Missing as what:
        report.not_implemented(str(what), Reason.NO_RULE)
    for note in notes:
        report.note(note)


def chosen(op, dtypes, given, report):
    """The first of some dtypes in which the operator is judged."""
    offered = packs.dtypes(op, given)
    if not set(dtypes) & set(offered):
        report.not_implemented(f"{op} takes none of {', '.join(dtypes)}", Reason.NO_RULE)
    return next(d for d in dtypes if d in offered)


def needs(wheel, module, report):
    if not is_installed(module):
        report.not_implemented(f"it needs another wheel: pip install {wheel}", Reason.NO_WHEEL)


def test_it_keeps_its_schema(op, dtype, given, report):
    """It writes and shares what the schema says, and nothing else."""
    judge(op, "test_schema", dtype, given, report)


def test_it_agrees_with_its_reference(op, dtype, report):
    """With the function that its record names, or what the record says it is made of."""
    info = _C.op_info(op)
    if not info["ref"] and not (info["has_decomp"] and info["kernels"]):
        report.not_implemented(
            f"the record of {op} names no reference, and no other way to its result", Reason.NO_RULE
        )
    for note in Judgement("cpu", op, dtype).run():
        report.note(note)


def test_its_shape_rule(op, dtype, given, report):
    """Meta tensors have the shapes and dtypes of the results."""
    judge(op, "test_shape", dtype, given, report)


def test_its_derivative(op, given, report):
    """Against finite differences, in float64."""
    needs("rabbet-autograd", "rabbet.autograd", report)
    judge(op, "test_derivative", chosen(op, packs.DOUBLE, given, report), given, report)


def test_vmap_is_the_loop(op, given, report):
    needs("rabbet-vmap", "rabbet.vmap", report)
    dtypes = ["float64", "float32", "bfloat16", "float16"]
    judge(op, "test_vmap", chosen(op, dtypes, given, report), given, report)


def test_its_dtype_under_autocast(op, given, report):
    needs("rabbet-autocast", "rabbet.amp", report)
    judge(op, "test_autocast", chosen(op, ["float32"], given, report), given, report)
