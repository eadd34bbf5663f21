"""L4: what a call of a tiny operator costs beside its kernel. Bounds are generous, since machines are noisy."""

import gc
import time

import pytest
import rabbet
from rabbet import _C

from rabbet_testing.judges.gradients import offered

TINY = {
    "add": lambda x: x + x,
    "mul by a number": lambda x: x * 2.0,
    "view": lambda x: x[:1],
}
HOST_BOUND = 3e-6  # seconds for a call whose kernel runs at once, in host memory
DEVICE_BOUND = 2e-4  # for one that is put into a queue
CALLS, SECONDS = 1000, 1.0  # in a round; for all rounds


def best(call):
    """Seconds for a call, in the best of many rounds: what is left is not the machine's noise."""
    for _ in range(20):
        call()
    found, begin = [], time.perf_counter()
    while not found or (time.perf_counter() - begin < SECONDS and min(found) > HOST_BOUND / 10):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append((time.perf_counter() - start) / CALLS)
    return min(found)


@pytest.fixture
def tiny(device):
    return rabbet.tensor([1.0, 2.0, 3.0, 4.0]).to(device)


@pytest.mark.parametrize("what", TINY)
def test_a_tiny_call_is_cheap(what, device, tiny, report):
    backend = next(b for b in _C.backends() if b["name"] == device.partition(":")[0])
    bound = HOST_BOUND if backend["host_memory"] else DEVICE_BOUND
    with offered(what):
        taken = best(lambda: TINY[what](tiny))
    report.note(
        f"{what}: {taken * 1e9:.0f} ns for a call on {device}, the bound is {bound * 1e9:.0f} ns"
    )
    assert taken < bound, (
        f"{what} on {device}: {taken * 1e9:.0f} ns for a call, the bound is {bound * 1e9:.0f} ns"
    )


@pytest.mark.parametrize("what", TINY)
def test_calls_do_not_gather_memory(what, device, tiny):
    def counts():
        gc.collect()
        _C.synchronize(rabbet.device(device))
        backend = next(b for b in _C.backends() if b["name"] == device.partition(":")[0])
        return _C.live_counts()["tensors"], backend["bytes_in_use"] + backend["bytes_cached"]

    with offered(what):
        for _ in range(100):
            TINY[what](tiny)
        before = counts()
        for _ in range(2000):
            TINY[what](tiny)
    tensors, held = (b - a for a, b in zip(before, counts(), strict=True))
    assert tensors <= 0, f"{what} on {device}: 2000 calls leave {tensors} tensors"
    assert held <= 1 << 20, f"{what} on {device}: 2000 calls leave {held} bytes in use or cached"
