"""Compare: measurements as tables."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any

from .common import Measurement, ordered_unique, select_unit, trim_sigfig, unit_to_english

__all__ = ["Colorize", "Compare"]

_BEST, _GOOD, _BAD, _VERY_BAD = "\033[92m\033[1m", "\033[34m\033[1m", "\033[2m\033[91m", "\033[31m\033[1m"  # fmt: skip
_END = "\033[0m\033[0m"
_COLORS = ((1.01, _BEST), (1.1, _GOOD), (2.0, ""), (5.0, _BAD))  # by the time relative to the best


class Colorize(enum.Enum):
    """Which cells of a table are compared to choose their colours."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


def _color(time: float, best: float) -> str:
    ratio = time / best
    return next((color for limit, color in _COLORS if ratio < limit), _VERY_BAD)


class _Table:
    """The measurements of one label: a row for each sub-label, environment and number of threads."""

    def __init__(
        self,
        results: Sequence[Measurement],
        colorize: Colorize,
        trim: bool,
        highlight: bool,
    ) -> None:
        self.label = results[0].title if results[0].task_spec.label is None else results[0].task_spec.label  # fmt: skip
        self.unit, self.scale = select_unit(min(r.median for r in results))
        self.colorize, self.trim, self.highlight = colorize, trim, highlight
        self.columns = ordered_unique(r.task_spec.description for r in results)
        self.rows = ordered_unique(self._row(r) for r in results)
        self.rows.sort(key=lambda row: row[0])  # stable
        self.cells = {(self._row(r), r.task_spec.description): r for r in results}
        self.has_environments = len({env for _, env, _ in self.rows}) > 1

    @staticmethod
    def _row(one: Measurement) -> tuple[int, str | None, str]:
        return one.task_spec.num_threads, one.task_spec.env, one.as_row_name

    def _names(self) -> list[str]:
        if not self.has_environments:
            return [name for _, _, name in self.rows]
        shown = [f"({'Unspecified env' if env is None else env})" for _, env, _ in self.rows]
        width = max(map(len, shown))
        return [f"{env:<{width}}  {name}" for env, (_, _, name) in zip(shown, self.rows)]

    def _number(self, one: Measurement, decimals: int) -> str:
        time = one.median / self.scale
        return f"{trim_sigfig(time, one.significant_figures) if self.trim else time:.{decimals}f}"

    def _decimals(self, column: Any) -> int:
        """Digits after the point: as many as every cell of the column supports."""
        if not self.trim:
            return 1
        found = []
        for one in self._in_column(column):
            time = trim_sigfig(one.median / self.scale, one.significant_figures)
            text = f"{time:.8f}".rstrip("0").partition(".")[2]
            found.append(min(len(text), one.significant_figures))
        return max(found, default=0)

    def _in_column(self, column: Any) -> list[Measurement]:
        cells = (self.cells.get((row, column)) for row in self.rows)
        return [one for one in cells if one is not None]

    def _in_row(self, row: Any) -> list[Measurement]:
        cells = (self.cells.get((row, column)) for column in self.columns)
        return [one for one in cells if one is not None]

    def _peers(self, row: Any, column: Any) -> list[Measurement]:
        """The cells that decide the colour of one: of its row, or of its column with as many threads."""
        if self.colorize is Colorize.ROWWISE:
            return self._in_row(row)
        return [r for r in self._in_column(column) if r.task_spec.num_threads == row[0]]

    def _paint(self, text: str, row: Any, column: Any) -> str:
        one = self.cells.get((row, column))
        if self.colorize is Colorize.NONE or one is None:
            return text
        color = _color(one.median, min(r.median for r in self._peers(row, column)))
        shown = text.strip()
        return text.replace(shown, f"{color}{shown}{_END}") if color else text

    def _texts(self, column: Any) -> list[str]:
        decimals = self._decimals(column)
        texts = []
        for row in self.rows:
            one = self.cells.get((row, column))
            text = "" if one is None else self._number(one, decimals)
            if one is not None and self.highlight and one.has_warnings:
                text += f" (! {one.iqr / one.median * 100:.0f}%)"
            texts.append(text)
        return texts

    def render(self) -> str:
        indent = " " * (2 if self.has_environments else 6)
        names = [indent + name for name in self._names()]
        left = max(map(len, names))
        columns = []
        for column in self.columns:
            texts = self._texts(column)
            width = max(map(len, [*texts, str(column or "")]))
            cells = [self._paint(t.rjust(width), row, column) for t, row in zip(texts, self.rows)]
            columns.append([str(column or "").center(width), *cells])
        lines = ["  |  ".join([" " * left, *(c[0] for c in columns)])]
        total = len(lines[0])
        threads = None
        for i, row in enumerate(self.rows):
            if row[0] != threads:
                threads = row[0]
                lines.append(f"{threads} threads: ".ljust(total, "-"))
            lines.append("  |  ".join([names[i].ljust(left), *(c[i + 1] for c in columns)]))
        title = f" {self.label} ".center(total - 2, "-")
        footer = [f"\nTimes are in {unit_to_english(self.unit)}s ({self.unit})."]
        if self.highlight and any(one.has_warnings for one in self.cells.values()):
            footer.append("(! XX%) Measurement has high variance, where XX is the IQR / median * 100.")  # fmt: skip
        return "\n".join([f"[{title}]", *lines, *footer, ""])


class Compare:
    """Measurements as tables: one for each label, with a row for each sub-label and a column for each description.

    Args:
        results: the measurements; those of equal tasks are merged.

    Raises:
        ValueError: if an element is not a `Measurement`.

    Example:
        >>> spec = TaskSpec("x + 1", "pass", label="add", sub_label="int", description="n=1")
        >>> "n=1" in str(Compare([Measurement(1, [1e-3], spec)]))
        True
    """

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trim_significant_figures = False
        self._colorize = Colorize.NONE
        self._highlight_warnings = False

    def __str__(self) -> str:
        return "\n".join(self._render())

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements.

        Raises:
            ValueError: if an element is not a `Measurement`.
        """
        results = list(results)
        for one in results:
            if not isinstance(one, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(one)} instead.")
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Show only the digits that the spread of the times supports."""
        self._trim_significant_figures = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour the cells by how they compare to the best one of their column, or of their row."""
        self._colorize = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Mark the cells whose times vary much."""
        self._highlight_warnings = True

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def _render(self) -> list[str]:
        labels: dict[Any, list[Measurement]] = {}
        for one in Measurement.merge(self._results):
            labels.setdefault(one.task_spec.label, []).append(one)
        options = self._colorize, self._trim_significant_figures, self._highlight_warnings
        return [_Table(results, *options).render() for results in labels.values()]
