"""How close do convolutions come to the processor's limit, and to PyTorch? Forward, dx and dw.

python benchmarks/convolution.py [PART OF A NAME]
"""

import sys
from typing import Any

import rabbet
from common import THREADS, finish, limits, side_by_side, torch_or_none

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


def rows(torch: Any, only: str) -> list[dict[str, Any]]:
    """All measurements; the limit is that of multiply-adds, however the windows are summed."""
    found = []
    for shape in SHAPES:
        if only not in shape[0]:
            continue
        what, n, c, o, size, k, stride, pad, groups = shape
        out = (size + 2 * pad - k) // stride + 1
        work = 2.0 * n * o * out * out * (c // groups) * k * k
        for name, (ours, theirs) in zip(PASSES, calls(shape, torch), strict=True):
            pair = {"rabbet": ours} if theirs is None else {"rabbet": ours, "torch": theirs}
            row = {"what": f"{what}, {name}", "torch": None, "bound": work / limits()["flops"]}
            found.append(row | side_by_side(pair))
    return found


if __name__ == "__main__":
    rabbet.set_num_threads(THREADS)
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    finish("convolution", "Convolution (float32)", rows(torch_or_none(), only))
