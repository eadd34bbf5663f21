"""What does a busy neighbour cost a parallel region? p50, mean and p99 beside PyTorch: idle, with one process that
computes, and with one on every processor."""

import multiprocessing
import os
import subprocess
import sys
import time
from typing import Any

import rabbet
from common import finish, torch_or_none

# Elements of an exp: regions of about 50 us and 1 ms of serial work.
SIZES = {"short": 60_000, "long": 1_000_000}


def hog() -> None:
    while True:
        pass


def times(call: Any, seconds: float) -> list[float]:
    """Sorted seconds of calls with pauses of 50 us between some of them."""
    made, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(10):
            began = time.perf_counter()
            call()
            made.append(time.perf_counter() - began)
        time.sleep(50e-6)
    return sorted(made)


def summary(sample: list[float]) -> dict[str, float]:
    return {
        "p50": sample[len(sample) // 2],
        "mean": sum(sample) / len(sample),
        "p99": sample[int(len(sample) * 0.99)],
    }


def calls(library: str) -> dict[str, Any]:
    """The regions of one library, which alone is imported: two pools that spin disturb each other."""
    if library == "torch":
        torch = torch_or_none()
        made = {}
        for name, n in SIZES.items():
            x, out = torch.ones(n), torch.empty(n)
            made[name] = lambda x=x, out=out: torch.exp(x, out=out)
        return made
    rabbet.set_num_threads(2)
    made = {}
    for name, n in SIZES.items():
        x, out = rabbet.ones(n), rabbet.empty(n)
        made[name] = lambda x=x, out=out: rabbet.exp(x, out=out)
    return made


def child(library: str, seconds: float) -> None:
    for name, call in calls(library).items():
        print(name, *summary(times(call, seconds)).values())


def measured(library: str, seconds: float) -> dict[str, dict[str, float]]:
    """In a process of its own."""
    command = [sys.executable, __file__, library, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        name, *values = line.split()
        if name in SIZES:
            found[name] = dict(zip(("p50", "mean", "p99"), map(float, values), strict=True))
    return found


def main() -> None:
    seconds = 2.0
    rows = []
    idle: dict[str, Any] = {}
    states = {"idle": 0, "with one hog": 1, "with a hog on each processor": os.cpu_count() or 1}
    for state, number in states.items():
        hogs = [multiprocessing.Process(target=hog, daemon=True) for _ in range(number)]
        for process in hogs:
            process.start()
        try:
            ours = measured("rabbet", seconds)
            theirs = measured("torch", seconds) if torch_or_none() else {}
        finally:
            for process in hogs:
                process.terminate()
                process.join()
        idle = idle or ours
        for name in SIZES:
            for figure, value in ours[name].items():
                row = {"what": f"{name} region, {state}, {figure}", "rabbet": value}
                if name in theirs:
                    row["torch"] = theirs[name][figure]
                if figure == "mean" and number == 1:
                    row["limit"] = 2 * idle[name]["mean"]
                rows.append(row)
    finish("threads", "Parallel regions and a busy neighbour, 2 threads", rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1], float(sys.argv[2]))
    else:
        main()
