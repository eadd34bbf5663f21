"""One operator, its size, dtype and direction chosen by arguments: for a profiler, or timed by events.

    one.py OPERATOR SIZE ... [--dtype NAME] [--backward] [--repeat N] [--profile]
    one.py --list

With --profile only the last call is between cuProfilerStart and cuProfilerStop: `ncu --profile-from-start off` sees its
kernels alone. Without it the result has the median time and, by the bytes of operands and results, the rate.
"""

import argparse
import ctypes
import json
import os
from collections.abc import Callable
from typing import Any

import rabbet
import rabbet.nn.functional as F


def normal(*shape: int) -> Any:
    return rabbet.randn(*shape, device="cuda")


def line_norm(n: int, m: int) -> list:
    return [normal(n, m), normal(m), normal(m)]


def picture(n: int, c: int, s: int) -> list:
    return [
        t.to(memory_format=rabbet.channels_last)
        for t in (normal(n, c, s, s), normal(c, c, 3, 3) * 0.1)
    ]


# What is called, and its operands from the size.
OPERATORS: dict[str, tuple[Callable, Callable]] = {
    "add": (lambda x, y: x + y, lambda n: [normal(n), normal(n)]),
    "gelu": (F.gelu, lambda n: [normal(n)]),
    "transpose": (lambda x: x.t().contiguous(), lambda n, m: [normal(n, m)]),
    "sum": (lambda x: x.sum(-1), lambda n, m: [normal(n, m)]),
    "sum_columns": (lambda x: x.sum(0), lambda n, m: [normal(n, m)]),
    "softmax": (lambda x: x.softmax(-1), lambda n, m: [normal(n, m)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, w.shape, w, b), line_norm),
    "rms_norm": (lambda x, w, b: F.rms_norm(x, w.shape, w), line_norm),
    "cross_entropy": (
        lambda x: F.cross_entropy(x, rabbet.arange(x.shape[0], device="cuda") % x.shape[1]),
        lambda n, m: [normal(n, m)],
    ),
    "matmul": (lambda x, y: x @ y, lambda n, k, m: [normal(n, k), normal(k, m)]),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda b, h, n, d: [normal(b, h, n, d) for _ in range(3)],
    ),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), picture),
    "index_select": (
        lambda x: x.index_select(0, (rabbet.arange(x.shape[0], device="cuda") * 7) % x.shape[0]),
        lambda n, m: [normal(n, m)],
    ),
    "sort": (lambda x: x.sort(-1)[0], lambda n, m: [normal(n, m)]),
    "cumsum": (lambda x: x.cumsum(-1), lambda n, m: [normal(n, m)]),
}  # fmt: skip


def call_of(
    name: str, size: list[int], dtype: str, backward: bool
) -> tuple[Callable[[], Any], int]:
    """A function without arguments, and the bytes of its operands and results."""
    call, operands = OPERATORS[name]
    given = [t.to(getattr(rabbet, dtype)).requires_grad_(backward) for t in operands(*size)]
    made = call(*given)
    moved = sum(t.numel() * t.element_size() for t in [*given, made])
    if not backward:
        return lambda: call(*given), moved
    cotangent = rabbet.randn(made.shape, device="cuda").to(made.dtype)

    def derivative() -> Any:
        return rabbet.autograd.grad(made, given, cotangent, retain_graph=True, allow_unused=True)

    return derivative, moved + sum(t.numel() * t.element_size() for t in given)


def profiled(call: Callable[[], Any]) -> None:
    driver = ctypes.CDLL(os.environ.get("RABBET_CUDA_DRIVER") or "libcuda.so.1")
    for around in ("cuProfilerStart", "cuProfilerStop"):
        status = getattr(driver, around)()
        if status:
            raise SystemExit(f"{around}: error {status}")
        if around == "cuProfilerStart":
            call()
            rabbet.cuda.synchronize()


def median_ms(call: Callable[[], Any], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        begin, end = (rabbet.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        rabbet.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operator", nargs="?", choices=list(OPERATORS))
    parser.add_argument("size", nargs="*", type=int)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    if given.list or not given.operator:
        print("\n".join(OPERATORS))
        return
    operands = OPERATORS[given.operator][1].__code__
    names = operands.co_varnames[: operands.co_argcount]
    if len(given.size) != len(names):
        parser.error(f"{given.operator}: expected a size {' '.join(names)}, got {given.size}")
    rabbet.manual_seed(0)
    size = [min(n, 40) for n in given.size] if os.environ.get("GPU_CHECK_SMALL") else given.size
    call, moved = call_of(given.operator, size, given.dtype, given.backward)
    for _ in range(3):
        call()
    rabbet.cuda.synchronize()
    if given.profile:
        profiled(call)
        print(json.dumps({"profiled": given.operator}))
        return
    ms = median_ms(call, given.repeat)
    rate = round(moved / max(ms, 1e-6) / 1e6, 1)
    print(json.dumps({"ms": round(ms, 4), "bytes": moved, "GB/s": rate}))


main()
