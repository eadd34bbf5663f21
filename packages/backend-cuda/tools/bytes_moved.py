"""Count the bytes that kernels move on the simulator and print them beside the least possible.

    python packages/backend-cuda/tools/bytes_moved.py [PART_OF_A_NAME ...]

Kernels move sectors of 32 bytes: what the lanes of a warp ask for by one instruction counts by its sectors, so that a line
that is read twice, or elements with gaps between them, count for what they cost (sim/traffic.h). The least is what the
call must read and write at least. Tensors of less than an eighth of the call's largest one, such as weights that every line
reads, count once for each kernel: caches hold them.
"""

import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import rabbet
from rabbet.nn import functional

SMALL = 8  # tensors of less than the largest one's bytes divided by this are in a cache
TRAFFIC = "CUSIM_TRAFFIC"
PACKAGE = Path(__file__).resolve().parent.parent


@dataclass
class Case:
    """A call, and the tensors that it must read or write, each as often as no kernel can do without."""

    call: Callable[[], object]
    moved: list[rabbet.Tensor]

    @property
    def least(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.moved)


@dataclass
class Moved:
    """Bytes that a kernel reads from and writes to one allocation."""

    kernel: str
    whole: int  # bytes of the allocation
    read: int
    written: int


def some(*shape: int, dtype: rabbet.dtype = rabbet.float32) -> rabbet.Tensor:
    return rabbet.rand(shape).to(dtype).to("cuda")


def layer_norm(dtype: rabbet.dtype, rows: int, size: int) -> Case:
    x, w = some(rows, size, dtype=dtype), some(size, dtype=dtype)
    return Case(lambda: rabbet.ops.layer_norm(x, [size], w, w, 1e-5), [x, w, w, x])


def layer_norm_backward(dtype: rabbet.dtype, rows: int, size: int) -> Case:
    x, w = some(rows, size, dtype=dtype), some(size, dtype=dtype)
    return Case(lambda: rabbet.ops.layer_norm_backward(x, x, [size], w, 1e-5), [x, x, x, w, w, w])


def rms_norm(dtype: rabbet.dtype, rows: int, size: int) -> Case:
    x, w = some(rows, size, dtype=dtype), some(size, dtype=dtype)
    return Case(lambda: rabbet.ops.rms_norm(x, [size], w), [x, w, x])


def group_norm(dtype: rabbet.dtype, groups: int, *shape: int) -> Case:
    x, w = some(*shape, dtype=dtype), some(shape[1], dtype=dtype)
    return Case(lambda: rabbet.ops.group_norm(x, groups, w, w, 1e-5), [x, w, w, x])


def softmax(dtype: rabbet.dtype, dim: int, *shape: int) -> Case:
    x = some(*shape, dtype=dtype)
    return Case(lambda: rabbet.softmax(x, dim), [x, x])


def softmax_backward(dtype: rabbet.dtype, dim: int, *shape: int) -> Case:
    x = some(*shape, dtype=dtype)
    return Case(lambda: rabbet.ops.softmax_vjp(x, x, dim), [x, x, x])


def total(
    f: Callable[..., rabbet.Tensor], dtype: rabbet.dtype, dims: list[int], *shape: int
) -> Case:
    x = some(*shape, dtype=dtype)
    return Case(lambda: f(x, dims), [x])


def channels_last(x: rabbet.Tensor) -> rabbet.Tensor:
    return x.to(memory_format=rabbet.channels_last)


def batch_norm(dtype: rabbet.dtype, last: bool, *shape: int) -> Case:
    """The statistics need all of x before the first result can be written: x is read twice."""
    x, w = some(*shape, dtype=dtype), some(shape[1])
    x = channels_last(x) if last else x
    return Case(lambda: rabbet.ops.batch_norm_train(x, w, w, 1e-5), [x, x, x])


def batch_norm_backward(dtype: rabbet.dtype, last: bool, *shape: int) -> Case:
    """As in batch_norm: the gradient and x are read twice."""
    x, w = some(*shape, dtype=dtype), some(shape[1])
    x = channels_last(x) if last else x
    return Case(lambda: rabbet.ops.batch_norm_backward(x, x, w, w, w, 1e-5, True), [x] * 5)


def cross_entropy(dtype: rabbet.dtype, rows: int, classes: int) -> Case:
    x = some(rows, classes, dtype=dtype)
    target = rabbet.zeros(rows, dtype=rabbet.int64, device="cuda")
    return Case(lambda: functional.cross_entropy(x, target), [x, target])


def cross_entropy_backward(dtype: rabbet.dtype, rows: int, classes: int) -> Case:
    x = some(rows, classes, dtype=dtype)
    target = rabbet.zeros(rows, dtype=rabbet.int64, device="cuda")
    row = some(rows)
    backward = rabbet.ops.cross_entropy_backward
    return Case(
        lambda: backward(row, x, target, None, row, row[0], "none", -100, 0.0), [x, target, x]
    )


def cumsum(dtype: rabbet.dtype, *shape: int) -> Case:
    x = some(*shape, dtype=dtype)
    return Case(lambda: rabbet.cumsum(x, -1), [x, x])


def rand(dtype: rabbet.dtype, size: int) -> Case:
    x = some(size, dtype=dtype)
    return Case(lambda: x.uniform_(), [x])


