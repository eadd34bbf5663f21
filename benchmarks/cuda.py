"""CUDA devices beside torch's: the rows of the table of targets, in turns in one process, medians.

    python benchmarks/cuda.py RESULTS.json [PART OF A ROW'S NAME ...]

The check of a machine with a GPU starts it again behind a row that left the device unusable; RESULTS.json keeps what it has.
The packages must be installed; torch without a CUDA device, or none, leaves our times alone. With GPU_CHECK_SMALL set the
sizes are tiny, to try the program on the simulator: its times say nothing about a GPU.
"""

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

SMALL = bool(os.environ.get("GPU_CHECK_SMALL"))
ROUNDS = 2 if SMALL else 11
SLICE_SECONDS = 0.0 if SMALL else 0.02
GPU_CHECK = (
    Path(__file__).resolve().parents[1] / "packages" / "backend-cuda" / "tools" / "gpu_check"
)
# Bytes and operations per second: floors are arithmetic, not readings.
SPEEDS = {"H200": (4.3e12, 7.9e14), "H100": (3.0e12, 7.9e14)}
BYTES_PER_SECOND, FLOPS = math.inf, math.inf  # of other devices


def size(full: int, small: int) -> int:
    return small if SMALL else full


@dataclass
class Row:
    name: str
    make: Callable[[Any], Callable[[], Any]]  # from the framework's module
    floor: float = 0.0  # seconds
    waits: bool = True  # False: the host's time until everything is enqueued


def two(lib, n, dtype):
    return [lib.randn(n, device="cuda").to(getattr(lib, dtype)) for _ in range(2)]


def add(n, dtype):
    def make(lib):
        x, y = two(lib, n, dtype)
        return lambda: x + y

    return make


def graph_of_small_kernels(lib):
    count = size(1000, 20)
    x = lib.ones(1024, device="cuda")

    def work():
        y = x
        for _ in range(count):
            y = y + 1
        return y

    side = lib.cuda.Stream()
    side.wait_stream(lib.cuda.current_stream())
    with lib.cuda.stream(side):
        work()
    lib.cuda.current_stream().wait_stream(side)
    graph = lib.cuda.CUDAGraph()
    with lib.cuda.graph(graph):
        kept = work()
    return lambda: (graph.replay(), kept)


def chain(n):
    def make(lib):
        x, y = two(lib, n, "float32")
        return lambda: ((x * y + x).relu() - y).sigmoid() * 0.5

    return make


def sums(shape, dims):
    def make(lib):
        x = lib.randn(*shape, device="cuda")
        return (lambda: x.sum()) if dims is None else lambda: x.sum(dims)

    return make


def softmax(rows, columns):
    def make(lib):
        x = lib.randn(rows, columns, device="cuda").to(lib.bfloat16)
        return lambda: lib.softmax(x, -1)

    return make


def layer_norm(rows, columns, backward):
    def make(lib):
        x = lib.randn(rows, columns, device="cuda").to(lib.bfloat16)
        w, b = (lib.ones(columns, device="cuda").to(lib.bfloat16) for _ in range(2))
        norm = lib.nn.functional.layer_norm
        if not backward:
            return lambda: norm(x, (columns,), w, b)
        given = [t.requires_grad_() for t in (x, w, b)]
        y = norm(x, (columns,), w, b)
        g = lib.ones_like(y)
        return lambda: lib.autograd.grad(y, given, g, retain_graph=True)

    return make


def matmul(a, b, dtype="bfloat16"):
    def make(lib):
        x, y = (lib.randn(*s, device="cuda").to(getattr(lib, dtype)) for s in (a, b))
        return lambda: lib.matmul(x, y)

    return make


def linear_gelu(n):
    def make(lib):
        x, w = (lib.randn(n, n, device="cuda").to(lib.bfloat16) for _ in range(2))
        b = lib.zeros(n, device="cuda").to(lib.bfloat16)
        F = lib.nn.functional
        return lambda: F.gelu(F.linear(x, w, b), approximate="tanh")

    return make


