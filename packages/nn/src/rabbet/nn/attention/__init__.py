"""Which implementation `scaled_dot_product_attention` uses."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager

from rabbet.backends import cuda

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """PyTorch's implementations of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_FUSED = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
)


@contextmanager
def sdpa_kernel(
    backends: list[SDPBackend] | SDPBackend, set_priority: bool = False
) -> Iterator[None]:
    """A block in which attention on CUDA may use `backends` only, by the switches of `rabbet.backends.cuda`.

    MATH is the formula step by step, FLASH_ATTENTION and EFFICIENT_ATTENTION are rabbet's kernels, CUDNN_ATTENTION
    is cuDNN. The CPU has one implementation.

    Args:
        backends: what may be used.
        set_priority: whether what stands first in `backends` is preferred; otherwise cuDNN is.

    Raises:
        AssertionError: if `backends` is no SDPBackend and no list.
    """
    given = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(given, list):
        raise AssertionError(
            f"Backend must be an instance of SDPBackend or a list of SDPBackend instances, got {type(backends).__name__}"
        )
    fused = [b for b in given if b in _FUSED]
    ours_first = set_priority and bool(fused) and fused[0] != SDPBackend.CUDNN_ATTENTION
    with (
        cuda._sdp_ours_first(ours_first),
        cuda.sdp_kernel(
            enable_flash=SDPBackend.FLASH_ATTENTION in given,
            enable_math=SDPBackend.MATH in given,
            enable_mem_efficient=SDPBackend.EFFICIENT_ATTENTION in given,
            enable_cudnn=SDPBackend.CUDNN_ATTENTION in given,
        ),
    ):
        yield
