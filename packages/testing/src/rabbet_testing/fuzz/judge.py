"""What is wrong with the answers to a call: torch's beside ours, and what is allowed to differ."""

from __future__ import annotations

import cmath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
Allowed = list[tuple[str, str, str]]  # operator or *, kind of fault, what its text contains

# torch's own words for what it lacks on the CPU, and we need not.
LACKS = re.compile(r"not implemented for|not supported|unsupported|not currently supported|does not support"
                   r"|Could not run|expected .*(?:dtype|type)|NYI|doesn't support", re.IGNORECASE)  # fmt: skip
_RTOL = {"float64": 1e-7, "complex128": 1e-7, "float16": 1e-2, "bfloat16": 5e-2}


def on_purpose(path: Path) -> Allowed:
    """The table of docs/reference/differences.md; nothing without the file."""
    text = path.read_text() if path.exists() else ""
    return re.findall(r"^\| `([\w*]+)` \| (\w+) \|\s*`?([^|`]*?)`?\s*\|", text, re.MULTILINE)


def fault(
    call: dict[str, Any], ours: Answer, theirs: Answer | None, allowed: Allowed
) -> str | None:
    """`kind: text` of the first thing that is wrong and not allowed, None if nothing is."""
    for kind, text in _faults(call, ours, theirs):
        text = " ".join(text.split())
        if not any(
            op in ("*", call["op"]) and kind == k and says in text for op, k, says in allowed
        ):
            return f"{kind}: {text}"
    return None


def _faults(call: dict[str, Any], ours: Answer, theirs: Answer | None) -> Iterator[tuple[str, str]]:
    for kind in ("crash", "hang", "unbuilt"):
        if kind in ours:
            yield kind, str(ours[kind])
    if "fault" in ours:
        yield call["form"], ours["fault"]
    if "InternalError" in ours.get("error", ()):
        yield "internal", ours["message"]
    if ours.get("context"):
        yield call["context"].replace(" ", "_"), ours["context"]
    if theirs is None or "missing" in theirs:
        return
    if (
        call["form"] == "out"
        and "error" in theirs
        and "out" in theirs["message"]
        and theirs["error"][0] == "TypeError"
    ):
        return  # torch has no such form
    if "result" in ours and "result" in theirs:
        # What is written to `out=` was computed in a dtype that is not known here.
        yield from differences(
            ours["result"], theirs["result"], 2e-2 if call["form"] == "out" else 0
        )
    elif "result" in ours and "error" in theirs and not LACKS.search(theirs["message"]):
        yield "accepts", f"torch {theirs['error'][0]}: {theirs['message']}"
    elif "error" in ours and "result" in theirs:
        yield "refuses", f"{ours['error'][0]}: {ours['message']}"
    elif "error" in ours and "error" in theirs and _other_class(ours["error"], theirs["error"][0]):
        yield (
            "error",
            f"{ours['error'][0]}: {ours['message']}; torch {theirs['error'][0]}: {theirs['message']}",
        )


def _other_class(ours: list[str], theirs: str) -> bool:
    """Whether a program that catches torch's error misses ours. Which of two mistakes is named first is open."""
    return theirs not in ours and theirs not in (
        "TypeError",
        "NotImplementedError",
        "AttributeError",
    )


def differences(got: Any, want: Any, rtol: float = 0) -> Iterator[tuple[str, str]]:
    """Where two descriptions of results differ in shape, dtype, numbers, strides or shared memory.

    Args:
        rtol: relative difference of numbers that is rounding; by the dtype if that is more.
    """
    if isinstance(got, list) and isinstance(want, list):
        if len(got) != len(want):
            yield "results", f"{len(got)} results, torch {len(want)}"
        for a, b in zip(got, want, strict=False):
            yield from differences(a, b, rtol)
        return
    if not isinstance(got, dict) or not isinstance(want, dict):
        if got != want:
            yield "results", f"{got}, torch {want}"
        return
    for kind in ("shape", "dtype"):
        if got[kind] != want[kind]:
            yield kind, f"{got[kind]}, torch {want[kind]}"
            return
    at = next(_unequal(got, want, rtol), None)
    if at is not None:
        yield "values", f"at {at}: {got['values'][at]}, torch {want['values'][at]}"
    for kind in ("strides", "shared"):
        if got[kind] != want[kind]:
            yield kind, f"{got[kind]}, torch {want[kind]}"


def _unequal(got: dict[str, Any], want: dict[str, Any], rtol: float) -> Iterator[int]:
    """The places of numbers that differ beyond rounding."""
    rtol = max(rtol, _RTOL.get(got["dtype"], 1e-4))
    exact = not got["dtype"].startswith(("float", "complex", "bfloat"))
    for at, (a, b) in enumerate(zip(got["values"], want["values"], strict=True)):
        if a != b and (exact or not _close(complex(a), complex(b), rtol)):
            yield at


def _close(a: complex, b: complex, rtol: float) -> bool:
    if cmath.isnan(a) or cmath.isnan(b):
        return cmath.isnan(a) and cmath.isnan(b)
    if cmath.isinf(a) and cmath.isinf(b):  # of one part, the other is compared
        return all(
            x == y or cmath.isclose(x, y, rel_tol=rtol, abs_tol=rtol)
            for x, y in ((a.real, b.real), (a.imag, b.imag))
        )
    return cmath.isclose(a, b, rel_tol=rtol, abs_tol=rtol)
