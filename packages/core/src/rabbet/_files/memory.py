"""The bytes of tensors: row-major, little-endian."""

import array
import threading
from collections.abc import Iterator
from typing import Any

from .. import _C
from .._C import Tensor

_CHUNK = 1 << 20  # checksums of what the cache still holds
_SAME_SIZE = {1: _C.uint8, 2: _C.int16, 4: _C.int32, 8: _C.int64, 16: _C.complex128}


class _Skipping(threading.local):
    """Whether the thread leaves out the bytes of storages in files."""

    active = False


skipping = _Skipping()


def writable_bytes(t: Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor that has elements."""
    flat = t.view(-1)
    if _C.buffer_format(flat.dtype) is None:
        flat = flat.view(_SAME_SIZE[flat.dtype.itemsize])
    return memoryview(flat).cast("B")


def pieces(data: Any) -> Iterator[memoryview]:
    """A buffer of bytes in pieces that fit into the cache."""
    view = memoryview(data)
    return (view[at : at + _CHUNK] for at in range(0, len(view), _CHUNK))


def snapshot(t: Tensor) -> Iterator[bytes]:
    """Copies of a tensor's bytes, piece by piece."""
    flat = t.detach().cpu().contiguous()
    return (bytes(piece) for piece in pieces(writable_bytes(flat))) if flat.numel() else iter(())


def zeros(count: int) -> Iterator[bytes]:
    """That many zero bytes, piece by piece."""
    return (bytes(min(_CHUNK, count - at)) for at in range(0, count, _CHUNK))


def tensor_bytes(t: Tensor) -> bytes:
    """All bytes of a tensor."""
    return b"".join(snapshot(t))


def swap_bytes(t: Tensor, size: int) -> None:
    """Reverse the bytes of each number of `size` bytes in a contiguous CPU tensor."""
    if size == 1 or not t.numel():
        return
    code = {2: "H", 4: "I", 8: "Q"}[size]
    for piece in pieces(writable_bytes(t)):
        numbers = array.array(code, bytes(piece))
        numbers.byteswap()
        piece[:] = numbers.tobytes()
