"""The simulator stands in for driver and compiler; what needs it runs in processes of their own.

With RABBET_CUDA_TEST_DEVICE=real the machine's own device takes its place, and what only the simulator can do is skipped.
"""

import importlib
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

REAL = os.environ.get("RABBET_CUDA_TEST_DEVICE") == "real"
ONLY_SIMULATED = "RABBET_CUDA_TEST_DEVICE=real: only the simulator can do this"
SIM = Path(__file__).resolve().parent.parent / "sim"
GPU_CHECK = Path(__file__).resolve().parent.parent / "tools/gpu_check"


class RealDevice(dict):
    """No environment variables; a test that asks for one needs the simulator."""

    def __missing__(self, name):
        pytest.skip(ONLY_SIMULATED)


def pytest_collection_modifyitems(items):
    """Planted faults and the simulator's own tests are for the simulator; its time is not for what needs no device."""
    simulated = ("test_simulator", "test_bytes_moved", "test_mutants", "test_gpu_check")
    without = ("test_kernel_budget", "test_product_kernels", "test_seed_pack", "test_twins")
    for item in items:
        for names, reason in ((simulated, ONLY_SIMULATED), (without, "it needs no device")):
            if REAL and item.path.name.startswith(names):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def simulator():
    """Environment variables that put the simulator in the place of libcuda and libnvrtc."""
    if REAL:
        return RealDevice()
    return runpy.run_path(str(SIM / "build.py"))["build"]()


@pytest.fixture(scope="session")
def with_cudnn(simulator):
    """The simulator's environment variables with its stand-in for cuDNN, which is left out otherwise."""
    library = Path(simulator["CUSIM_FOLDER"]) / "libcudnn_sim.so"
    return {**simulator, "RABBET_CUDA_CUDNN": str(library)}


@pytest.fixture(scope="session")
def null_driver():
    """Environment variables for a driver whose calls do nothing: the host's side remains."""
    return runpy.run_path(str(SIM / "build.py"))["null"]()


@pytest.fixture
def run():
    """Run code in a process of its own, with environment variables, and return what it prints."""

    def in_a_process(code, **env):
        if REAL and any(name.startswith("CUSIM_") for name in env):
            pytest.skip(ONLY_SIMULATED)
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return in_a_process


REFUSED = """
def refused(kind, text, call):
    try: call()
    except kind as error: assert text in str(error), error
    else: raise AssertionError("it was not refused")
"""


@pytest.fixture
def logged(simulator, tmp_path):
    """Run code that may call `refused`; return the lines that the stand-ins of `libraries` log, and the warnings."""
    logs = iter(range(100))

    def in_a_process(code, libraries, **env):
        log = tmp_path / f"log{next(logs)}"
        named = {f"CUSIM_{library}_LOG": str(log) for library in libraries}
        command = [sys.executable, "-W", "always", "-c", REFUSED + code]
        env = {**os.environ, **simulator, **named, **env}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return log.read_text().splitlines() if log.exists() else [], done.stderr

    return in_a_process


@pytest.fixture
def compared(run, simulator):
    """Run code that compares the device's results with the CPU's by the functions of compared.py."""
    begin = (Path(__file__).parent / "compared.py").read_text()

    def in_a_process(code, **env):
        return run(begin + code, **{**simulator, "RABBET_CUDA_FALLBACK": "error", **env})

    return in_a_process


@pytest.fixture
def module(monkeypatch):
    """Modules of tools/gpu_check by name; they import each other from their folder."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(GPU_CHECK))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(GPU_CHECK) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def small_check(module, tmp_path, monkeypatch):
    """A check of a tree without a device: for stages that are made up."""
    monkeypatch.setattr(module("runner"), "ROOT", tmp_path)
    (tmp_path / "out").mkdir()
    return module("runner").Check(tmp_path / "out", simulated=False)
