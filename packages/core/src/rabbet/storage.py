"""Storages: the memory that tensors show, as an object. Tensors that share memory have equal storages."""

from __future__ import annotations

import functools
import mmap
import operator
import os
from collections.abc import Iterator
from typing import Any

from . import _C
from ._C import Tensor

__all__ = ["StorageBase", "TypedStorage", "UntypedStorage", "from_file", "is_storage"]


# The dtypes of the classes of storages that PyTorch had before typed storages; its files still name them.
DTYPES_OF_CLASSES = {
    "BFloat16Storage": "bfloat16", "BoolStorage": "bool", "ByteStorage": "uint8", "CharStorage": "int8",
    "ComplexDoubleStorage": "complex128", "ComplexFloatStorage": "complex64", "DoubleStorage": "float64",
    "FloatStorage": "float32", "HalfStorage": "float16", "IntStorage": "int32", "LongStorage": "int64",
    "ShortStorage": "int16",
}  # fmt: skip


def _whole(tensor: Tensor, dtype: Any) -> Tensor:
    """All of a tensor's memory as a vector of `dtype`."""
    start = tensor.detach().as_strided([0], [1], 0).view(dtype)
    return start.as_strided([tensor._storage_nbytes() // start.element_size()], [1], 0)


class UntypedStorage:
    """The bytes of a tensor's memory; `tensor.untyped_storage()` gives it."""

    is_sparse = False

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"UntypedStorage: expected a tensor, got {type(tensor).__name__}; "
                "make a tensor and take its untyped_storage()"
            )
        self._tensor = tensor.detach()

    @classmethod
    def from_file(
        cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0
    ) -> UntypedStorage:
        """The first bytes of a file, mapped into memory.

        Args:
            shared: whether what is written to the memory goes to the file, which is then made longer if need be.
            nbytes: how many; without `shared` at most those of the file.

        Raises:
            ValueError: for a number that the file does not have, or none at all.
        """
        with open(filename, "a+b" if shared else "rb") as file:
            there = os.fstat(file.fileno()).st_size
            if nbytes < 1 or (nbytes > there and not shared):
                raise ValueError(
                    f"UntypedStorage.from_file: expected nbytes from 1 to the {there} of the file, got {nbytes}"
                )
            if nbytes > there:
                file.truncate(nbytes)
            access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
            memory = mmap.mmap(file.fileno(), nbytes, access=access)
        return cls(_C.from_buffer(memory, _C.uint8, [nbytes]))

    @property
    def _cdata(self) -> int:
        return self._tensor._storage_id()

    @property
    def device(self) -> _C.device:
        """Where the memory is."""
        return self._tensor.device

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is on a CUDA device."""
        return self._tensor.is_cuda

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def nbytes(self) -> int:
        """Size in bytes."""
        return self._tensor._storage_nbytes()

    def size(self) -> int:
        """Size in bytes."""
        return self.nbytes()

    def element_size(self) -> int:
        """1: elements are bytes."""
        return 1

    def data_ptr(self) -> int:
        """Address of the first byte; 0 for empty memory."""
        t = self._tensor
        return _whole(t, t.dtype).data_ptr() if self.nbytes() else 0

    def _bytes(self) -> Tensor:
        return _whole(self._tensor, _C.uint8)

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        """A copy on a device; itself if it is there."""
        if _C.device(device) == self.device:
            return self
        return UntypedStorage(self._bytes().to(device))

    def cpu(self) -> UntypedStorage:
        """A copy on the CPU; itself if it is there."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """A copy on a CUDA device; itself if it is there."""
        return self.to(device="cuda" if device is None else device)

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        return self._bytes().tolist()

    def clone(self) -> UntypedStorage:
        """A copy of the memory."""
        return UntypedStorage(self._bytes().clone())

    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> UntypedStorage:
        """Overwrite the bytes with those of another storage of the same size."""
        self._bytes().copy_(source._bytes())
        return self

    def fill_(self, value: int) -> UntypedStorage:
        """Set all bytes."""
        self._bytes().fill_(value)
        return self

    def share_memory_(self) -> UntypedStorage:
        """Move to memory that processes share; see `Tensor.share_memory_`."""
        self._tensor.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Whether processes share the memory."""
        return self._tensor.is_shared()

    def resize_(self, size: int) -> UntypedStorage:
        """Storages keep their size.

        Raises:
            NotImplementedError: unless the size is as it is.
        """
        if size != self.nbytes():
            raise _C.NotImplementedForError(
                f"UntypedStorage.resize_: a storage keeps its {self.nbytes()} bytes, got {size}"
            )
        return self

    def __len__(self) -> int:
        return self.nbytes()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._bytes().__array__(dtype, copy)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise RuntimeError(
                    f"Trying to slice with a step of {index.step}, but only a step of 1 is supported"
                )
            part = self._bytes()[index]
            if not part.numel():
                return UntypedStorage(part.clone())
            return UntypedStorage(_C.from_buffer(memoryview(part), _C.uint8, [part.numel()]))
        if not isinstance(index, int):
            raise TypeError(f"UntypedStorage: expected an index, got {type(index).__name__}")
        return int(self._bytes()[index].item())

    def __setitem__(self, index: Any, value: int) -> None:
        self._bytes()[index] = value

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._cdata == other._cdata

    def __hash__(self) -> int:
        return hash(self._cdata)

    def __repr__(self) -> str:
        return f"rabbet.UntypedStorage(device={self.device}) of size {self.nbytes()}"


class TypedStorage:
    """The elements of a tensor's memory; `tensor.storage()` gives it. Programs use UntypedStorage instead."""

    is_sparse = False

    def __init__(self, tensor: Tensor) -> None:
        self._untyped_storage = UntypedStorage(tensor)
        self.dtype = tensor.dtype

    def _elements(self) -> Tensor:
        return _whole(self._untyped_storage._tensor, self.dtype)

    @property
    def device(self) -> _C.device:
        """Where the memory is."""
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is on a CUDA device."""
        return self._untyped_storage.is_cuda

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return self._untyped_storage

    def share_memory_(self) -> TypedStorage:
        """Move to memory that processes share; see `Tensor.share_memory_`."""
        self._untyped_storage.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Whether processes share the memory."""
        return self._untyped_storage.is_shared()

    def data_ptr(self) -> int:
        """Address of the first element."""
        return self._untyped_storage.data_ptr()

    def nbytes(self) -> int:
        """Size in bytes."""
        return self._untyped_storage.nbytes()

    def element_size(self) -> int:
        """Bytes of an element."""
        return self._untyped_storage._tensor.element_size()

    def size(self) -> int:
        """Number of elements."""
        return self._elements().numel()

    def tolist(self) -> list[Any]:
        """The elements as numbers."""
        return self._elements().tolist()

    def __len__(self) -> int:
        return self.size()

    def __getitem__(self, index: int) -> Any:
        return self._elements()[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._elements()[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())


StorageBase = UntypedStorage  # of which untyped storages are objects


class _StorageType(type):
    """The classes of storages by dtype and device, as PyTorch had them: typed storages of these are instances."""

    dtype: Any
    device_type: str

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, TypedStorage)
            and instance.dtype is cls.dtype
            and instance.device.type == cls.device_type
        )

    def __call__(cls, *args: Any) -> TypedStorage:
        """A storage of so many elements, or of a sequence's."""
        if len(args) > 1:
            raise TypeError(f"{cls.__name__}: expected a size or a sequence, got {args!r}")
        if not args or isinstance(args[0], int):
            empty = _C.tensor([], cls.dtype, cls.device_type)
            return TypedStorage(resize_(empty, args[0] if args else 0))
        return TypedStorage(_C.tensor(args[0], cls.dtype, cls.device_type))


