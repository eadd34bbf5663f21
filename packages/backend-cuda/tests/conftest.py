"""The simulator stands in for driver and compiler; what needs it runs in processes of their own.

With RABBET_CUDA_TEST_DEVICE=real the machine's own device takes its place, and what only the simulator can do is skipped.
"""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

REAL = os.environ.get("RABBET_CUDA_TEST_DEVICE") == "real"
ONLY_SIMULATED = "RABBET_CUDA_TEST_DEVICE=real: only the simulator can do this"
SIM = Path(__file__).resolve().parent.parent / "sim"


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


@pytest.fixture
def compared(run, simulator):
    """Run code that compares the device's results with the CPU's by the functions of compared.py."""
    begin = (Path(__file__).parent / "compared.py").read_text()

    def in_a_process(code, **env):
        return run(begin + code, **{**simulator, "RABBET_CUDA_FALLBACK": "error", **env})

    return in_a_process
