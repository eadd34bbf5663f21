"""What core promises a backend whose memory the host cannot read: copies, fork, its own words in errors."""

import json
import os
import re
import subprocess
import sys

import pytest
from plugin_wheels import build_backend


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("far")
    return [str(build_backend(folder, name)) for name in ("far", "further")]


def run(libraries, code: str) -> list[str]:
    text = f"import rabbet\nfor path in {json.dumps(libraries)}:\n    rabbet._C.load_plugin(path)\n{code}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_tensors_move_between_backends_with_memory_of_their_own(libraries):
    code = """
x = rabbet.arange(6.0).reshape(2, 3)
far = x.to("far")
print(far.to("further").to("far").cpu().tolist(), far.to("further").device)
print(rabbet.zeros(2, 3, dtype=rabbet.int32).copy_(far).tolist())
rabbet.zeros(2, device="meta")[rabbet.tensor([0])]
"""
    assert run(libraries, code) == [
        "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] further:0",
        "[[0, 1, 2], [3, 4, 5]]",
    ]


# To be formatted with a list of devices: every pair of them, and memory and errors of each.
PAIRS = """
import itertools
import rabbet
devices = {devices!r}
sources = [
    rabbet.arange(6.0).reshape(2, 3), rabbet.arange(6.0).reshape(2, 3).t(), rabbet.arange(9.0)[::2],
    rabbet.tensor(2.5), rabbet.zeros(0, 3), rabbet.arange(5), rabbet.ones(3).expand(2, 3), rabbet.arange(3000.0),
]
before = {{d: rabbet.accelerator.memory_stats(d)["allocation.all.current"] for d in devices}}
for one, other in itertools.product(devices, repeat=2):
    for source in sources:
        moved = source.to(one).to(other)
        assert moved.device.type == other and moved.dtype == source.dtype, (one, other)
        assert moved.cpu().tolist() == source.tolist() and moved.shape == source.shape, (one, other)
        if other not in rabbet._C.op_info("copy")["kernels"]:
            continue
        into = rabbet.zeros(source.shape, dtype=source.dtype).to(other)
        assert into.copy_(source.to(one)).cpu().tolist() == source.tolist(), (one, other)
    if one == other:
        continue
    a, b = rabbet.ones(2).to(one), rabbet.ones(2).to(other)
    for call, names in (
        (lambda: a + b, ("input", "other")), (lambda: rabbet.where(a, a, b), None),
        (lambda: a @ b, ("input", "other")), (lambda: a.add_(b), ("input", "other")),
        (lambda: rabbet.cat([a, a, b]), ("tensors[0]", "tensors[2]")),
    ):
        try:
            call()
        except RuntimeError as error:
            said = str(error)
        assert f"on {{one}}" in said and f"on {{other}}" in said and "expected all tensors on one device" in said, said
        assert names is None or f"'{{names[0]}}' is on {{one}} and '{{names[1]}}' is on {{other}}" in said, said
    del a, b
del moved
into = None
after = {{d: rabbet.accelerator.memory_stats(d)["allocation.all.current"] for d in devices}}
assert after == before, (before, after)
live = rabbet._C.live_by_backend()
kept = {{}}
for n, device in enumerate(devices):
    rabbet.accelerator.reset_peak_memory_stats(device)
    start = rabbet.accelerator.memory_allocated(device)
    kept[device] = rabbet.ones(4096 * (n + 1)).to(device)
    if device == "cpu":
        start = None
        continue
    assert rabbet.accelerator.memory_allocated(device) - start == 16384 * (n + 1), device
    assert rabbet.accelerator.max_memory_allocated(device) - start == 16384 * (n + 1), device
    rabbet.accelerator.synchronize(device)
for n, device in enumerate(devices):
    now = rabbet._C.live_by_backend()[device]
    assert now["bytes"] - live[device]["bytes"] == 16384 * (n + 1), device
    assert now["tensors"] - live[device]["tensors"] == 1, device
print("all pairs")
"""


def test_all_pairs_of_devices(libraries):
    code = PAIRS.format(devices=["cpu", "far", "further"])
    assert run(libraries, code) == ["all pairs"]


def test_a_destination_lies_where_the_result_does(libraries):
    code = """
x, far = rabbet.ones(2), rabbet.ones(2).to("far")
beyond = rabbet.zeros(2).to("far")
for call in (
    lambda: rabbet.add(x, x, out=beyond), lambda: rabbet.cat([x], out=beyond),
    lambda: rabbet.zeros(2, device="cpu", out=beyond),
    lambda: rabbet.add(x, x, out=rabbet.empty(0).to("further")), lambda: far.add_(x), lambda: x.mul_(far),
):
    try:
        call()
    except rabbet.DeviceError as error:
        print(error)
print(beyond.cpu().tolist(), x.tolist())
"""
    wrong = "the destination is on {}, but the result is on {}"
    mixed = "expected all tensors on one device, but 'input' is on {} and 'other' is on {}"
    assert run(libraries, code) == [
        "add: " + wrong.format("far", "cpu"),
        "cat: " + wrong.format("far", "cpu"),
        "zeros: " + wrong.format("far", "cpu"),
        "add: " + wrong.format("further", "cpu"),
        "add: " + mixed.format("far", "cpu"),
        "mul: " + mixed.format("cpu", "far"),
        "[0.0, 0.0] [1.0, 1.0]",
    ]


def test_an_allocators_errors_are_its_own_but_for_lack_of_memory(libraries):
    code = """
for n in (1 << 22, 1 << 19):
    try:
        rabbet.empty(n, device="far")
    except RuntimeError as error:
        print(type(error).__name__, error)
    except MemoryError as error:
        print(type(error).__name__, error)
"""
    first, second = run(libraries, code)
    assert first == "DeviceError far: unplugged"
    assert re.match(
        "OutOfMemoryError out of memory on far: could not allocate 2097152 bytes", second
    )


def test_a_device_that_is_not_there_is_named(libraries):
    code = """
x = rabbet.ones(2)
for call in (lambda: rabbet.empty(2, device="far:7"), lambda: x.to("far:1"), lambda: rabbet.empty_like(x, device="far:2"),
             lambda: rabbet.tensor([1.0], device="cpu:3"), lambda: rabbet.empty(0, device="far:9")):
    try:
        call()
    except RuntimeError as error:
        print(type(error).__name__, error)
"""
    assert run(libraries, code) == [
        f"DeviceError there is no device {name}: '{name.split(':')[0]}' has 1 device, {name.split(':')[0]}:0"
        for name in ("far:7", "far:1", "far:2", "cpu:3", "far:9")
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_backends_hear_of_a_fork_in_the_child_alone(libraries):
    code = """
import os
rabbet.ones(3).to("far")
child = os.fork()
if child == 0:
    try:
        rabbet.empty(100000, device="far")
    except RuntimeError as error:
        os._exit(7 if "lost by fork" in str(error) else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), rabbet.empty(100000, device="far").numel())
"""
    assert run(libraries, code) == ["7 100000"]
