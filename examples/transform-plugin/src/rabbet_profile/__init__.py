"""Calls, FLOPs and bytes of every operator: `with rabbet_profile.count() as c: ...`, then `print(c)`."""

import ctypes
import weakref
from collections import namedtuple
from pathlib import Path

from rabbet.library import require_layer

require_layer("profile")
_lib = ctypes.CDLL(str(Path(__file__).with_name("librabbet_profile.so")))
_lib.counter_new.restype, _lib.listener_read.restype = ctypes.c_void_p, ctypes.c_char_p

Row = namedtuple("Row", "name calls flops bytes")


class count:
    """Sums by operator; every thread that enters one counts into it, as often as it likes."""

    def __init__(self) -> None:
        self._counter = ctypes.c_void_p(_lib.counter_new())
        weakref.finalize(self, _lib.listener_free, self._counter).atexit = False

    def __enter__(self) -> "count":
        _lib.listener_enter(self._counter)
        return self

    def __exit__(self, *error: object) -> None:
        if not _lib.listener_leave(self._counter):
            raise RuntimeError("rabbet_profile.count: this thread has not entered it")

    def rows(self) -> list[Row]:
        """One for each operator, most FLOPs first; bytes are those of tensor arguments and results."""
        lines = map(str.split, _lib.listener_read(self._counter).decode().splitlines())
        rows = [Row(name, *map(int, numbers)) for name, *numbers in lines]
        return sorted(rows, key=lambda row: (-row.flops, -row.bytes, row.name))

    def __getitem__(self, name: str) -> Row:
        """The row of one operator, zeros if it did not run; of "total" the sums of all."""
        rows = [row for row in self.rows() if name in (row.name, "total")]
        return Row(name, *(sum(row[i] for row in rows) for i in (1, 2, 3)))

    def __str__(self) -> str:
        line = "{:<28} {:>9} {:>20} {:>20}".format
        rows = [line(r.name, *(f"{n:,}" for n in r[1:])) for r in [*self.rows(), self["total"]]]
        return "\n".join([line("operator", "calls", "FLOPs", "bytes"), *rows])


def rabbet_conformance_params(level: str) -> dict[str, object]:
    """For the conformance kit (`--layer=profile`): counting changes no result."""
    return {"enter": count} if level == "layer" else {}
