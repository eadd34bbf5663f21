"""What a call costs the host, counted with a driver that does nothing, beside the CPU's calls."""

import pytest
from check_instructions import tiny_calls

MOST = {"a + b": 1.6, "a * 2.0": 1.4}  # times the CPU's instructions


@pytest.fixture(scope="module")
def counts(null_driver):
    """Instructions by device and statement."""
    if reason := tiny_calls.why_not():
        pytest.skip(reason)
    return {
        device: tiny_calls.count_instructions(list(MOST), device, null_driver)
        for device in ("cpu", "cuda")
    }


@pytest.mark.parametrize("code", MOST)
def test_calls_on_the_device_take_few_more_instructions_than_on_the_cpu(counts, code):
    assert 1 < counts["cuda"][code] / counts["cpu"][code] <= MOST[code]


def test_memory_its_return_and_a_launch_take_less_than_2000_instructions(counts):
    assert counts["cuda"]["a + b"] <= 2000  # the interpreter's share included
