"""What a call costs when there is nothing to compute: rabbet, torch and NumPy in one run.

Instructions are counted beside the times where valgrind is installed: they do not drift with the
machine. tools/check_instructions.py holds them to a budget.
"""

import math
import subprocess
import sys
import time
from collections.abc import Iterable

import numpy as np
import rabbet
from common import best, finish, statement, torch_or_none
from rabbet import nn, optim
from tiny_calls import STATEMENTS as COUNTED
from tiny_calls import count_instructions, tensors, why_not


def chain(t, nn, optim):
    """Forward and backward of a chain of 100 one-element operators."""
    x, w = t.tensor(1.0, requires_grad=True), t.tensor(0.5)

    def run():
        y = x
        for _ in range(50):
            y = y * w + w
        y.backward()

    return run


def mlp_step(t, nn, optim):
    """A training step of a 16-32-4 network on 32 samples, with Adam."""
    t.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    x, y, loss_of = t.randn(32, 16), t.randint(0, 4, (32,)), nn.CrossEntropyLoss()

    def step():
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def import_time(module: str) -> float:
    """Seconds that `import module` adds to the start of a process: least of 7, in pairs."""

    def start(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - began

    return min(start(f"import {module}") for _ in range(7)) - min(start("pass") for _ in range(7))


# What, statement for rabbet and torch, statement for NumPy, target in seconds.
STATEMENTS = [
    ("a + b, one element", "a + b", "a + b", {"limit": 60e-9}),
    ("a + b, recorded", "r + b", "", {"limit": 90e-9}),
    ("add(a, b, alpha=1.0)", "add(a, b, alpha=1.0)", "", {"limit": 80e-9}),
    ("a * 2.0", "a * 2.0", "a * 2.0", {}),
    ("a.add_(b)", "a.add_(b)", "np.add(a, b, a)", {}),
    ("x.view(16)", "x.view(16)", "x.reshape(16)", {}),
    ("x.t()", "x.t()", "x.T", {}),
    ("x[0]", "x[0]", "x[0]", {}),
    ("x[1:3]", "x[1:3]", "x[1:3]", {}),
    ("x.sum()", "x.sum()", "x.sum()", {}),
    ("x @ x, 4 x 4", "x @ x", "x @ x", {}),
    ("zeros(2)", "zeros(2)", "np.zeros(2)", {}),
]
# The goal for tiny operators is for these together.
BESIDE = {"a + b, recorded", "add(a, b, alpha=1.0)"}


def arrays() -> dict:
    """The same for NumPy."""
    return {
        "a": np.ones(1, "float32"),
        "b": np.zeros(1, "float32"),
        "x": np.ones((4, 4), "float32"),
        "np": np,
    }


def geometric_mean(values: Iterable[float]) -> float:
    """Of positive numbers."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def rows(torch) -> list[dict]:
    """All measurements."""
    found: list[dict] = []
    if why_not():
        print(f"no instructions: {why_not()}")
    counts = {} if why_not() else count_instructions(COUNTED)

    def pair(what, make, **goal):
        found.append(
            {
                "what": what,
                "rabbet": best(make(rabbet, nn, optim)),
                "torch": best(make(torch, torch.nn, torch.optim)) if torch else None,
                "numpy": None,
                **goal,
            }
        )

    scopes = {
        "rabbet": tensors(rabbet),
        "torch": tensors(torch) if torch else None,
        "numpy": arrays(),
    }
    for what, code, in_numpy, goal in STATEMENTS:
        row = {"what": what, "rabbet": statement(code, scopes["rabbet"]), **goal}
        row["instructions"] = counts.get(code)
        row["torch"] = statement(code, scopes["torch"]) if torch else None
        row["numpy"] = statement(in_numpy, scopes["numpy"]) if in_numpy else None
        found.append(row)

    tiny = [row for row in found if row["what"] not in BESIDE]
    found.append(
        {
            "what": "tiny operators, geometric mean",
            "rabbet": geometric_mean(row["rabbet"] for row in tiny),
            "torch": geometric_mean(row["torch"] for row in tiny) if torch else None,
            "numpy": None,
            "times": 12,
        }
    )
    pair("100-op chain, forward and backward", chain, times=10)
    pair("tiny MLP step, Adam", mlp_step, times=10)
    found.append(
        {
            "what": "import",
            "rabbet": import_time("rabbet"),
            "torch": import_time("torch") if torch else None,
            "numpy": import_time("numpy"),
            "limit": 0.05,
        }
    )
    return found


if __name__ == "__main__":
    finish("overhead", "Overhead", rows(torch_or_none()))
