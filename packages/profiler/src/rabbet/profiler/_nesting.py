"""Spans as strict nesting: what formats and pictures need that know no overlapping ranges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ._span import Kind, Span
from ._trace import Trace


class Nested(NamedTuple):
    """A span whose times lie inside those of its parent and after those of its earlier siblings."""

    span: Span
    number: int
    begin: int
    end: int


class Tree:
    """The spans of a recording by parent; those without one by thread."""

    def __init__(self, trace: Trace) -> None:
        self.tops: list[list[int]] = [[] for _ in trace.threads]
        self._trace = trace
        self._children: dict[int, list[int]] = {}
        for i, span in enumerate(trace.spans):
            if span.kind is Kind.MEMORY:
                continue
            siblings = self.tops[span.thread] if span.parent < 0 else self._children.setdefault(span.parent, [])  # fmt: skip
            siblings.append(i)

    def children(self, index: int) -> list[int]:
        """The spans directly inside of one, in order."""
        return self._children.get(index, [])

    def nested(self, indices: list[int], begin: int, end: int) -> Iterator[Nested]:
        """Spans between two times, cut where they overlap each other."""
        at = begin
        for i in indices:
            span = self._trace.spans[i]
            start = min(max(span.begin, at), end)
            at = min(max(span.end, start), end)
            yield Nested(span, i, start, at)

    def edges(self, indices: list[int], begin: int, end: int) -> Iterator[tuple[bool, Nested]]:
        """Begins (True) and ends of spans and of all inside of them, in the order of time."""
        todo = [(True, nested) for nested in self.nested(indices, begin, end)][::-1]
        while todo:
            opens, nested = todo.pop()
            yield opens, nested
            if opens:
                todo.append((False, nested))
                inner = self.nested(self.children(nested.number), nested.begin, nested.end)
                todo += [(True, n) for n in inner][::-1]
