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


def test_an_allocators_errors_are_its_own_but_for_lack_of_memory(libraries):
    code = """
for device, n in (("far:3", 4), ("far", 1 << 22)):
    try:
        rabbet.empty(n, device=device)
    except RuntimeError as error:
        print(type(error).__name__, error)
    except MemoryError as error:
        print(type(error).__name__, error)
"""
    first, second = run(libraries, code)
    assert first == "DeviceError far: there is one device"
    assert re.match(
        "OutOfMemoryError out of memory on far: could not allocate 16777216 bytes", second
    )


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
