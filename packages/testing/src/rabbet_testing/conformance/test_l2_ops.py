"""L2: every operator in every dtype that the device declares, against a float64 reference; and bad calls."""

from rabbet import _C

from rabbet_testing.cases import creation_names, op_names
from rabbet_testing.conformance.plugin import subject_of
from rabbet_testing.judges import altered, bad_calls
from rabbet_testing.judges.reference import Judgement, declared_dtypes, meaningful


def pytest_generate_tests(metafunc):
    device = subject_of(metafunc.config).name
    if "dtype" in metafunc.fixturenames:
        dtypes = declared_dtypes(device)
        pairs = [
            (n, d) for n in [*op_names(), *creation_names()] for d in dtypes if meaningful(n, d)
        ]
        metafunc.parametrize(("op", "dtype"), pairs, ids=[f"{n}-{d}" for n, d in pairs])
    elif "op" in metafunc.fixturenames:
        metafunc.parametrize("op", op_names())


def test_operator_agrees_with_the_reference(op, dtype, device, plugin, report):
    for note in Judgement(device, op, dtype, plugin.params("L2")).run():
        report.note(note)


def test_bad_calls_are_refused(op, device, report):
    for note in bad_calls.judge(device, op):
        report.note(note)


def test_the_meta_device_refuses_what_the_device_refuses(op, device):
    altered.judge(device, op)


def test_there_are_operators(device):
    kind = device.partition(":")[0]
    kernels = [n for n in _C.record_names() if kind in _C.op_info(n)["kernels"]]
    assert kernels, f"{device} has no kernel at all"
