"""TorchVersion: a version that compares as PEP 440 orders it, while it stays a string."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["TorchVersion"]

_FORM = re.compile(
    r"v?(?P<release>\d+(\.\d+)*)"
    r"([-_.]?(?P<pre>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<pre_number>\d*))?"
    r"([-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"([-_.]?dev[-_.]?(?P<dev>\d*))?"
    r"(\+(?P<local>[a-z0-9]+([-_.][a-z0-9]+)*))?",
    re.IGNORECASE,
)
_STAGES = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_NONE, _FINAL = (-1, 0), (3, 0)


def _key(version: str) -> tuple[Any, ...]:
    """What orders versions: release, development, pre-release, post-release, local part."""
    found = _FORM.fullmatch(version.strip())
    if found is None:
        raise ValueError(f"Invalid version: '{version}'")
    release = [int(part) for part in found["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    dev = float("inf") if found["dev"] is None else int(found["dev"] or 0)
    pre = _FINAL
    if found["pre"]:
        pre = (_STAGES[found["pre"].lower()], int(found["pre_number"] or 0))
    elif found["dev"] is not None and not found["post"]:
        pre = _NONE
    post = int(found["post_number"] or 0) if found["post"] else -1
    local = [
        (1, int(part), "") if part.isdigit() else (0, 0, part.lower())
        for part in re.split("[-_.]", found["local"] or "")
        if part
    ]
    return (release, pre, post, dev, local)


class TorchVersion(str):
    """A version as text whose comparisons follow PEP 440; takes strings and tuples such as `(2, 1)`.

    What is no version is compared as text.
    """

    __slots__ = ()

    def _compared(self, other: Any, method: str) -> Any:
        if isinstance(other, (tuple, list)):
            other = ".".join(str(part) for part in other)
        try:
            return getattr(tuple, method)(_key(self), _key(str(other)))
        except ValueError:
            return getattr(str, method)(self, str(other))

    def __lt__(self, other: Any) -> bool:
        return self._compared(other, "__lt__")

    def __le__(self, other: Any) -> bool:
        return self._compared(other, "__le__")

    def __eq__(self, other: object) -> bool:
        return self._compared(other, "__eq__")

    def __ge__(self, other: Any) -> bool:
        return self._compared(other, "__ge__")

    def __gt__(self, other: Any) -> bool:
        return self._compared(other, "__gt__")

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__
