"""What does profiling cost? Time per event, a training step with and without it, totals against a clock, beside PyTorch.

TORCH_PYTHON names the Python that has torch where it is not this one. A call has two events, its begin and its end.
"""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

CALLS = 10_000
STEPS = 100
REPEATS = 15
LIMITS = {
    "an event: names and times": 100e-9,
    "an event: shapes": 100e-9,
    "an event: memory": 100e-9,
    "an event: stacks": 100e-9,
    "an event: all of these": 100e-9,
}
OPTIONS = {
    "names and times": {},
    "shapes": {"record_shapes": True},
    "memory": {"profile_memory": True},
    "stacks": {"with_stack": True},
    "all of these": {"record_shapes": True, "profile_memory": True, "with_stack": True},
}


def seconds(call: Callable[[], Any], number: int) -> float:
    """Seconds for `number` calls."""
    began = time.perf_counter()
    for _ in range(number):
        call()
    return time.perf_counter() - began


def own_seconds(call: Callable[[], Any], number: int) -> float:
    """Processor seconds of this thread for `number` calls, which other processes disturb less than wall time."""
    began = time.thread_time()
    for _ in range(number):
        call()
    return time.thread_time() - began


def profile_of(library: Any, **options: Any) -> Any:
    return library.profiler.profile(activities=[library.profiler.ProfilerActivity.CPU], **options)


def off_and_on(
    library: Any, call: Callable[[], Any], number: int, options: dict[str, Any] | None = None
) -> tuple[float, float]:
    """Seconds of a call without and with a profile, the least of several turns; what follows the end does not count."""
    off, on = [], []
    for _ in range(REPEATS):
        off.append(own_seconds(call, number))
        prof = profile_of(library, **(options or {}))
        prof.start()
        on.append(own_seconds(call, number))
        prof.stop()
    return min(off) / number, min(on) / number


def training_step(library: Any) -> Callable[[], Any]:
    """A step of a small network on a small batch."""
    nn = library.nn
    net = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    optimizer = library.optim.Adam(net.parameters())
    x, y = library.randn(32, 64), library.randint(0, 10, (32,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()

    return step


def measure(library: Any) -> dict[str, float]:
    """Seconds of each row for one library, and `clock`: the total time of the events divided by the wall time."""
    importlib.import_module(f"{library.__name__}.profiler")
    x = library.ones(2)

    def add() -> Any:
        return x + x

    def named() -> None:
        with library.profiler.record_function("part"):
            pass

    rows = {}
    for name, options in OPTIONS.items():
        off, on = off_and_on(library, add, CALLS, options)
        rows[f"an event: {name}"] = (on - off) / 2
    rows["record_function, off"], rows["record_function, on"] = off_and_on(library, named, CALLS)
    step = training_step(library)
    seconds(step, 20)
    rows["a training step, off"], rows["a training step, on"] = off_and_on(library, step, STEPS)
    prof = profile_of(library)
    with prof:
        seconds(add, CALLS)
        began = time.perf_counter()
    prof.events()
    rows["a call, from the end to its event"] = (time.perf_counter() - began) / CALLS
    rows["clock"] = clock_ratio(library)
    return rows


def clock_ratio(library: Any) -> float:
    """The profiled time of a row of large calls divided by their wall time."""
    a = library.ones(384, 384)
    seconds(lambda: a @ a, 10)
    with profile_of(library) as prof:
        clock = seconds(lambda: a @ a, 50)
    tops = [e for e in prof.events() if e.cpu_parent is None and e.name.startswith("aten::")]
    return sum(e.cpu_time_total for e in tops) / (clock * 1e6)


def of_torch() -> dict[str, float]:
    """The rows of torch, from the Python that has it; empty where none has."""
    python = os.environ.get("TORCH_PYTHON", sys.executable)
    done = subprocess.run([python, __file__, "torch"], capture_output=True, text=True)
    if done.returncode and "No module named 'torch'" not in done.stderr:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}


def child(name: str) -> None:
    library = importlib.import_module(name)
    for part in ("nn", "optim"):
        importlib.import_module(f"{name}.{part}")
    library.set_num_threads(2)
    print(json.dumps(measure(library)))


def main() -> None:
    from common import finish

    own = subprocess.run([sys.executable, __file__, "rabbet"], capture_output=True, check=True)
    ours, theirs = json.loads(own.stdout.splitlines()[-1]), of_torch()
    rows = []
    for what, value in ours.items():
        if what == "clock":
            continue
        row = {"what": what, "rabbet": value}
        if theirs:
            row["torch"] = theirs[what]
        if what in LIMITS:
            row["limit"] = LIMITS[what]
        rows.append(row)
    ratios = f"rabbet {ours['clock']:.4f}" + (f", torch {theirs['clock']:.4f}" if theirs else "")
    finish("profiler", f"Profiling (events of products of matrices over a clock: {ratios})", rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1])
    else:
        main()
