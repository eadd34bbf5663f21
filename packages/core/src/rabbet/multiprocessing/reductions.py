"""How tensors and storages travel in messages among processes: as descriptors of shared memory."""

import multiprocessing
import multiprocessing.resource_sharer  # before a fork: the thread that sends a message must not import it
import os
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler
from typing import Any

from .. import _C, _sharing, composite, storage

__all__ = [
    "ForkingPickler", "init_reductions", "rebuild_parameter", "rebuild_storage_empty", "rebuild_storage_fd",
    "rebuild_tensor", "rebuild_typed_storage", "reduce_parameter", "reduce_storage", "reduce_tensor",
    "reduce_typed_storage",
]  # fmt: skip

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def _check_leaf(tensor: Any) -> None:
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
            "crossing process boundaries.  If you just want to transfer the data, call detach() on the tensor before "
            "serializing (e.g., putting it on the queue)."
        )


def _has_shareable_memory(tensor: Any) -> bool:
    """Whether all that the tensor is lies in one block of the CPU's memory."""
    return tensor.is_cpu and composite.state(tensor) is None


def reduce_tensor(tensor: Any) -> Any:
    """Move a tensor to shared memory; the message holds its descriptor and the geometry.

    Composites travel as their parts, tensors of other devices by value.

    Raises:
        RuntimeError: for a tensor that requires grad and is no leaf.
    """
    _check_leaf(tensor)
    if not _has_shareable_memory(tensor):
        return tensor.__reduce_ex__(4)
    _sharing.share_memory_(tensor)
    geometry = (
        tensor.storage_offset(),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        tensor.requires_grad,
    )
    return rebuild_tensor, (type(tensor), storage.TypedStorage(tensor), geometry)


def rebuild_tensor(cls: type, elements: storage.TypedStorage, metadata: tuple[Any, ...]) -> Any:
    """The tensor that reduce_tensor() described."""
    offset, shape, stride, requires_grad = metadata
    made = elements._elements().as_strided(list(shape), list(stride), offset)
    if cls is not _C.Tensor:
        made = _C.Tensor._make_subclass(cls, made, requires_grad)
    elif requires_grad:
        made.requires_grad_()
    _sharing.remember(made)
    return made


def reduce_parameter(parameter: Any) -> Any:
    """As reduce_tensor(), of a parameter or buffer with its attributes."""
    _check_leaf(parameter)
    if not _has_shareable_memory(parameter):
        return parameter.__reduce_ex__(4)
    _sharing.share_memory_(parameter)
    attributes = dict(parameter.__dict__)
    return rebuild_parameter, (
        type(parameter), parameter.detach(), parameter.requires_grad, attributes
    )  # fmt: skip


def rebuild_parameter(cls: Any, data: Any, requires_grad: bool, attributes: dict[str, Any]) -> Any:
    """The parameter or buffer that reduce_parameter() described."""
    owned: Any = _C.Tensor._make_subclass(cls, data, requires_grad)
    owned.__dict__.update(attributes)
    _sharing.remember(owned)
    return owned


def reduce_storage(untyped: storage.UntypedStorage) -> Reduced:
    """Move a storage to shared memory; the message holds its descriptor.

    Raises:
        RuntimeError: for storages of devices.
    """
    if untyped.device.type != "cpu":
        kind = untyped.device.type
        raise RuntimeError(f"Cannot pickle {kind} storage; try pickling a {kind} tensor instead")
    if not untyped.nbytes():
        return rebuild_storage_empty, (type(untyped), untyped._tensor.dtype)
    segment = _sharing.segment_of(untyped.share_memory_()._tensor)
    assert segment is not None
    return rebuild_storage_fd, (type(untyped), _descriptor_of(segment), len(segment))


def _descriptor_of(segment: _sharing.Segment) -> Any:
    """What the receiver gets a descriptor of the segment from, by `detach()`."""
    popen: Any = multiprocessing.context.get_spawning_popen()
    if popen is None:
        return reduction.DupFd(segment.fileno())
    # A process that starts inherits the descriptor itself, which must last until then and be listed once.
    inherited = popen.__dict__.setdefault("_rabbet_segments", {})
    if segment.key not in inherited:
        inherited[segment.key] = _ToInherit(segment)
    return inherited[segment.key]


class _ToInherit:
    """In the message to a process that starts: a segment, once however many storages show it."""

    def __init__(self, segment: _sharing.Segment) -> None:
        self._segment = segment

    def __reduce__(self) -> Reduced:
        return _Inherited, (reduction.DupFd(self._segment.fileno()),)


class _Inherited:
    """In the process that started: the descriptor, closed with the message."""

    def __init__(self, df: Any) -> None:
        self._fd: int = df.detach()

    def detach(self) -> int:
        """A descriptor that the caller closes."""
        return os.dup(self._fd)

    def __del__(self) -> None:
        os.close(self._fd)


def rebuild_storage_fd(cls: type, df: Any, size: int) -> Any:
    """The storage that reduce_storage() described."""
    fd = df.detach()
    try:
        made = cls(_sharing.opened(fd, size))
        _sharing.remember(made._tensor)
        return made
    finally:
        os.close(fd)


def rebuild_storage_empty(cls: type, dtype: Any) -> Any:
    """A storage without elements."""
    return cls(_C.tensor([], dtype))


def reduce_typed_storage(typed: storage.TypedStorage) -> Reduced:
    """As reduce_storage(), with the dtype."""
    return rebuild_typed_storage, (typed._untyped_storage, typed.dtype)


def rebuild_typed_storage(untyped: storage.UntypedStorage, dtype: Any) -> storage.TypedStorage:
    """The storage that reduce_typed_storage() described."""
    if not untyped.nbytes():
        return storage.TypedStorage(_C.tensor([], dtype))
    return storage.TypedStorage(untyped._bytes().view(dtype))


def init_reductions() -> None:
    """Let the pickles of messages share tensors, parameters, buffers and storages."""
    ForkingPickler.register(_C.Tensor, reduce_tensor)
    ForkingPickler.register(storage.UntypedStorage, reduce_storage)
    ForkingPickler.register(storage.TypedStorage, reduce_typed_storage)
    try:
        from rabbet.nn import Buffer, Parameter
    except ImportError:
        return  # without the wheel there are none
    ForkingPickler.register(Parameter, reduce_parameter)
    ForkingPickler.register(Buffer, reduce_parameter)
