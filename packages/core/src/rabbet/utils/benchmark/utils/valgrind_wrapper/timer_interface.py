"""Instruction counts by function: filtering, comparison and printing."""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..common import TaskSpec

__all__ = ["CallgrindStats", "CopyIfCallgrind", "FunctionCount", "FunctionCounts"]

# Lookups of names by the interpreter, whose cost depends on addresses and hashes.
_NOISY = re.compile(r"dictobject\.c:|\b(?:lookdict|PyDict_\w*|_PyDict_\w*|dict_\w+)\b")
_ROWS = 18  # that are printed of a long table


class FunctionCount(NamedTuple):
    """The instructions of a function."""

    count: int  # type: ignore[assignment]  # as in PyTorch; it hides tuple.count
    function: str


@dataclass(repr=False, eq=False, frozen=True)
class FunctionCounts:
    """The instructions of several functions; a sequence that is printed as a table.

    Args:
        _data: the counts, the largest first.
        inclusive: whether they include the functions that a function calls.
        truncate_rows: leave out the middle of a long table.

    Example:
        >>> a = FunctionCounts((FunctionCount(5, "f"), FunctionCount(2, "g")), inclusive=False)
        >>> (a - a.filter(lambda name: name == "g")).sum()
        5
    """

    _data: tuple[FunctionCount, ...]
    inclusive: bool
    truncate_rows: bool = True
    _linewidth: int | None = None

    def __iter__(self) -> Iterator[FunctionCount]:
        yield from self._data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, item: Any) -> Any:
        found = self._data[item]
        return replace(self, _data=found) if isinstance(item, slice) else found

    def __repr__(self) -> str:
        rows = [f"{count:>11}  {name}" for count, name in self]
        if self.truncate_rows and len(rows) > _ROWS:
            rows = [*rows[: _ROWS // 2], f"{'...':>11}", *rows[-(_ROWS // 2) :]]
        if self._linewidth is not None:
            rows = [row[: self._linewidth] for row in rows]
        return "\n".join([object.__repr__(self), *rows, "", f"Total: {self.sum()}"])

    def __add__(self, other: FunctionCounts) -> FunctionCounts:
        return self._merge(other, lambda count: count)

    def __sub__(self, other: FunctionCounts) -> FunctionCounts:
        return self._merge(other, lambda count: -count)

    def transform(self, map_fn: Callable[[str], str]) -> FunctionCounts:
        """Rename the functions; the counts of those that get the same name are added."""
        counts: collections.Counter[str] = collections.Counter()
        for count, name in self:
            counts[map_fn(name)] += count
        return self._from_dict(counts, self.inclusive)

    def filter(self, filter_fn: Callable[[str], bool]) -> FunctionCounts:
        """Keep the functions for whose names `filter_fn` returns True."""
        return replace(self, _data=tuple(c for c in self if filter_fn(c.function)))

    def sum(self) -> int:
        """All instructions together."""
        return sum(c.count for c in self)

    def denoise(self) -> FunctionCounts:
        """Leave out the interpreter's lookups of names in dicts, whose counts vary from run to run."""
        return self.filter(lambda name: not _NOISY.search(name))

    def _merge(self, second: FunctionCounts, merge_fn: Callable[[int], int]) -> FunctionCounts:
        if self.inclusive != second.inclusive:
            raise ValueError(
                "FunctionCounts: cannot combine inclusive and exclusive counts, got "
                f"inclusive={self.inclusive} and inclusive={second.inclusive}"
            )
        counts: collections.Counter[str] = collections.Counter()
        for count, name in self:
            counts[name] += count
        for count, name in second:
            counts[name] += merge_fn(count)
        return self._from_dict(counts, self.inclusive)

    @staticmethod
    def _from_dict(counts: dict[str, int], inclusive: bool) -> FunctionCounts:
        data = (FunctionCount(count, name) for name, count in counts.items() if count)
        return FunctionCounts(tuple(sorted(data, reverse=True)), inclusive)


@dataclass(repr=False, eq=False, frozen=True)
class CallgrindStats:
    """The result of `Timer.collect_callgrind`: the counts of a statement, and of the loop around an empty one."""

    task_spec: TaskSpec
    number_per_run: int
    built_with_debug_symbols: bool
    baseline_inclusive_stats: FunctionCounts
    baseline_exclusive_stats: FunctionCounts
    stmt_inclusive_stats: FunctionCounts
    stmt_exclusive_stats: FunctionCounts
    stmt_callgrind_out: str | None

    def __repr__(self) -> str:
        baseline = self.baseline_exclusive_stats
        total, quiet = self.stmt_exclusive_stats, self.stmt_exclusive_stats.denoise()
        return (
            f"{object.__repr__(self)}\n{self.task_spec.summarize()}\n"
            f"{'':<25}{'All':>10}{'Noisy symbols removed':>26}\n"
            f"{'  Instructions:':<25}{total.sum():>10}{quiet.sum():>26}\n"
            f"{'  Baseline:':<25}{baseline.sum():>10}{baseline.denoise().sum():>26}\n"
            f"{self.number_per_run} runs per measurement, {self.task_spec.num_threads} "
            f"thread{'s' if self.task_spec.num_threads > 1 else ''}"
        )

    def stats(self, inclusive: bool = False) -> FunctionCounts:
        """The counts by function, without the baseline unless they are inclusive."""
        if inclusive:
            return self.stmt_inclusive_stats - self.baseline_inclusive_stats
        return self.stmt_exclusive_stats - self.baseline_exclusive_stats

    def counts(self, *, denoise: bool = False) -> int:
        """All instructions together; `denoise` as `FunctionCounts.denoise`."""
        stats = self.stmt_exclusive_stats
        return (stats.denoise() if denoise else stats).sum()

    def delta(self, other: CallgrindStats, inclusive: bool = False) -> FunctionCounts:
        """The counts by function, minus those of `other`."""
        return self.stats(inclusive=inclusive) - other.stats(inclusive=inclusive)

    def as_standardized(self) -> CallgrindStats:
        """The same counts with names of functions that do not depend on the folders of a build."""

        def standardize(stats: FunctionCounts) -> FunctionCounts:
            def short(name: str) -> str:
                path, colon, function = name.partition(":")
                function = re.sub(r" \[[^\]]*\]$", "", function)
                return f"{path.rpartition('/')[2]}{colon}{function}"

            return stats.transform(short)

        return replace(
            self,
            baseline_inclusive_stats=standardize(self.baseline_inclusive_stats),
            baseline_exclusive_stats=standardize(self.baseline_exclusive_stats),
            stmt_inclusive_stats=standardize(self.stmt_inclusive_stats),
            stmt_exclusive_stats=standardize(self.stmt_exclusive_stats),
        )


class CopyIfCallgrind:
    """Marks a global that `Timer.collect_callgrind` may pickle into the other process.

    Args:
        value: the global.
        setup: code that runs there before it is unpickled, such as the import of its class.
    """

    def __init__(self, value: Any, *, setup: str | None = None) -> None:
        if setup is not None and not isinstance(setup, str):
            raise TypeError(f"CopyIfCallgrind: setup must be a str, got {type(setup).__name__}")
        self._value = value
        self._setup = setup

    @property
    def value(self) -> Any:
        """The global."""
        return self._value

    @property
    def setup(self) -> str | None:
        """The code that runs before it is unpickled."""
        return self._setup

    @staticmethod
    def unwrap_all(globals: dict[str, Any]) -> dict[str, Any]:
        """The globals, with values in place of the marks."""
        return {
            name: x.value if isinstance(x, CopyIfCallgrind) else x for name, x in globals.items()
        }
