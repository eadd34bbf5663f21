"""What a call costs the host, counted with a driver that does nothing."""

import pytest
from check_instructions import tiny_calls

MOST = {  # instructions of one call, the interpreter's share included
    "a + b": 1270,
    "a * 2.0": 1390,
    "x.sum()": 3320,
    "x.sum(-1)": 3820,
    "x.softmax(-1)": 3380,
    "layer_norm(x, (4,), v, v)": 5650,
    "x @ x": 3250,  # by cuBLASLt
    "x @ v": 2760,  # by a kernel of ours
    "x.index_select(0, i)": 3680,
    "cat([x, x])": 5540,
    "x.clone()": 1650,
    "x.double()": 2550,
    "x.fill_(1.0)": 3140,
    "zeros_like(x)": 2550,
}


@pytest.fixture(scope="module")
def counts(null_driver):
    """Instructions by statement."""
    if reason := tiny_calls.why_not():
        pytest.skip(reason)
    return tiny_calls.count_instructions(list(MOST), "cuda", null_driver)


@pytest.mark.parametrize("code", MOST)
def test_calls_keep_to_their_budgets(counts, code):
    assert counts[code] <= MOST[code]
