"""Shared memory that the processes of a data loader write their batches to, so that only descriptions cross pipes.

The program owns the slots. It names a free one with each batch that it asks for; the slot is free again once all tensors
that show it are gone. Slots are descriptors without a name: the system frees them with the last process.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import pickle
import threading
import weakref
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler
from typing import Any

from .... import _C
from ...._C import Tensor
from ...._functions import requires_grad_of

__all__ = [
    "LARGE", "Ring", "Slot", "Staging", "destination", "dumps", "is_plain", "loads", "staged", "write_to",
]  # fmt: skip

_ALIGNMENT = 64  # of tensors in a slot, in bytes


class _Thread(threading.local):
    reading: Slot | None = None
    writing: Slot | None = None

    def __init__(self) -> None:
        self.staged: dict[int, Tensor] = {}  # batches whose rows are being written, by address


_this_thread = _Thread()


def _receive(df: Any) -> Slot:
    return Slot(df.detach())


class Slot:
    """One block of memory, which grows to what the largest batch needs."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.shown = 0  # tensors of the program that show it
        self.is_asked = False  # whether a batch that is asked for will be written to it
        self._memory: mmap.mmap | None = None  # in the program and a worker each their own
        self._address = 0
        self._used = 0
        self._given: list[weakref.ref[memoryview]] = []

    def __reduce__(self) -> Any:
        return _receive, (reduction.DupFd(self.fd),)

    def close(self) -> None:
        """Close the descriptor; memory that tensors show stays."""
        os.close(self.fd)
        self.fd = -1
        self._memory = None

    # ---- in the program

    def tensor(self, offset: int, nbytes: int, dtype: str, shape: tuple[int, ...]) -> Tensor:
        """What a worker wrote. The slot is not free until it is gone."""
        memory = self._mapped(offset + nbytes)
        view = memoryview(memory)[offset : offset + nbytes]
        self.shown += 1
        weakref.finalize(view, self._is_gone).atexit = False
        return _C.from_buffer(view, getattr(_C, dtype), list(shape))

    def _is_gone(self) -> None:
        self.shown -= 1

    # ---- in both

    def _mapped(self, nbytes: int) -> mmap.mmap:
        if self._memory is None or len(self._memory) < nbytes:
            self._memory = mmap.mmap(self.fd, os.fstat(self.fd).st_size)
            self._address = _C.from_buffer(self._memory, _C.uint8, [1]).data_ptr()
        return self._memory

    # ---- in a worker

    def begin(self, nbytes: int) -> None:
        """Begin a batch that needs as much, as those before did."""
        self._used = 0
        self._given = []
        if nbytes:
            self._grow(nbytes)

    def _grow(self, nbytes: int) -> bool:
        if os.fstat(self.fd).st_size < nbytes:
            try:
                os.posix_fallocate(self.fd, 0, nbytes)
            except OSError:  # no memory: an error here, a signal on the first write
                return False
        self._mapped(nbytes)
        return True

    def _take(self, nbytes: int) -> int:
        offset = self._used
        self._used += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return offset

    def give(self, dtype: Any, shape: tuple[int, ...]) -> Tensor | None:
        """Memory for a tensor of the batch; None without room."""
        nbytes = _nbytes(dtype, shape)
        if not self._given and nbytes:  # nothing shows the former mapping
            self._grow(self._used + nbytes)
        if self._memory is None or not nbytes or self._used + nbytes > len(self._memory):
            return None
        offset = self._take(nbytes)
        view = memoryview(self._memory)[offset : offset + nbytes]
        self._given.append(weakref.ref(view))
        return _C.from_buffer(view, dtype, list(shape))

    def place(self, tensor: Tensor) -> int | None:
        """The offset of a tensor that is in the slot, or is copied to it; None if there is no memory."""
        nbytes = _nbytes(tensor.dtype, tuple(tensor.shape))
        offset = tensor.data_ptr() - self._address
        is_inside = self._memory is not None and offset >= 0 and offset + nbytes <= self._used
        if is_inside and tensor.is_contiguous():
            return offset
        if not self._grow(self._used + nbytes):
            return None
        offset = self._take(nbytes)
        _C.from_buffer(
            memoryview(self._mapped(0))[offset : offset + nbytes], tensor.dtype, list(tensor.shape)
        ).copy_(tensor)
        return offset

    def is_kept(self) -> bool:
        """Whether the worker's program still has a tensor that was given memory."""
        return any(view() is not None for view in self._given)

    @property
    def used(self) -> int:
        """The bytes of the batch."""
        return self._used


def _nbytes(dtype: Any, shape: tuple[int, ...]) -> int:
    return int(dtype.itemsize) * math.prod(shape)


def _new_slot() -> Slot:
    return Slot(os.memfd_create("rabbet-batches", os.MFD_CLOEXEC))


