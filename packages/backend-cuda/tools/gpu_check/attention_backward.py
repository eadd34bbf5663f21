"""Attention in bfloat16 and its derivative, by cuDNN or by our kernels, against the CPU in float64.

    attention_backward.py cudnn|ours [--seed N] [--save FILE.npz]

An error in the derivative spoils a whole training run without a message, and cuDNN's has not run on a GPU with our graphs.
"""

import argparse
import os
import sys
from functools import partial

import numpy as np
import rabbet
import rabbet.nn.functional as F
from rabbet.nn.attention import SDPBackend, sdpa_kernel
from worker import Skipped, work_through

SMALL = bool(os.environ.get("GPU_CHECK_SMALL"))
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "ours": SDPBackend.FLASH_ATTENTION}
CLOSE = (
    2e-2  # norm of the difference to that of the result; what is rounded to bfloat16 is 2e-3 apart
)
NAMES = ("out", "query", "key", "value")
# Batch, heads, heads of keys, queries, keys, size of a head, causal.
SHAPES = (
    [(1, 2, 2, 33, 33, 64, True), (1, 4, 2, 20, 40, 128, False)]
    if SMALL
    else [
        (2, 8, 8, 512, 512, 64, True),
        (2, 8, 8, 512, 512, 64, False),
        (2, 8, 8, 512, 512, 128, True),
        (1, 8, 2, 700, 700, 128, True),
        (2, 4, 4, 100, 333, 64, False),
        (1, 2, 2, 2000, 2000, 64, True),
    ]
)


def gradients(q, k, v, g, causal: bool) -> list:
    given = [t.detach().requires_grad_() for t in (q, k, v)]
    grouped = q.shape[1] != k.shape[1]
    out = F.scaled_dot_product_attention(*given, is_causal=causal, enable_gqa=grouped)
    return [out.detach(), *rabbet.autograd.grad(out, given, g)]


def compare(backend: str, shape: tuple, seed: int, saved: dict) -> str:
    if backend == "cudnn" and not rabbet.backends.cudnn.is_available():
        raise Skipped("cuDNN is not here")
    batch, heads, few, queries, keys, size, causal = shape
    rabbet.manual_seed(seed)
    sizes = ((heads, queries), (few, keys), (few, keys), (heads, queries))
    given = [rabbet.randn(batch, h, n, size).to(rabbet.bfloat16) for h, n in sizes]
    with sdpa_kernel(BACKENDS[backend]):
        got = [t.cpu().to(rabbet.float64) for t in gradients(*(t.cuda() for t in given), causal)]
    want = gradients(*(t.to(rabbet.float64) for t in given), causal)
    apart = {}
    for name, here, there in zip(NAMES, want, got, strict=True):
        norm = rabbet.linalg.vector_norm
        apart[name] = (norm(here - there) / norm(here)).item()
        saved[f"{label(shape)}/{name}"] = there.numpy().astype(np.float32)
    found = ", ".join(f"{name} {far:.2g}" for name, far in apart.items())
    if not all(far <= CLOSE for far in apart.values()):
        raise AssertionError(f"relative distances to float64: {found}; at most {CLOSE:g} expected")
    return found


def label(shape: tuple) -> str:
    batch, heads, few, queries, keys, size, causal = shape
    return f"{batch} x {heads}({few}) x {queries} x {keys} x {size}{' causal' if causal else ''}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backend", choices=list(BACKENDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save")
    given = parser.parse_args()
    saved: dict[str, np.ndarray] = {}

    def one(shape: tuple) -> str:
        try:
            return compare(given.backend, shape, given.seed, saved)
        finally:
            if given.save:
                np.savez(given.save, **saved)

    return work_through({label(shape): partial(one, shape) for shape in SHAPES})


if __name__ == "__main__":
    sys.exit(main())
