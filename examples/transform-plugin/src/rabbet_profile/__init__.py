"""Calls, FLOPs and bytes of every operator: `with rabbet_profile.count() as c: ...`, then `print(c)`."""

import ctypes
import weakref
from collections import namedtuple
from pathlib import Path

from rabbet.library import device_types, require_layer

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

    def rows(self, device: object = "") -> list[Row]:
        """One for each operator, most FLOPs first; bytes are those of tensor arguments and results.

        Of all devices, or of one ("cpu:0", "cpu", a rabbet.device): that which has the results.
        """
        types, sums = device_types(), {}
        for line in _lib.listener_read(self._counter).decode().splitlines():
            name, backend, index, *numbers = line.split()
            if str(device) in ("", types[int(backend)], f"{types[int(backend)]}:{index}"):
                pairs = zip(sums.get(name, (0, 0, 0)), numbers, strict=True)
                sums[name] = [a + int(b) for a, b in pairs]
        rows = [Row(name, *numbers) for name, numbers in sums.items()]
        return sorted(rows, key=lambda row: (-row.flops, -row.bytes, row.name))

    def total(self, device: object = "") -> Row:
        """The sums of all operators, with `device` as for `rows`."""
        return Row("total", *(sum(row[i] for row in self.rows(device)) for i in (1, 2, 3)))

    def __getitem__(self, name: str) -> Row:
        """The row of one operator, zeros if it did not run; of "total" the sums of all."""
        rows = [row for row in [*self.rows(), self.total()] if row.name == name]
        return rows[0] if rows else Row(name, 0, 0, 0)

    def __str__(self) -> str:
        line = "{:<28} {:>9} {:>20} {:>20}".format
        used = [d for d in device_types() if self.rows(d)]
        totals = [self.total(d)._replace(name=f"on {d}") for d in used if len(used) > 1]
        rows = [*self.rows(), *totals, self.total()]
        body = [line(r.name, *(f"{n:,}" for n in r[1:])) for r in rows]
        return "\n".join([line("operator", "calls", "FLOPs", "bytes"), *body])


def rabbet_conformance_params(level: str) -> dict[str, object]:
    """For the conformance kit (`--layer=profile`): counting changes no result."""
    return {"enter": count} if level == "layer" else {}
