"""How tensors and storages travel in messages among processes: as descriptors of shared memory."""

import multiprocessing
import multiprocessing.resource_sharer  # before a fork: the thread that sends a message must not import it
import os
import sys
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler
from typing import Any

from .. import _C, _device_sharing, _sharing, composite, storage

__all__ = [
    "ForkingPickler", "init_reductions", "rebuild_cuda_tensor", "rebuild_parameter", "rebuild_storage_empty", "rebuild_storage_fd",
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
    """Whether all that the tensor is lies in one block of memory that processes can share."""
    kind = tensor.device.type
    return composite.state(tensor) is None and (kind == "cpu" or _device_sharing.can_share(kind))


def reduce_tensor(tensor: Any) -> Any:
    """Move a tensor to shared memory; the message holds its descriptor and the geometry.

    The memory of CUDA devices is shared where it is, as far as the driver can, and lasts until the receiver has dropped it.
    Composites travel as their parts, tensors of other devices by value.

    Raises:
        RuntimeError: for a tensor that requires grad and is no leaf; for one on a device that another process has sent.
    """
    _check_leaf(tensor)
    if not _has_shareable_memory(tensor):
        return tensor.__reduce_ex__(4)
    if not tensor.is_cpu:
        return _reduce_device_tensor(tensor)
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


def _reduce_device_tensor(tensor: Any) -> Reduced:
    if not tensor.untyped_storage().nbytes():
        place = None
    else:
        place = _device_sharing.share(tensor)
    device = tensor.device.index or 0
    return rebuild_cuda_tensor, (
        type(tensor), tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(),
        tensor.device.type, tensor.dtype, device, place, 0 if place is None else place.nbytes,
        0 if place is None else place.offset, tensor.requires_grad,
    )  # fmt: skip


def rebuild_cuda_tensor(
    tensor_cls: type,
    tensor_size: tuple[int, ...],
    tensor_stride: tuple[int, ...],
    tensor_offset: int,
    storage_cls: Any,
    dtype: Any,
    storage_device: int,
    storage_handle: Any,
    storage_size_bytes: int,
    storage_offset_bytes: int,
    requires_grad: bool,
    *_: Any,
) -> Any:
    """The tensor on a device that reduce_tensor() described.

    Its first arguments stand where PyTorch's do, so that programs can exchange `storage_device`. `storage_cls` is the
    device's type, `storage_handle` says where the memory is, None for no memory.

    Raises:
        RuntimeError: if the process that sent the tensor has ended.
    """
    device = _C.device(storage_cls, storage_device)
    if storage_handle is None:
        made = _C.tensor([], dtype, device).as_strided(list(tensor_size), list(tensor_stride), 0)
    else:
        memory = _device_sharing.opened(storage_handle, device)
        made = memory.view(dtype).as_strided(list(tensor_size), list(tensor_stride), tensor_offset)
    if tensor_cls is not _C.Tensor:
        made = _C.Tensor._make_subclass(tensor_cls, made, requires_grad)
    elif requires_grad:
        made.requires_grad_()
    if storage_handle is not None:
        _device_sharing.remember(storage_handle, made)
    return made


def reduce_parameter(parameter: Any) -> Any:
    """As reduce_tensor(), of a parameter or buffer with its attributes."""
    _check_leaf(parameter)
    if not _has_shareable_memory(parameter):
        return parameter.__reduce_ex__(4)
    if parameter.is_cpu:
        _sharing.share_memory_(parameter)
    elif parameter.untyped_storage().nbytes():
        _device_sharing.make_shareable(parameter)
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
    parameters = sys.modules.get("rabbet.nn.parameter")
    if parameters is not None and hasattr(parameters, "Buffer"):
        register_parameters(parameters.Parameter, parameters.Buffer)


def register_parameters(*kinds: type) -> None:
    """Let the pickles of messages share parameters and buffers; rabbet.nn calls it if it is imported later."""
    for kind in kinds:
        ForkingPickler.register(kind, reduce_parameter)
