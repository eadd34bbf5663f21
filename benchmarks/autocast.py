"""Autocast: what it costs a call, and what it gains a training step, beside torch's."""

import sys
from contextlib import nullcontext

import rabbet
from common import finish, side_by_side, statement, torch_or_none
from training import CASES, library

CHOSEN = ("mlp", "cnn", "gpt", "lstm")


def step_of(case, low, t, nn, optim):
    """One training step, its forward pass in a region that casts to bfloat16 if `low`."""
    t.manual_seed(0)
    model, x, y, optimizer = CASES[case][1](t, nn, optim)
    loss_of = nn.CrossEntropyLoss()

    def step():
        with t.autocast("cpu", t.bfloat16) if low else nullcontext():
            loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


# What, statement; each without and within a region.
STATEMENTS = [
    ("a + b, one element", "a + b"),
    ("a + b, recorded", "r + b"),
    ("x.view(16)", "x.view(16)"),
    ("x @ x, 4 x 4", "x @ x"),
    ("x @ w, 4 x 4, w kept", "x @ w"),
]


def overhead(torch) -> list[dict]:
    """One call with autocast off and on, and an empty region."""
    found = []
    for what, code in STATEMENTS:
        for state in ("off", "on"):
            row = {"what": f"{what}, {state}"}
            for name, t in (("rabbet", rabbet), ("torch", torch)):
                if not t:
                    continue
                scope = {"a": t.tensor([1.0]), "b": t.tensor([0.0]), "x": t.randn(4, 4)}
                scope["r"] = t.tensor([1.0], requires_grad=True)
                scope["w"] = t.randn(4, 4, requires_grad=True)
                with t.autocast("cpu", enabled=state == "on"):
                    row[name] = statement(code, scope)
            found.append(row)
    row = {"what": "an empty region"}
    for name, t in (("rabbet", rabbet), ("torch", torch)):
        if t:
            row[name] = statement("with t.autocast('cpu'): pass", {"t": t})
    return [*found, row]


def steps(torch, chosen) -> list[dict]:
    """Training steps in float32 and with autocast, all four in turns."""
    found = []
    for case in chosen:
        calls = {}
        for name in ("rabbet", "torch") if torch else ("rabbet",):
            for low in (False, True):
                calls[name, low] = step_of(case, low, *library(name))
        times = side_by_side(calls, repeats=9, slice_seconds=0.1)
        for low in (False, True):
            row = {"what": f"{CASES[case][0]}, {'autocast bfloat16' if low else 'float32'}"}
            row |= {name: seconds for (name, is_low), seconds in times.items() if is_low == low}
            found.append(row)
    return found


if __name__ == "__main__":
    torch = torch_or_none()
    wanted = sys.argv[1:] or ["overhead", *CHOSEN]
    result = overhead(torch) if "overhead" in wanted else []
    finish("autocast", "Autocast", result + steps(torch, [c for c in CHOSEN if c in wanted]))
