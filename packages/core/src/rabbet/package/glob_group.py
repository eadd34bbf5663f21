"""Sets of module names by patterns."""

import re
from collections.abc import Iterable
from typing import TypeAlias

GlobPattern: TypeAlias = str | Iterable[str]


class GlobGroup:
    """Names that match a pattern: `*` matches within a segment, `**` (a whole segment) any number of segments.

    Args:
        include: a pattern, or several.
        exclude: patterns of names that are left out.
        separator: between segments.

    Raises:
        ValueError: if `**` is a part of a segment.
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

    def __str__(self) -> str:
        return self.__repr__()

    def __repr__(self) -> str:
        return f"GlobGroup(include={self.include}, exclude={self.exclude})"


def _patterns(given: GlobPattern) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _compiled(pattern: str, separator: str) -> re.Pattern[str]:
    """Matches a name with a separator in front of it."""
    mark, text = re.escape(separator), ""
    for segment in pattern.split(separator):
        if segment == "**":
            text += f"({mark}[^{mark}]+)*"
        elif "**" in segment:
            raise ValueError("** can only appear as an entire path segment")
        else:
            text += mark + f"[^{mark}]*".join(map(re.escape, segment.split("*")))
    return re.compile(text)
