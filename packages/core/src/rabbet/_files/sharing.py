"""Tensors that share memory become one entry of the file and views of it.

Tensors belong together if the stretches of their storage overlap, from the first element to the last. If one of them
is the whole stretch, row by row, it is the entry; else the entry is the stretch itself, as a flat tensor.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .._C import Tensor


class Stored(NamedTuple):
    """Where the values of a tensor are: an entry, or a view that begins `offset` bytes after the entry's begin."""

    entry: str
    offset: int | None  # None: the entry as it is


class _Stretch(NamedTuple):
    begin: int
    end: int
    number: int


def _stretch(t: Tensor, number: int) -> _Stretch:
    """The bytes of its storage from the first element to the end of the last one."""
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    begin = t.storage_offset() * t.itemsize
    return _Stretch(begin, begin + (last + 1) * t.itemsize, number)


def _groups(tensors: Sequence[Tensor]) -> list[list[_Stretch]]:
    """All tensors, those that share memory together, in the order of their first members."""
    by_storage: dict[int, list[_Stretch]] = {}
    groups: list[list[_Stretch]] = []
    for i, t in enumerate(tensors):
        if t.numel():
            by_storage.setdefault(t._storage_id(), []).append(_stretch(t, i))
        else:
            groups.append([_Stretch(0, 0, i)])
    for stretches in by_storage.values():
        end = -1
        for s in sorted(stretches):
            if s.begin >= end:
                groups.append([])
            groups[-1].append(s)
            end = max(end, s.end)
    return sorted(groups, key=_first)


def _first(group: list[_Stretch]) -> int:
    return min(s.number for s in group)


def _entry(tensors: Sequence[Tensor], group: list[_Stretch]) -> Tensor:
    """What is written for a group: a member that is all of it, or the stretch of memory as a flat tensor."""
    if len(group) == 1:
        return tensors[group[0].number]
    begin, end = group[0].begin, max(s.end for s in group)
    whole = sorted(s.number for s in group if (s.begin, s.end) == (begin, end))
    for i in whole:
        if tensors[i].is_contiguous():
            return tensors[i]
    small = min((tensors[s.number] for s in group), key=lambda t: t.itemsize)
    size = small.itemsize
    return small.detach().as_strided([(end - begin) // size], [1], begin // size)


def place(
    tensors: Sequence[Tensor], paths: Sequence[str], unique: Callable[[str], str]
) -> tuple[dict[str, Tensor], dict[int, Stored]]:
    """What to write as entries, and where each of the tensors is found in them, by its index.

    Args:
        paths: where each tensor stands in the value that is saved.
        unique: makes a name that no entry has yet.
    """
    entries: dict[str, Tensor] = {}
    stored: dict[int, Stored] = {}
    for group in _groups(tensors):
        entry, begin = _entry(tensors, group), group[0].begin
        owner = next((s.number for s in group if tensors[s.number] is entry), None)
        name = unique(f"{paths[_first(group)]}.storage" if owner is None else paths[owner])
        entries[name] = entry
        for s in group:
            stored[s.number] = Stored(name, None if s.number == owner else s.begin - begin)
    return entries, stored
