"""Timing side by side: the least time per call over several repeats, in turns."""

import functools
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
THREADS = 2
# Idle threads of an OpenMP pool spin for some tens of milliseconds after its last region, and take a
# processor from whoever is measured next.
PAUSE_SECONDS = 0.05


def side_by_side(
    calls: dict[str, Callable[[], Any]], repeats: int = 9, slice_seconds: float = 0.03
) -> dict[str, float]:
    """Seconds per call of each, the least of `repeats` turns of about `slice_seconds`.

    The calls take turns, so that a busy moment of the machine meets all of them alike. Before each
    turn comes a pause and a call that is not counted.
    """
    numbers = {}
    for name, call in calls.items():
        call()
        began = time.perf_counter()
        call()
        once = time.perf_counter() - began
        numbers[name] = max(1, int(slice_seconds / max(once, 1e-9)))
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            number = numbers[name]
            time.sleep(PAUSE_SECONDS)
            call()
            began = time.perf_counter_ns()
            for _ in range(number):
                call()
            least[name] = min(least[name], (time.perf_counter_ns() - began) / number)
    return {name: nanoseconds * 1e-9 for name, nanoseconds in least.items()}


@functools.cache
def limits(threads: int = THREADS) -> dict[str, float]:
    """What the machine can do (limits.cpp): `flops` per second in float32, `bytes` per second."""
    program = HERE / "results" / "limits"
    program.parent.mkdir(exist_ok=True)
    compiler = os.environ.get("CXX", "g++")
    subprocess.run(
        [compiler, "-O3", "-march=native", "-pthread", str(HERE / "limits.cpp"), "-o", program],
        check=True,
    )
    found = subprocess.run([program, str(threads)], check=True, capture_output=True, text=True)
    return json.loads(found.stdout)


def best(call: Callable[[], Any], number: int = 0, repeats: int = 7) -> float:
    """Seconds per call, the least of `repeats` runs of `number` calls (0: about 20 ms a run)."""
    if number == 0:
        number, spent = 1, 0.0
        while spent < 0.01:
            number *= 2
            began = time.perf_counter()
            for _ in range(number):
                call()
            spent = time.perf_counter() - began
        number = max(1, int(number * 0.02 / spent))
    least = float("inf")
    for _ in range(repeats):
        began = time.perf_counter_ns()
        for _ in range(number):
            call()
        least = min(least, (time.perf_counter_ns() - began) / number)
    return least * 1e-9


def statement(code: str, scope: dict[str, Any]) -> float:
    """Seconds per run of a statement in a loop without a call around it."""
    import timeit

    timer = timeit.Timer(code, globals=scope)
    number = max(1, timer.autorange()[0] // 10)
    return min(timer.repeat(7, number)) / number


def duration(seconds: float | None) -> str:
    """With a fitting unit."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def amount(row: dict[str, Any], key: str) -> str:
    """A number of a row: seconds, or bytes where it says `"unit": "MB"`."""
    value = row.get(key)
    if value is None or row.get("unit") != "MB":
        return duration(value)
    return f"{value / 1e6:.3g} MB"


def table(title: str, rows: list[dict[str, Any]]) -> str:
    """A Markdown table; `bound` is the time at the machine's limit, `limit` and `times` are targets.

    It has a column of rabbet's `instructions` if some row has them.
    """
    counted = any(row.get("instructions") for row in rows)
    lines = [
        f"### {title}",
        "",
        "| what | rabbet | torch | NumPy | machine's limit | target | met | torch / rabbet |",
        "|---|---|---|---|---|---|---|---|",
    ]
    if counted:
        lines[2] += " instructions |"
        lines[3] += "---|"
    for row in rows:
        ratio = row["torch"] / row["rabbet"] if row.get("torch") else None
        limit, times = row.get("limit"), row.get("times")
        goal = f"<= {duration(limit)}" if limit else f">= {times}x torch" if times else ""
        met = (
            ""
            if not goal
            else (
                "?"
                if times and ratio is None
                else "yes"
                if (limit and row["rabbet"] <= limit) or (times and ratio >= times)
                else "no"
            )
        )
        lines.append(
            f"| {row['what']} | {amount(row, 'rabbet')} | {amount(row, 'torch')} | "
            f"{duration(row.get('numpy'))} | {duration(row.get('bound'))} | {goal} | {met} | "
            f"{f'{ratio:.2f}' if ratio else '-'} |"
            + (f" {row.get('instructions') or '-'} |" if counted else "")
        )
    ratios = [row["torch"] / row["rabbet"] for row in rows if row.get("torch")]
    if ratios:
        mean = statistics.geometric_mean(ratios)
        lines += ["", f"Geometric mean {mean:.2f}, least {min(ratios):.2f}."]
    return "\n".join(lines)


def finish(name: str, title: str, rows: list[dict[str, Any]]) -> None:
    """Print the table and keep the rows for RESULTS.md."""
    print(table(title, rows))
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"title": title, "rows": rows}, indent=1))


def machine() -> str:
    """Processor, cores, Python."""
    model = "?"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{model}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


def torch_or_none() -> Any:
    """torch where it is installed, with 2 threads."""
    try:
        import torch
    except ImportError:
        print("torch is not installed: no comparison (pip install torch==2.13.0)")
        return None
    torch.set_num_threads(THREADS)
    return torch
