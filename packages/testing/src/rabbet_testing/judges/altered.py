"""Calls with one argument altered: the meta device refuses those that a device refuses, and gives the shapes and dtypes
that it gives for the others, so that the checks are those of the records."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import rabbet
from rabbet import _C

from ..cases import Case, cases
from .calls import first_line, moved, not_declared, results, shape_depends_on_data
from .reasons import Reason, skip

_DTYPES = (rabbet.float32, rabbet.float64, rabbet.int64, rabbet.int32, rabbet.uint8, rabbet.bool)
# Operators that refuse values of their tensors or numbers, which their records cannot tell.
_OF_VALUES = {
    "multinomial": "the weights of a row must have a positive sum",
    "masked_scatter": "the source must have as many elements as the mask has ones",
    "segment_reduce": "the lengths of the segments must sum to the size of the axis",
    "pow": "integers are not raised to negative integers",
}


def _altered_tensor(t: Any) -> Iterator[tuple[str, Any]]:
    for dtype in (*_DTYPES, rabbet.complex64):
        if dtype != t.dtype:
            yield f"of {dtype}", t.to(dtype)
    for d in range(t.ndim):
        yield f"without dimension {d}'s elements", t.narrow(d, 0, 0).clone()
        if t.shape[d]:
            yield f"longer in dimension {d}", rabbet.cat([t, t.narrow(d, 0, 1)], d)
    yield "with one dimension more", t.unsqueeze(0)
    if t.ndim and t.shape[0]:
        yield "with one dimension less", t.select(0, 0)


def _altered_value(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, rabbet.Tensor):
        yield from _altered_tensor(value)
    elif isinstance(value, bool):
        yield str(not value), not value
    elif isinstance(value, int):
        yield from ((str(n), n) for n in (-1, 0, value + 1, 99, -99))
    elif isinstance(value, float):
        yield from ((str(x), x) for x in (-1.0, 0.0, 2.5, float("nan")))
    elif isinstance(value, (list, tuple)) and value and all(type(n) is int for n in value):
        n = len(value)
        for other in (value[:-1], [*value, 1], [-1] * n, [0] * n, [99] * n):
            yield str(list(other)), list(other)


def altered(case: Case) -> Iterator[tuple[str, Case]]:
    """The call with each argument altered in each way that its type knows, and how."""
    params = _C.op_info(case.op)["params"]
    for place, (param, value) in enumerate(zip(params, case.args)):
        for what, other in _altered_value(value):
            args = list(case.args)
            args[place] = other
            yield f"{param['name']} {what}", case.with_arguments(args)


def _outcome(case: Case, device: str) -> tuple[list[Any] | None, Exception | None]:
    with warnings.catch_warnings():
        # uint8 masks are accepted with PyTorch's deprecation warning.
        warnings.filterwarnings("ignore", ".*uint8", UserWarning)
        try:
            there = moved(case, device)
            found = [(tuple(t.shape), t.dtype) for t in results(there)]
            _C.synchronize(
                rabbet.device(device)
            )  # it may report only now what it finds in its data
            return found, None
        except Exception as error:
            return None, error


def _difference(device: str, case: Case) -> str:
    """What the device and the meta device do not agree in, or nothing."""
    found, error = _outcome(case, device)
    shapes, refusal = _outcome(case, "meta")
    if error is not None and refusal is not None:
        return ""
    if error is not None:  # no kernel is no refusal, and what the data say is not known on meta
        lacks = isinstance(error, (NotImplementedError, IndexError)) or not_declared(error)
        return "" if lacks else f"{device} refuses it, meta does not: {first_line(error)}"
    if refusal is not None:
        if "has no data" in str(refusal):
            return ""
        return f"meta refuses it, {device} does not: {first_line(refusal)}"
    return "" if found == shapes else f"{device} gives {found}, meta {shapes}"


def judge(device: str, op: str) -> None:
    """Raises AssertionError for each altered call on which the device and the meta device differ."""
    if op in _OF_VALUES:
        skip(Reason.OF_VALUES, _OF_VALUES[op])
    if shape_depends_on_data(op):
        skip(Reason.OF_VALUES, "the shapes depend on the data")
    wrong = []
    kind = device.partition(":")[0]
    near = kind == "cpu"  # elsewhere a call may compile a kernel
    if not near and kind not in _C.op_info(op)["kernels"]:
        skip(Reason.NO_KERNEL, "decompositions are judged by their parts")
    for dtype in (rabbet.float32, rabbet.int64, rabbet.bool) if near else (rabbet.float32,):
        for case in list(cases(op, dtype))[: 4 if near else 1]:
            if _outcome(case, device)[1] is not None:
                continue
            for what, other in altered(case):
                if difference := _difference(device, other):
                    wrong.append(f"{case} in {dtype}, {what}: {difference}")
    assert not wrong, "\n".join(wrong)