class Ring:
    """The slots of a loader, in the program."""

    def __init__(self, count: int) -> None:
        self.slots = [_new_slot() for _ in range(count)]
        self._retired: set[int] = set()
        _rings.add(self)

    def take(self) -> int | None:
        """The number of a free slot, for a batch that is asked for; None without one."""
        for number, slot in enumerate(self.slots):
            if not slot.is_asked and not slot.shown and number not in self._retired:
                slot.is_asked = True
                return number
        return None

    def retire(self, number: int) -> None:
        """Never write to the memory of a slot again, as another process still uses it."""
        self._retired.add(number)

    def renewed(self) -> list[tuple[int, Slot]]:
        """Slots with new memory in place of those that were retired since, for the workers."""
        made = []
        for number in self._retired:
            self.slots[number].close()
            self.slots[number] = _new_slot()
            made.append((number, self.slots[number]))
        self._retired.clear()
        return made

    def retire_shown(self) -> None:
        """Retire slots in use at a fork: the child holds their tensors too, and this process cannot tell when it drops them."""
        for number, slot in enumerate(self.slots):
            if slot.shown:
                self.retire(number)

    def close(self) -> None:
        """Close the descriptors."""
        for slot in self.slots:
            slot.close()


_rings: weakref.WeakSet[Ring] = weakref.WeakSet()


def _after_fork() -> None:
    for ring in list(_rings):
        ring.retire_shown()


os.register_at_fork(after_in_parent=_after_fork)


class write_to:
    """Context manager: batches that this thread collates may be written directly to a slot."""

    def __init__(self, slot: Slot | None) -> None:
        self._slot = slot

    def __enter__(self) -> None:
        _this_thread.writing = self._slot
        _this_thread.staged = {}

    def __exit__(self, *_: Any) -> None:
        _this_thread.writing = None
        _this_thread.staged = {}


def destination(dtype: Any, shape: tuple[int, ...]) -> Tensor | None:
    """Memory of the slot that this thread writes to, or None."""
    slot = _this_thread.writing
    return None if slot is None else slot.give(dtype, shape)


LARGE = 1 << 16  # bytes of a sample; copying it takes longer than a call


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is on the CPU, needs no gradient and is not composite."""
    return tensor.is_cpu and not requires_grad_of(tensor) and _C.composite(tensor) is None


class Staging:
    """Copies large tensors of samples into the memory of the batch as soon as they are read.

    A worker then holds one sample at a time instead of a whole batch.

    Args:
        count: the largest number of samples in the batch.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._rows: dict[Any, tuple[Tensor, ...]] = {}

    @staticmethod
    def is_wanted() -> bool:
        """Whether this thread writes to a slot."""
        return _this_thread.writing is not None

    def placed(self, sample: Any, number: int) -> Any:
        """The sample with its large tensors replaced by rows of the batch.

        Args:
            sample: a tensor, or a tuple, list or dict with tensors; others are returned unchanged.
            number: the index of the sample in the batch.
        """
        kind = type(sample)
        if kind is Tensor:
            return self._row(None, sample, number)
        if kind is tuple or kind is list:
            return kind(
                self._row(at, item, number) if type(item) is Tensor else item
                for at, item in enumerate(sample)
            )
        if kind is dict:
            return {
                key: self._row(key, item, number) if type(item) is Tensor else item
                for key, item in sample.items()
            }
        return sample

    def _row(self, at: Any, tensor: Tensor, number: int) -> Tensor:
        if tensor.nbytes < LARGE or not is_plain(tensor):
            return tensor
        if number == 0:
            memory = destination(tensor.dtype, (self._count, *tensor.shape))
            if memory is not None:
                _this_thread.staged[memory.data_ptr()] = memory
                self._rows[at] = memory.unbind(0)
        rows = self._rows.get(at)
        if rows is None or rows[0].shape != tensor.shape or rows[0].dtype is not tensor.dtype:
            return tensor
        rows[number].copy_(tensor)
        return rows[number]


def staged(batch: Any) -> Tensor | None:
    """The tensor whose first rows are these samples, in order; None if there is none."""
    memory = _this_thread.staged.get(batch[0].data_ptr())
    if memory is None or len(batch) > len(memory):
        return None
    size, begin = memory.nbytes // len(memory), memory.data_ptr()
    for i, sample in enumerate(batch):
        if sample.data_ptr() != begin + i * size or sample.nbytes != size:
            return None
    return memory[: len(batch)]


class _BatchPickler(ForkingPickler):
    """Tensors go to the slot, or by value where there is none."""

    slot: Slot | None

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, Tensor):
            return NotImplemented
        if type(obj) is not Tensor or not is_plain(obj):
            return obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        nbytes = _nbytes(obj.dtype, tuple(obj.shape))
        offset = self.slot.place(obj) if self.slot is not None and nbytes else None
        if offset is None:
            return obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return _in_slot, (offset, nbytes, obj.dtype.name, tuple(obj.shape))


def _in_slot(offset: int, nbytes: int, dtype: str, shape: tuple[int, ...]) -> Tensor:
    slot = _this_thread.reading
    if slot is None:
        raise pickle.UnpicklingError("a batch that a slot of a data loader holds")
    return slot.tensor(offset, nbytes, dtype, shape)


def dumps(message: Any, slot: Slot | None) -> bytes:
    """Pickle a message for the main process, with its tensors in the slot."""
    buffer = io.BytesIO()
    pickler = _BatchPickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.slot = slot
    pickler.dump(message)
    return buffer.getvalue()


def loads(data: Any, slot: Slot | None) -> Any:
    """The message, whose tensors show the slot."""
    _this_thread.reading = slot
    try:
        return pickle.loads(data)
    finally:
        _this_thread.reading = None