@functools.cache
def storage_type(name: str, device: str = "cpu") -> _StorageType:
    """The class of a name such as 'FloatStorage', for a device."""
    contents = {
        "dtype": getattr(_C, DTYPES_OF_CLASSES[name]),
        "device_type": device,
        "__module__": "rabbet" if device == "cpu" else f"rabbet.{device}",
    }
    return _StorageType(name, (), contents)


globals().update({name: storage_type(name) for name in DTYPES_OF_CLASSES})


def _load_from_bytes(data: bytes) -> Any:
    """The storage that Python's pickle of one of PyTorch's tensors holds."""
    import importlib
    import io

    serialization: Any = importlib.import_module(
        "rabbet.serialization"
    )  # which imports this module
    return serialization.load(io.BytesIO(data), weights_only=True)


def is_storage(obj: Any) -> bool:
    """Whether an object is a storage."""
    return isinstance(obj, (UntypedStorage, TypedStorage))


def storage_of(tensor: Tensor) -> TypedStorage:
    """`Tensor.storage()`, which PyTorch advises against."""
    import warnings

    warnings.warn(
        "TypedStorage is deprecated; use tensor.untyped_storage() instead of tensor.storage()",
        UserWarning,
        stacklevel=2,
    )
    return TypedStorage(tensor)


