"""`python -m rabbet_testing.fuzz`: generated calls in child processes, compared with torch where it is given."""

from __future__ import annotations

import argparse
import cmath
import json
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rabbet_testing.fuzz import calls

CHILD = Path(__file__).with_name("child.py")


class Child:
    """A process that runs calls; a new one takes the place of one that ended or hangs."""

    def __init__(self, python: str, library: str, timeout: float = 20.0) -> None:
        self.command, self.timeout = [python, str(CHILD), library], timeout
        self.process: subprocess.Popen[str] | None = None

    def run(self, call: dict[str, Any]) -> dict[str, Any]:
        """The child's answer, or `crash` with its exit status, or `hang`."""
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
        process = self.process
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(call) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], self.timeout)
        line = process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.close()
        return {"crash": process.returncode} if ready else {"hang": self.timeout}

    def close(self) -> None:
        """End the process."""
        if self.process is not None and self.process.stdout is not None:
            if not select.select([self.process.stdout], [], [], 0)[0]:
                self.process.kill()
            self.process.communicate()
            self.process = None


def on_purpose(path: Path) -> set[str]:
    """The operators of the table in docs/reference/differences.md, none where the file is not there."""
    text = path.read_text() if path.exists() else ""
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def fault(ours: dict[str, Any], theirs: dict[str, Any] | None, values: bool = True) -> str | None:
    """What is wrong with a call, None if nothing is; `values` says whether numbers are compared."""
    for kind in ("crash", "hang"):
        if kind in ours:
            return f"{kind}: {ours[kind]}"
    if ours.get("error") == "InternalError":
        return f"InternalError: {ours['message']}"
    if theirs is None or not ("result" in ours and "result" in theirs):
        return None  # what only one side refuses is not judged yet
    return difference(ours["result"], theirs["result"], values)


def difference(got: Any, want: Any, values: bool = True) -> str | None:
    """Where two descriptions of results differ in shape, dtype or numbers."""
    leaf = isinstance(got, list) and len(got) == 3 and isinstance(got[1], str)
    if not leaf or not isinstance(want, list) or len(want) != 3 or not isinstance(want[1], str):
        if not isinstance(got, list) or not isinstance(want, list):
            return None if got == want else f"got {got}, torch {want}"
        if len(got) != len(want):
            return f"got {len(got)} results, torch {len(want)}"
        return next(
            (d for a, b in zip(got, want, strict=True) if (d := difference(a, b, values))), None
        )
    if got[:2] != want[:2]:
        return f"got shape {got[0]} of {got[1]}, torch {want[0]} of {want[1]}"
    if not values:
        return None
    rtol = {"float64": 1e-7, "complex128": 1e-7, "float16": 1e-2, "bfloat16": 5e-2}.get(
        got[1], 1e-4
    )
    exact = not got[1].startswith(("float", "complex", "bfloat"))
    for at, (a, b) in enumerate(zip(got[2], want[2], strict=True)):
        if a != b and (exact or not _close(complex(a), complex(b), rtol)):
            return f"at {at}: got {a}, torch {b}"
    return None


def _close(a: complex, b: complex, rtol: float) -> bool:
    if cmath.isnan(a) or cmath.isnan(b):
        return cmath.isnan(a) and cmath.isnan(b)
    return cmath.isclose(a, b, rel_tol=rtol, abs_tol=rtol)


def main() -> int:
    """Run calls until the time is over, or the one of --index; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m rabbet_testing.fuzz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--index", type=int, help="replay this call alone")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--torch", default=os.environ.get("RABBET_TORCH_PYTHON"),
                        help="a Python that has torch, to compare with")  # fmt: skip
    parser.add_argument(
        "--differences",
        type=Path,
        default=Path("docs/reference/differences.md"),
        help="the table of what differs on purpose",
    )
    options = parser.parse_args()
    allowed = on_purpose(options.differences)
    ours = Child(sys.executable, "rabbet")
    theirs = Child(options.torch, "torch", 60.0) if options.torch else None
    end, ran, compared, found = time.monotonic() + 60 * options.minutes, 0, 0, 0
    index = options.index or 0
    while options.index is not None or time.monotonic() < end:
        call = calls.call(options.seed, index)
        if call is not None:
            got = ours.run(call)
            want = theirs.run(call) if theirs and "result" in got else None
            ran, compared = ran + 1, compared + bool(want and "result" in want)
            wrong = fault(got, want, call["op"] not in allowed)
            if wrong:
                found += 1
                print(
                    f"--seed {options.seed} --index {index}: {call['op']} ({call['form']}): {wrong}",
                    flush=True,
                )
            if options.index is not None:
                print(json.dumps({"call": call, "rabbet": got, "torch": want}, indent=1))
        if options.index is not None:
            break
        index += 1
    ours.close()
    if theirs:
        theirs.close()
    print(f"{ran} calls, {compared} compared with torch, {found} wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
