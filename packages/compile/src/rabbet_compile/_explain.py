"""`explain`: what regions made of a call."""

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

from . import _C
from ._replaying import replayed, state_of

__all__ = ["Explanation", "Flush", "explain"]


@dataclasses.dataclass(frozen=True)
class Flush:
    """Deferred calls that ran together."""

    reason: str
    """The event that ran them: an operator that reads or writes their memory, a read such as "item()", or the region's end."""
    source: str
    """The line of the program that did that, or ""."""
    ops: list[str]
    """The operators that were deferred, in their order."""
    run: int
    """The number that ran: unused results are not computed."""
    stored: int
    """The number of results that were written to memory."""
    numel: int
    """Elements of each result."""
    tiles: int
    """Parts in which they ran; 0: one operator after the other, as eagerly."""
    declined: bool
    """Whether a kernel left the call to its decomposition: then they ran one after the other."""
    microseconds: float


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A report of one call of a function in a region."""

    result: Any
    flushes: list[Flush]
    totals: dict[str, int]
    replay: str = ""
    """Whether the call was replayed without its Python code, or why not."""

    def __str__(self) -> str:
        t = self.totals
        lines = [
            f"{t['recorded']} calls deferred, {t['flushes']} flushes, {t['tiled']} of them fused; "
            f"{t['unstored']} results never in memory, {t['dropped']} not computed"
        ]
        for i, flush in enumerate(self.flushes):
            how = f"{flush.tiles} tiles" if flush.tiles else "one by one"
            lines.append(
                f"{i}: {_shorten(flush.ops)} of {flush.numel} elements: {flush.run} run, {flush.stored} stored, {how}, "
                f"{flush.microseconds:.0f} us"
            )
            lines.append(
                f"   because of {flush.reason}" + (f" at {flush.source}" if flush.source else "")
            )
        if self.replay:
            lines.append(self.replay)
        return "\n".join(lines)


def _shorten(ops: list[str]) -> str:
    if len(ops) <= 8:
        return " ".join(ops)
    counts = ", ".join(f"{name} {n}" for name, n in Counter(ops).most_common(8))
    return f"{len(ops)} operators ({counts})"


def explain(fn: Callable[..., Any]) -> Callable[..., Explanation]:
    """A function that calls `fn` as `compile` does and tells what was deferred, when it ran and why.

    It also tells whether the call was replayed and, if not, why. The second call with arguments of the same structure is
    recorded; later ones are replayed.

    Args:
        fn: a function or module, compiled or not. It runs once for each call of the result.

    Returns:
        A function with the arguments of `fn` that returns an `Explanation`; `str()` of it is a table.

    Raises:
        TypeError: if `fn` cannot be called.
        RuntimeError: if the result is called inside a region.

    Example:
        >>> print(explain(lambda x: (x * 1.5 + 0.25).sigmoid())(rabbet.ones(1 << 20)))
    """
    if not callable(fn):
        raise TypeError(f"explain: expected a module or a function, got {type(fn).__name__}")
    run = fn if state_of(fn) is not None else replayed(fn)
    state = state_of(run)
    assert state is not None

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        if _C.is_on():
            raise RuntimeError("explain: it cannot be called inside a region")
        before = _C.totals()
        seen = len(_C.lines())
        was, runs = _C.get("report"), state.variants.runs
        _C.set("report", 1)
        try:
            result = run(*args, **kwargs)
        finally:
            _C.set("report", was)
        after = _C.totals()
        flushes = [Flush(**line) for line in _C.lines()[seen:]]
        changes = {k: after[k] - before[k] for k in after}
        return Explanation(result, flushes, changes, state.report(runs))

    return explained