# ---- methods of Tensor that change which memory it shows


def _sizes(what: str, sizes: tuple[Any, ...]) -> list[int]:
    given = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    shape = [operator.index(s) for s in given]
    if any(s < 0 for s in shape):
        raise RuntimeError(f"{what}: sizes must not be negative, got {tuple(shape)}")
    return shape


def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Change the shape in place: row-major from the first element, in the same memory if it is large enough.

    Elements keep their places in memory; those that are new are undefined.

    Raises:
        RuntimeError: if the tensor requires grad.
    """
    shape = _sizes("resize_()", sizes)
    if memory_format is _C.preserve_format:
        raise RuntimeError("resize_(): unsupported memory format: preserve_format")
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    if list(self.shape) == shape:
        return self
    detached, start = self.detach(), self.storage_offset()
    like = self.new_empty(shape, device="meta")
    if memory_format is not None:
        like = like.contiguous(memory_format=memory_format)
    there = self._storage_nbytes() // self.element_size() - start
    if like.numel() <= there:
        self.data = detached.as_strided(shape, list(like.stride()), start)
        return self
    memory = self.new_empty([like.numel()])
    memory[:there] = detached.as_strided([there], [1], start)
    self.data = memory.as_strided(shape, list(like.stride()))
    return self


def resize_as_(self: Tensor, other: Tensor, *, memory_format: Any = None) -> Tensor:
    """As `resize_` to the shape of another tensor; preserve_format takes its memory format, too."""
    if memory_format is _C.preserve_format:
        formats = (_C.channels_last, _C.channels_last_3d)
        dense = [f for f in formats if other.is_contiguous(memory_format=f)]
        memory_format = dense[0] if dense and not other.is_contiguous() else None
    return resize_(self, list(other.shape), memory_format=memory_format)


def set_(
    self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None
) -> Tensor:
    """Show the memory of a tensor or storage: of a tensor as it is, or elements of the given geometry.

    Raises:
        RuntimeError: if the dtypes differ.
        TypeError: if `source` is neither.
    """
    if source is None:
        self.data = self.new_empty([0])
        return self
    if isinstance(source, (UntypedStorage, TypedStorage)):
        untyped = source if isinstance(source, UntypedStorage) else source._untyped_storage
        memory = _whole(untyped._tensor, self.dtype)
        size = [memory.numel() - storage_offset] if size is None else size
    elif isinstance(source, Tensor):
        if source.dtype is not self.dtype:
            raise RuntimeError(f"set_(): expected a tensor of {self.dtype}, got {source.dtype}")
        memory = source.detach()
        if size is None:
            self.data = memory
            return self
    else:
        raise TypeError(
            f"set_(): argument 'source' must be a tensor or storage, got {type(source).__name__}"
        )
    shape = _sizes("set_()", (size,))
    if stride is None:
        stride = self.new_empty(shape, device="meta").stride()
    self.data = memory.as_strided(shape, list(stride), storage_offset)
    return self


# ---- files


def from_file(
    filename: str | os.PathLike[str],
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = False,
    requires_grad: bool = False,
) -> Tensor:
    """A vector of the first `size` elements of a file, mapped into memory.

    Args:
        shared: whether what is written to the tensor goes to the file, which is made longer if need be.
        size: how many elements; without `shared` at most those of the file.
        dtype: of the elements; the default dtype without one.
        device, layout: the CPU and strided only.

    Raises:
        ValueError: for a size that the file does not have.
        RuntimeError: for other devices and layouts.
    """
    if device is not None and _C.device(device).type != "cpu":
        raise RuntimeError(f"from_file: a file is mapped into the CPU's memory, not to {device}")
    if layout is not None and layout is not _C.strided:
        raise RuntimeError(f"from_file: expected the layout strided, got {layout}")
    if pin_memory:
        raise RuntimeError("from_file: memory of files cannot be pinned")
    chosen = _C.get_default_dtype() if dtype is None else dtype
    storage = UntypedStorage.from_file(filename, bool(shared), (size or 0) * chosen.itemsize)
    return storage._tensor.view(chosen).requires_grad_(requires_grad)
