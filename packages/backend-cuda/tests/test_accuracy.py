"""The table of errors that the conformance kit asks the backend for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rabbet_backend_cuda import FLOAT32_ULPS, rabbet_conformance_params

KERNELS = Path(__file__).resolve().parent.parent / "kernels"


def test_the_table_has_every_scalar_function_and_no_other():
    text = (KERNELS / "elementwise.cuh").read_text()
    made = re.findall(r"^RB_(?:UNARY|WHOLE|BINARY|TEST1|TEST2)\((\w+),", text, re.M)
    made += re.findall(r"inline \w+ rb_([a-z]\w*)\(", text)
    assert len(made) == len(set(made)) and set(made) == set(FLOAT32_ULPS)
    assert rabbet_conformance_params("L2") == {"ulps": {"float32": FLOAT32_ULPS}}
    assert rabbet_conformance_params("L1") == {}


@pytest.mark.parametrize("wrong", ["", "sin(a) + (T)3e-7"])
def test_the_kit_holds_the_kernels_to_the_table(simulator, wrong):
    """The fault is the error of __sinf, which fast math would bring, and less than the kit's own tolerance."""
    replaced = {
        "CUSIM_REPLACE": "RB_UNARY(sin, sin(a))",
        "CUSIM_REPLACE_BY": f"RB_UNARY(sin, {wrong})",
    }
    env = {
        **os.environ,
        **simulator,
        "RABBET_CUDA_FALLBACK": "error",
        **(replaced if wrong else {}),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--pyargs",
        "rabbet_testing",
        "--device=cuda",
    ]
    command += ["--level=L2", "-k", "test_operator_agrees_with_the_reference and sin-float32"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (done.returncode == 0) == (not wrong), done.stdout + done.stderr
    assert not wrong or "units in the last place, at most 2 are declared" in done.stdout, (
        done.stdout
    )
