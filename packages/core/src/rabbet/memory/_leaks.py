"""A finder of leaks: what a part of a program leaves in memory."""

from __future__ import annotations

import gc
from typing import Self

from ._snapshot import LiveStorage, Snapshot, holders_of, snapshot

__all__ = ["LeakFinder", "LeakReport"]


class LeakReport:
    """The storages that are new between two points of a program; `print` it.

    Attributes:
        storages: the new ones that are still there, largest first.
        nbytes: their bytes.
    """

    def __init__(self, new: Snapshot) -> None:
        self._new = new

    @property
    def storages(self) -> list[LiveStorage]:
        return self._new.storages

    @property
    def nbytes(self) -> int:
        return self._new.nbytes

    def __bool__(self) -> bool:
        return bool(self._new.storages)

    def groups(self) -> list[list[LiveStorage]]:
        """The storages by line, module and what they hold, the group with most bytes first."""
        groups: dict[object, list[LiveStorage]] = {}
        for s in self.storages:
            t = s.tensors[0]
            groups.setdefault((s.line, s.module, s.device, t.dtype.name, t.shape), []).append(s)
        return sorted(groups.values(), key=lambda g: -sum(s.nbytes for s in g))

    def text(self, limit: int = 10, holders: int = 2) -> str:
        """The largest `limit` groups as text, each with what keeps its first storage alive."""
        if not self:
            return "nothing new"
        lines = [f"{len(self.storages)} new storages with {self.nbytes:,} bytes"]
        shown = self.groups()[:limit]
        kept = (
            holders_of([group[0] for group in shown], holders) if holders else [[] for _ in shown]
        )
        for group, paths in zip(shown, kept, strict=True):
            times = f"{len(group)} x " if len(group) > 1 else ""
            lines.append(f"{times}{str(group[0]).strip()}")
            lines += [f"    kept by {path}" for path in paths]
        return "\n".join(lines)

    __str__ = text


class LeakFinder:
    """Compares two points of a program: what lies in memory at the second one and did not at the first.

    As a context manager it compares its start with its end. It collects cycles first, so that they are not reported.

    Example:
        >>> with memory.LeakFinder() as finder:
        ...     for batch in loader:
        ...         step(batch)
        >>> print(finder.report())
    """

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        self._after: Snapshot | None = None

    def start(self) -> None:
        """The first point."""
        gc.collect()
        self._before, self._after = snapshot(), None

    def stop(self) -> None:
        """The second point.

        Raises:
            RuntimeError: before `start`.
        """
        if self._before is None:
            raise RuntimeError("LeakFinder.stop: start() comes first")
        gc.collect()
        self._after = snapshot()

    def report(self) -> LeakReport:
        """The storages that are new at the second point, or now.

        Raises:
            RuntimeError: before `start`.
        """
        if self._before is None:
            raise RuntimeError("LeakFinder.report: start() comes first")
        if self._after is None:
            self.stop()
            after, self._after = self._after, None
        else:
            after = self._after
        assert after is not None
        return LeakReport(after.since(self._before))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
