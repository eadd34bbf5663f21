"""`python -m rabbet_testing.fuzz`: generated calls in child processes, compared with torch where it is given."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from rabbet_testing.fuzz import calls, files, native, plugins
from rabbet_testing.fuzz.children import Child
from rabbet_testing.fuzz.judge import fault, on_purpose
from rabbet_testing.fuzz.minimise import minimised

BATCH = 200


def drawn(kind: Any, seed: int, first: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The calls of a seed that can be made, with their indices; `kind`: the module that draws them."""
    index = first
    while True:
        call = kind.call(seed, index)
        if call is not None:
            yield index, call
        index += 1


def arguments() -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m rabbet_testing.fuzz")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--ops", dest="kind", action="store_const", const=calls, default=calls,
                      help="calls of operators (what is drawn if nothing is said)")  # fmt: skip
    kind.add_argument(
        "--files", dest="kind", action="store_const", const=files, help="damaged files"
    )
    kind.add_argument("--plugins", dest="kind", action="store_const", const=plugins,
                      help="wrong records and functions of plugins")  # fmt: skip
    kind.add_argument("--native", dest="kind", action="store_const", const=native,
                      help="wrong plugins in C++, each in a process of its own")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--index", type=int, default=0, help="the first call")
    parser.add_argument(
        "--calls", type=int, help="how many (1 repeats a call); until the time is over by default"
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--torch", default=os.environ.get("RABBET_TORCH_PYTHON"),
                        help="a Python that has torch, to compare with")  # fmt: skip
    parser.add_argument("--differences", type=Path, default=Path("docs/reference/differences.md"),
                        help="the table of what differs on purpose")  # fmt: skip
    parser.add_argument(
        "--minimise", action="store_true", help="print the simplest call that fails so"
    )
    return parser.parse_args()


def main() -> int:
    """Run calls; 1 if something is wrong."""
    options = arguments()
    allowed = on_purpose(options.differences)
    ours = Child(sys.executable, "rabbet", 120.0 if options.kind is native else 20.0)
    beside = options.torch and options.kind is calls
    theirs = Child(options.torch, "torch", 60.0) if beside else None
    end = time.monotonic() + 60 * options.minutes
    stream = islice(drawn(options.kind, options.seed, options.index), options.calls)
    ran = compared = found = 0
    with ThreadPoolExecutor(2) as both:
        while batch := list(islice(stream, BATCH)):
            given = [call for _, call in batch]
            later = both.submit(
                lambda g: list(theirs.run_all(g)) if theirs else [None] * len(g), given
            )
            answers = zip(batch, list(ours.run_all(given)), later.result(), strict=True)
            for (index, call), got, want in answers:
                ran, compared = (
                    ran + 1,
                    compared + bool(want and "result" in want and "result" in got),
                )
                wrong = fault(call, got, want, allowed)
                if wrong:
                    found += 1
                    print(f"--seed {options.seed} --index {index}: {call['op']} ({call['form']}, {call['context']}): "
                          f"{wrong}", flush=True)  # fmt: skip
                    if options.minimise and options.kind is calls:
                        print(json.dumps(minimised(call, wrong, ours, theirs, allowed)), flush=True)
                if options.calls == 1:
                    print(json.dumps({"call": call, "rabbet": got, "torch": want}, indent=1))
            if options.calls is None and time.monotonic() > end:
                break
    for child in (ours, theirs):
        if child is not None:
            child.close()
    print(f"{ran} calls, {compared} compared with torch, {found} wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
