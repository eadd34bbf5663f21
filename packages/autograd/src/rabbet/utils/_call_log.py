"""A log of operator calls, to show where two runs of a function part."""

import itertools
from typing import Any

from rabbet import _C, Tensor
from rabbet.autograd.graph import call_mode


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        dims = ", ".join(map(str, value.shape))
        return f"{value.dtype.name}({dims})"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return repr(value)


class CallLog(call_mode):
    """Context manager: `lines` has each operator call inside, with its arguments and where it stands."""

    def __init__(self) -> None:
        super().__init__(self._note)
        self.lines: list[tuple[str, str]] = []

    def _note(self, op: str, args: tuple[Any, ...], targets: Any, run: Any) -> None:
        if op == "detach":  # the checkpoint's own
            return
        call = f"{op}{'_' if targets else ''}({', '.join(map(_shown, args))})"
        self.lines.append((call, _C.source() or "?"))


def compared(forward: CallLog, again: CallLog) -> str:
    """Both logs as text; the first difference is marked."""
    pairs = itertools.zip_longest((c for c, _ in forward.lines), (c for c, _ in again.lines))
    parts = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    text = ""
    for title, log in (("forward pass", forward), ("recomputation", again)):
        text += f"Operators of the {title}:\n"
        for i, (call, line) in enumerate(log.lines):
            text += f"{'->' if i == parts else '  '} {i:4} {call}  {line}\n"
    return text
