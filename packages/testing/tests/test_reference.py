"""What the comparison with a reference allows for, and what it does not."""

import numpy as np
import pytest
import rabbet
from rabbet_testing.cases import Case
from rabbet_testing.judges.reference import Judgement, difference, expected


def test_near_a_pole_the_last_digit_of_the_argument_counts():
    x = rabbet.tensor([-1.0 + 1e-4, 0.5], dtype=rabbet.float64)
    want = expected(Case("digamma", [x]), "float64")
    at_the_pole, elsewhere = want.condition(0)
    assert 1e-9 < at_the_pole < 1e-6 and elsewhere < 1e-14


def test_a_difference_beyond_the_slack_is_found():
    want, got = np.array([1.0, 100.0]), np.array([1.0, 100.1])
    assert "[1]" in difference(got, want, 1e-6)
    assert not difference(got, want, 1e-6, np.array([0.0, 0.2]))
    assert "[0]" in difference(want + 0.1, want, 1e-6, np.array([0.0, 0.2]))


@pytest.mark.parametrize(("op", "lost"), [("sin", True), ("neg", False)])
def test_integers_that_a_float_cannot_hold_are_given_to_what_keeps_them(op, lost):
    judged = Judgement("cpu", op, "int64")
    case = Case(op, [rabbet.tensor([2**40 + 1])], label="exact")
    assert judged._rounds(case) is lost
