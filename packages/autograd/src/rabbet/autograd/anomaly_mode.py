"""Anomaly mode: backward raises at the first node whose gradient holds NaN, naming it and its forward line."""

from . import _C
from .graph import keep_lines

_check_nan = False
_lines = keep_lines()


def _switch(on: bool) -> None:
    global _check_nan
    if on != _check_nan:
        _lines.__enter__() if on else _lines.__exit__()
    _check_nan = on
    _C.set_anomaly(on)


class detect_anomaly:
    """Context manager: check the gradients of every node for NaN."""

    def __init__(self, check_nan: bool = True) -> None:
        self._on = check_nan

    def __enter__(self) -> None:
        self._before = _check_nan
        _switch(self._on)

    def __exit__(self, *exc: object) -> None:
        _switch(self._before)


class set_detect_anomaly(detect_anomaly):
    """Switch anomaly mode at once; as a context manager it is restored at the end."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(mode and check_nan)
        self._before = _check_nan
        _switch(self._on)

    def __enter__(self) -> None:
        _switch(self._on)
