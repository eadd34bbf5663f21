"""Writes pickles that PyTorch's `weights_only` unpickler takes: protocol 2, by instructions of our own.

Names are PyTorch's, whether it is there or not; nothing of a value is called but the `__reduce_ex__` of classes that
the user declared to be safe. What `load` would refuse is refused here.
"""

import argparse
import copyreg
import pathlib
import pickle
import struct
import types
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .. import _C, _overriding, composite
from .._C import Tensor
from ..storage import TypedStorage, UntypedStorage
from . import SerializationError, places, safe, structure
from .torch_names import BUFFER, FACTORIES, PARAMETER, STORAGES

_STORAGE_OF_DTYPE = {dtype: name for name, dtype in STORAGES.items()}
_LAST_INT = 2**31


class NotPlain(SerializationError):
    """A value of a class that only `load(weights_only=False)` can restore."""

    __module__ = "rabbet.serialization"


class Global(NamedTuple):
    """A name that is written as it stands."""

    module: str
    name: str

    def __call__(self) -> None:
        """Python's pickle writes only what is callable as a function."""
        raise TypeError(f"{self.module}.{self.name} is only a name")


_OWN = Global("torch", "Tensor")


def _named(name: str) -> Global:
    module, _, attribute = name.rpartition(".")
    return Global(module, attribute)


class Storages:
    """The storages of what is written, numbered in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self.all: list[
            tuple[UntypedStorage, str | None]
        ] = []  # with the dtype that they are written as

    def key(self, t: Tensor, dtype: str | None) -> tuple[tuple[Any, ...], str | None]:
        """The persistent id of a tensor's storage, and the dtype that it has there; None: bytes."""
        number = self._numbers.setdefault(t._storage_id(), len(self.all))
        size = t._storage_nbytes()
        if dtype is not None and size % getattr(_C, dtype).itemsize:
            dtype = None
        if number == len(self.all):
            self.all.append((UntypedStorage(t), dtype))
        elif self.all[number][1] != dtype:
            dtype = None
        kind = Global("torch.storage", "UntypedStorage")
        if dtype is not None:
            kind = Global("torch", _STORAGE_OF_DTYPE[dtype])
            size //= getattr(_C, dtype).itemsize
        return ("storage", kind, str(number), places.tag(self.all[number][0]), size), dtype

    def key_of(self, storage: TypedStorage | UntypedStorage) -> tuple[Any, ...]:
        """The persistent id of a storage that is a value itself."""
        if isinstance(storage, TypedStorage):
            return self.key(storage._elements(), storage.dtype.name)[0]
        return self.key(storage._tensor, None)[0]


class StorageMark(NamedTuple):
    """Stands for a storage among arguments."""

    key: tuple[Any, ...]


class HooksMark(NamedTuple):
    """Stands for the hooks of a tensor, of which there are none."""


def tensor_recipe(
    storages: Storages, t: Tensor, requires_grad: bool, path: str
) -> tuple[Global, list[Any]]:
    """The function that makes a tensor of its storage, and its arguments.

    Raises:
        SerializationError: for a tensor that has no storage of its own.
    """
    structure.check_outside_transforms(t, path)
    if _overriding.is_wrapper(t):
        geometry = [t.dtype, tuple(t.shape), tuple(t.stride()), 0, t.layout, t.device]
        made = Global("torch._utils", "_rebuild_wrapper_subclass")
        return made, [type(t), *geometry, requires_grad]
    if composite.state(t) is not None:
        raise SerializationError(
            f"save: PyTorch's files hold no composite tensors, as the one at '{path}': save with "
            "format='safetensors'"
        )
    if t.is_meta:
        meta = [t.dtype, tuple(t.shape), tuple(t.stride()), requires_grad]
        return Global("torch._utils", "_rebuild_meta_tensor_no_storage"), meta
    if min(t.stride(), default=0) < 0:
        t = t.detach().contiguous()
    wanted = t.dtype.name if t.dtype.name in _STORAGE_OF_DTYPE else None
    key, dtype = storages.key(t, wanted)
    shape, strides = tuple(t.shape), tuple(t.stride())
    args = [StorageMark(key), t.storage_offset(), shape, strides, requires_grad, HooksMark()]
    if dtype is not None:
        return Global("torch._utils", "_rebuild_tensor_v2"), args
    return Global("torch._utils", "_rebuild_tensor_v3"), [*args, t.dtype]


