"""Statements whose cost is that of the call, and how many instructions each of them takes.

valgrind counts those of a whole process. Every process runs all statements a few times; one of them
runs many times more: what it takes beyond the process in which none does, divided by the number of
these runs, less the same for `pass`, is the cost of the statement.
"""

import gc
import itertools
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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
FEW, MANY = 200, 5000
IN_SUMMARY = re.compile(r"I\s+refs:\s+([\d,]+)")


def tensors(t: Any, device: str = "cpu") -> dict[str, Any]:
    """The names in the statements, for rabbet or torch; `r` requires a gradient."""
    return {
        "a": t.tensor([1.0], device=device),
        "b": t.tensor([0.0], device=device),
        "r": t.tensor([1.0], requires_grad=True, device=device),
        "x": t.ones(4, 4, device=device),
        "add": t.add,
        "zeros": t.zeros,
    }


def run_loops(device: str, chosen: str, statements: list[str]) -> None:
    """Run each statement FEW times, and `chosen` MANY times more."""
    import rabbet

    names = tensors(rabbet, device)
    gc.disable()
    for code in statements:
        scope: dict[str, Any] = {}
        exec(f"def loop(turns, {', '.join(names)}):\n for _ in turns: {code}\n", scope)
        number = FEW + (MANY if code == chosen else 0)
        scope["loop"](itertools.repeat(None, number), **names)


def why_not() -> str:
    """Why instructions cannot be counted here; empty: they can."""
    return "" if shutil.which("valgrind") else "valgrind is not installed"


def _count(device: str, statements: list[str], chosen: str, settings: dict[str, str]) -> int:
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), device]
    command += [chosen, *statements]
    # Fixed seed: the work of dicts depends on it.
    environment = {**os.environ, **settings, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    found = IN_SUMMARY.search(done.stderr)
    if done.returncode != 0 or not found:
        raise RuntimeError(f"valgrind failed on {chosen!r}:\n{done.stderr}")
    return int(found[1].replace(",", ""))


def count_instructions(
    statements: list[str], device: str = "cpu", settings: dict[str, str] | None = None
) -> dict[str, int]:
    """Instructions of one run of each statement, the interpreter's for it included.

    `settings` are environment variables of the processes that run them.
    """
    every = ["pass", *statements]

    def counted(chosen: str) -> int:
        return _count(device, every, chosen, settings or {})

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        idle, empty, *counts = pool.map(counted, ["", *every])
    loop = empty - idle
    pairs = zip(statements, counts, strict=True)
    return {code: round((count - idle - loop) / MANY) for code, count in pairs}


if __name__ == "__main__":
    run_loops(sys.argv[1], sys.argv[2], sys.argv[3:])
