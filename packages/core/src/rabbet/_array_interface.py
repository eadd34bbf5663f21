"""`__cuda_array_interface__`, version 3: memory of CUDA devices that other libraries of the process see, and ours that they do.

https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
"""

from typing import Any

from . import _C
from ._streams import ExternalStream, Stream

CUDA = 2  # DLPack's type of device
_TYPES = {
    "bool": "|b1", "uint8": "|u1", "int8": "|i1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4",
    "int64": "<i8", "uint64": "<u8", "float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<c8",
    "complex128": "<c16",
}  # fmt: skip
_DTYPES = {text: name for name, text in _TYPES.items()}
_LEGACY_DEFAULT, _PER_THREAD_DEFAULT = 1, 2


def of_tensor(tensor: _C.Tensor) -> dict[str, Any]:
    """What a tensor of a CUDA device says of its memory.

    Raises:
        AttributeError: for tensors elsewhere.
        RuntimeError: if the tensor requires grad.
        TypeError: for a dtype that the interface cannot name, such as bfloat16.
    """
    if tensor.__dlpack_device__()[0] != CUDA:
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {tensor.type()} "
            "If CUDA data is required use tensor.cuda() to copy tensor to device memory."
        )
    if tensor.requires_grad:
        raise RuntimeError(
            "Can't get __cuda_array_interface__ on Variable that requires grad. "
            "If gradients aren't required, use var.detach() to get Variable that doesn't require grad."
        )
    name = tensor.dtype.name
    if name not in _TYPES:
        raise TypeError(f"__cuda_array_interface__: no type string stands for {tensor.dtype}")
    stream = Stream._current(tensor.device)
    strides = None
    if not tensor.is_contiguous():
        strides = tuple(n * tensor.itemsize for n in tensor.stride())
    return {
        "typestr": _TYPES[name],
        "shape": tuple(tensor.shape),
        "strides": strides,
        "data": (tensor.data_ptr() if tensor.numel() else 0, False),
        "version": 3,
        "stream": stream.native_handle or _LEGACY_DEFAULT,
    }


def from_object(owner: Any) -> _C.Tensor:
    """A tensor of the memory that an object's `__cuda_array_interface__` describes, which it keeps alive.

    The memory counts as that of the current CUDA device. The thread's stream waits for the one that the object names.

    Raises:
        TypeError: for a type string that no dtype has.
        ValueError: for strides that are no multiples of the element size, masks, and memory that is misdescribed.
    """
    described = owner.__cuda_array_interface__
    if described.get("mask") is not None:
        raise ValueError("__cuda_array_interface__: masks are not supported")
    text = described["typestr"]
    name = _DTYPES.get(text) or _DTYPES.get("<" + text[1:])
    if name is None or text[0] == ">":
        raise TypeError(f"__cuda_array_interface__: no dtype for the type string {text!r}")
    dtype = getattr(_C, name)
    shape, strides = [int(n) for n in described["shape"]], described.get("strides")
    if any(n < 0 for n in shape):
        raise ValueError(f"__cuda_array_interface__: negative sizes in {tuple(shape)}")
    if strides is not None:
        if len(strides) != len(shape) or any(n % dtype.itemsize for n in strides):
            raise ValueError(
                f"__cuda_array_interface__: strides {tuple(strides)} do not fit shape {tuple(shape)} and {dtype}"
            )
        strides = [n // dtype.itemsize for n in strides]
        if any(n < 0 for n in strides):
            raise ValueError("__cuda_array_interface__: negative strides are not supported")
    address, readonly = described["data"]
    device = _C.device("cuda", _C.current_device("cuda"))
    if not all(shape):  # the address may be null
        return _C.op("empty")(shape, dtype=dtype, device=device)
    if not address:
        raise ValueError("__cuda_array_interface__: the address is null")
    _wait_for(described.get("stream"), device)
    return _C.adopt_memory(address, device, dtype, shape, strides, bool(readonly), owner)


def _wait_for(stream: Any, device: _C.device) -> None:
    if stream is None:  # no order is asked for
        return
    if stream == 0:
        raise ValueError("__cuda_array_interface__: stream 0 is ambiguous")
    handle = 0 if stream == _LEGACY_DEFAULT else int(stream)
    Stream._current(device).wait_stream(ExternalStream(handle, device))