class Pickler:
    """Writes one value that `load` takes with weights_only=True.

    Args:
        storages: takes the storages that the value's tensors show.
        suffix: what ends each persistent id.
    """

    def __init__(self, storages: Storages, suffix: tuple[Any, ...] = ()) -> None:
        self._storages = storages
        self._suffix = suffix
        self._out = bytearray()
        self._memo: dict[Any, int] = {}
        self._alive: list[Any] = []
        self._declared = {id(value): name for name, value in safe.by_name().items()}

    def dump(self, value: Any) -> bytes:
        """The pickle.

        Raises:
            SerializationError: for a value that `load` would refuse, naming where it stands.
        """
        self._out += pickle.PROTO + b"\x02"
        try:
            self._write(value, "")
        except RecursionError:
            raise SerializationError("save: the value is nested too deeply") from None
        return bytes(self._out + pickle.STOP)

    # ---- instructions

    def _remember(self, value: Any, key: Any = None) -> None:
        number = len(self._alive)
        self._memo[id(value) if key is None else key] = number
        self._alive.append(value)
        if number < 256:
            self._out += pickle.BINPUT + bytes([number])
        else:
            self._out += pickle.LONG_BINPUT + struct.pack("<I", number)

    def _recall(self, key: Any) -> bool:
        number = self._memo.get(key)
        if number is None:
            return False
        if number < 256:
            self._out += pickle.BINGET + bytes([number])
        else:
            self._out += pickle.LONG_BINGET + struct.pack("<I", number)
        return True

    def _global(self, value: Global) -> None:
        if not self._recall(value):
            self._out += pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode()
            self._remember(value, value)

    def _call(self, module: str, name: str, args: tuple[Any, ...], path: str) -> None:
        self._global(Global(module, name))
        self._arguments(args, path)
        self._out += pickle.REDUCE

    def _arguments(self, args: Sequence[Any], path: str) -> None:
        if args:
            self._out += pickle.MARK
        for value in args:
            self._write(value, path)
        self._out += pickle.TUPLE if args else pickle.EMPTY_TUPLE

    # ---- values

    def _write(self, value: Any, path: str) -> None:
        kind = type(value)
        write = _LEAVES.get(kind)
        if write is not None:
            return write(self, value, path)
        if self._recall(id(value)):
            return None
        if isinstance(value, Tensor):
            self._tensor(value, path or "tensor")
        elif kind in _CONTAINERS:
            return _CONTAINERS[kind](self, value, path)
        elif id(value) in self._declared:
            return self._global(_named(self._declared[id(value)]))
        elif id(kind) in self._declared:
            return self._reduced(value, path)
        elif str(kind.__module__).partition(".")[0] == "numpy":
            self._numpy(value, path)
        else:
            raise self._refusal(value, path)
        self._remember(value)

    def _refusal(self, value: Any, path: str) -> NotPlain:
        kind = type(value)
        is_name = isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType))
        name = safe.name_of(value if is_name else kind)
        return NotPlain(
            f"save: cannot store the {kind.__name__} at '{path}', which load() would refuse: if you trust {name}, "
            "make it known by rabbet.serialization.add_safe_globals([it]), here and where the file is loaded"
        )

    def _int(self, value: int, path: str) -> None:
        if 0 <= value < 256:
            self._out += pickle.BININT1 + bytes([value])
        elif -_LAST_INT <= value < _LAST_INT:
            self._out += pickle.BININT + struct.pack("<i", value)
        else:
            data = pickle.encode_long(value)
            if len(data) < 256:
                self._out += pickle.LONG1 + bytes([len(data)]) + data
            else:
                self._out += pickle.LONG4 + struct.pack("<i", len(data)) + data

    def _text(self, value: str, path: str) -> None:
        if self._recall(value):
            return
        data = value.encode("utf-8", "surrogatepass")
        if len(data) >= 1 << 32:
            raise SerializationError(f"save: the text at '{path}' has 4 GiB or more")
        self._out += pickle.BINUNICODE + struct.pack("<I", len(data)) + data
        self._remember(value, value)

    def _tuple(self, value: tuple[Any, ...], path: str) -> None:
        if not value:
            self._out += pickle.EMPTY_TUPLE
            return
        self._out += pickle.MARK
        for i, item in enumerate(value):
            self._write(item, structure.below(path, i))
        self._out += pickle.TUPLE
        self._remember(value)

    def _list(self, value: list[Any], path: str) -> None:
        self._out += pickle.EMPTY_LIST
        self._remember(value)
        self._out += pickle.MARK
        for i, item in enumerate(value):
            self._write(item, structure.below(path, i))
        self._out += pickle.APPENDS

    def _items(self, value: dict[Any, Any], path: str) -> None:
        self._remember(value)
        if value:
            self._out += pickle.MARK
            for i, (key, item) in enumerate(value.items()):
                self._write(key, f"{path} (a key)")
                self._write(item, structure.below(path, key, i))
            self._out += pickle.SETITEMS

    def _dict(self, value: dict[Any, Any], path: str) -> None:
        self._out += pickle.EMPTY_DICT
        self._items(value, path)

    def _ordered_dict(self, value: Any, path: str) -> None:
        self._call("collections", "OrderedDict", (), path)
        self._items(value, path)
        self._state(vars(value), path)

    def _default_dict(self, value: Any, path: str) -> None:
        self._call("collections", "defaultdict", (value.default_factory,), path)
        self._items(value, path)

    def _counter(self, value: Any, path: str) -> None:
        self._call("collections", "Counter", (), path)
        self._items(value, path)

    def _state(self, state: Any, path: str) -> None:
        if state:
            self._write(state, path)
            self._out += pickle.BUILD

    def _namespace(self, value: Any, path: str) -> None:
        self._global(Global(type(value).__module__, type(value).__name__))
        self._out += pickle.EMPTY_TUPLE + pickle.NEWOBJ
        self._remember(value)
        self._state(vars(value), path)

    def _reduced(self, value: Any, path: str) -> None:
        """An object of a class that the user declared, as pickle writes it."""
        reduced = value.__reduce_ex__(2)
        if isinstance(reduced, str):
            return self._global(Global(type(value).__module__, reduced))
        function, args, state, items, pairs = (*reduced, None, None, None)[:5]
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]
            self._write(args[0], path)
            self._arguments(args[1:], path)
            self._out += pickle.NEWOBJ
        else:
            self._write(function, path)
            self._arguments(args, path)
            self._out += pickle.REDUCE
        self._remember(value)
        if next(iter(items or ()), None) is not None or next(iter(pairs or ()), None) is not None:
            raise NotPlain(
                f"save: the {type(value).__name__} at '{path}' is a list or dict of its own class: save a plain one"
            )
        self._state(state, path)
        return None

    def _class(self, value: type, path: str) -> None:
        if value in FACTORIES:
            self._global(Global(value.__module__, value.__name__))
        elif id(value) in self._declared:
            self._global(_named(self._declared[id(value)]))
        else:
            raise self._refusal(value, path)

    def _dtype(self, value: Any, path: str) -> None:
        self._global(Global("torch", value.name))

    def _memory_format(self, value: Any, path: str) -> None:
        raise NotPlain(
            f"save: PyTorch's files hold no memory formats, as {value} at '{path}': save its name"
        )

    # ---- tensors

    def _tensor(self, t: Tensor, path: str) -> None:
        name, state = safe.name_of(type(t)), vars(t)
        if name == PARAMETER:
            self._parameter(t, state, path)
        elif name == BUFFER:
            self._typed(t, _OWN, {**state, "_is_buffer": True}, path)
        elif type(t) is Tensor and not state:
            self._plain(t, t.requires_grad, path)
        elif type(t) is Tensor:
            self._typed(t, _OWN, state, path)
        elif id(type(t)) in self._declared:
            self._typed(t, _named(self._declared[id(type(t))]), state, path)
        else:
            raise self._refusal(t, path)

    def _parameter(self, t: Tensor, state: dict[str, Any], path: str) -> None:
        name = "_rebuild_parameter_with_state" if state else "_rebuild_parameter"
        self._global(Global("torch._utils", name))
        self._out += pickle.MARK
        self._plain(t, False, path)
        self._write(t.requires_grad, path)
        self._call("collections", "OrderedDict", (), path)
        if state:
            self._write(state, path)
        self._out += pickle.TUPLE + pickle.REDUCE

    def _typed(self, t: Tensor, cls: Global, state: dict[str, Any], path: str) -> None:
        self._global(Global("torch._tensor", "_rebuild_from_type_v2"))
        self._out += pickle.MARK
        function, args = tensor_recipe(self._storages, t, t.requires_grad, path)
        self._global(function)
        self._global(cls)
        self._arguments(args, path)
        self._write(dict(state), path)
        self._out += pickle.TUPLE + pickle.REDUCE

    def _plain(self, t: Tensor, requires_grad: bool, path: str) -> None:
        function, args = tensor_recipe(self._storages, t, requires_grad, path)
        self._global(function)
        self._arguments(args, path)
        self._out += pickle.REDUCE

    def _persistent(self, value: "StorageMark", path: str) -> None:
        self._arguments((*value.key, *self._suffix), path)
        self._out += pickle.BINPERSID

    def _storage(self, value: Any, path: str) -> None:
        self._persistent(StorageMark(self._storages.key_of(value)), path)

    # ---- NumPy

    def _numpy(self, value: Any, path: str) -> None:
        import numpy

        if isinstance(value, numpy.dtype):
            return self._numpy_dtype(value, path)
        dtype = getattr(value, "dtype", None)
        if (
            type(value) is not numpy.ndarray and not isinstance(value, numpy.generic)
        ) or dtype is None:
            raise self._refusal(value, path)
        if dtype.kind not in "?biufcSU":
            raise NotPlain(
                f"save: cannot store the NumPy array of dtype {dtype} at '{path}': expected numbers, bools or strings"
            )
        module = (
            "numpy._core.multiarray" if numpy.__version__[0] != "1" else "numpy.core.multiarray"
        )
        if isinstance(value, numpy.generic):
            return self._call(module, "scalar", (dtype, value.tobytes()), path)
        self._call(module, "_reconstruct", (Global("numpy", "ndarray"), (0,), b"b"), path)
        self._write((1, value.shape, dtype, False, value.tobytes()), path)
        self._out += pickle.BUILD
        return None

    def _numpy_dtype(self, value: Any, path: str) -> None:
        self._call("numpy", "dtype", (value.str[1:], False, True), path)
        sizes = (value.itemsize, value.alignment) if value.kind in "SU" else (-1, -1)
        self._write((3, value.str[0], None, None, None, *sizes, 0), path)
        self._out += pickle.BUILD


