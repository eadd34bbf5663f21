"""Events as a table of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ._format import format_memory, format_time, format_time_share

_WIDTH = 12
_FLOPS_UNITS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")


class _Column(NamedTuple):
    title: str
    width: int
    cell: Callable[[Any], str]
    left: bool = False


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def _cut_left(text: str, width: int) -> str:
    return text if len(text) <= width else "..." + text[len(text) - max(width - 3, 0) :]


def _width(texts: Sequence[str], most: int | None) -> int:
    longest = max((len(t) for t in texts), default=0) + 4
    return longest if most is None else min(longest, most)


def _flops_column(rows: Sequence[Any]) -> _Column:
    largest = max((row.flops or 0 for row in rows), default=0)
    unit = 0
    while unit + 1 < len(_FLOPS_UNITS) and largest >= 1000 ** (unit + 1):
        unit += 1

    def cell(row: Any) -> str:
        return f"{row.flops / 1000**unit:.3f}" if row.flops else "--"

    return _Column(f"Total {_FLOPS_UNITS[unit]}", _WIDTH, cell)


def _share(row: Any, time_us: float, total: float) -> str:
    return f"{0:.2f}%" if row.is_async else format_time_share(time_us, total)


def table_of(
    rows: list[Any],
    *,
    row_limit: int,
    widths: tuple[int | None, int | None, int | None],
    header: str | None,
    top_level_events_only: bool,
    time_unit: str | None,
    profile_memory: bool,
    with_flops: bool,
    use_device: str | None,
) -> str:
    """See EventList.table; `widths` are those of names, source lines and shapes."""
    if not rows:
        return ""
    total = sum(row.self_cpu_time_total for row in rows)
    # Rows of calls have the times of what they launched, which has rows of its own in recordings.
    own = [row for row in rows if row.device_type]
    device_total = sum(row.self_device_time_total for row in own or rows)
    device = (use_device or "cuda").upper()
    name_width, source_width, shape_width = widths

    def time(attribute: str) -> Callable[[Any], str]:
        return lambda row: format_time(getattr(row, attribute), time_unit)

    def memory(attribute: str) -> Callable[[Any], str]:
        return lambda row: format_memory(getattr(row, attribute))

    name_column = _width([row.key for row in rows], name_width)
    columns = [_Column("Name", name_column, lambda row: _cut(row.key, name_column))]
    if any(row.overload_name for row in rows):
        columns.append(_Column("Overload Name", _WIDTH, lambda row: row.overload_name or ""))
    columns += [
        _Column("Self CPU %", _WIDTH, lambda row: _share(row, row.self_cpu_time_total, total)),
        _Column("Self CPU", _WIDTH, time("self_cpu_time_total")),
        _Column("CPU total %", _WIDTH, lambda row: _share(row, row.cpu_time_total, total)),
        _Column("CPU total", _WIDTH, time("cpu_time_total")),
        _Column("CPU time avg", _WIDTH, time("cpu_time")),
    ]
    if device_total > 0:
        columns += [
            _Column(f"Self {device}", _WIDTH, time("self_device_time_total")),
            _Column(f"Self {device} %", _WIDTH, lambda row: _share(row, row.self_device_time_total, device_total)),
            _Column(f"{device} total", _WIDTH, time("device_time_total")),
            _Column(f"{device} time avg", _WIDTH, time("device_time")),
        ]  # fmt: skip
    if profile_memory:
        columns += [
            _Column("CPU Mem", _WIDTH, memory("cpu_memory_usage")),
            _Column("Self CPU Mem", _WIDTH, memory("self_cpu_memory_usage")),
        ]
        if any(row.device_memory_usage for row in rows):
            columns += [
                _Column(f"{device} Mem", _WIDTH, memory("device_memory_usage")),
                _Column(f"Self {device} Mem", _WIDTH, memory("self_device_memory_usage")),
            ]
    columns.append(_Column("# of Calls", _WIDTH, lambda row: str(row.count)))
    if any(row.input_shapes for row in rows):
        shape_column = _width([str(row.input_shapes) for row in rows], shape_width)
        columns.append(_Column("Input Shapes", shape_column, lambda row: _cut(str(row.input_shapes), shape_column)))  # fmt: skip
    if any(row.stack for row in rows):
        lines = [line for row in rows for line in row.stack or []]
        source = _width(lines, source_width)
        columns.append(_Column("Source Location", source, lambda row: _cut_left((row.stack or [""])[0], source), True))  # fmt: skip
    if with_flops:
        columns.append(_flops_column(rows))

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(column.width) if column.left else cell.rjust(column.width)
            for cell, column in zip(cells, columns, strict=True)
        ]
        return "  ".join(padded) + "  "

    rule = line(["-" * column.width for column in columns])
    out = []
    if header is not None:
        out += ["=" * (len(rule) - 2), header]
    if top_level_events_only:
        out += ["=" * (len(rule) - 2), "This report only display top-level ops statistics"]
    out += [rule, line([column.title for column in columns]), rule]
    shown = 0
    for row in rows:
        if shown == row_limit:
            break
        if top_level_events_only and row.cpu_parent is not None:
            continue
        shown += 1
        out.append(line([column.cell(row) for column in columns]))
        for entry in (row.stack or [])[1:]:
            cells = [
                _cut_left(entry, c.width) if c.title == "Source Location" else "" for c in columns
            ]
            out.append(line(cells))
    out += [rule, f"Self CPU time total: {format_time(total, time_unit)}"]
    if device_total > 0:
        out.append(f"Self {device} time total: {format_time(device_total, time_unit)}")
    return "\n".join(out) + "\n"
