"""How close do convolutions come to the processor's limit, and to PyTorch? Forward, dx and dw in GFLOP/s.

python benchmarks/convolution.py [--threads 1] [--only 3x3]
"""

import argparse
import math
import time
from typing import Any

import rabbet
from common import machine, torch_or_none

# name, images, input channels, output channels, size, kernel, stride, padding, groups
SHAPES = [
    ("3x3 64, 56x56", 16, 64, 64, 56, 3, 1, 1, 1),
    ("3x3 128, 28x28", 16, 128, 128, 28, 3, 1, 1, 1),
    ("3x3 256, 14x14", 16, 256, 256, 14, 3, 1, 1, 1),
    ("3x3 512, 7x7", 16, 512, 512, 7, 3, 1, 1, 1),
    ("3x3/2 128, 56x56", 16, 128, 128, 56, 3, 2, 1, 1),
    ("1x1 256->64, 56x56", 16, 256, 64, 56, 1, 1, 0, 1),
    ("1x1 64->256, 56x56", 16, 64, 256, 56, 1, 1, 0, 1),
    ("1x1 512->2048, 7x7", 16, 512, 2048, 7, 1, 1, 0, 1),
    ("1x1/2 256->512, 56x56", 8, 256, 512, 56, 1, 2, 0, 1),
    ("7x7/2 3->64, 224x224", 4, 3, 64, 224, 7, 2, 3, 1),
    ("depthwise 3x3 144, 56x56", 8, 144, 144, 56, 3, 1, 1, 144),
    ("depthwise 3x3/2 192, 28x28", 16, 192, 192, 28, 3, 2, 1, 192),
    ("depthwise 3x3 512, 14x14", 16, 512, 512, 14, 3, 1, 1, 512),
    ("3x3 3->32, 32x32", 64, 3, 32, 32, 3, 1, 1, 1),
    ("3x3 16, 32x32", 64, 16, 16, 32, 3, 1, 1, 1),
    ("3x3 32->64, 32x32", 32, 32, 64, 32, 3, 1, 1, 1),
    ("3x3 64, 16x16", 64, 64, 64, 16, 3, 1, 1, 1),
    ("3x3 1->32, 28x28", 64, 1, 32, 28, 3, 1, 0, 1),
    ("5x5 6->16, 14x14", 128, 6, 16, 14, 5, 1, 0, 1),
]
PASSES = ("forward", "dx", "dw")


def calls(shape: tuple, torch: Any) -> list[tuple[Any, Any]]:
    """For each pass our call and that of torch."""
    _, n, c, o, size, k, stride, pad, groups = shape
    out = (size + 2 * pad - k) // stride + 1
    x, w = rabbet.randn(n, c, size, size), rabbet.randn(o, c // groups, k, k)
    g = rabbet.randn(n, o, out, out)
    tail = [[stride] * 2, [pad] * 2, [1, 1], groups]
    ours = [
        lambda: rabbet.ops.convolution(x, w, None, *tail),
        lambda: rabbet.ops.convolution_dx(g, w, list(x.shape), *tail),
        lambda: rabbet.ops.convolution_dw(x, g, list(w.shape), *tail),
    ]
    if torch is None:
        return [(f, None) for f in ours]
    tx, tw, tg = (torch.from_numpy(t.numpy()) for t in (x, w, g))

    def backward(dx: bool) -> Any:
        return torch.ops.aten.convolution_backward(
            tg, tx, tw, None, *tail[:3], False, [0, 0], groups, [dx, not dx, False]
        )

    theirs = [
        lambda: torch.ops.aten.convolution(tx, tw, None, *tail[:3], False, [0, 0], groups),
        lambda: backward(True),
        lambda: backward(False),
    ]
    return list(zip(ours, theirs, strict=True))


def peak(threads: int) -> float:
    """GFLOP/s of a product that stays in the cache: what fused multiply-adds reach in practice."""
    a = rabbet.randn(768, 768)
    return 2e-9 * 768**3 / min(timed(lambda: a @ a, threads) for _ in range(20))


def timed(call: Any, threads: int) -> float:
    """Seconds of one call: of this thread alone, or of the clock where there are several."""
    clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
    began = clock()
    call()
    return (clock() - began) * 1e-9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    torch = torch_or_none()
    rabbet.set_num_threads(options.threads)
    if torch is not None:
        torch.set_num_threads(options.threads)
    print(f"{machine()}; {options.threads} threads, float32, GFLOP/s")
    limit = peak(options.threads)
    print(
        "| what | pass | rabbet | torch | limit | torch / rabbet (time) |\n|---|---|---|---|---|---|"
    )
    ratios: dict[str, list[float]] = {name: [] for name in PASSES}
    for shape in SHAPES:
        if options.only not in shape[0]:
            continue
        _, n, c, o, size, k, stride, pad, groups = shape
        out = (size + 2 * pad - k) // stride + 1
        work = 2e-9 * n * o * out * out * (c // groups) * k * k
        for name, (ours, theirs) in zip(PASSES, calls(shape, torch), strict=True):
            best = [float("inf")] * 2
            for _ in range(options.rounds):  # in turn, so that both see the same machine
                for i, call in enumerate((ours, theirs)):
                    if call is not None:
                        best[i] = min(best[i], timed(call, options.threads))
            row = f"| {shape[0]} | {name} | {work / best[0]:.1f} |"
            if theirs is None:
                print(f"{row} - | {limit:.0f} | - |")
                continue
            ratios[name].append(best[1] / best[0])
            print(
                f"{row} {work / best[1]:.1f} | {limit:.0f} | {ratios[name][-1]:.2f} |", flush=True
            )
    for name, values in ratios.items():
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            print(f"\n{name}: geometric mean {mean:.2f}, least {min(values):.2f}")


if __name__ == "__main__":
    main()
