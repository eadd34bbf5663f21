"""Tensor types such as FloatTensor: one class per dtype, as PyTorch had them before dtypes."""

from __future__ import annotations

from typing import Any

import rabbet

from . import _C, _functions
from ._C import Tensor

NAMES = {
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "ByteTensor": "uint8",
    "CharTensor": "int8",
    "ShortTensor": "int16",
    "IntTensor": "int32",
    "LongTensor": "int64",
    "BoolTensor": "bool",
}
_BY_DTYPE = {dtype: name for name, dtype in NAMES.items()}

__all__ = [*NAMES, "set_default_tensor_type"]


def new_legacy(dtype: Any, device: Any, args: tuple[Any, ...], what: str) -> Tensor:
    """What `FloatTensor(...)` and `tensor.new(...)` make: of sizes, uninitialised; of data, a copy.

    Raises:
        TypeError: for other arguments.
    """
    if not args:
        return rabbet.empty((0,), dtype=dtype, device=device)
    if all(isinstance(a, int) and not isinstance(a, bool) for a in args):
        return rabbet.empty(args, dtype=dtype, device=device)
    if len(args) > 1:
        raise TypeError(
            f"{what}: expected sizes as integers, or one sequence or tensor, got {args!r}"
        )
    (data,) = args
    if isinstance(data, _C.Size):
        return rabbet.empty(tuple(data), dtype=dtype, device=device)
    if isinstance(data, Tensor):
        if data.dtype is not dtype:
            raise TypeError(f"{what}: expected a tensor of {dtype}, got {data.dtype}")
        return data.detach()
    if isinstance(data, (str, bytes)) or not hasattr(data, "__len__"):
        raise TypeError(f"{what}: expected sizes or data, got {type(data).__name__}")
    return _C.tensor(data, dtype, device)


class _TensorType(type):
    """The class of tensor types: tensors of their dtype on their device are instances."""

    dtype: Any
    device_type: str
    is_cuda: bool
    is_sparse = False

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, Tensor)
            and instance.dtype is cls.dtype
            and instance.device.type == cls.device_type
        )

    def __call__(cls, *args: Any, device: Any = None, **named: Any) -> Tensor:
        if named:  # the one argument by its name
            if args or len(named) > 1 or not named.keys() & {"size", "data", "other"}:
                raise TypeError(f"{cls.__name__}: expected a size or data, got {sorted(named)}")
            (value,) = named.values()
            args = (_C.Size(value),) if "size" in named else (value,)
        if device is not None and _C.device(device).type != cls.device_type:
            raise RuntimeError(
                f"legacy constructor expects device type: {cls.device_type} but device type: "
                f"{_C.device(device).type} was passed"
            )
        return new_legacy(cls.dtype, device or cls.device_type, args, cls.__name__)


_types: dict[tuple[str, str], _TensorType] = {}


def tensor_type(name: str, device: str = "cpu") -> _TensorType:
    """The tensor type of a name such as 'FloatTensor', for a device."""
    if (device, name) not in _types:
        contents = {
            "dtype": getattr(_C, NAMES[name]), "device_type": device, "is_cuda": device == "cuda",
            "__module__": "rabbet" if device == "cpu" else f"rabbet.{device}",
        }  # fmt: skip
        _types[device, name] = _TensorType(name, (), contents)
    return _types[device, name]


def type_text(self: Tensor) -> str:
    """The name of a tensor's type, such as 'torch.FloatTensor'."""
    from ._as_torch.names import framework

    place = "" if self.device.type == "cpu" else f"{self.device.type}."
    dtype = self.dtype.name
    name = _BY_DTYPE.get(dtype)
    if name is None:  # dtypes without a class, as PyTorch spells them
        name = "".join(part.capitalize() for part in dtype.split("_")) + "Tensor"
        name = {"Complex64Tensor": "ComplexFloatTensor", "Complex128Tensor": "ComplexDoubleTensor",
                "Uint16Tensor": "UInt16Tensor", "Uint32Tensor": "UInt32Tensor",
                "Uint64Tensor": "UInt64Tensor"}.get(name, name)  # fmt: skip
    return f"{framework()}.{place}{name}"


def _parsed(text: str) -> tuple[Any, str]:
    parts = text.split(".")
    if parts[0] not in ("torch", "rabbet") or len(parts) not in (2, 3) or parts[-1] not in NAMES:
        raise ValueError(f"type(): invalid type: '{text}'")
    return getattr(_C, NAMES[parts[-1]]), "cpu" if len(parts) == 2 else parts[1]


def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of the tensor's type without an argument, else the tensor cast to a dtype or type."""
    if dtype is None:
        return type_text(self)
    if isinstance(dtype, str):
        wanted, device = _parsed(dtype)
    elif isinstance(dtype, _TensorType):
        wanted, device = dtype.dtype, dtype.device_type
    elif isinstance(dtype, _C.dtype):
        return self.to(dtype)
    elif dtype is Tensor:
        return self.to(_functions.get_default_dtype())
    else:
        raise TypeError("dtype must be a type, str, or dtype object")
    return self.to(device=device, dtype=wanted)


def new_(self: Tensor, *args: Any, device: Any = None) -> Tensor:
    """A tensor of the same dtype on the same device: of sizes, uninitialised; of data, a copy."""
    return new_legacy(self.dtype, device or self.device, args, "new")


def set_default_tensor_type(t: Any) -> None:
    """Set the default dtype by a tensor type or its name; only the CPU is taken.

    Raises:
        TypeError: for anything else.
    """
    if isinstance(t, str):
        dtype, device = _parsed(t)
    elif isinstance(t, _TensorType):
        dtype, device = t.dtype, t.device_type
    else:
        raise TypeError(f"invalid type object: {t!r}")
    if device != "cpu":
        raise _C.NotImplementedForError(
            f"set_default_tensor_type: new tensors are on the CPU unless device= says otherwise, got {t!r}"
        )
    _functions.set_default_dtype(dtype)


def __getattr__(name: str) -> Any:
    if name in NAMES:
        return tensor_type(name)
    raise AttributeError(f"module 'rabbet._legacy' has no attribute '{name}'", name=name)
