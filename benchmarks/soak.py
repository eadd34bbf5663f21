"""Does anything grow while the data loader makes many batches? Memory, descriptors, shared segments, threads, processes.

    python benchmarks/soak.py                         # 10^6 batches, in all four ways of loading
    python benchmarks/soak.py --batches 20000 --case threads

Each case runs in a process of its own, as passes of several thousand batches, and is measured some hundred times.
Compared are the first and the last third of the measurements after a warm-up. The exit code is 1 if something grew.
"""

import argparse
import collections
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import rabbet
from rabbet.utils.data import DataLoader, RandomSampler

CASES: dict[str, dict[str, Any]] = {
    "in the loop": {},
    "threads": {"num_workers": 2, "kind": "threads"},
    "processes": {"num_workers": 2, "kind": "processes"},
    "processes that persist": {"num_workers": 2, "kind": "processes", "persistent_workers": True},
}
PASS = 2500  # batches of a pass, at the end of which workers that do not persist end
ALLOWED = {  # growth that is noise: pages that the C library keeps, and the collector's rhythm
    "program kB": 3000,
    "workers kB": 3000,
    "shared kB": 1000,
    "descriptors": 0,
    "segments": 2,
    "threads": 0,
    "tensors": 20,
}


class Samples:
    """Tensors of five lengths with a number and a text; `count` of them."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        length = 64 << (i // 4 % 5)
        return {"x": rabbet.full((length,), float(i)), "n": i, "text": f"sample {i}"}


def collate(samples: list[Any]) -> Any:
    """Stack the longest tensors of a batch, so that batches differ in size."""
    longest = max(len(s["x"]) for s in samples)
    rows = [s["x"] for s in samples if len(s["x"]) == longest]
    return {"x": rabbet.stack(rows), "n": rabbet.tensor([s["n"] for s in samples]), "text": [s["text"] for s in samples]}  # fmt: skip


def _status(pid: int, name: str) -> int:
    with open(f"/proc/{pid}/status") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(name + ":"))


def _segments() -> int:
    """Shared memory that this process has open or mapped: memory files, and files in /dev/shm."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
    with open("/proc/self/maps") as file:
        names += [line.partition("/")[2] for line in file]
    return sum("memfd:" in name or "dev/shm/" in name for name in names)


def measured(workers: list[int]) -> dict[str, int]:
    """The resources that the program and its workers hold now."""
    gc.collect()
    return {
        "program kB": _status(os.getpid(), "RssAnon"),
        "workers kB": max((_status(pid, "RssAnon") for pid in workers), default=0),
        "shared kB": _status(os.getpid(), "RssShmem"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "segments": _segments(),
        "threads": threading.active_count(),
        "tensors": rabbet._C.live_counts()["tensors"],
    }


def measurements(options: dict[str, Any], batches: int) -> Iterator[dict[str, int]]:
    """Load so many batches; measure in the middle of passes, when workers and slots exist."""
    per_pass = min(PASS, max(batches // 8, 1))
    data = Samples(4 * per_pass)
    sampler = RandomSampler(data, constant_memory=True)
    loader: Any = DataLoader(data, 4, sampler=sampler, collate_fn=collate, **options)
    every = max(per_pass // 4, 1)
    kept: collections.deque[Any] = collections.deque(maxlen=3)
    for _ in range(max(batches // per_pass, 1)):
        running = iter(loader)
        workers = [w.pid for w in getattr(running, "_workers", [])]
        for number, batch in enumerate(running):
            numbers = batch["n"].tolist()
            if len(batch["text"]) != 4 or float(batch["x"][0, -1]) not in numbers:
                raise AssertionError(f"batch {number} is not whole: {batch}")
            kept.append(batch["x"])
            if number % every == every // 2:
                yield measured(workers)
        if loader.stats().batches != per_pass:
            raise AssertionError(f"{loader.stats().batches} of {per_pass} batches came")


def grown(rows: list[dict[str, int]]) -> dict[str, tuple[float, float]]:
    """The resources that grew by more than noise from the first third of the measurements to the last; the warm-up is left out."""
    rows = rows[len(rows) // 5 :]
    third = max(len(rows) // 3, 1)
    found = {}
    for name, allowed in ALLOWED.items():
        begin = statistics.median(row[name] for row in rows[:third])
        end = statistics.median(row[name] for row in rows[-third:])
        if end > begin + allowed:
            found[name] = (begin, end)
    return found


def child(case: str, batches: int) -> None:
    """Run one case and print its measurements as JSON."""
    began = time.perf_counter()
    rows = list(measurements(CASES[case], batches))
    print(json.dumps({"rows": rows, "seconds": time.perf_counter() - began}))


def main() -> int:
    """Run the cases; 1 if something grew."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--batches", type=int, default=10**6)
    parser.add_argument("--case", choices=sorted(CASES), action="append")
    parser.add_argument("--child", choices=sorted(CASES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.batches)
        return 0
    bad = False
    for case in args.case or CASES:
        command = [sys.executable, __file__, "--child", case, "--batches", str(args.batches)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            print(f"{case}: failed with exit code {done.returncode}", flush=True)
            bad = True
            continue
        result = json.loads(done.stdout)
        rows, last = result["rows"], result["rows"][-1]
        found = grown(rows)
        bad |= bool(found)
        print(
            f"{case}: {args.batches} batches in {result['seconds']:.0f} s, {len(rows)} measurements"
        )
        print("    at the end: " + ", ".join(f"{name} {value}" for name, value in last.items()))
        for name, (begin, end) in found.items():
            print(f"    GREW: {name} from {begin:g} to {end:g}")
        sys.stdout.flush()
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
