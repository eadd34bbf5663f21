"""The entries of a file as tensors: read into memory of their own, or mapped."""

import contextlib
import io
import mmap
import os
import stat
import zlib
from collections.abc import Iterator
from typing import Any

from .. import _C
from .._C import Tensor
from . import SerializationError, header, memory
from .header import Entry, Header
from .structure import refusing


@contextlib.contextmanager
def opened(f: Any, *, mapped: bool) -> Iterator[tuple[Any, str]]:
    """A file that can seek, where reading shall begin, and its name for messages."""
    if hasattr(f, "read"):
        if mapped:
            raise ValueError("load: mmap=True needs a path, got a file object")
        name = getattr(f, "name", "<file>")
        yield _measurable(f, name), str(name)
        return
    name = checked_path("load", f)
    with open(name, "rb", buffering=0) as file:
        regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        yield file if regular or mapped else _measurable(file, name), name


def beginning(file: Any, count: int) -> bytes:
    """The next bytes of a file, which stays where it is."""
    at = file.tell()
    data = _take(file, count)
    file.seek(at)
    return data


def read(file: Any, name: str, *, mapped: bool, verify: bool) -> tuple[dict[str, Tensor], Header]:
    """The tensors of a safetensors file and its header."""
    return _map(file, name, verify) if mapped else _read_stream(file, name, verify)


def checked_path(function: str, f: Any) -> str:
    """The path as a string."""
    try:
        return os.fsdecode(f)
    except TypeError:
        raise TypeError(
            f"{function}: expected `f` to be a path or a binary file, got {type(f).__name__}"
        ) from None


def _measurable(f: Any, name: Any) -> Any:
    """The file if its end can be found, else the rest of it in memory."""
    if _has_end(f) and hasattr(f, "readinto") and hasattr(f, "readline"):
        return f
    data = f.read()
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"load: expected a binary file, reading '{name}' gave {type(data).__name__}"
        )
    return io.BytesIO(data)


def _has_end(f: Any) -> bool:
    """Whether a file can seek to its end; compressed ones cannot."""
    if not hasattr(f, "seekable") or not f.seekable():
        return False
    at = f.tell()
    try:
        f.seek(0, os.SEEK_END)
    except (OSError, ValueError):
        return False
    f.seek(at)
    return True


# ---- reading


def fill(file: Any, view: memoryview) -> Iterator[memoryview]:
    """Read `view` piece by piece; ends early where the file does."""
    for piece in memory.pieces(view):
        at = 0
        while at < len(piece):
            got = file.readinto(piece[at:])
            if not got:
                yield piece[:at]
                return
            at += got
        yield piece


def _take(file: Any, count: int) -> bytes:
    data = bytearray(count)
    return bytes(data[: sum(map(len, fill(file, memoryview(data))))])


def _read_stream(file: Any, name: str, verify: bool) -> tuple[dict[str, Tensor], Header]:
    start = file.tell()
    size = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    first = _take(file, min(8, size))
    head = first + _take(file, header.read_length(first, size, name))
    found = header.parse(head, size - len(head), name, verify)
    checked = found.checksums is not None and verify
    sums, tensors = {}, {}
    for key, entry in sorted(found.entries.items(), key=lambda item: item[1].begin):
        tensors[key] = empty_entry(entry, f"{name}: '{key}'")
        crc = left = 0
        if entry.begin < entry.end:
            left = entry.end - entry.begin
            for piece in fill(file, memory.writable_bytes(tensors[key])):
                crc = zlib.crc32(piece, crc) if checked else 0
                left -= len(piece)
        if left:
            raise SerializationError(f"{name}: the data of '{key}' ends early; it is truncated")
        sums[key] = crc
    if checked:
        _compare(found, sums, name)
    return {key: tensors[key] for key in found.entries}, found


def empty_entry(entry: Entry, what: str) -> Tensor:
    """Memory for an entry."""
    with refusing(what):
        made: Tensor = _C.op("empty")(entry.shape, dtype=getattr(_C, entry.dtype), device="cpu")
        return made


def _compare(found: Header, sums: dict[str, int], name: str) -> None:
    for (key, _), crc in zip(found.entries.items(), found.checksums or [], strict=True):
        if sums[key] != crc:
            raise SerializationError(
                f"{name}: the data of '{key}' is damaged: its CRC-32 is {sums[key]:08x}, it should be {crc:08x}"
            )


# ---- mapping


def _map(file: Any, name: str, verify: bool) -> tuple[dict[str, Tensor], Header]:
    """Tensors over a private mapping: what is written to them stays in memory."""
    size = os.fstat(file.fileno()).st_size
    length = header.read_length(os.pread(file.fileno(), 8, 0), size, name)
    data = mapping(file)
    start = 8 + length
    found = header.parse(data[:start], size - start, name, verify)
    if found.checksums is not None and verify:
        view = memoryview(data)
        sums = {
            key: crc_of(view[start + e.begin : start + e.end]) for key, e in found.entries.items()
        }
        _compare(found, sums, name)
    views = header.SKELETON in found.metadata  # perhaps of larger items than the entry has
    return {
        key: mapped_entry(data, start, e, views, f"{name}: '{key}'")
        for key, e in found.entries.items()
    }, found


def mapping(file: Any) -> mmap.mmap:
    """All of a file in memory; what is written there stays there."""
    access = mmap.PROT_READ | mmap.PROT_WRITE
    return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=access)


def crc_of(view: memoryview) -> int:
    crc = 0
    for piece in memory.pieces(view):
        crc = zlib.crc32(piece, crc)
    return crc


def mapped_entry(data: mmap.mmap, start: int, entry: Entry, views: bool, what: str) -> Tensor:
    """A tensor over a mapped file; `views`: of any dtype may follow."""
    if entry.begin == entry.end:
        return empty_entry(entry, what)
    kind, at = getattr(_C, entry.dtype), start + entry.begin
    with refusing(what):
        if at % (8 if views else min(kind.itemsize, 8)):
            return _C.from_buffer(bytearray(data[at : start + entry.end]), kind, entry.shape)
        return _C.from_buffer(data, kind, entry.shape, at)