def conv(batch, channels, outputs, side, kernel, stride):
    def make(lib):
        x = lib.randn(batch, channels, side, side, device="cuda").to(lib.bfloat16)
        w = lib.randn(outputs, channels, kernel, kernel, device="cuda").to(lib.bfloat16)
        x, w = (t.to(memory_format=lib.channels_last) for t in (x, w))
        return lambda: lib.nn.functional.conv2d(x, w, stride=stride, padding=kernel // 2)

    return make


def seen_often(call):
    """The call after so many that rabbet has a plan of cuDNN for its sizes."""
    for _ in range(size(66, 1)):
        call()
    return call


def attention(length, head, backward):
    batch = max(1, size(16384, 64) // length)
    heads = size(2048, 32) // head

    def make(lib):
        shape = (batch, heads, length, head)
        q, k, v = (lib.randn(*shape, device="cuda").to(lib.bfloat16) for _ in range(3))
        call = lib.nn.functional.scaled_dot_product_attention
        if not backward:
            return seen_often(lambda: call(q, k, v, is_causal=True))
        given = [t.requires_grad_() for t in (q, k, v)]
        y = call(q, k, v, is_causal=True)
        g = lib.ones_like(y)
        return seen_often(lambda: lib.autograd.grad(y, given, g, retain_graph=True))

    flops = 2.0 * batch * heads * length * length * head * (2.5 if backward else 1)
    return Row(
        f"sdpa causal bf16 {length} x {head}{' backward' if backward else ''}", make, flops / FLOPS
    )


def adam(parameters):
    def make(lib):
        p = lib.zeros(parameters, device="cuda").requires_grad_()
        p.grad = lib.ones(parameters, device="cuda")
        optimizer = lib.optim.Adam([p], fused=True)
        return optimizer.step

    return make


def rows() -> list[Row]:
    n, m = size(1 << 28, 1 << 10), size(8192, 32)
    r, c = size(16384, 16), size(4096, 64)
    square = [size(s, t) for s, t in ((8192, 64), (4096, 48), (1024, 32))]
    cube = (size(256, 4), size(1024, 8), size(1024, 16))
    images = size(64, 1)
    products = [Row(f"matmul bf16 {s}", matmul((s, s), (s, s)), 2.0 * s**3 / FLOPS) for s in square]
    shapes = (
        ((64, 64, 56, 3, 1), (128, 128, 28, 3, 1), (256, 512, 14, 1, 2))
        if not SMALL
        else ((8, 8, 6, 3, 1),)
    )
    attentions = [
        attention(length, head, backward)
        for backward in (False, True)
        for head in (64, 128)
        for length in ((1024, 4096, 16384) if not SMALL else (32,))
    ]
    return [
        Row("add of 1024 elements, until enqueued", add(1024, "float32"), waits=False),
        Row("replay of a graph of small kernels", graph_of_small_kernels),
        Row(f"add f32 {n}", add(n, "float32"), 12 * n / BYTES_PER_SECOND),
        Row(f"add bf16 {n}", add(n, "bfloat16"), 6 * n / BYTES_PER_SECOND),
        Row(f"six elementwise f32 {n // 4}", chain(n // 4)),
        Row(f"sum f32 {n}", sums((n,), None), 4 * n / BYTES_PER_SECOND),
        *(Row(f"sum f32 {cube} over {d}", sums(cube, d)) for d in range(3)),
        Row(f"softmax bf16 {r} x {c}", softmax(r, c), 4.0 * r * c / BYTES_PER_SECOND),
        Row(f"layer_norm bf16 {4 * r} x {c // 4}", layer_norm(4 * r, c // 4, False), 4.0 * r * c / BYTES_PER_SECOND),
        Row(f"layer_norm backward bf16 {4 * r} x {c // 4}", layer_norm(4 * r, c // 4, True), 6.0 * r * c / BYTES_PER_SECOND),
        *products,
        Row("matmul bf16 64 x 512", matmul((size(64, 2), 512, 512), (size(64, 2), 512, 512)) if not SMALL else matmul((2, 16, 16), (2, 16, 16))),
        Row(f"matmul bf16 {m} x {m} x 16", matmul((m, m), (m, 16)), 2.0 * m * m / BYTES_PER_SECOND),
        Row(f"matmul f32 {square[1]}", matmul((square[1],) * 2, (square[1],) * 2, "float32")),
        Row(f"linear and gelu bf16 {square[1]}", linear_gelu(square[1]), 2.0 * square[1] ** 3 / FLOPS),
        *(Row(f"conv bf16 channels last {s}", conv(images, *s)) for s in shapes),
        *attentions,
        Row("fused Adam f32", adam(size(124_000_000, 1000)), 28 * size(124_000_000, 1000) / BYTES_PER_SECOND),
    ]  # fmt: skip


def turn(lib, call, number: int, waits: bool) -> float:
    """Seconds per call."""
    lib.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(number):
        call()
    if waits:
        lib.cuda.synchronize()
    return (time.perf_counter() - began) / number


def measure(row: Row, libs: dict[str, Any]) -> dict[str, Any]:
    calls = {name: row.make(lib) for name, lib in libs.items()}
    numbers, times = {}, {name: [] for name in libs}
    for name, lib in libs.items():
        turn(lib, calls[name], 2, True)
        once = turn(lib, calls[name], 1, True)
        most = 500 if not row.waits else 1000
        numbers[name] = max(1, min(most, int(SLICE_SECONDS / max(once, 1e-7))))
    for _ in range(ROUNDS):
        for name, lib in libs.items():
            times[name].append(turn(lib, calls[name], numbers[name], row.waits))
    found = {"name": row.name, "floor_us": round(1e6 * row.floor, 2)}
    for name in libs:
        found[f"{name}_us"] = round(1e6 * statistics.median(times[name]), 3)
        found[f"{name}_spread"] = round(max(times[name]) / min(times[name]), 3)
    if "torch" in libs:
        found["ratio"] = round(found["torch_us"] / found["rabbet_us"], 3)
    return found


def frameworks() -> dict[str, Any]:
    import rabbet
    import rabbet.nn
    import rabbet.optim

    libs = {"rabbet": rabbet}
    try:
        import torch

        if torch.cuda.is_available() and not SMALL:
            libs["torch"] = torch
    except ImportError:
        pass
    return libs


def table(found: dict[str, Any]) -> str:
    lines = [f"On {found['device']}. Microseconds, medians; ratio: torch's time over ours.", ""]
    lines += ["| case | rabbet | torch | ratio | floor |", "|---|---|---|---|---|"]
    for row in found["rows"]:
        cells = [
            row["name"],
            row.get("rabbet_us", row.get("error", "")),
            row.get("torch_us", ""),
            row.get("ratio", ""),
        ]
        lines.append(f"| {' | '.join(map(str, [*cells, row.get('floor_us', '')]))} |")
    return "\n".join(lines) + "\n"


def write(path: Path, found: dict[str, Any]) -> None:
    """After each row: a program that is ended leaves those that it has."""
    path.write_text(json.dumps(found, indent=1) + "\n")
    path.with_suffix(".md").write_text(table(found))


def kept(path: Path) -> list[dict[str, Any]]:
    """Rows of a process that ended; the row in which it did says so."""
    return json.loads(path.read_text())["rows"] if path.exists() else []


def measured(row: Row, libs: dict[str, Any], found: dict[str, Any], path: Path) -> str:
    """Measure a row into the results, and say how it went; the file has it before it begins, in case the process ends."""
    found["rows"].append({"name": row.name, "error": "its process ended"})
    write(path, found)
    try:
        found["rows"][-1] = measure(row, libs)
        for lib in libs.values():
            lib.cuda.empty_cache()
    except Exception as error:
        found["rows"][-1] = {"name": row.name, "error": f"{type(error).__name__}: {error}"[:300]}
        raise
    finally:
        write(path, found)
    return ", ".join(f"{name} {found['rows'][-1][f'{name}_us']} us" for name in libs)


def main() -> int:
    global BYTES_PER_SECOND, FLOPS
    path, parts = Path(sys.argv[1]), sys.argv[2:]
    libs = frameworks()
    device = libs["rabbet"].cuda.get_device_properties(0).name
    for name, speeds in SPEEDS.items():
        if name in device:
            BYTES_PER_SECOND, FLOPS = speeds
    found = {"device": device, "small": SMALL, "rows": kept(path)}
    chosen = [row for row in rows() if not parts or any(part in row.name for part in parts)]
    if not chosen:
        names = "; ".join(row.name for row in rows())
        raise SystemExit(f"no row's name has a part of {parts}; there are: {names}")
    return work_through({row.name: partial(measured, row, libs, found, path) for row in chosen})


if __name__ == "__main__":
    sys.path.insert(0, str(GPU_CHECK))
    from worker import work_through

    sys.exit(main())
