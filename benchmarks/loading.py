"""What does the data loader cost? Trivial samples, samples bound by Python, the first batch, memory, beside PyTorch.

TORCH_PYTHON names the Python that has torch where it is not this one.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

BATCH, WORKERS = 32, 2


class Trivial:
    """224 x 224 x 3 floats (602 kB) out of memory, in every library."""

    def __init__(self, library: Any) -> None:
        self.image = library.ones(3, 224, 224)

    def __len__(self) -> int:
        return 1280

    def __getitem__(self, i: int) -> Any:
        return self.image


class Bound(Trivial):
    """About a millisecond of Python per sample."""

    def __init__(self, library: Any) -> None:
        self.full = library.full

    def __len__(self) -> int:
        return 1600

    def __getitem__(self, i: int) -> Any:
        total = 0
        for k in range(15_000):
            total += k ^ i
        return self.full((16,), float(total % 7))


class Jpeg:
    """A folder of JPEG files, decoded by Pillow, cropped, flipped and normalized by the library."""

    def __init__(self, library: Any) -> None:
        import numpy  # noqa: F401
        import PIL.Image  # noqa: F401

        self.library = library
        folder = os.environ["JPEG_FOLDER"]
        self.files = [os.path.join(folder, name) for name in sorted(os.listdir(folder))] * 8

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Any:
        import numpy as np
        from PIL import Image

        with Image.open(self.files[i]) as file:
            pixels = self.library.from_numpy(np.array(file.convert("RGB")))
        top, left = i * 7 % 33, i * 13 % 33
        x = pixels[top : top + 224, left : left + 224].permute(2, 0, 1).float().div(255)
        x = x.flip(2) if i % 2 else x
        return x.sub(0.45).div(0.225)


def write_jpegs(folder: str) -> None:
    """100 noisy pictures of 256 x 256."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    for i in range(100):
        small = random.integers(0, 255, (16, 16, 3), dtype=np.uint8)
        picture = Image.fromarray(small).resize((256, 256), Image.Resampling.BICUBIC)
        picture.save(os.path.join(folder, f"{i}.jpg"), quality=90)


def private_bytes(pid: int) -> int:
    """What a process alone has written, in bytes, without batches: those are in shared memory, whoever maps them."""
    total, is_batch = 0, False
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            words = line.split()
            if not words[0].endswith(":"):
                is_batch = any(x in line for x in ("memfd:", "/dev/shm/", "/torch_"))
            elif words[0] == "Private_Dirty:" and not is_batch:
                total += int(words[1]) * 1024
    return total


def epoch(loader: Any) -> dict[str, float]:
    """Seconds to the first batch and per sample after it, processor seconds per sample of the program and its workers from
    their start to their end, and the private memory of the largest worker."""
    busy = sum(os.times()[:4])
    began = time.perf_counter()
    batches = iter(loader)
    next(batches)
    first = time.perf_counter()
    pids = [w.pid for w in getattr(batches, "_workers", [])]
    memory = max(map(private_bytes, pids), default=0)
    count = sum(len(batch) for batch in batches)
    end = time.perf_counter()
    del batches  # ends the workers
    return {
        "first": first - began,
        "sample": (end - first) / count,
        "processor": (sum(os.times()[:4]) - busy) / (count + BATCH),
        "memory": memory,
    }


CASES: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "trivial, in the loop": (Trivial, {}),
    "trivial, fork": (Trivial, {"num_workers": WORKERS, "multiprocessing_context": "fork"}),
    "trivial, spawn": (Trivial, {"num_workers": WORKERS, "multiprocessing_context": "spawn"}),
    "trivial, threads": (Trivial, {"num_workers": WORKERS, "kind": "threads"}),
    "JPEG folder, fork": (Jpeg, {"num_workers": WORKERS, "multiprocessing_context": "fork"}),
    "JPEG folder, threads": (Jpeg, {"num_workers": WORKERS, "kind": "threads"}),
    "bound by Python, in the loop": (Bound, {}),
    "bound by Python, fork": (Bound, {"num_workers": WORKERS, "multiprocessing_context": "fork"}),
}


# By case and figure: how many times better than torch's.
TARGETS = {
    ("trivial, fork", "sample"): 2,
    ("trivial, fork", "memory"): 2,
    ("trivial, spawn", "first"): 10,
    ("trivial, spawn", "memory"): 2,
    ("JPEG folder, fork", "sample"): 1.2,
    ("JPEG folder, fork", "memory"): 2,
    ("bound by Python, fork", "sample"): 1.3,
    ("bound by Python, fork", "memory"): 2,
}


def child(name: str, case: str) -> None:
    """One case of one library, which alone is imported."""
    if name == "torch":
        import torch as library
        from torch.utils.data import DataLoader
    else:
        import rabbet as library
        from rabbet.utils.data import DataLoader
    make, options = CASES[case]
    loader = DataLoader(make(library), BATCH, **options)
    runs = [epoch(loader) for _ in range(3)]
    print(json.dumps({key: min(run[key] for run in runs) for key in runs[0]}))


def measured(library: str, case: str) -> dict[str, float] | None:
    python = (
        os.environ.get("TORCH_PYTHON", sys.executable) if library == "torch" else sys.executable
    )
    done = subprocess.run([python, __file__, library, case], capture_output=True, text=True)
    if done.returncode:
        if "No module named" in done.stderr:  # torch, or Pillow where it is
            return None
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JPEG_FOLDER"] = folder
        write_jpegs(folder)
        measure()


def measure() -> None:
    """All cases, into a table."""
    from common import finish

    rows = []
    for case, (_, options) in CASES.items():
        ours = measured("rabbet", case)
        theirs = None if "kind" in options else measured("torch", case)
        keys = [
            ("sample", "per sample"),
            ("processor", "processor time per sample"),
            ("first", "to the first batch"),
        ]
        if ours["memory"]:
            keys.append(("memory", "memory of a worker"))
        for key, what in keys:
            row = {"what": f"{case}, {what}", "rabbet": ours[key]}
            if theirs:
                row["torch"] = theirs[key]
            if (case, key) in TARGETS:
                row["times"] = TARGETS[case, key]
            if key == "memory":
                row["unit"] = "MB"
            rows.append(row)
        print(case, ours, theirs)
    finish("loading", f"Data loading, batches of {BATCH}, {WORKERS} workers", rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(*sys.argv[1:])
    else:
        main()
