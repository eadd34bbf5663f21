"""Kernels on data: elementwise, reductions, rows, products, convolution."""

import rabbet
from common import best, finish, torch_or_none
from rabbet import nn

# What, setup of inputs by sizes, call.
CASES = [
    ("x + y, 10M", lambda t: (t.randn(10_000_000), t.randn(10_000_000)), lambda t, f, x, y: x + y),
    ("exp, 1M", lambda t: (t.randn(1_000_000),), lambda t, f, x: x.exp()),
    ("tanh, 1M", lambda t: (t.randn(1_000_000),), lambda t, f, x: x.tanh()),
    ("gelu, 1M", lambda t: (t.randn(1_000_000),), lambda t, f, x: f.gelu(x)),
    ("sum all, 1M", lambda t: (t.randn(1_000_000),), lambda t, f, x: x.sum()),
    ("softmax 1024x1024", lambda t: (t.randn(1024, 1024),), lambda t, f, x: x.softmax(1)),
    ("layer_norm 1024x1024", lambda t: (t.randn(1024, 1024),), lambda t, f, x: f.layer_norm(x, (1024,))),
    ("x.t().contiguous() 2048", lambda t: (t.randn(2048, 2048),), lambda t, f, x: x.t().contiguous()),
    ("matmul 64", lambda t: (t.randn(64, 64), t.randn(64, 64)), lambda t, f, x, y: x @ y),
    ("matmul 256", lambda t: (t.randn(256, 256), t.randn(256, 256)), lambda t, f, x, y: x @ y),
    ("matmul 1024", lambda t: (t.randn(1024, 1024), t.randn(1024, 1024)), lambda t, f, x, y: x @ y),
    ("linear 64x784 -> 512", lambda t: (t.randn(64, 784), t.randn(512, 784)), lambda t, f, x, w: f.linear(x, w)),
    ("conv2d 3x3 32ch 32x32", lambda t: (t.randn(8, 32, 32, 32), t.randn(32, 32, 3, 3)),
     lambda t, f, x, w: f.conv2d(x, w, padding=1)),
]  # fmt: skip


def rows(torch) -> list[dict]:
    """All measurements, inputs float32."""
    found = []
    for what, setup, call in CASES:
        row = {"what": what, "numpy": None, "torch": None}
        ours = setup(rabbet)
        row["rabbet"] = best(lambda ours=ours, call=call: call(rabbet, nn.functional, *ours))
        if torch:
            theirs = setup(torch)
            row["torch"] = best(
                lambda theirs=theirs, call=call: call(torch, torch.nn.functional, *theirs)
            )
        found.append(row)
    return found


if __name__ == "__main__":
    finish("kernels", "Kernels (float32)", rows(torch_or_none()))
