"""The table of errors that the conformance kit asks the backend for."""

import os
import re
import subprocess
import sys
from pathlib import Path

from rabbet_backend_cuda import FLOAT32_ULPS, rabbet_conformance_params

KERNELS = Path(__file__).resolve().parent.parent / "kernels"


def test_the_table_has_every_scalar_function_and_no_other():
    text = (KERNELS / "elementwise.cuh").read_text()
    made = re.findall(r"^RB_(?:UNARY|WHOLE|BINARY|TEST1|TEST2)\((\w+),", text, re.M)
    made += re.findall(r"inline \w+ rb_([a-z]\w*)\(", text)
    assert len(made) == len(set(made)) and set(made) == set(FLOAT32_ULPS)
    assert rabbet_conformance_params("L2") == {"ulps": {"float32": FLOAT32_ULPS}}
    assert rabbet_conformance_params("L1") == {}


def kit(env):
    """The kit's judgement of sin in float32."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--pyargs", "rabbet_testing", "--device=cuda", "--level=L2"]
    command += ["-k", "test_operator_agrees_with_the_reference and sin-float32"]
    env = {**os.environ, "RABBET_CUDA_FALLBACK": "error", **env}
    return subprocess.run(command, env=env, capture_output=True, text=True)


def test_the_kit_holds_the_kernels_to_the_table(simulator):
    """The fault is the error of __sinf, which fast math would bring, and less than the kit's own tolerance."""
    right = kit(simulator)
    assert right.returncode == 0, right.stdout + right.stderr
    wrong = kit(
        {
            **simulator,
            "CUSIM_FOLDER": simulator["CUSIM_FOLDER"],
            "CUSIM_REPLACE": "RB_UNARY(sin, sin(a))",
            "CUSIM_REPLACE_BY": "RB_UNARY(sin, sin(a) + (T)3e-7)",
        }
    )
    assert wrong.returncode == 1
    assert "units in the last place, at most 2 are declared" in wrong.stdout, wrong.stdout
