"""Calls on a device beside the same calls on the CPU: moving them, running them, telling apart how they fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rabbet

from ..cases import Case, cases


def tensors(value: Any) -> list[Any]:
    """The tensors in a value and in lists of it, in order."""
    if isinstance(value, rabbet.Tensor):
        return [value]
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with its tensors changed, lists of tensors included."""
    if isinstance(value, rabbet.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [mapped(v, change) for v in value]
    return value


def changed(case: Case, change: Callable[[Any], Any]) -> Case:
    """The same call with other tensors."""
    kwargs = {k: mapped(v, change) for k, v in case.kwargs.items()}
    return case.with_arguments([mapped(a, change) for a in case.args], kwargs)


def moved(case: Case, device: str) -> Case:
    """The same call with its tensors on a device; they require grad where those of the case do."""

    def move(t: Any) -> Any:
        there = t.detach().to(device)
        there = t.detach().clone() if there._storage_id() == t._storage_id() else there
        return there.requires_grad_() if _requires_grad(t) else there

    there = changed(case, move)
    if any(p["name"] == "device" for p in rabbet._C.op_info(case.op)["params"]) and not tensors(
        case.args
    ):
        there.kwargs["device"] = device  # it makes tensors
    return there


def _requires_grad(t: Any) -> bool:
    return (t.is_floating_point() or t.is_complex()) and bool(getattr(t, "requires_grad", False))


def results(case: Case) -> list[Any]:
    """Run a case: its results, or its first arguments where the operator only writes those."""
    return tensors(case.run()) or tensors(case.args)


def shape_depends_on_data(op: str) -> bool:
    """Whether nobody can tell the results' shapes without the data."""
    if rabbet._C.op_info(op)["data_shape"]:
        return True
    for case in cases(op, rabbet.int64 if takes_integers_only(op) else None):
        try:
            results(moved(case, "meta"))
        except NotImplementedError:
            return True
        except (
            Exception
        ):  # it says nothing of shapes: a function in Python that reads the data, say
            return False
        return False
    return False


def takes_integers_only(op: str) -> bool:
    """Whether the record says so."""
    classes = rabbet._C.op_info(op)["dtypes"].split()
    return "int" in classes and not {"real", "float"} & set(classes)


# ---- how a call fails


def not_declared(error: BaseException) -> bool:
    """Whether core refused the call since the device does not offer it; no kernel has run then."""
    return isinstance(error, NotImplementedError) and refusing_kernel(error) is None


def refusing_kernel(error: BaseException) -> str | None:
    """The innermost frame of the kernel that raised, "while running OP on DEVICE [WHEEL]", or None.

    A decomposition in Python, "while running the function of OP [WHEEL]", is no kernel of a device.
    """
    lines = (
        getattr(error, "frames", None) or "\n".join(getattr(error, "__notes__", []))
    ).splitlines()
    return (
        lines[0]
        if lines
        and lines[0].startswith("while running ")
        and not lines[0].startswith("while running the ")
        and lines[0].endswith("]")
        else None
    )


def first_line(error: BaseException) -> str:
    """Kind and first line of an error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


REFUSALS = (
    TypeError,
    ValueError,
    IndexError,
    NotImplementedError,
    rabbet._C.StateError,
)  # of bad calls
