"""Profiles of single kernels by ncu: what is asked for, and how its table is read."""

import csv

METRICS = {
    "gpu__time_duration.sum": "time",
    "dram__bytes_read.sum": "read",
    "dram__bytes_write.sum": "written",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory %",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "arithmetic %",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy %",
    "launch__registers_per_thread": "registers",
}
# Arguments of one.py, the most telling first.
KERNELS = [
    "attention 4 16 4096 64 --dtype bfloat16",
    "attention 4 16 4096 64 --dtype bfloat16 --backward",
    "softmax 16384 4096 --dtype bfloat16",
    "layer_norm 65536 1024 --dtype bfloat16",
    "layer_norm 65536 1024 --dtype bfloat16 --backward",
    "add 268435456",
    "sum 16384 4096",
    "sum_columns 16384 4096",
    "conv2d 64 64 56 --dtype bfloat16",
    "conv2d 64 64 56 --dtype bfloat16 --backward",
    "matmul 4096 4096 4096 --dtype bfloat16",
    "matmul 4096 4096 4096",
    "transpose 8192 8192",
    "cross_entropy 8192 50304 --dtype bfloat16",
    "index_select 65536 1024",
    "sort 1024 4096",
    "cumsum 4096 16384",
]
OPTIONS = ["--csv", "--page", "raw", "--profile-from-start", "off", "--clock-control", "none"]
OPTIONS += ["--metrics", ",".join(METRICS)]


# What ncu says where the machine, not the program, is the reason.
REFUSALS = (
    "ERR_NVGPUCTRPERM",
    "Failed to initialize the profiler",
    "LibraryNotLoaded",
    "not supported on this",
)


class NotAllowed(Exception):
    """The machine gives no counters."""


def kernels(text: str) -> list[dict[str, str]]:
    """Rows of ncu's output, a kernel each: its name, and the metrics with their units.

    Raises:
        NotAllowed: if ncu says that it cannot read counters here.
        ValueError: if ncu reports another error, or gives no table.
    """
    lines = text.splitlines()
    for line in lines:
        said = line.replace("==ERROR==", "").strip()
        if any(words in line for words in REFUSALS):
            raise NotAllowed(said)
        if line.startswith("==ERROR=="):
            raise ValueError(said)
    begin = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        raise ValueError("ncu gave no table")
    header, units, *rows = csv.reader(line for line in lines[begin:] if line.startswith('"'))
    found = []
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        unit = dict(zip(header, units, strict=False))
        values = {
            name: f"{cells[metric]} {unit[metric]}".strip().removesuffix(" %")
            for metric, name in METRICS.items()
            if metric in cells
        }
        found.append({"kernel": cells.get("Kernel Name", "?"), **values})
    if not found:
        raise ValueError("ncu saw no kernel")
    return found
