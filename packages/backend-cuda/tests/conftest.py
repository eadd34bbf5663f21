"""The simulator stands in for driver and compiler; what needs it runs in processes of their own."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SIM = Path(__file__).resolve().parent.parent / "sim"


@pytest.fixture(scope="session")
def simulator():
    """Environment variables that put the simulator in the place of libcuda and libnvrtc."""
    return runpy.run_path(str(SIM / "build.py"))["build"]()


@pytest.fixture(scope="session")
def null_driver():
    """Environment variables for a driver whose calls do nothing: the host's side remains."""
    return runpy.run_path(str(SIM / "build.py"))["null"]()


@pytest.fixture
def run():
    """Run code in a process of its own, with environment variables, and return what it prints."""

    def in_a_process(code, **env):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return in_a_process


@pytest.fixture
def compared(run, simulator):
    """Run code that compares the device's results with the CPU's by the functions of compared.py."""
    begin = (Path(__file__).parent / "compared.py").read_text()

    def in_a_process(code):
        return run(begin + code, **simulator, RABBET_CUDA_FALLBACK="error")

    return in_a_process
