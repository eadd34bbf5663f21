"""Anomaly mode: backward names the forward line of the node that fails, or whose gradient holds NaN."""

from . import _C
from .graph import keep_lines

_enabled = False
_check_nan = True
_lines = keep_lines()


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Switch anomaly mode on or off.

    Args:
        mode: whether nodes keep the lines where they were recorded.
        check_nan: whether backward raises at the first node whose gradient holds NaN.
    """
    global _enabled, _check_nan
    if mode != _enabled:
        _lines.__enter__() if mode else _lines.__exit__()
    _enabled, _check_nan = mode, check_nan
    _C.set_anomaly(mode and check_nan)


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on."""
    return _enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode looks for NaN where it is on."""
    return _check_nan


class detect_anomaly:
    """Context manager: anomaly mode is on inside.

    Args:
        check_nan: whether backward raises at the first node whose gradient holds NaN.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._inside = True, check_nan

    def __enter__(self) -> None:
        self._before = _enabled, _check_nan
        set_anomaly_enabled(*self._inside)

    def __exit__(self, *exc: object) -> None:
        set_anomaly_enabled(*self._before)


class set_detect_anomaly(detect_anomaly):
    """Switch anomaly mode at once; as a context manager it is restored at the end."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._inside = mode, check_nan
        self._before = _enabled, _check_nan
        set_anomaly_enabled(*self._inside)

    def __enter__(self) -> None:
        set_anomaly_enabled(*self._inside)