_LEAVES: dict[type, Callable[[Pickler, Any, str], None]] = {
    type(None): lambda p, value, path: p._out.extend(pickle.NONE),
    bool: lambda p, value, path: p._out.extend(pickle.NEWTRUE if value else pickle.NEWFALSE),
    int: Pickler._int,
    float: lambda p, value, path: p._out.extend(pickle.BINFLOAT + struct.pack(">d", value)),
    str: Pickler._text,
    type: Pickler._class,
    Global: lambda p, value, path: p._global(value),
    StorageMark: Pickler._persistent,
    HooksMark: lambda p, value, path: p._call("collections", "OrderedDict", (), path),
    _C.dtype: Pickler._dtype,
    _C.memory_format: Pickler._memory_format,
}  # fmt: skip


def _calling(
    module: str, name: str, arguments: Callable[[Any], tuple[Any, ...]]
) -> Callable[[Pickler, Any, str], None]:
    def write(p: Pickler, value: Any, path: str) -> None:
        p._call(module, name, arguments(value), path)
        p._remember(value)

    return write


_CONTAINERS: dict[type, Callable[[Pickler, Any, str], None]] = {
    list: Pickler._list,
    dict: Pickler._dict,
    tuple: Pickler._tuple,
    OrderedDict: Pickler._ordered_dict,
    defaultdict: Pickler._default_dict,
    Counter: Pickler._counter,
    argparse.Namespace: Pickler._namespace,
    types.SimpleNamespace: Pickler._namespace,
    TypedStorage: Pickler._storage,
    UntypedStorage: Pickler._storage,
    bytes: _calling("_codecs", "encode", lambda v: (v.decode("latin1"), "latin1")),
    bytearray: _calling("builtins", "bytearray", lambda v: (bytes(v),)),
    complex: _calling("builtins", "complex", lambda v: (v.real, v.imag)),
    set: _calling("builtins", "set", lambda v: (list(v),)),
    frozenset: _calling("builtins", "frozenset", lambda v: (list(v),)),
    slice: _calling("builtins", "slice", lambda v: (v.start, v.stop, v.step)),
    range: _calling("builtins", "range", lambda v: (v.start, v.stop, v.step)),
    type(pathlib.Path()): _calling("pathlib", type(pathlib.Path()).__name__, lambda v: (str(v),)),
    _C.Size: _calling("torch", "Size", lambda v: (tuple(v),)),
    _C.device: _calling("torch", "device", lambda v: (v.type,) if v.index is None else (v.type, v.index)),
    _C.layout: _calling("torch.serialization", "_get_layout", lambda v: (str(v).replace("rabbet", "torch"),)),
}  # fmt: skip
