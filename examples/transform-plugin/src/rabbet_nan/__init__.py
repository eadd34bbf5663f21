"""Name the operator that makes NaN: `with rabbet_nan.check(): ...` raises as soon as one does."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rabbet.library import require_layer

require_layer("nan")
_lib = ctypes.CDLL(str(Path(__file__).with_name("librabbet_nan.so")))
_lib.checker_new.restype, _lib.listener_read.restype = ctypes.c_void_p, ctypes.c_char_p


@contextmanager
def check(*, inf: bool = False, record: bool = False) -> Iterator[list[str]]:
    """Check the results of every operator that the thread runs inside.

    Args:
        inf: whether infinities count as well as NaN.
        record: go on, and fill the list that `with` gives at the end, in order.

    Raises:
        RuntimeError: naming operator, result, shape and counts, unless `record`.
    """
    found: list[str] = []
    checker = ctypes.c_void_p(_lib.checker_new(bool(inf), bool(record)))
    _lib.listener_enter(checker)
    try:
        yield found
    finally:
        _lib.listener_leave(checker)
        found += _lib.listener_read(checker).decode().splitlines()
        _lib.listener_free(checker)


def rabbet_conformance_params(level: str) -> dict[str, object]:
    """For the conformance kit (`--layer=nan`): recording changes no result."""
    return {"enter": lambda: check(record=True)} if level == "layer" else {}
