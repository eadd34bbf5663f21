"""One family of kernels on the device: each call and its derivative against the CPU in float64.

    family.py NAME [--seed N] [--plain] [--only TEXT ...]

With --plain, for a sanitizer, nothing is compared.
"""

import argparse
import sys
from functools import partial

import rabbet
from families import FAMILIES, SIZES, Case, inputs_of, results
from worker import work_through

# Of the norm of the difference to the norm of the result.
CLOSE = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def distance(here, there) -> float:
    """NaN where one has a NaN that the other one lacks."""
    here, there = here.to(rabbet.float64), there.to(rabbet.float64)
    apart = rabbet.linalg.vector_norm(here - there).item()
    return apart / max(rabbet.linalg.vector_norm(here).item(), 1e-30) if apart else 0.0


def compare(case: Case, size: tuple[int, int], dtype: str, seed: int) -> str:
    given = inputs_of(case, size, dtype, seed)
    wide = [t.to(rabbet.float64) if t.dtype.is_floating_point else t for t in given]
    want = results(case, wide)
    got = results(case, [t.cuda() for t in given])
    assert len(want) == len(got)
    apart = []
    for k, (here, there) in enumerate(zip(want, got, strict=True)):
        assert there.is_cuda, f"result {k} is on {there.device}"
        assert here.shape == there.shape, f"result {k}: {here.shape} expected, got {there.shape}"
        apart.append(distance(here, there.cpu()))
    if not all(far <= CLOSE[dtype] for far in apart):
        found = ", ".join(f"{far:.2g}" for far in apart)
        raise AssertionError(f"relative distances {found}; at most {CLOSE[dtype]:g} expected")
    return f"{max(apart):.2g}"


def plain(case: Case, size: tuple[int, int], dtype: str, seed: int) -> None:
    results(case, [t.cuda() for t in inputs_of(case, size, dtype, seed)])
    rabbet.cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", choices=list(FAMILIES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    given = parser.parse_args()
    assert rabbet.cuda.is_available(), "no CUDA device"
    way = plain if given.plain else compare
    items = {
        f"{name} {dtype} {size[0]} x {size[1]}": partial(way, case, size, dtype, given.seed)
        for name, case in FAMILIES[given.family].items()
        for dtype in case.dtypes
        for size in SIZES
    }
    chosen = {
        name: call
        for name, call in items.items()
        if not given.only or any(text in f"{given.family} {name}" for text in given.only)
    }
    return work_through(chosen)


if __name__ == "__main__":
    sys.exit(main())
