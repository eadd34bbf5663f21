"""The private names of `torch._utils` that packages import."""

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import rabbet

from .. import _C
from .._C import Tensor
from ..utils.data._utils.errors import ExceptionWrapper

__all__ = [
    "ExceptionWrapper",
    "_element_size",
    "_flatten_dense_tensors",
    "_get_available_device_type",
    "_get_device_index",
    "_get_device_module",
    "_rebuild_parameter",
    "_rebuild_tensor_v2",
    "_unflatten_dense_tensors",
]


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of the tensors in one vector."""
    return rabbet.cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of a flat vector with the shapes of `tensors`, one after the other."""
    views, start = [], 0
    for t in tensors:
        views.append(flat.narrow(0, start, t.numel()).view(t.shape))
        start += t.numel()
    return tuple(views)


def _element_size(dtype: _C.dtype) -> int:
    """The size of an element in bytes.

    Raises:
        RuntimeError: if `dtype` is not a dtype.
    """
    if not isinstance(dtype, _C.dtype):
        raise RuntimeError(f"expected torch.dtype, but got {type(dtype)}")
    return dtype.itemsize


def _get_available_device_type() -> str | None:
    """The kind of the accelerator, such as 'cuda'; None without one."""
    found = rabbet.accelerator.current_accelerator(check_available=True)
    return None if found is None else found.type


def _get_device_module(device_type: str) -> ModuleType:
    """The module of a kind of device, such as `torch.cuda`.

    Raises:
        RuntimeError: if there is none.
    """
    return rabbet.get_device_module(device_type)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of a device, which is given as a device, a string or an index.

    Args:
        optional: whether None, and devices without an index, mean the current device.
        allow_cpu: whether the CPU is accepted; its index is -1.

    Raises:
        ValueError: for the CPU without `allow_cpu`, for devices without an index without `optional`, and for other values.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    if isinstance(device, str):
        device = _C.device(device)
    if isinstance(device, _C.device):
        if device.type == "cpu":
            if not allow_cpu:
                raise ValueError(f"Expected a non cpu device, but got: {device}")
            return -1
        if device.index is not None:
            return int(device.index)
    elif device is not None:
        raise ValueError(f"Expected a torch.device, a device index or None, but got: {device!r}")
    if not optional:
        raise ValueError(
            f"Expected a torch.device with a specified index or an integer, but got: {device}"
        )
    return int(rabbet.accelerator.current_device_index())


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:
    """A view of a storage, as PyTorch's pickles rebuild it."""
    dtype = storage._elements().dtype if hasattr(storage, "_elements") else storage.dtype
    found = rabbet.empty(0, dtype=dtype, device=storage.device)
    found = found.set_(storage.untyped(), storage_offset, size, stride)
    found.requires_grad = requires_grad
    return found


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Tensor:
    """A parameter, as PyTorch's pickles rebuild it."""
    nn: Any = importlib.import_module("rabbet.nn")
    found: Tensor = nn.Parameter(data, requires_grad)
    return found
