"""Seconds that each step of a program of examples/programs takes, as JSON: `program_steps.py NAME STEPS`.

Plain PyTorch, like the programs: run by `python -m rabbet run` it measures rabbet.
"""

import importlib
import json
import sys
import time
from pathlib import Path

import torch

THREADS = 2


def seconds(name: str, steps: int) -> list[float]:
    """The time from loss to loss."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "programs"))
    sys.argv = [name, "--steps", str(steps)]
    from start import Program

    losses = importlib.import_module(name).train(Program(name))
    times = []
    began = time.perf_counter()
    for _ in zip(range(steps), losses):
        ended = time.perf_counter()
        times.append(ended - began)
        began = ended
    return times


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    print(json.dumps(seconds(sys.argv[1], int(sys.argv[2]))))
