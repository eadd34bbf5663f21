"""Rows: reductions, softmax, scans, normalisations, losses, selections; forward and with derivatives."""

import numpy
import rabbet
from common import THREADS, finish, limits, side_by_side, torch_or_none
from rabbet import nn

N, C = 4096, 1024
MB = 1e6

# What, bytes that must move, setup(t, normal, whole) -> inputs, call(t, f, inputs), NumPy's call or None.
FORWARD = [
    ("softmax", 8 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: t.softmax(x, -1), None),
    ("log_softmax", 8 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: t.log_softmax(x, -1), None),
    ("layer_norm", 8 * N * C, lambda n, w: [n(N, C), n(C), n(C)], lambda t, f, x, w, b: f.layer_norm(x, (C,), w, b),
     None),
    ("sum(-1)", 4 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: x.sum(-1), lambda x: x.sum(-1)),
    ("sum(0)", 4 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: x.sum(0), lambda x: x.sum(0)),
    ("sum()", 4 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: x.sum(), lambda x: x.sum()),
    ("mean(-1)", 4 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: x.mean(-1), lambda x: x.mean(-1)),
    ("var(-1)", 4 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: x.var(-1), lambda x: x.var(-1)),
    ("var(0)", 4 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: x.var(0), lambda x: x.var(0)),
    ("amax(0)", 4 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: x.amax(0), lambda x: x.max(0)),
    ("argmax(-1)", 4 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: x.argmax(-1), lambda x: x.argmax(-1)),
    ("argmax(0)", 4 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: x.argmax(0), lambda x: x.argmax(0)),
    ("cumsum(0)", 8 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: x.cumsum(0), lambda x: x.cumsum(0)),
    ("cumsum(1)", 8 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: x.cumsum(1), lambda x: x.cumsum(1)),
    ("cumsum, 10M", 80 * MB, lambda n, w: [n(10_000_000)], lambda t, f, x: x.cumsum(0), lambda x: x.cumsum(0)),
    ("sort(-1)", 16 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: t.sort(x, -1), lambda x: numpy.argsort(x, -1)),
    ("sort, 1M", 16 * MB, lambda n, w: [n(1_000_000)], lambda t, f, x: t.sort(x, 0), numpy.argsort),
    ("topk(10)", 4 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: t.topk(x, 10), None),
    ("topk(50), 1M", 4 * MB, lambda n, w: [n(1_000_000)], lambda t, f, x: t.topk(x, 50), None),
    ("embedding 4096 of 32000x256", 8 * 4096 * 256, lambda n, w: [w(32000, 4096), n(32000, 256)],
     lambda t, f, i, x: f.embedding(i, x), lambda i, x: x[i]),
    ("gather(1)", 16 * N * C, lambda n, w: [n(N, C), w(C, N, C)], lambda t, f, x, i: t.gather(x, 1, i), None),
    ("index_select(0) 8192 rows", 8 * 8192 * C, lambda n, w: [n(N, C), w(N, 8192)],
     lambda t, f, x, i: t.index_select(x, 0, i), lambda x, i: x[i]),
    ("index_add(0) 8192 rows", 12 * 8192 * C, lambda n, w: [n(N, C), w(N, 8192), n(8192, C)],
     lambda t, f, x, i, y: t.index_add(x, 0, i, y), None),
]  # fmt: skip

IMAGE = (32, 64, 32, 32)
IMAGE_BYTES = 4 * 32 * 64 * 32 * 32
# Forward and the gradients of all floating inputs.
BOTH = [
    ("softmax", 20 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: t.softmax(x, -1)),
    ("log_softmax", 20 * N * C, lambda n, w: [n(N, C)], lambda t, f, x: t.log_softmax(x, -1)),
    ("layer_norm", 20 * N * C, lambda n, w: [n(N, C), n(C), n(C)], lambda t, f, x, w, b: f.layer_norm(x, (C,), w, b)),
    ("rms_norm", 20 * N * C, lambda n, w: [n(N, C), n(C)], lambda t, f, x, w: f.rms_norm(x, (C,), w)),
    ("batch_norm 32x64x32x32", 5 * IMAGE_BYTES, lambda n, w: [n(*IMAGE), n(64), n(64)],
     lambda t, f, x, w, b: f.batch_norm(x, None, None, w, b, True)),
    ("batch_norm 4096x256", 20 * N * 256, lambda n, w: [n(N, 256), n(256), n(256)],
     lambda t, f, x, w, b: f.batch_norm(x, None, None, w, b, True)),
    ("group_norm(8) 32x64x32x32", 5 * IMAGE_BYTES, lambda n, w: [n(*IMAGE), n(64), n(64)],
     lambda t, f, x, w, b: f.group_norm(x, 8, w, b)),
    *[(f"cross_entropy {rows}x{classes}", 12 * rows * classes,
       lambda n, w, rows=rows, classes=classes: [n(rows, classes), w(classes, rows)],
       lambda t, f, x, y: f.cross_entropy(x, y))
      for rows, classes in [(32, 4), (128, 1000), (4096, 10), (1024, 32000)]],
    ("embedding 4096 of 32000x256", 4 * 32000 * 256, lambda n, w: [n(32000, 256), w(32000, 4096)],
     lambda t, f, x, i: f.embedding(i, x)),
]  # fmt: skip


def arrays(setup) -> list[numpy.ndarray]:
    """The inputs as NumPy arrays: normal numbers, and whole ones below a bound."""
    rng = numpy.random.default_rng(0)
    return setup(
        lambda *shape: rng.normal(size=shape).astype("float32"),
        lambda bound, *shape: rng.integers(0, bound, shape),
    )


def both(t, f, call, inputs):
    """A call that runs `call` and its derivatives."""
    for x in inputs:
        if x.is_floating_point():
            x.requires_grad_(True)
    with t.no_grad():
        ones = t.ones_like(call(t, f, *inputs))

    def run():
        for x in inputs:
            x.grad = None
        call(t, f, *inputs).backward(ones)

    return run


def rows(torch) -> list[dict]:
    """All measurements, inputs float32."""
    found = []
    bandwidth = limits()["bytes"]
    modules = {"rabbet": (rabbet, nn.functional)}
    if torch:
        modules["torch"] = (torch, torch.nn.functional)
    for what, moved, setup, call, numpys in FORWARD:
        given = arrays(setup)
        calls = {}
        for name, (t, f) in modules.items():
            inputs = [t.tensor(x) for x in given]
            calls[name] = lambda t=t, f=f, inputs=inputs, call=call: call(t, f, *inputs)
        if numpys:
            calls["numpy"] = lambda numpys=numpys, given=given: numpys(*given)
        row = {"what": what, "numpy": None, "torch": None, "bound": moved / bandwidth}
        found.append(row | side_by_side(calls, 7))
    for what, moved, setup, call in BOTH:
        given = arrays(setup)
        calls = {
            name: both(t, f, call, [t.tensor(x) for x in given]) for name, (t, f) in modules.items()
        }
        row = {"what": f"{what}, forward + backward", "numpy": None, "torch": None}
        found.append(row | {"bound": moved / bandwidth} | side_by_side(calls, 7))
    return found


if __name__ == "__main__":
    rabbet.set_num_threads(THREADS)
    finish("rows", f"Rows, reductions, norms, losses (float32, {N}x{C})", rows(torch_or_none()))
