"""Patterns that select module names."""

import re
from collections.abc import Iterable
from typing import TypeAlias

GlobPattern: TypeAlias = str | Iterable[str]


class GlobGroup:
    """A set of names given by patterns.

    `*` matches any characters within a segment. `**` stands for any number of segments.

    Args:
        include: one or more patterns of the names in the group.
        exclude: one or more patterns of names to leave out.
        separator: the text between segments.

    Raises:
        ValueError: if `**` is only part of a segment.
    """

    def __init__(
        self, include: GlobPattern, *, exclude: GlobPattern = (), separator: str = "."
    ) -> None:
        self.include = _patterns(include)
        self.exclude = _patterns(exclude)
        self.separator = separator
        self._included = [_compiled(p, separator) for p in self.include]
        self._excluded = [_compiled(p, separator) for p in self.exclude]

    def matches(self, candidate: str) -> bool:
        """Whether a name is in the group."""
        name = self.separator + candidate
        return any(p.fullmatch(name) for p in self._included) and not any(
            p.fullmatch(name) for p in self._excluded
        )

    def __repr__(self) -> str:
        return f"GlobGroup(include={self.include}, exclude={self.exclude})"


def _patterns(given: GlobPattern) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _compiled(pattern: str, separator: str) -> re.Pattern[str]:
    """An expression that matches a name preceded by the separator."""
    mark, text = re.escape(separator), ""
    for segment in pattern.split(separator):
        if segment == "**":
            text += f"({mark}[^{mark}]+)*"
        elif "**" in segment:
            raise ValueError("** can only appear as an entire path segment")
        else:
            text += mark + f"[^{mark}]*".join(map(re.escape, segment.split("*")))
    return re.compile(text)
