"""Memory that processes share: descriptors without a name, mapped while tensors show them."""

from __future__ import annotations

import mmap
import os
import weakref

from . import _C
from ._C import Tensor
from .storage import UntypedStorage, _whole

__all__ = ["Segment", "is_shared", "opened", "remember", "segment_of", "share_memory_"]


class Segment(mmap.mmap):
    """A block of shared memory. The system frees it with the last mapping and descriptor, however processes end.

    Attributes:
        key: what identifies the segment in every process.
    """

    key: tuple[int, int]
    _viewers: list[
        weakref.ref[Tensor]
    ]  # tensors that show it: what shows it next joins their storage
    _descriptor: int | None

    @classmethod
    def of_descriptor(cls, fd: int, size: int) -> Segment:
        """Map a descriptor, which the caller still closes."""
        made = cls(fd, size)
        made.key = _key(fd)
        made._descriptor = None
        made._viewers = []
        return made

    @classmethod
    def create(cls, size: int) -> Segment:
        """A new segment of zeros."""
        fd = os.memfd_create("rabbet", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            return cls.of_descriptor(fd, size)
        finally:
            os.close(fd)

    def fileno(self) -> int:
        """The descriptor that the mapping holds, which Python does not tell; it ends with the mapping."""
        if self._descriptor is None:
            for name in os.listdir("/proc/self/fd"):
                try:
                    if _key(int(name)) == self.key:
                        self._descriptor = int(name)
                        break
                except OSError:
                    continue  # the listing's own
            else:
                raise RuntimeError("the descriptor of a shared segment was closed by the program")
        return self._descriptor


def _key(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


_segments: weakref.WeakValueDictionary[int, Segment] = weakref.WeakValueDictionary()  # by address
_by_key: weakref.WeakValueDictionary[tuple[int, int], Segment] = weakref.WeakValueDictionary()
# Former storages that other tensors still show, with their version and segment: those tensors can follow.
_moved: dict[int, tuple[Tensor, int, weakref.ref[Segment]]] = {}


def _bytes_of(segment: Segment) -> Tensor:
    """The segment's bytes, in the storage of a tensor that shows them already if one is known."""
    for reference in segment._viewers:
        known = reference()
        if known is not None and segment_of(known) is segment:
            return _whole(known, _C.uint8)
    whole = _C.from_buffer(segment, _C.uint8, [len(segment)])
    _segments[whole.data_ptr()] = segment
    _by_key[segment.key] = segment
    remember(whole)
    return whole


def remember(tensor: Tensor) -> None:
    """Note that a tensor shows its segment, if it is in one."""
    segment = segment_of(tensor)
    if segment is not None:
        segment._viewers = [r for r in segment._viewers if r() is not None]
        segment._viewers.append(weakref.ref(tensor))


def opened(fd: int, size: int) -> Tensor:
    """The bytes behind a descriptor that another process sent; those of one segment share one mapping."""
    segment = _by_key.get(_key(fd))
    return _bytes_of(Segment.of_descriptor(fd, size) if segment is None else segment)


def _forget(storage: int) -> None:
    _moved.pop(storage, None)


def _show(tensor: Tensor, segment: Segment) -> None:
    elements = _whole(_bytes_of(segment), tensor.dtype)
    tensor.data = elements.as_strided(
        list(tensor.shape), list(tensor.stride()), tensor.storage_offset()
    )
    remember(tensor)


def share_memory_(self: Tensor) -> Tensor:
    """Move the tensor to memory that processes share: those that are forked, or get it in a message, see the same elements.

    Views that other tensors have of its former memory stay there until they are moved themselves: they join it if nothing
    was written to the former memory in between. Off the CPU nothing moves: memory of CUDA devices is shared as it is sent.
    """
    size = self._storage_nbytes()
    if is_shared(self) or not self.is_cpu or not size:
        return self
    former = self.detach()
    place = former._storage_id()
    if place in _moved:
        kept, version, reference = _moved[place]
        segment = reference()
        if segment is not None and kept._version == version:
            _show(self, segment)
            return self
    segment = Segment.create(size)
    _bytes = _bytes_of(segment)
    _bytes.copy_(_whole(former, _C.uint8))
    _show(self, segment)
    del _bytes
    if former._storage_users() > 1:
        _moved[place] = former, former._version, weakref.ref(segment)
        weakref.finalize(segment, _forget, place)
    return self


def segment_of(tensor: Tensor) -> Segment | None:
    """The segment that a CPU tensor is in, or None."""
    return _segments.get(UntypedStorage(tensor).data_ptr())


def is_shared(self: Tensor) -> bool:
    """Whether the tensor is in memory that processes share; tensors on CUDA devices always are."""
    return self.is_cuda or (self.is_cpu and segment_of(self) is not None)
