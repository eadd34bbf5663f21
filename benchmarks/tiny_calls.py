"""Statements whose cost is that of the call, and how many instructions each of them takes.

One process runs each statement a few times, and then many times under callgrind, which writes down
what it counted whenever the process calls getppid: before the loop of each statement and behind it.
The loop of `pass` takes what all loops take.
"""

import gc
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# Of what `tensors` gives names to.
STATEMENTS = [
    "a + b",
    "r + b",
    "add(a, b, alpha=1.0)",
    "a * 2.0",
    "a.add_(b)",
    "x.view(16)",
    "x.t()",
    "x[0]",
    "x[1:3]",
    "x.sum()",
    "x @ x",
    "zeros(2)",
]
FEW, MANY = 200, 1000
COUNTED = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def tensors(t: Any, device: str = "cpu") -> dict[str, Any]:
    """Names for statements, of rabbet or torch: tensors, of which `r` requires a gradient, and functions."""
    return {
        "a": t.tensor([1.0], device=device),
        "b": t.tensor([0.0], device=device),
        "r": t.tensor([1.0], requires_grad=True, device=device),
        "x": t.ones(4, 4, device=device),
        "v": t.ones(4, device=device),
        "i": t.tensor([0, 1, 2, 3], device=device),
        "add": t.add,
        "zeros": t.zeros,
        "zeros_like": t.zeros_like,
        "cat": t.cat,
        "layer_norm": t.nn.functional.layer_norm,
    }


def run_loops(device: str, statements: list[str]) -> None:
    """Run each statement FEW times, then MANY times between two calls of getppid."""
    import rabbet

    names = tensors(rabbet, device)
    gc.disable()
    loops = []
    for code in statements:
        scope: dict[str, Any] = {}
        exec(f"def loop(turns, {', '.join(names)}):\n for _ in turns: {code}\n", scope)
        loops.append(scope["loop"])
        scope["loop"](itertools.repeat(None, FEW), **names)
    for loop in loops:
        os.getppid()
        loop(itertools.repeat(None, MANY), **names)
    os.getppid()


def why_not() -> str:
    """Why instructions cannot be counted here; empty: they can."""
    return "" if shutil.which("valgrind") else "valgrind is not installed"


def count_instructions(
    statements: list[str], device: str = "cpu", settings: dict[str, str] | None = None
) -> dict[str, int]:
    """Instructions of one run of each statement, the interpreter's for it included.

    `settings` are environment variables of the process that runs them.
    """
    # Fixed seed: the work of dicts depends on it.
    environment = {**os.environ, **(settings or {}), "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--dump-before=getppid"]
        command += [f"--callgrind-out-file={folder}/counts", sys.executable, "-W", "ignore"]
        command += [str(Path(__file__).resolve()), device, "pass", *statements]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        parts = [Path(folder, f"counts.{1 + k}") for k in range(len(statements) + 2)]
        if done.returncode != 0 or not parts[-1].exists():
            raise RuntimeError(f"valgrind failed:\n{done.stderr}")
        found = [COUNTED.search(part.read_text()) for part in parts]
    _, empty, *counts = [int(match[1]) if match else 0 for match in found]
    pairs = zip(statements, counts, strict=True)
    return {code: round((count - empty) / MANY) for code, count in pairs}


if __name__ == "__main__":
    run_loops(sys.argv[1], sys.argv[2:])