def adam(dtype: rabbet.dtype, size: int) -> Case:
    """Parameter and both states are read and written, the gradient is read."""
    x = some(size, dtype=dtype).requires_grad_()
    x.grad = some(size, dtype=dtype)
    optimizer = rabbet.optim.Adam([x])
    return Case(optimizer.step, [x] * 7)


F32, BF16 = rabbet.float32, rabbet.bfloat16
CASES: dict[str, Callable[[], Case]] = {
    "layer_norm f32": partial(layer_norm, F32, 512, 1024),
    "layer_norm bf16": partial(layer_norm, BF16, 512, 1024),
    "layer_norm f32, short lines": partial(layer_norm, F32, 8192, 32),
    "layer_norm f32, odd lines": partial(layer_norm, F32, 512, 333),
    "layer_norm_backward f32": partial(layer_norm_backward, F32, 9216, 128),
    "layer_norm_backward bf16": partial(layer_norm_backward, BF16, 9216, 128),
    "rms_norm f32": partial(rms_norm, F32, 256, 4096),
    "group_norm f32": partial(group_norm, F32, 4, 8, 16, 16, 16),
    "softmax f32": partial(softmax, F32, -1, 256, 1024),
    "softmax bf16": partial(softmax, BF16, -1, 256, 4096),
    "softmax f32, odd lines": partial(softmax, F32, -1, 256, 1001),
    "softmax f32 of columns": partial(softmax, F32, 1, 16, 64, 64),
    "softmax_backward f32": partial(softmax_backward, F32, -1, 256, 1024),
    "sum f32": partial(total, rabbet.sum, F32, [0, 1], 512, 512),
    "sum f32 over rows": partial(total, rabbet.sum, F32, [1], 512, 512),
    "sum f32 over columns": partial(total, rabbet.sum, F32, [0], 512, 512),
    "sum bf16 over columns": partial(total, rabbet.sum, BF16, [0], 512, 512),
    "sum f32 over the middle": partial(total, rabbet.sum, F32, [1], 16, 128, 128),
    "sum f32 over both ends": partial(total, rabbet.sum, F32, [0, 2], 32, 64, 128),
    "var f32 over rows": partial(total, rabbet.var, F32, [1], 512, 512),
    "batch_norm f32": partial(batch_norm, F32, False, 16, 16, 32, 32),
    "batch_norm f32, channels last": partial(batch_norm, F32, True, 16, 32, 16, 32),
    "batch_norm_backward f32": partial(batch_norm_backward, F32, False, 16, 16, 32, 32),
    "batch_norm_backward f32, channels last": partial(batch_norm_backward, F32, True, 16, 32, 16, 32),
    "cross_entropy f32": partial(cross_entropy, F32, 128, 2048),
    "cross_entropy_backward f32": partial(cross_entropy_backward, F32, 128, 2048),
    "cumsum f32": partial(cumsum, F32, 1 << 18),
    "cumsum f32 of rows": partial(cumsum, F32, 512, 512),
    "rand f32": partial(rand, F32, 1 << 17),
    "rand bf16": partial(rand, BF16, 1 << 17),
    "adam f32": partial(adam, F32, 1 << 16),
}  # fmt: skip


def lines_of(path: Path) -> Iterable[Moved]:
    for line in path.read_text().splitlines():
        kernel, _, *numbers = line.split("\t")
        yield Moved(kernel, *map(int, numbers))


def bytes_of(all_moved: Iterable[Moved], largest: int) -> int:
    """What a call moved; tensors that a cache holds count once for each kernel."""
    moved = 0
    for m in all_moved:
        in_cache = m.whole * SMALL < largest
        moved += min(m.read, m.whole) + min(m.written, m.whole) if in_cache else m.read + m.written
    return moved


def measure(name: str) -> tuple[int, int, list[Moved]]:
    """The least of a case in bytes, what it moves, and that by kernel and tensor."""
    path = Path(os.environ[TRAFFIC])
    case = CASES[name]()
    case.call()  # what is made once for all calls
    rabbet.accelerator.synchronize()
    path.write_text("")
    kept = case.call()
    rabbet.accelerator.synchronize()
    del kept
    found = list(lines_of(path))
    largest = max(t.numel() * t.element_size() for t in case.moved)
    return case.least, bytes_of(found, largest), found


def main(words: list[str]) -> int:
    if TRAFFIC not in os.environ:
        environment = runpy.run_path(str(PACKAGE / "sim/build.py"))["build"]()
        with tempfile.TemporaryDirectory() as folder:
            environment |= {TRAFFIC: f"{folder}/traffic", "RABBET_CUDA_EXACT": "1"}
            os.environ |= environment
            os.execv(sys.executable, [sys.executable, __file__, *words])
    print(f"{'':40}{'least':>10}{'moved':>10}{'times':>7}")
    for name in CASES:
        if words and not any(word in name for word in words):
            continue
        least, moved, found = measure(name)
        print(f"{name:40}{least:>10}{moved:>10}{moved / least:>7.2f}", flush=True)
        for m in found if words else ():
            print(f"    {m.kernel:36}{m.whole:>10}{m.read:>10} read{m.written:>10} written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
