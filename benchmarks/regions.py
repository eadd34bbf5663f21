"""Regions of rabbet.compile beside eager calls: chains of elementwise operators, and training steps."""

import sys

import rabbet
import rabbet.nn.functional as F
from common import finish, side_by_side
from training import CASES, library, step_of

CHAINS = {
    "silu(1.5 x + 0.25)": lambda x: F.silu(x * 1.5 + 0.25),
    "gelu(x)^2 + x - 1": lambda x: F.gelu(x) ** 2 + x - 1,
    "seven cheap operators": lambda x: ((x * 1.5 + 0.25).relu() - 0.5).abs() * x + 1,
}
SIZES = {"4k": 1 << 12, "256k": 1 << 18, "1M": 1 << 20, "16M": 1 << 24}
STEPS = ("mlp", "cnn", "gpt")


def beside(what, eager, repeats=9):
    """Rows of a call, eager and in a region, which take turns."""
    times = side_by_side({"eager": eager, "region": rabbet.compile(eager)}, repeats, 0.1)
    return [{"what": f"{what}, {how}", "rabbet": seconds} for how, seconds in times.items()]


def chains():
    for name, chain in CHAINS.items():
        for size, count in SIZES.items():
            x = rabbet.randn(count)
            yield from beside(f"{name}, {size}", lambda chain=chain, x=x: chain(x))
    x, bias, other = rabbet.randn(4096, 512), rabbet.randn(512), rabbet.randn(4096, 512)
    yield from beside("gelu(x + bias) * y, 4096 x 512", lambda: F.gelu(x + bias) * other)
    yield from beside("layer_norm(x + y), 4096 x 512", lambda: F.layer_norm(x + other, (512,)))


def steps(chosen):
    for case in chosen:
        what, make, _ = CASES[case]
        yield from beside(what, step_of(make, *library("rabbet")))


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["chains", *STEPS]
    rows = list(chains()) if "chains" in wanted else []
    finish("regions", "Regions", rows + list(steps([c for c in STEPS if c in wanted])))
