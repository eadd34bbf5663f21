"""The simulator stands in for driver and compiler; what needs it runs in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SIM = Path(__file__).resolve().parent.parent / "sim"


@pytest.fixture(scope="session")
def simulator(tmp_path_factory):
    """Environment variables that put the simulator in the place of libcuda and libnvrtc."""
    folder = tmp_path_factory.mktemp("cusim")
    (folder / "cusim.h").write_text((SIM / "cusim.h").read_text())
    for name in ("cuda", "nvrtc"):
        command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC"]
        command += [str(SIM / f"{name}.cpp"), "-o", str(folder / f"lib{name}_sim.so"), "-ldl"]
        subprocess.run(command, check=True)
    return {
        "RABBET_CUDA_DRIVER": str(folder / "libcuda_sim.so"),
        "RABBET_CUDA_NVRTC": str(folder / "libnvrtc_sim.so"),
        "CUSIM_FOLDER": str(folder),
    }


@pytest.fixture
def run():
    """Run code in a process of its own, with environment variables, and return what it prints."""

    def in_a_process(code, **env):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return in_a_process
