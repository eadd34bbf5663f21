"""Elementwise operations: memory-bound ones on 10 million elements, arithmetic in cache.

The limit of the first is the measured memory bandwidth (two reads and a write) for what they read
and write; that of the second has no single number: functions differ in length.
"""

import numpy
import rabbet
from common import THREADS, finish, limits, side_by_side, torch_or_none
from rabbet import nn

LARGE = 10_000_000
SIDE = 3162  # a matrix of about as many elements

# What, call (module, functional, x, y, mask, matrix), the same in NumPy (or None), floats moved.
MEMORY = [
    ("x + y", lambda t, f, x, y, b, m: x + y, lambda x, y, b, m: x + y, 3),
    ("x * y", lambda t, f, x, y, b, m: x * y, lambda x, y, b, m: x * y, 3),
    ("exp", lambda t, f, x, y, b, m: t.exp(x), lambda x, y, b, m: numpy.exp(x), 2),
    ("tanh", lambda t, f, x, y, b, m: t.tanh(x), lambda x, y, b, m: numpy.tanh(x), 2),
    ("gelu", lambda t, f, x, y, b, m: f.gelu(x), None, 2),
    ("x * sigmoid(x)", lambda t, f, x, y, b, m: x * t.sigmoid(x),
     lambda x, y, b, m: x * (1 / (1 + numpy.exp(-x))), 5),
    ("silu", lambda t, f, x, y, b, m: f.silu(x), None, 2),
    ("where", lambda t, f, x, y, b, m: t.where(b, x, y), lambda x, y, b, m: numpy.where(b, x, y),
     3.25),
    ("cumsum", lambda t, f, x, y, b, m: t.cumsum(x, 0), lambda x, y, b, m: numpy.cumsum(x), 2),
    ("transposed copy", lambda t, f, x, y, b, m: m.t().contiguous(),
     lambda x, y, b, m: numpy.ascontiguousarray(m.T), 2),
]  # fmt: skip

# What, call (module, functional, x, y, positive, mask), the same in NumPy (or None).
CACHED = [
    ("exp", lambda t, f, x, y, p, b: t.exp(x), lambda x, y, p, b: numpy.exp(x)),
    ("log", lambda t, f, x, y, p, b: t.log(p), lambda x, y, p, b: numpy.log(p)),
    ("tanh", lambda t, f, x, y, p, b: t.tanh(x), lambda x, y, p, b: numpy.tanh(x)),
    ("erf", lambda t, f, x, y, p, b: t.erf(x), None),
    ("gelu", lambda t, f, x, y, p, b: f.gelu(x), None),
    ("silu", lambda t, f, x, y, p, b: f.silu(x), None),
    ("sigmoid", lambda t, f, x, y, p, b: t.sigmoid(x), None),
    ("sin", lambda t, f, x, y, p, b: t.sin(x), lambda x, y, p, b: numpy.sin(x)),
    ("cos", lambda t, f, x, y, p, b: t.cos(x), lambda x, y, p, b: numpy.cos(x)),
    ("pow", lambda t, f, x, y, p, b: t.pow(p, y), lambda x, y, p, b: numpy.power(p, y)),
    ("sqrt", lambda t, f, x, y, p, b: t.sqrt(p), lambda x, y, p, b: numpy.sqrt(p)),
    ("x / y", lambda t, f, x, y, p, b: x / y, lambda x, y, p, b: x / y),
    ("where", lambda t, f, x, y, p, b: t.where(b, x, y), lambda x, y, p, b: numpy.where(b, x, y)),
    ("x < y", lambda t, f, x, y, p, b: x < y, lambda x, y, p, b: x < y),
]  # fmt: skip


def arrays(n: int) -> list[numpy.ndarray]:
    """Two of normal numbers, one of positive numbers, a mask."""
    rng = numpy.random.default_rng(0)
    x, y = (rng.normal(size=n).astype("float32") for _ in range(2))
    return [x, y, numpy.abs(x) + numpy.float32(1e-3), rng.random(n) > 0.5]


def measured(what: str, call, in_numpy, inputs: list[numpy.ndarray], torch) -> dict:
    """One line; the tensors are the library's own."""

    def bind(module, functional):
        own = [module.from_numpy(a).clone() for a in inputs]
        return lambda: call(module, functional, *own)

    calls = {"rabbet": bind(rabbet, nn.functional)}
    if torch:
        calls["torch"] = bind(torch, torch.nn.functional)
    if in_numpy:
        calls["numpy"] = lambda: in_numpy(*inputs)
    return {"what": what, "numpy": None, "torch": None} | side_by_side(calls)


def memory_rows(torch) -> list[dict]:
    """Large operands, results in fresh memory."""
    x, y, _, mask = arrays(LARGE)
    matrix = x[: SIDE * SIDE].reshape(SIDE, SIDE)
    found = []
    for what, call, in_numpy, floats in MEMORY:
        row = measured(f"{what}, 10M", call, in_numpy, [x, y, mask, matrix], torch)
        row["bound"] = floats * 4 * LARGE / limits()["bytes"]
        found.append(row)
    return found


def cached_rows(torch) -> list[dict]:
    """Operands that stay in the caches."""
    found = []
    for n in (10_000, 100_000, 1_000_000):
        inputs = arrays(n)
        for what, call, in_numpy in CACHED:
            found.append(measured(f"{what}, {n:,}", call, in_numpy, inputs, torch))
    return found


if __name__ == "__main__":
    rabbet.set_num_threads(THREADS)
    torch = torch_or_none()
    finish("elementwise_memory", "Elementwise, memory-bound (float32)", memory_rows(torch))
    finish("elementwise_cached", "Elementwise, in cache (float32)", cached_rows(torch))
