"""Suggestions for misspelled names."""

from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str:
    """The name most like `name`, or "" if none is close.

    Only names that begin with the same letter and have about the same length are compared, since programs ask by
    hasattr() for names that are not there.
    """
    import difflib

    first, length = name[:1].lower(), len(name)
    near = [n for n in names if n[:1].lower() == first and abs(len(n) - length) <= 2]
    same = [n for n in near if n.lower() == name.lower()]
    return next(iter(same or difflib.get_close_matches(name, near, n=1, cutoff=0.7)), "")
