"""Settings and counters of the process, and the environment variable."""

import os

import rabbet

from . import _C

__all__ = ["configure", "is_in_region", "reset", "settings", "totals"]

_NAMES = ("least_bytes", "tile", "check", "report")
_MODES = ("on", "regions", "off", "check")


def mode() -> str:
    """The value of `RABBET_COMPILE`: "on", "regions", "off" or "check".

    Raises:
        ValueError: if it says something else.
    """
    said = os.environ.get("RABBET_COMPILE") or "on"
    if said not in _MODES:
        raise ValueError(f"RABBET_COMPILE: expected one of {', '.join(_MODES)}, got {said!r}")
    return said


def configure(**values: int) -> None:
    """Change settings of regions, for all threads; not while a region is open.

    Args:
        least_bytes: tensors with fewer bytes are computed at once, at least 0; 4 MiB at first. They fit into the
            processor's caches anyway.
        tile: elements that a kernel gets at a time, at least 1; 4096 at first.
        check: whether what is fused also runs eagerly and is compared, bit for bit.
        report: whether flushes are kept for `explain`.

    Raises:
        TypeError: for another name.
        RuntimeError: in a region.
        ValueError: for a value that is too small.

    Example:
        >>> configure(least_bytes=1 << 20)
    """
    for name in values:
        if name not in _NAMES:
            raise TypeError(f"configure: expected one of {', '.join(_NAMES)}, got {name!r}")
    if is_in_region():
        raise RuntimeError("configure: settings cannot change inside a region")
    for name, value in values.items():
        _C.set(name, int(value))


def settings() -> dict[str, int]:
    """The settings that `configure` changes, by name."""
    return {name: _C.get(name) for name in _NAMES}


def totals() -> dict[str, int]:
    """Counters of all regions since the last `reset`, in all threads.

    The keys: `recorded`, the calls that were deferred; `flushes`, how often deferred calls ran; `tiled`, the flushes
    that ran fused; `unstored`, the results that never were in memory; `dropped`, the deferred calls whose results
    nobody wanted; `declined`, the flushes in which a kernel left the call to its decomposition; `plans`, the
    structures of flushes that are remembered.
    """
    return dict(_C.totals())


def is_in_region() -> bool:
    """Whether the calling thread is in a region."""
    return _C.is_on()


def reset() -> None:
    """Forget counters, reports and plans."""
    _C.clear()


_C.use_backend_of(rabbet.empty(0, device="cpu"))
if mode() == "check":
    _C.set("check", 1)
