"""Milliseconds of each first call in this process, its kernel's compilation in it, and of the second one."""

import json
import time

import rabbet
from families import FAMILIES, inputs_of


def timed(call):
    began = time.perf_counter()
    call()
    rabbet.cuda.synchronize()
    return 1000 * (time.perf_counter() - began)


def main():
    rabbet.cuda.synchronize()
    rows = {}
    for family, cases in FAMILIES.items():
        for name, case in cases.items():
            given = [t.cuda() for t in inputs_of(case, (8, 12), "float32", 0)]

            def call(case=case, given=given):
                return case.call(*given)

            try:
                rows[f"{family}: {name}"] = (timed(call), timed(call))
            except NotImplementedError as error:  # of float32
                print(f"{family}: {name}: {error}")
    print(json.dumps({
        "calls": len(rows),
        "total_ms": round(sum(first for first, _ in rows.values()), 1),
        "second_total_ms": round(sum(second for _, second in rows.values()), 2),
        "first_ms": {name: round(first, 2) for name, (first, _) in rows.items()},
    }))  # fmt: skip


main()
