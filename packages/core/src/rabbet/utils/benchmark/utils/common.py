"""Measurements of timers, and the units and digits with which they are printed."""

from __future__ import annotations

import contextlib
import math
import statistics
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import rabbet

__all__ = [
    "Measurement",
    "TaskSpec",
    "ordered_unique",
    "select_unit",
    "set_torch_threads",
    "trim_sigfig",
    "unit_to_english",
]

_UNITS = {"ns": ("nanosecond", 1e-9), "us": ("microsecond", 1e-6), "ms": ("millisecond", 1e-3), "s": ("second", 1.0)}  # fmt: skip
_HIGH_IQR = 0.1  # of the median; above it, measurements warn
_VERY_HIGH_IQR = 0.25
_MAX_FIGURES = 4
_Z_OF_90_PERCENT = 1.645


@dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """The statement and the settings of a timer, without the values of its variables.

    Example:
        >>> TaskSpec(stmt="x + 1", setup="x = 1", label="add", sub_label="int").title
        'add: int'
    """

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement where there is none, followed by the sub-label."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt + (f": {self.sub_label}" if self.sub_label else "")
        sub_label = f"{self.sub_label}\n" if self.sub_label else ""
        return f"stmt:\n{sub_label}{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self) -> str:
        """The setup code as it is printed; empty if there is none."""
        if self.setup == "pass" or not self.setup:
            return ""
        if "\n" in self.setup:
            return f"setup:\n{textwrap.indent(self.setup, '  ')}"
        return f"setup: {self.setup}"

    def summarize(self) -> str:
        """The title, the description and the setup."""
        parts = [self.title, self.description or "", self.setup_str()]
        separator = "\n\n" if "\n" in self.stmt or "\n" in self.setup else "\n"
        return separator.join(part for part in parts if part) + ("\n" if "\n" in self.setup else "")


@dataclass(init=True, repr=False)
class Measurement:
    """The times of one or more runs of a statement.

    Args:
        number_per_run: how many times each run executed the statement.
        raw_times: seconds of each run.
        task_spec: the task. Its fields are attributes of the measurement too.
        metadata: anything the caller wants to keep with it.

    Example:
        >>> Measurement(10, [0.01, 0.02, 0.03], TaskSpec("x + 1", "pass")).median
        0.002
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "task_spec" not in vars(self):  # while pickle rebuilds it
            raise AttributeError(name)
        return getattr(self.task_spec, name)

    @property
    def times(self) -> list[float]:
        """Seconds for one execution, for each run."""
        return [t / self.number_per_run for t in self.raw_times]

    def _sorted_times(self) -> list[float]:
        if not self.raw_times:
            raise RuntimeError("Measurement: expected at least one time, got none in raw_times")
        return sorted(self.times)

    def _quantile(self, fraction: float) -> float:
        times = self._sorted_times()
        below, part = divmod(fraction * (len(times) - 1), 1)
        low, high = times[int(below)], times[min(int(below) + 1, len(times) - 1)]
        return low + (high - low) * part

    @property
    def median(self) -> float:
        """The median of `times`."""
        return statistics.median(self._sorted_times())

    @property
    def mean(self) -> float:
        """The mean of `times`."""
        return statistics.fmean(self._sorted_times())

    @property
    def iqr(self) -> float:
        """The interquartile range of `times`."""
        return self._quantile(0.75) - self._quantile(0.25)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median the spread between the quartiles supports."""
        times = self._sorted_times()
        middle = times[len(times) // 4 : math.ceil(len(times) * 3 / 4)]
        spread = statistics.stdev(middle) if len(middle) > 1 else 0.0
        interval = _Z_OF_90_PERCENT * spread / math.sqrt(len(middle))
        median = self.median
        if median <= 0:
            return 1
        relative = max(interval / median, 10.0 ** -(_MAX_FIGURES + 1))
        return min(max(math.floor(-math.log10(relative)), 1), _MAX_FIGURES)

    @property
    def has_warnings(self) -> bool:
        """Whether the interquartile range exceeds a tenth of the median."""
        return not self.meets_confidence()

    def meets_confidence(self, threshold: float = _HIGH_IQR) -> bool:
        """Whether the interquartile range is below `threshold` times the median."""
        return self.iqr / self.median < threshold if self.median > 0 else self.iqr <= 0

    @property
    def title(self) -> str:
        """The title of the task."""
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        """The name of its row in the table of `Compare`."""
        spec = self.task_spec
        return spec.sub_label or spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        number = len(self.raw_times)
        plural = number > 1
        lines = [f"  {'Median: ' if plural else ''}{self.median / scale:.2f} {unit}"]
        if number >= 4:
            low, high = self._quantile(0.25), self._quantile(0.75)
            lines.append(
                f"  IQR:    {self.iqr / scale:.2f} {unit} ({low / scale:.2f} to {high / scale:.2f})"
            )
        threads = self.task_spec.num_threads
        lines.append(
            f"  {number} measurement{'s' if plural else ''}, {self.number_per_run} runs "
            f"{'per measurement,' if plural else ','} {threads} thread{'s' if threads > 1 else ''}"
        )
        if self.has_warnings:
            spread = self.iqr / self.median
            is_very_high = spread > _VERY_HIGH_IQR
            lines += [
                f"  WARNING: Interquartile range is {spread * 100:.1f}% of the median measurement.",
                "           This suggests significant environmental influence."
                if is_very_high
                else "           This could indicate system fluctuation.",
            ]
        body = "\n".join(lines)
        return f"{object.__repr__(self)}\n{self.task_spec.summarize()}\n{body}"

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Join the measurements of equal tasks, as times of single executions, without metadata."""
        times: dict[TaskSpec, list[float]] = {}
        for one in measurements:
            times.setdefault(one.task_spec, []).extend(one.times)
        return [Measurement(1, found, spec) for spec, found in times.items()]


def select_unit(t: float) -> tuple[str, float]:
    """The unit that shows `t` seconds well, and its length in seconds.

    Example:
        >>> select_unit(3e-5)
        ('us', 1e-06)
    """
    scale = math.floor(math.log10(t) / 3) if t > 0 else -3
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(max(scale, -3), "s")
    return unit, _UNITS[unit][1]


def unit_to_english(u: str) -> str:
    """The name of a unit of `select_unit`.

    Raises:
        KeyError: for another unit.
    """
    if u not in _UNITS:
        raise KeyError(f"unit_to_english: expected one of {list(_UNITS)}, got {u!r}")
    return _UNITS[u][0]


def trim_sigfig(x: float, n: int) -> float:
    """Round `x` to `n` significant digits.

    Raises:
        ValueError: if `n` is not a positive int.

    Example:
        >>> trim_sigfig(12345.0, 2)
        12000.0
    """
    if n != int(n) or n < 1:
        raise ValueError(f"trim_sigfig: n must be a positive int, got {n!r}")
    if x == 0 or not math.isfinite(x):
        return float(x)
    scale = 10.0 ** (math.floor(math.log10(abs(x))) + 1 - n)
    return round(x / scale) * scale


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """The distinct elements, in the order in which they come first."""
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """Run the block with `n` threads for operators."""
    before = rabbet.get_num_threads()
    rabbet.set_num_threads(n)
    try:
        yield
    finally:
        rabbet.set_num_threads(before)
