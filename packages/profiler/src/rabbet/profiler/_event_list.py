"""The events of a recording as a list: averages, a table, files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._chrome import write_events
from ._events import FunctionEvent, FunctionEventAvg
from ._table import table_of

STACK_METRICS = [
    "self_cpu_time_total",
    "self_cuda_time_total",
    "self_xpu_time_total",
    "self_privateuse1_time_total",
]


def attribute_of(metric: str) -> str:
    """The attribute of events that a name with a kind of device means."""
    return (
        metric.replace("cuda", "device").replace("xpu", "device").replace("privateuse1", "device")
    )


class EventList(list[Any]):
    """Events, or averages over events."""

    def __init__(
        self,
        events: Iterable[Any] = (),
        *,
        use_device: str | None = None,
        profile_memory: bool = False,
        with_flops: bool = False,
    ) -> None:
        super().__init__(events)
        self._use_device = use_device
        self._profile_memory = profile_memory
        self._with_flops = with_flops

    def __str__(self) -> str:
        return self.table()

    def _like(self, events: Iterable[Any]) -> EventList:
        return EventList(
            events,
            use_device=self._use_device,
            profile_memory=self._profile_memory,
            with_flops=self._with_flops,
        )

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events, each counted outside of those inside of it."""
        return sum(event.self_cpu_time_total for event in self)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as text.

        Args:
            sort_by: an attribute by which rows are sorted, the largest first, such as "cpu_time_total",
                "self_cpu_time_total", "cpu_memory_usage" or "count".
            row_limit: most rows; -1: all.
            header: a line above the table.
            top_level_events_only: leave out events inside of others.
            time_unit: "s", "ms" or "us" for all times.

        Raises:
            AttributeError: if events have no attribute `sort_by`.
        """
        attribute = None if sort_by is None else attribute_of(sort_by)
        if attribute is not None and self and not hasattr(self[0], attribute):
            raise AttributeError(
                f"table: sort_by expects an attribute of events, such as 'cpu_time_total', "
                f"'self_cpu_time_total', 'cpu_memory_usage' or 'count', got {sort_by!r}"
            )
        rows = (
            sorted(self, key=lambda e: getattr(e, attribute), reverse=True) if attribute else self
        )
        return table_of(
            list(rows),
            row_limit=row_limit,
            widths=(max_name_column_width, max_src_column_width, max_shapes_column_width),
            header=header,
            top_level_events_only=top_level_events_only,
            time_unit=time_unit,
            profile_memory=self._profile_memory,
            with_flops=self._with_flops,
            use_device=self._use_device,
        )

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as Chrome's JSON, which chrome://tracing and https://ui.perfetto.dev read."""
        write_events(path, self)

    def supported_export_stacks_metrics(self) -> list[str]:
        """The metrics that `export_stacks` can sum."""
        return list(STACK_METRICS)

    def export_stacks(self, path: str, metric: str) -> None:
        """Write stacks and microseconds as FlameGraph's tools read them: `outer;inner 123` in each line.

        Args:
            metric: one of `supported_export_stacks_metrics()`.

        Raises:
            ValueError: for another metric.
        """
        if metric not in STACK_METRICS:
            raise ValueError(f"metric should be one of: {STACK_METRICS}, got {metric!r}")
        attribute = attribute_of(metric)
        clean = str.maketrans(" ;\t\n", "____")
        with open(path, "w") as file:
            for event in self:
                value = int(getattr(event, attribute))
                if event.stack and value > 0:
                    frames = ";".join(entry.translate(clean) for entry in reversed(event.stack))
                    file.write(f"{frames} {value}\n")

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Sums over events with the same name.

        Args:
            group_by_input_shapes: and the same shapes of their arguments.
            group_by_stack_n: and the same n innermost frames of Python.
            group_by_overload_name: and the same name of the overload.
        """
        found: dict[Any, FunctionEventAvg] = {}
        for event in self:
            key = (
                event.key, event.node_id, event.device_type, event.is_legacy, event.is_user_annotation,
                str(event.input_shapes) if group_by_input_shapes else "",
                tuple(event.stack[:group_by_stack_n]) if group_by_stack_n > 0 else (),
                event.overload_name if group_by_overload_name else "",
            )  # fmt: skip
            found.setdefault(key, FunctionEventAvg()).add(event)
        for average in found.values():
            average.stack = (average.stack or [])[: max(group_by_stack_n, 0)]
            if not group_by_input_shapes:
                average.input_shapes = ""
            if not group_by_overload_name:
                average.overload_name = ""
        return self._like(found.values())

    def total_average(self) -> FunctionEventAvg:
        """The sums over all events."""
        total = FunctionEventAvg()
        for event in self:
            total.key = event.key
            total.add(event)
        total.key = "Total"
        return total

    def tops(self) -> list[FunctionEvent]:
        """Events on the CPU that are inside of no other."""
        return [e for e in self if e.cpu_parent is None and not e.device_type]
