"""Kernels read and write little more than they must: what tools/bytes_moved.py counts on the simulator."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TOOL = HERE.parent / "tools/bytes_moved.py"
MOST = 1.15  # times the least
# Lines that do not begin where sectors do: neighbouring lines share the sectors at their ends.
ODD = {"layer_norm f32, odd lines": 1.3, "softmax f32, odd lines": 1.3}
STRIDED = """
extern "C" __global__ void rb_kernel(float* y, const float* x, int step) {
  y[threadIdx.x] = x[threadIdx.x * step];
}
"""


@pytest.fixture(scope="module")
def table(simulator):
    """Times the least by case."""
    done = subprocess.run([sys.executable, str(TOOL)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.rsplit(maxsplit=3) for line in done.stdout.splitlines()[1:]]
    return {name: float(times) for name, _, _, times in lines}


def names():
    return list(runpy.run_path(str(TOOL))["CASES"])


@pytest.mark.parametrize("name", names())
def test_a_call_moves_little_more_than_it_must(table, name):
    assert 0.9 <= table[name] <= ODD.get(name, MOST)


@pytest.mark.parametrize("step,sectors", [(1, 4), (2, 8), (4, 16), (8, 32), (64, 32)])
def test_sectors_count_once_for_each_request_of_a_warp(run, simulator, tmp_path, step, sectors):
    drive = (HERE / "drive.py").read_text()
    run(
        f"{drive}\nstart()\nx = given(np.zeros(4096))\ny = allocate(128)\n"
        f"ok(run(kernel({STRIDED!r}), [y, x, {step}], grid=1, block=32))",
        **{**simulator, "CUSIM_TRAFFIC": str(tmp_path / "traffic")},
    )
    kernels = [
        line.split("\t")
        for line in (tmp_path / "traffic").read_text().splitlines()
        if line.startswith("rb_kernel")
    ]
    moved = {int(whole): (int(read), int(written)) for _, _, whole, read, written in kernels}
    assert moved == {128: (0, 128), 4096 * 4: (32 * sectors, 0)}
