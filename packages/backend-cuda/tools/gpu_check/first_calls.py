"""Milliseconds of the first call of each family in this process, its kernel's compilation in it, and of the second one."""

import json
import time

import rabbet
from families import calls


def timed(call):
    began = time.perf_counter()
    call()
    rabbet.cuda.synchronize()
    return 1000 * (time.perf_counter() - began)


def main():
    rabbet.cuda.synchronize()
    rows = {name: (timed(call), timed(call)) for name, call in calls(8, 12).items()}
    print(json.dumps({
        "calls": len(rows),
        "total_ms": round(sum(first for first, _ in rows.values()), 1),
        "second_total_ms": round(sum(second for _, second in rows.values()), 2),
        "first_ms": {name: round(first, 2) for name, (first, _) in rows.items()},
    }))  # fmt: skip


main()
