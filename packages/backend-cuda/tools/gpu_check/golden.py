"""Numbers of one device into a file; `--beside OTHER`: two files compared, to the bit or by units in the last place."""

import json
import sys

import numpy as np

EXACT = ("add", "mul", "whole", "copy", "cast", "sort", "rand", "where", "sqrt", "div")
MOST_ULP = 16  # of functions that a device computes by its own method
CLOSE = 1e-4  # of sums, whose order differs


def numbers():
    import rabbet
    import rabbet.nn.functional as F

    rabbet.manual_seed(3)
    x, y = (rabbet.rand(61, 67).cuda() * 4 - 2 for _ in range(2))
    positive = x.abs() + 0.125
    whole = (x * 100).to(rabbet.int64)
    functions = ("exp", "log", "sin", "cos", "tanh", "erf", "log1p", "expm1", "atan", "sigmoid")
    return {
        "add": x + y, "mul": x * y, "div": x / y, "sqrt": positive.sqrt(), "where": rabbet.where(x > y, x, y),
        "whole": whole * 3 + whole // 7, "copy": x.t().contiguous(), "cast": x.to(rabbet.bfloat16).to(rabbet.float32),
        "sort": x.sort(1)[0], "rand": rabbet.rand(257, device="cuda"),
        **{name: getattr(rabbet, name)(positive if name == "log" else x.abs() if name == "log1p" else x) for name in functions},
        "pow": positive.pow(1.75),
        "near sum": x.sum(1), "near mean": x.mean(0), "near softmax": x.softmax(1), "near matmul": x @ y.t(),
        "near layer_norm": F.layer_norm(x, (67,)), "near attention": F.scaled_dot_product_attention(x[None], y[None], y[None]),
    }  # fmt: skip


def ulps(a, b):
    """The largest distance of two float32 arrays in units in the last place."""
    bits = [np.ascontiguousarray(v, np.float32).view(np.int32).astype(np.int64) for v in (a, b)]
    ordered = [np.where(v < 0, -(v & 0x7FFFFFFF), v) for v in bits]
    return int(np.abs(ordered[0] - ordered[1]).max())


def compare(here, there):
    found = {"wrong": [], "ulp": {}}
    for name in here.files:
        a, b = here[name], there[name]
        if name in EXACT:
            right = np.array_equal(a, b)
        elif name.startswith("near"):
            right = np.allclose(a, b, rtol=CLOSE, atol=CLOSE)
        else:
            found["ulp"][name] = ulps(a, b)
            right = found["ulp"][name] <= MOST_ULP
        if not right:
            found["wrong"].append(name)
    return found


if __name__ == "__main__":
    if "--beside" in sys.argv:
        print(json.dumps(compare(np.load(sys.argv[1]), np.load(sys.argv[3]))))
    else:
        results = {name: t.cpu().numpy() for name, t in numbers().items()}
        np.savez(sys.argv[1], **results)
        print(json.dumps({"arrays": len(results)}))
