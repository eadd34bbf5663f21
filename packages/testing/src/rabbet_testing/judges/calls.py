"""Calls on a device beside the same calls on the CPU: moving them, running them, telling apart how they fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest
import rabbet

from ..cases import Case


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
    return Case(case.op, [mapped(a, change) for a in case.args], kwargs, case.label)


def moved(case: Case, device: str) -> Case:
    """The same call with its tensors on a device; they require grad where those of the case do."""

    def move(t: Any) -> Any:
        there = t.detach().to(device)
        there = t.detach().clone() if there._storage_id() == t._storage_id() else there
        return there.requires_grad_() if _requires_grad(t) else there

    return changed(case, move)


def _requires_grad(t: Any) -> bool:
    return (t.is_floating_point() or t.is_complex()) and bool(getattr(t, "requires_grad", False))


def results(case: Case) -> list[Any]:
    """Run a case: its results, or its first arguments where the operator only writes those."""
    return tensors(case.run()) or tensors(case.args)


# ---- how a call fails


def not_declared(error: BaseException) -> bool:
    """Whether core refused the call since the device does not offer it; no kernel has run then."""
    return isinstance(error, NotImplementedError) and refusing_kernel(error) is None


def refusing_kernel(error: BaseException) -> str | None:
    """The innermost frame of the kernel that raised, "while running OP on DEVICE [WHEEL]", or None."""
    lines = (
        getattr(error, "frames", None) or "\n".join(getattr(error, "__notes__", []))
    ).splitlines()
    return (
        lines[0]
        if lines and lines[0].startswith("while running ") and lines[0].endswith("]")
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


def skip_not_declared(reason: str) -> NoReturn:
    """End the test: the device does not offer the operator in this dtype, and need not."""
    pytest.skip(f"not implemented: {reason}")


def skip_not_applicable(reason: str) -> NoReturn:
    """End the test: there is nothing to judge."""
    pytest.skip(f"not applicable: {reason}")
