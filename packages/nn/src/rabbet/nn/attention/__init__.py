"""Which implementation `scaled_dot_product_attention` uses."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """PyTorch's implementations of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(
    backends: Sequence[SDPBackend] | SDPBackend, set_priority: bool = False
) -> Iterator[None]:
    """A block in which PyTorch chooses among `backends`; rabbet has one implementation and uses it.

    Raises:
        TypeError: if `backends` is no SDPBackend and no list of them.
    """
    given = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(given, (list, tuple)) or not all(isinstance(b, SDPBackend) for b in given):
        raise TypeError(
            f"sdpa_kernel: expected backends to be an SDPBackend or a list of them, got {backends!r}"
        )
    yield
