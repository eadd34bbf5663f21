"""What a level of vmap adds to a call, what entering it takes, and the examples beside torch.func and a loop.

python benchmarks/transforms.py
"""

import sys
from collections.abc import Callable
from typing import Any

from common import HERE, duration, finish, side_by_side, torch_or_none

sys.path.insert(0, str(HERE.parent / "examples"))
from function_transforms import TASKS, library

ROUNDS = 100
# An operator in a level, the same on all examples at once, in_dims.
STEPS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any]] = {
    "a + b": (lambda x, y: x + y, lambda x, y: x + y, 0),
    "a * 2.0": (lambda x, y: x * 2.0, lambda x, y: x * 2.0, 0),
    "tanh": (lambda x, y: x.tanh(), lambda x, y: x.tanh(), 0),
    "a + b, one b for all": (lambda x, y: x + y, lambda x, y: x + y, (0, None)),
    "sum(0)": (lambda x, y: x.sum(0), lambda x, y: x.sum(1), 0),
    "unsqueeze(0)": (lambda x, y: x.unsqueeze(0), lambda x, y: x.unsqueeze(1), 0),
}


def rounds(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step`, many times."""

    def run(x: Any, y: Any) -> Any:
        for _ in range(ROUNDS):
            z = step(x, y)
        return z

    return run


def first(x: Any, y: Any) -> Any:
    """Nothing but entering and leaving."""
    return x


def level_calls(lib: Any) -> dict[str, Callable[[], Any]]:
    """For each step: plain, in a level, entering alone; and a second level."""
    vmap, x, rows = lib.func.vmap, lib.t.ones(4, 3), lib.t.ones(1, 4, 3)
    calls: dict[str, Callable[[], Any]] = {}
    for name, (step, plain, dims) in STEPS.items():
        y = x if dims == 0 else lib.t.ones(3)
        runs = rounds(plain), vmap(rounds(step), dims), vmap(first, dims)
        for kind, run in zip(("plain", "inside", "enter"), runs, strict=True):
            calls[f"{name}, {kind}"] = lambda run=run, y=y: run(x, y)
    twice, enter = vmap(vmap(rounds(STEPS["a + b"][0]))), vmap(vmap(first))
    calls["two, inside"] = lambda: twice(rows, rows)
    calls["two, enter"] = lambda: enter(rows, rows)
    one, params = vmap(lambda x: x), dict.fromkeys("abcd", x)
    calls["one"] = lambda: one(x)
    given = vmap(lambda p, x: x, (None, 0))
    calls["dict"] = lambda: given(params, x)
    return calls


def level_rows(times: dict[str, float]) -> dict[str, float]:
    """Seconds that a level adds to each operator, and that entering takes."""

    def each(more: float, less: float) -> float:
        return max((more - less) / ROUNDS, 1e-9)  # noise may make it negative

    found = {}
    inside = {name: times[f"{name}, inside"] - times[f"{name}, enter"] for name in (*STEPS, "two")}
    for name in STEPS:
        found[f"vmap adds to {name}"] = each(inside[name], times[f"{name}, plain"])
    found["a second vmap adds to a + b"] = each(inside["two"], inside["a + b"])
    found["entering vmap, one argument"] = times["one"]
    found["entering vmap, a dict of 4 and one argument"] = times["dict"]
    return found


def main() -> None:
    """Levels, then the examples; torch.func takes turns with rabbet where it is installed."""
    torch = torch_or_none()
    libraries = {"rabbet": library("rabbet")} | ({"torch": library("torch")} if torch else {})
    calls = {
        (name, what): call
        for name, lib in libraries.items()
        for what, call in level_calls(lib).items()
    }
    times = side_by_side(calls)
    found = {
        name: level_rows({what: t for (n, what), t in times.items() if n == name})
        for name in libraries
    }
    rows: list[dict[str, Any]] = []
    for what in found["rabbet"]:
        goal = {"limit": 5e-6} if what.endswith("one argument") and "dict" not in what else {}
        if what in ("vmap adds to a + b", "vmap adds to a * 2.0", "vmap adds to tanh"):
            goal = {"limit": 100e-9}
        rows.append({"what": what} | {name: f[what] for name, f in found.items()} | goal)
    loops = []
    for what, task in TASKS.items():
        ours = task(libraries["rabbet"])
        turns = {"rabbet": ours["together"], "loop": ours["loop"]}
        if torch:
            turns["torch"] = task(libraries["torch"])["together"]
        took = side_by_side(turns)
        loop = took.pop("loop")
        loops.append(f"{what}: {duration(loop)}, {loop / took['rabbet']:.1f} times that of vmap")
        rows.append({"what": what, "times": 2.0} | took)
    finish("transforms", "Transforms of functions (torch.func beside)", rows)
    print("\nThe same in a Python loop:\n" + "\n".join(loops))


if __name__ == "__main__":
    main()
