"""Does an operator of a pack keep what its schema and its record say? rabbet.library.opcheck, over calls that fit.

The calls are drawn from the record, or given by the plugin, see `given_calls`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import rabbet
from rabbet import _C, _opcheck

from ..cases import Case, cases
from ..fake_host import step
from .calls import (
    REFUSALS,
    changed,
    first_line,
    not_declared,
    results,
    tensors,
)
from .reasons import Reason, skip
from .reference import ALL_DTYPES, dtype_name

DRAWN = ("float64", "float32", "int64")  # where no kernel says which dtypes it takes
DOUBLE = ("float64", "complex128")
LARGE = 128  # times as large in each dimension: core lets other threads run during such calls
# In what core says of a call whose results, not whose arguments, are wrong.
BLAMED = ("by the schema", "the function must return")
HOOK = "rabbet_conformance_params('ops')"
HOW = """say what fits by a function in the plugin's package:
  def rabbet_conformance_params(level):
      return {"cases": {"%s": [(x, 2.0), ...]}} if level == "ops" else {}"""


class Missing(Exception):
    """The operator does not have what would be judged, and need not; or nobody says how to call it."""


Given = dict[str, list[Case]]


def operators(namespace: str) -> list[str]:
    """The records of a namespace."""
    return [n for n in _C.record_names() if n.startswith(f"{namespace}::")]


# ---- calls


def given_calls(params: dict[str, Any]) -> Given:
    """The calls that the plugin's hook gives for its operators; raises ValueError that says what is wrong.

    Args:
        params: `{"cases": {"ns::op": [CALL, ...]}}`, where a CALL is a tuple of arguments, or
            `{"args": (...), "kwargs": {...}}`.
    """
    unknown = sorted(set(params) - {"cases"})
    if unknown:
        raise ValueError(f"{HOOK}: unknown key '{unknown[0]}'")
    given = params.get("cases", {})
    if not isinstance(given, dict):
        raise ValueError(f"{HOOK}: 'cases' must be a dict by operator, got {type(given).__name__}")
    for op in given:
        if op not in _C.record_names():
            raise ValueError(f"{HOOK}: there is no operator '{op}'")
    return {
        op: [_call(op, c, i) for i, c in enumerate(_listed(op, calls))]
        for op, calls in given.items()
    }


def _listed(op: str, calls: Any) -> list[Any]:
    if not isinstance(calls, (list, tuple)) or not calls:
        raise ValueError(f"{HOOK}: '{op}' must have a list of calls, got {calls!r}")
    return list(calls)


def _call(op: str, call: Any, i: int) -> Case:
    if isinstance(call, dict) and set(call) <= {"args", "kwargs"}:
        args, kwargs = call.get("args", ()), call.get("kwargs", {})
    else:
        args, kwargs = call, {}
    if not isinstance(args, (list, tuple)) or not isinstance(kwargs, dict):
        raise ValueError(
            f"{HOOK}: call {i} of '{op}' must be a tuple of arguments, or a dict of 'args' and 'kwargs', got "
            f"{type(call).__name__}"
        )
    return Case(op, list(args), kwargs, f"call {i} of the plugin")


def dtypes(op: str, given: Given) -> list[str]:
    """Those in which an operator is judged: that its kernel for the CPU names, else some."""
    listed = _C.op_info(op)["kernel_dtypes"].get("cpu", ALL_DTYPES)
    named = (
        list(DRAWN) if len(listed) == len(ALL_DTYPES) else [d for d in ALL_DTYPES if d in listed]
    )
    if op not in given:
        return named
    present = [t for case in given[op] for t in _leaves(case)]
    if any(_differentiable(t) for t in present):
        floating = [d for d in named if _differentiable(rabbet.zeros(0, dtype=getattr(rabbet, d)))]
        return floating or ["float32"]
    return [dtype_name(present[0].dtype)] if present else ["float32"]


def calls(op: str, dtype: str, given: Given) -> list[Case]:
    """Calls with tensors of their own in a dtype, none of which requires grad."""
    if op not in given:
        return [changed(case, _own) for case in cases(op, getattr(rabbet, dtype))]
    return [changed(case, partial(_cast, dtype)) for case in given[op]]


def drawn(namespace: str, params: dict[str, Any]) -> bool:
    """Whether there is a call of any operator."""
    given = given_calls(params)
    return any(calls(op, dtypes(op, given)[0], given) for op in operators(namespace))


def _cast(dtype: str, t: Any) -> Any:
    """As given where it is no floating number; complex ones in the precision of `dtype`."""
    if t.is_complex():
        return _own(t.to(rabbet.complex128 if dtype in DOUBLE else rabbet.complex64))
    return _own(t.to(getattr(rabbet, dtype)) if t.is_floating_point() else t)


def _own(t: Any) -> Any:
    return t.detach().clone()


def _leaves(case: Case) -> list[Any]:
    return tensors([*case.args, *case.kwargs.values()])


def _differentiable(t: Any) -> bool:
    return bool(t.is_floating_point() or t.is_complex())


def _accepted(op: str, dtype: str, given: Given) -> Iterator[tuple[Case, str]]:
    """The calls, each with "" or how the operator refuses it; skips where it does not offer the dtype."""
    for case in calls(op, dtype, given):
        try:
            changed(case, _own).run()
        except REFUSALS as error:
            if not_declared(error):
                skip(Reason.NO_KERNEL, f"{op} in {dtype}: {first_line(error)}")
            if any(words in str(error) for words in BLAMED):
                pytest.fail(f"{case} in {dtype}: {first_line(error)}", pytrace=False)
            yield case, first_line(error)
        else:
            yield case, ""


# ---- judgements


def judge(op: str, test: str, dtype: str, given: Given) -> list[str]:
    """Judge the calls of an operator by one test of opcheck; fails with what is wrong, returns notes.

    Raises:
        Missing: if there is nothing that could be wrong.
    """
    found: dict[str, list[str]] = {
        verdict: [] for verdict in ("failed", "missing", "passed", "skipped", "refused", "partial")
    }
    for case, refused in _accepted(op, dtype, given):
        if refused:
            verdict, why = "failed" if op in given else "refused", f"it is refused: {refused}"
        elif test == "test_derivative" and not case.smooth:
            verdict, why = "skipped", "finite differences make no sense there"
        else:
            if test == "test_derivative":
                found["partial"] += _require_grad(case)
            sample = _opcheck.Sample(rabbet.ops(op), tuple(case.args), case.kwargs, None, None)
            verdict, why = _opcheck.judge(sample, test)
        found[verdict].append(f"{case} in {dtype}: {why}")
    if found["failed"]:
        pytest.fail(f"{test} of {op}: " + "\n".join(found["failed"]), pytrace=False)
    if found["missing"]:
        raise Missing(found["missing"][0])
    if not found["passed"] and found["skipped"]:
        skip(Reason.NO_SUCH_FORM, found["skipped"][0])
    if not found["passed"]:
        refusal = f" ({found['refused'][0]})" if found["refused"] else ""
        raise Missing(f"nothing says how to call {op}{refusal}: {HOW % op}")
    return found["refused"] + found["partial"]


def _require_grad(case: Case) -> list[str]:
    """Make tensors require grad that the operator does not write; those without a derivative are noted."""
    info = _C.op_info(case.op)
    params = info["params"]
    whole = info["has_decomp"] or "vjp" in info["rules"] or not info["has_vjp"]
    named = [(params[min(i, len(params) - 1)], a) for i, a in enumerate(case.args)]
    named += [(p, case.kwargs[p["name"]]) for p in params if p["name"] in case.kwargs]
    notes = []
    for param, value in named:
        found = [t for t in tensors(value) if _differentiable(t) and not param["mutated"]]
        if found and not (whole or param["vjp"]):
            notes.append(f"not implemented: {case.op} has no derivative for '{param['name']}'")
            continue
        for t in found:
            t.requires_grad_()
    return notes


# ---- for probes


_drawing = threading.Lock()  # drawing sets the seed of the process
_repeatable: dict[str, list[Case]] = {}


def repeatable(namespace: str, params: dict[str, Any]) -> list[Case]:
    """Calls, some of them large, that give the same results each time; made once in a process."""
    with _drawing:
        if namespace not in _repeatable:
            given = given_calls(params)
            made = [c for op in operators(namespace) for c in _working(op, given)]
            _repeatable[namespace] = [c for c in made if outcome(c) == outcome(c)]
        return _repeatable[namespace]


def _working(op: str, given: Given) -> Iterator[Case]:
    for dtype in dtypes(op, given):
        found = [case for case in calls(op, dtype, given) if _works(case)]
        large = [changed(case, _larger) for case in found]
        if found:
            elementwise = _C.op_info(op)["kind"] == "elementwise"
            yield from [*found, *(c for c in large if elementwise and _works(c))]
            return


def _larger(t: Any) -> Any:
    return t.repeat([LARGE] * t.ndim) if t.ndim else t


def _works(case: Case) -> bool:
    step(f"call {case}")
    try:
        changed(case, _own).run()
        return True
    except REFUSALS:
        return False


def outcome(case: Case) -> list[bytes]:
    """What a call returns or writes, on tensors of its own."""
    return [_bytes(t) for t in results(changed(case, _own))]


def _bytes(t: Any) -> bytes:
    wide = t.detach().cpu()
    return bytes(
        (wide.float() if wide.dtype in (rabbet.float16, rabbet.bfloat16) else wide)
        .numpy()
        .tobytes()
    )
