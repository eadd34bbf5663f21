"""The device and a few operators on it, against the CPU."""

import json
import time

began = time.perf_counter()
import rabbet  # noqa: E402
import rabbet.nn.functional as F  # noqa: E402

imported = time.perf_counter() - began


def check(name, f, *given, close=1e-4):
    here, there = f(*given), f(*(t.cuda() for t in given))
    assert there.is_cuda, name
    assert rabbet.allclose(here, there.cpu(), rtol=close, atol=close), name


def dropped(q, seed):
    return rabbet.ops.attention(q, q, q, None, True, None, False, 0.3, seed)[0]


def main():
    assert rabbet.cuda.is_available(), "no CUDA device"
    rabbet.manual_seed(0)
    x, y = rabbet.randn(64, 48), rabbet.randn(48, 64)
    check("add", lambda a, b: a + b.t(), x, y)
    check("matmul", rabbet.matmul, x, y)
    check(
        "conv",
        lambda i, w: F.conv2d(i, w, padding=1),
        rabbet.randn(2, 3, 8, 8),
        rabbet.randn(4, 3, 3, 3),
    )
    q = rabbet.randn(2, 2, 20, 16)
    check("sdpa", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q)
    check("dropout of sdpa", dropped, q, rabbet.tensor(7))
    properties = vars(rabbet.cuda.get_device_properties(0))
    print(json.dumps({
        "device": properties["name"],
        "import_ms": round(1000 * imported, 1),
        "properties": {k: v if isinstance(v, int | float | bool) else str(v) for k, v in properties.items()},
    }))  # fmt: skip


main()
