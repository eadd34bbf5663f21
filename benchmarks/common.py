"""Timing side by side: the least time per call over several repeats."""

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


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


def table(title: str, rows: list[dict[str, Any]]) -> str:
    """A Markdown table: what, rabbet, torch, numpy, target, ratio torch / rabbet."""
    lines = [
        f"### {title}",
        "",
        "| what | rabbet | torch | NumPy | target | met | torch / rabbet |",
        "|---|---|---|---|---|---|---|",
    ]
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
            f"| {row['what']} | {duration(row['rabbet'])} | {duration(row.get('torch'))} | "
            f"{duration(row.get('numpy'))} | {goal} | {met} | {f'{ratio:.1f}' if ratio else '-'} |"
        )
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
    import os

    return f"{model}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


def torch_or_none() -> Any:
    """torch where it is installed, with 2 threads."""
    try:
        import torch
    except ImportError:
        print("torch is not installed: no comparison (pip install torch==2.13.0)")
        return None
    torch.set_num_threads(2)
    return torch
