"""The budget of instructions of small calls, and the tool that holds it."""

import check_instructions
import pytest
from check_instructions import tiny_calls


def test_a_statement_above_its_budget_is_named():
    lines = check_instructions.exceeded(
        {"a + b": 1031, "x[0]": 1029}, {"a + b": 1000, "x[0]": 1000}
    )
    assert lines == ["a + b: 1031 instructions, the budget is 1000"]


def test_a_statement_without_a_budget_is_named():
    assert check_instructions.exceeded({"x.t()": 5}, {}) == ["x.t(): 5 instructions, no budget"]


def test_instructions_are_those_of_the_statement():
    if reason := tiny_calls.why_not():
        pytest.skip(reason)
    counts = tiny_calls.count_instructions(["a + b", "a + b + b"])
    assert 300 < counts["a + b"] < counts["a + b + b"] < 2 * counts["a + b"] + 50


def test_a_failing_statement_is_an_error():
    if reason := tiny_calls.why_not():
        pytest.skip(reason)
    with pytest.raises(RuntimeError, match="nothing_of_this_name"):
        tiny_calls.count_instructions(["nothing_of_this_name"])
