"""Training steps of the unmodified programs in examples/programs, by `rabbet run` and by PyTorch in turns.

RABBET_TORCH_PYTHON names the Python that has PyTorch, if this one has not.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys

from common import HERE, finish

STEPS = {"resnet18": 8, "unet": 8, "simclr": 8}
ROUNDS = 3
TARGET = 1.0


def step_seconds(python: list[str], name: str) -> float:
    """The median step of one run, without the first two."""
    command = [*python, str(HERE / "program_steps.py"), name, str(STEPS.get(name, 20))]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return statistics.median(json.loads(found.stdout.splitlines()[-1])[2:])


def main() -> None:
    """The least median of some runs of each."""
    pythons = {"rabbet": [sys.executable, "-m", "rabbet", "run"]}
    torch_python = os.environ.get("RABBET_TORCH_PYTHON", sys.executable)
    if torch_python != sys.executable or importlib.util.find_spec("torch"):
        pythons["torch"] = [torch_python]
    programs = HERE.parent / "examples" / "programs"
    rows = []
    for path in sorted(programs.glob("*.py")):
        if path.stem == "start":
            continue
        times = dict.fromkeys(pythons, float("inf"))
        for _ in range(ROUNDS):
            for library, python in pythons.items():
                times[library] = min(times[library], step_seconds(python, path.stem))
        rows.append({"what": path.stem, **times, "times": TARGET})
    finish("programs", "Training steps of unmodified programs", rows)


if __name__ == "__main__":
    main()
