"""Operators that the tests of rabbet.library make, and the fixture that takes them back."""

import numpy as np
import pytest
import rabbet
from rabbet import library

SCALE = "mine::scale(Tensor x, float a=2.0) -> Tensor"


@pytest.fixture(autouse=True)
def clean():
    """Operators of a test are gone after it."""
    before = set(rabbet._C.record_names())
    yield
    from rabbet import _registrations

    for registration in reversed(list(_registrations._registered.values())):
        if registration.name not in before or registration.target != "operator":
            registration.revoke()
    assert set(rabbet._C.record_names()) == before


def scale_op(**fields):
    @library.op(SCALE, **fields)
    def scale(x, a):
        """The tensor times a number."""
        return x * a

    return scale


def opaque_op(**fields):
    """One that the transforms do not look into."""

    @library.op("mine::opaque(Tensor x) -> Tensor", kind="opaque", **fields)
    def opaque(x):
        return rabbet.tensor(np.exp(x.numpy()))

    return opaque


def run_cell(source, scope, name="<ipython-input-1>"):
    exec(compile(source, name, "exec"), scope)


CELL = """
from rabbet import library
@library.op("mine::cell(Tensor x{more}) -> Tensor")
def cell(x{names}):
    return x + {value}
"""
