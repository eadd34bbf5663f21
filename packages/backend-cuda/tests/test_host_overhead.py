"""What a call costs the host, counted with a driver that does nothing, beside the CPU's calls."""

import pytest
from check_instructions import tiny_calls

MOST = {  # times the CPU's instructions
    "a + b": 1.6,
    "a * 2.0": 1.4,
    "x.sum()": 1.95,
    "x.sum(-1)": 1.3,
    "x.softmax(-1)": 1.1,
    "layer_norm(x, (4,), v, v)": 1.1,
    "x @ x": 1.8,  # by cuBLASLt
    "x @ v": 1.1,  # by a kernel of ours
    "x.index_select(0, i)": 1.2,
    "cat([x, x])": 1.4,
    "x.clone()": 1.6,
    "x.double()": 1.3,
    "x.fill_(1.0)": 1.3,
    "zeros_like(x)": 1.5,
}


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
    assert counts["cuda"][code] <= MOST[code] * counts["cpu"][code]


def test_memory_its_return_and_a_launch_take_less_than_2000_instructions(counts):
    assert counts["cuda"]["a + b"] <= 2000  # the interpreter's share included
