"""Is a call that makes no sense refused with an error that names the operator, and does the device work afterwards?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import rabbet
from rabbet import _C

from ..cases import Case, cases
from .calls import REFUSALS, first_line, moved, not_declared, results, tensors
from .reasons import Reason, skip

_INDICES = {"index", "indices"}
_ERRORS = (TypeError, ValueError, IndexError, _C.RabbetError)


def _first_case(op: str) -> Case | None:
    """The first case that the CPU takes, of any dtype."""
    for dtype in (rabbet.float32, rabbet.int64):
        for case in cases(op, dtype):
            try:
                results(case)
                return case
            except REFUSALS:
                continue
    return None


def _replaced(case: Case, place: int, value: Any) -> Case:
    args = list(case.args)
    args[place] = value
    return case.with_arguments(args)


def _bad(case: Case, device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls that have to raise."""
    info = _C.op_info(case.op)
    function = rabbet.ops(case.op)
    params = info["params"]
    if any(not p["has_default"] and not p["optional"] for p in params):
        yield "without arguments", lambda: function()
    yield "with an unknown keyword", lambda: function(*case.args, **case.kwargs, no_such_argument=1)
    for place, (param, value) in enumerate(zip(params, case.args)):
        if param["type"] == "Tensor":
            yield f"{param['name']}=object()", _replaced(case, place, object()).run
        if param["type"] in ("dim", "newdim") and isinstance(value, int):
            yield f"{param['name']}=99", _replaced(case, place, 99).run
        if (
            param["name"] in _INDICES
            and isinstance(value, rabbet.Tensor)
            and info["kind"] == "indexing"
        ):
            far = (value.cpu() + 1000).to(device)
            yield f"{param['name']} out of range", _replaced(case, place, far).run


def _waiting(call: Callable[[], Any], device: str) -> None:
    """A device may report what it finds in its data when the program next waits for it."""
    call()
    _C.synchronize(rabbet.device(device))


def judge(device: str, op: str) -> list[str]:
    """Raises AssertionError for what is not refused, or not with the operator's name; returns notes."""
    found = _first_case(op)
    if found is None:
        skip(Reason.NO_EXAMPLE, f"the CPU takes no case of {op}")
    case, notes = moved(found, device), list[str]()
    for what, call in _bad(case, device):
        try:
            _waiting(call, device)
        except _C.InternalError as error:
            raise AssertionError(f"{op} {what} on {device}: a defect: {error}") from error
        except _ERRORS as error:
            if not_declared(error):
                notes.append(first_line(error))
                continue
            base = _C.op_info(op)["base"]
            named = base in str(error) or op in str(error)
            assert named, f"{op} {what} on {device}: the error does not name the operator: {error}"
        else:
            raise AssertionError(f"{op} {what} on {device}: expected an error, got a result")
    _survives(case, device)
    return sorted(set(notes))


def _survives(case: Case, device: str) -> None:
    for t in tensors(case.args)[:1]:
        assert t.cpu().shape == t.shape, f"{case.op}: {device} does not work after bad calls"
