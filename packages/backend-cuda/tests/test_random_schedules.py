"""Streams, devices, graphs and processes under many orders of work, with all checkers.

Each seed is another order in which streams run, and in which blocks and threads do. Whatever is not ordered by an event is
reported where its numbers come out right, too.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
STRESS = HERE.parent / "tools" / "gpu_check" / "stress.py"
FEW, MANY = 4, 200

STREAMS = f"""
import os, runpy
os.environ["GPU_CHECK_SMALL"] = "1"
parts = runpy.run_path({str(STRESS)!r})
parts["streams"](1); parts["graphs"](3); parts["threads"](1); parts["memory"]()
"""
PEERS = """
import rabbet
for k in range(2):
    one, two = rabbet.Stream("cuda:0"), rabbet.Stream("cuda:1")
    with one, two:
        x = rabbet.full((700,), float(k), device="cuda:0")
        for _ in range(3): x += 1
        y = x.to("cuda:1")
        x.fill_(-1)
        y += 1
        z = y.to("cuda:0")
        del y
        spoilt = rabbet.full((700,), -2.0, device="cuda:1")
        w = rabbet.ones(700, device="cuda:1").copy_(z * 2)
        del z
        late = rabbet.full((700,), -3.0, device="cuda:0")
        assert w.tolist() == [2 * k + 8.0] * 700, w[:3].tolist()
        assert x.tolist() == [-1.0] * 700 and late.tolist() == [-3.0] * 700
"""
EVENTS = """
import rabbet
from rabbet import cuda
first, second, third = (cuda.Stream() for _ in range(3))
with cuda.stream(first):
    x = rabbet.arange(900.0, device="cuda")
    done = cuda.Event(); done.record()
with cuda.stream(second):
    second.wait_event(done)
    y = x * 2
    x.record_stream(second)
with cuda.stream(third):
    third.wait_event(done)
    z = x + 1
    x.record_stream(third)
del x
with cuda.stream(first):
    again = rabbet.full((900,), -1.0, device="cuda")  # not yet the memory of x
    first.wait_stream(second); first.wait_stream(third)
    total = (y + z).sum()
    y.record_stream(first); z.record_stream(first)
host = rabbet.arange(900.0).pin_memory("cuda")
with cuda.stream(second): there = host.to("cuda", non_blocking=True) + 1
del host
cuda.synchronize()
assert total.item() == 3 * 899 * 900 / 2 + 900 and again.sum().item() == -900 and there.sum().item() == 899 * 900 / 2 + 900
"""
SHARED = """
import subprocess, sys, rabbet
from rabbet import _C
if len(sys.argv) > 1:
    x = _C.ipc_open(bytes.fromhex(sys.argv[1]), int(sys.argv[2]), "cuda:0", rabbet.float32, [50, 8], [8, 1])
    assert x.sum().item() == 399 * 400 / 2
    with rabbet.cuda.Stream() as side:
        side.wait_stream(rabbet.cuda.default_stream())
        x.mul_(2)
    rabbet.cuda.synchronize()
    raise SystemExit
x = rabbet.arange(400.0, device="cuda").reshape(50, 8)
rabbet.cuda.synchronize()
handle, offset = _C.ipc_export(x)
me = open("/proc/self/cmdline").read().split(chr(0))[2]
subprocess.run([sys.executable, "-c", me, handle.hex(), str(offset)], check=True)
assert x.sum().item() == 399 * 400
"""
PROGRAMS = {
    "streams": (STREAMS, {}),
    "events": (EVENTS, {}),
    "peers": (PEERS, {"CUSIM_DEVICES": "2"}),
    "processes": (SHARED, {"RABBET_CUDA_EXPANDABLE": "0"}),
}


def found(simulator, code, seeds, env):
    """What goes wrong, by seed."""

    def words(seed):
        order = {"CUSIM_SCHEDULE": f"random:{seed}", "CUSIM_CHECK": "all"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **simulator, **env, **order},
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr if done.returncode else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return {seed: text for seed, text in zip(seeds, pool.map(words, seeds)) if text}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_order_of_work_goes_wrong(simulator, name, seeds):
    code, env = PROGRAMS[name]
    assert found(simulator, code, range(seeds), env) == {}


FORGOTTEN = {
    "an event": ["third.wait_event(done)"],
    "streams that use memory": ["x.record_stream(second)", "x.record_stream(third)"],
}


@pytest.mark.parametrize("name", FORGOTTEN)
def test_an_order_that_a_program_forgot_is_found(simulator, name):
    """The same program without some of its lines: whatever the order, it is found."""
    code = EVENTS
    for needed in FORGOTTEN[name]:
        assert code.count(needed) == 1
        code = code.replace(needed, "pass")
    wrong = found(simulator, code, range(FEW), {})
    assert len(wrong) == FEW and all("without order" in text for text in wrong.values()), wrong
