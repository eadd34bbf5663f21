"""Matrix products: square, of networks, in float32 and bfloat16."""

import rabbet
from common import THREADS, finish, limits, side_by_side, torch_or_none
from rabbet import nn

SQUARE = [64, 128, 256, 512, 1024, 2048]
# rows x inner x columns, the second operand as a weight (columns, inner): linear.
LINEAR = [
    (64, 784, 512), (64, 512, 512), (64, 512, 10), (1024, 256, 768), (1024, 256, 1024), (1024, 1024, 256),
    (4096, 768, 3072), (1, 768, 3072),
]  # fmt: skip
# batch, rows, inner, columns: products of attention.
FUSED = [(64, 512, 512), (1024, 256, 1024)]
BATCHED = [(32, 128, 64, 128), (32, 128, 128, 64), (64, 32, 32, 32)]


def row_of(what: str, torch, flops: float, make, dtype: str) -> dict:
    """One line: make(module, functional) gives the call."""
    calls = {"rabbet": make(rabbet, nn.functional, getattr(rabbet, dtype))}
    if torch:
        calls["torch"] = make(torch, torch.nn.functional, getattr(torch, dtype))
    row = {"what": f"{what} {dtype}", "numpy": None, "torch": None} | side_by_side(calls)
    if dtype == "float32":
        row["bound"] = flops / limits()["flops"]
        if torch:  # NumPy has no bfloat16
            import numpy

            row["numpy"] = side_by_side({"numpy": make(numpy, None, None)})["numpy"]
    return row


def random(t, dtype, *shape):
    """Normal numbers in NumPy's or a framework's way."""
    if dtype is None:
        return t.random.default_rng(0).normal(size=shape).astype("float32")
    return t.randn(*shape).to(dtype)


def rows(torch) -> list[dict]:
    """All measurements."""
    found = []
    for dtype in ("float32", "bfloat16"):
        for n in SQUARE:

            def square(t, f, kind, n=n):
                x, y = random(t, kind, n, n), random(t, kind, n, n)
                return lambda: x @ y

            found.append(row_of(f"matmul {n}", torch, 2.0 * n**3, square, dtype))
        for m, k, n in LINEAR:

            def linear(t, f, kind, m=m, k=k, n=n):
                x, w = random(t, kind, m, k), random(t, kind, n, k)
                return (lambda: f.linear(x, w)) if f else (lambda: x @ w.T)

            found.append(row_of(f"linear {m}x{k} -> {n}", torch, 2.0 * m * k * n, linear, dtype))
        for b, m, k, n in BATCHED:

            def batched(t, f, kind, b=b, m=m, k=k, n=n):
                x, y = random(t, kind, b, m, k), random(t, kind, b, k, n)
                return lambda: x @ y

            what = f"matmul {b} x ({m}, {k}) @ ({k}, {n})"
            found.append(row_of(what, torch, 2.0 * b * m * k * n, batched, dtype))
        for m, k, n in FUSED:

            def added(t, f, kind, m=m, k=k, n=n):
                x, w, c = random(t, kind, m, k), random(t, kind, k, n), random(t, kind, m, n)
                if not f:
                    return lambda: 0.5 * c + 2.0 * (x @ w)
                return lambda: t.addmm(c, x, w, beta=0.5, alpha=2.0)

            def activated(t, f, kind, m=m, k=k, n=n):
                x, w, c = random(t, kind, m, k), random(t, kind, n, k), random(t, kind, n)
                if not f:
                    return lambda: t.maximum(x @ w.T + c, 0)
                if t is rabbet:
                    return lambda: rabbet.ops.linear_activation(x, w, c, activation="relu")
                return lambda: t._addmm_activation(c, x, w.t(), use_gelu=False)

            found.append(row_of(f"addmm {m}x{k} -> {n}", torch, 2.0 * m * k * n, added, dtype))
            found.append(
                row_of(f"linear, relu {m}x{k} -> {n}", torch, 2.0 * m * k * n, activated, dtype)
            )
    return found


if __name__ == "__main__":
    rabbet.set_num_threads(THREADS)
    finish("matmul", "Matrix products", rows(torch_or_none()))
