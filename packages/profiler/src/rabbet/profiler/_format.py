"""Numbers as text: times, shares and sizes, in PyTorch's form."""

_US_IN_SECOND = 1000.0 * 1000.0
_US_IN_MS = 1000.0


def format_time(time_us: float, unit: str | None = None) -> str:
    """A time in microseconds as text.

    Args:
        unit: "s", "ms" or "us"; None: the one that suits.

    Raises:
        ValueError: for another unit.

    Example:
        >>> format_time(1500.0)
        '1.500ms'
    """
    if unit not in (None, "s", "ms", "us"):
        raise ValueError(f"format_time: expected the unit 's', 'ms', 'us' or None, got {unit!r}")
    if unit is None:
        unit = "s" if time_us >= _US_IN_SECOND else "ms" if time_us >= _US_IN_MS else "us"
    scale = {"s": _US_IN_SECOND, "ms": _US_IN_MS, "us": 1.0}[unit]
    return f"{time_us / scale:.3f}{unit}"


def format_time_share(time_us: float, total_time_us: float) -> str:
    """The percentage of a total, or "NaN" if the total is 0.

    Raises:
        AssertionError: if there is a time without a total.
    """
    if total_time_us == 0:
        assert time_us == 0, f"format_time_share: expected a time of 0 of nothing, got {time_us}"
        return "NaN"
    return f"{time_us * 100.0 / total_time_us:.2f}%"


def format_memory(nbytes: float) -> str:
    """Bytes as text.

    Example:
        >>> format_memory(2048), format_memory(-3)
        ('2.00 KB', '-3 B')
    """
    for exponent, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(nbytes) >= 1024**exponent:
            return f"{nbytes / 1024**exponent:.2f} {unit}"
    return f"{nbytes} B"
