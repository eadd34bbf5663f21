"""What the names in PyTorch's pickles mean: an allow list, and what each of them makes.

Values (dtypes, classes of storages) stand for themselves. A function or class can be called only by the maker that
stands beside it here; what the pickle would have Python call is never called.
"""

import argparse
import codecs
import pathlib
import re
import types
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import _C, _functions
from .._C import Tensor
from ..storage import DTYPES_OF_CLASSES, TypedStorage, UntypedStorage
from . import numpy_values, safe, structure
from .header import is_count, is_shape
from .unpickling import Inert, Skim, UnpicklingError, check_key

STORAGES = DTYPES_OF_CLASSES
PARAMETER = "rabbet.nn.parameter.Parameter"
BUFFER = "rabbet.nn.parameter.Buffer"
_RENAMED = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # by Python 3


class StorageType(NamedTuple):
    """A class of storages; `dtype` None: of bytes."""

    dtype: str | None


class Allowed(NamedTuple):
    """A name that a pickle may hold: what it is, and what makes its result; None: it cannot be called."""

    value: Any
    make: Callable[..., Any] | None


# ---- tensors


def tensor_of(
    storage: Any, dtype: Any, offset: Any, size: Any, stride: Any, requires_grad: Any
) -> Tensor:
    """A view of a storage, whose geometry comes from a file."""
    if not isinstance(storage, (TypedStorage, UntypedStorage)):
        raise UnpicklingError(f"a tensor's storage is a {type(storage).__name__}")
    if not isinstance(dtype, _C.dtype):
        raise UnpicklingError(f"a tensor's dtype is a {type(dtype).__name__}")
    shape, strides = _numbers(size, "size"), _numbers(stride, "stride")
    if len(shape) != len(strides) or not is_shape(shape) or not is_count(offset):
        raise UnpicklingError(
            f"a tensor's geometry is damaged: size {shape}, stride {strides}, offset {offset!r}"
        )
    memory = storage if isinstance(storage, UntypedStorage) else storage.untyped()
    flat = memory._bytes()
    room = flat.numel() // dtype.itemsize
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if offset + (0 if 0 in shape else last + 1) > room:
        raise UnpicklingError(
            f"a tensor of size {tuple(shape)}, stride {tuple(strides)} and offset {offset} reaches beyond its "
            f"storage of {room} elements"
        )
    elements = flat[: room * dtype.itemsize].view(dtype)
    return _with_grad(elements.as_strided(shape, strides, offset), requires_grad)


def _numbers(values: Any, what: str) -> list[int]:
    if not isinstance(values, (tuple, list)) or not all(map(is_count, values)):
        raise UnpicklingError(f"a tensor's {what} is damaged")
    return list(values)


def _with_grad(t: Tensor, requires_grad: Any) -> Tensor:
    if not isinstance(requires_grad, bool):
        raise UnpicklingError("a tensor's requires_grad is no bool")
    if requires_grad:
        t.requires_grad = True
    return t


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    return _rebuild_tensor_v2(storage, offset, size, stride)


def _rebuild_tensor_v2(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, hooks: Any = None,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    if not isinstance(storage, TypedStorage):
        raise UnpicklingError(f"a tensor's storage is a {type(storage).__name__}")
    made = tensor_of(storage, storage.dtype, offset, size, stride, False)
    return _with_grad(_resolved(made, metadata), requires_grad)


def _rebuild_tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Any,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    made = tensor_of(storage, dtype, offset, size, stride, False)
    return _with_grad(_resolved(made, metadata), requires_grad)


def _resolved(t: Tensor, metadata: Any) -> Tensor:
    """The values of a tensor that was saved as the conjugate or the negative of its storage."""
    if metadata is None:
        return t
    if not isinstance(metadata, dict) or not metadata.keys() <= {"conj", "neg"}:
        raise UnpicklingError("a tensor has metadata of an unknown kind")
    t = t.conj() if metadata.get("conj") else t
    return -t if metadata.get("neg") else t


def _rebuild_parameter(data: Any, requires_grad: Any, hooks: Any) -> Tensor:
    return _rebuild_parameter_with_state(data, requires_grad, hooks, {})


def _rebuild_parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Tensor:
    made = _as_class(data, structure.class_of_name(PARAMETER, "load"), requires_grad)
    set_attributes(made, state)
    return made


def _as_class(data: Any, cls: type, requires_grad: Any) -> Tensor:
    if not isinstance(data, Tensor) or not isinstance(requires_grad, bool):
        raise UnpicklingError(f"the data of a {cls.__name__} is a {type(data).__name__}")
    return Tensor._make_subclass(cls, data.detach(), requires_grad)


def _rebuild_meta(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    if not isinstance(dtype, _C.dtype):
        raise UnpicklingError(f"a tensor's dtype is a {type(dtype).__name__}")
    shape, strides = _numbers(size, "size"), _numbers(stride, "stride")
    made = _functions.empty_strided(shape, strides, dtype=dtype, device="meta")
    return _with_grad(made, requires_grad)


def _rebuild_on_device(data: Any, dtype: Any, device: Any, requires_grad: Any) -> Tensor:
    # `data` is where map_location has put it; the device that wrote it may not be here
    if not isinstance(data, Tensor) or not isinstance(dtype, _C.dtype):
        raise UnpicklingError("the data of a tensor of another device is damaged")
    return _with_grad(data.detach().to(dtype), requires_grad)


def set_attributes(value: Any, state: Any) -> None:
    """Give a tensor or container the attributes of a file, of which none may hide a method."""
    if isinstance(state, tuple) and len(state) == 2 and state[1] in (None, {}):
        state = state[0]
    if state is None:
        return
    if not isinstance(state, dict) or not all(type(key) is str for key in state):
        raise UnpicklingError(
            f"the state of a {type(value).__name__} is no dict of names but {type(state).__name__}"
        )
    for key, attribute in state.items():
        if callable(getattr(type(value), key, None)) or key.startswith("__"):
            raise UnpicklingError(
                f"an attribute of a {type(value).__name__} would hide its method {key!r}"
            )
        vars(value)[key] = attribute


# ---- what rabbet has not


def _refusing(what: str) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        raise UnpicklingError(what)

    return refuse


_SPARSE = _refusing(
    "the file holds a sparse tensor, which rabbet has not: save tensor.to_dense() in the program that made it"
)
_QUANTIZED = _refusing(
    "the file holds a quantized tensor, which rabbet has not: save tensor.dequantize() in the program that made it"
)
_NESTED = _refusing(
    "the file holds a nested tensor, which rabbet has not: save the list tensor.unbind() in the program that made it"
)


def _rebuild_wrapper(
    cls: Any,
    dtype: Any,
    size: Any,
    stride: Any,
    offset: Any,
    layout: Any,
    device: Any,
    requires_grad: Any,
) -> Any:
    """A tensor without values of its own, see `Tensor._make_wrapper_subclass`."""
    return Tensor._make_wrapper_subclass(
        cls,
        tuple(size),
        strides=tuple(stride),
        storage_offset=offset,
        layout=layout,
        dtype=dtype,
        device=device,
        requires_grad=bool(requires_grad),
    )


# ---- values of Python


def _layout(name: Any) -> Any:
    if name != "torch.strided":
        if isinstance(name, str) and "sparse" in name:
            _SPARSE()
        raise UnpicklingError(f"the file holds the layout {name!r}, which rabbet has not")
    return _C.strided


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if type(text) is not str or encoding != "latin1":
        raise UnpicklingError("bytes of the file are damaged")
    return text.encode("latin1")


def _bytearray(data: Any = b"", encoding: Any = "latin1") -> bytearray:
    if type(data) is str:
        data = _encode(data, encoding)
    if type(data) is not bytes:
        raise UnpicklingError("a bytearray of the file is damaged")
    return bytearray(data)


def _items(values: Any) -> Any:
    if not isinstance(values, (list, tuple, set, dict)):
        raise UnpicklingError(f"a container is made of a {type(values).__name__}")
    return values


def _set(values: Any = ()) -> set[Any]:
    return set(map(check_key, _items(values)))


def _frozenset(values: Any = ()) -> frozenset[Any]:
    return frozenset(map(check_key, _items(values)))


def _pairs(values: Any) -> list[Any]:
    pairs = list(values.items()) if isinstance(values, dict) else list(_items(values))
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
        raise UnpicklingError("the items of a dict are no pairs")
    return [(check_key(key), value) for key, value in pairs]


def _ordered_dict(values: Any = ()) -> Any:
    return OrderedDict(_pairs(values))


def _default_dict(factory: Any = None, values: Any = ()) -> Any:
    if not any(factory is known for known in (None, *FACTORIES)):
        raise UnpicklingError(
            f"a defaultdict's factory is {getattr(factory, '__name__', type(factory).__name__)!r}; allowed are "
            f"{', '.join(f.__name__ for f in FACTORIES)}"
        )
    return defaultdict(factory, _pairs(values))


def _counter(values: Any = ()) -> Any:
    return Counter(dict(_pairs(values)))


def _complex(real: Any = 0.0, imag: Any = 0.0) -> complex:
    if not all(type(part) in (int, float) for part in (real, imag)):
        raise UnpicklingError("a complex number of the file is damaged")
    return complex(real, imag)


def _size(values: Any = ()) -> Any:
    return _C.Size(_numbers(values, "size"))


def _device(kind: Any, index: Any = None) -> Any:
    if type(kind) is not str or not (index is None or is_count(index)):
        raise UnpicklingError("a device of the file is damaged")
    name = kind if index is None else f"{kind}:{index}"
    try:
        return _C.device(name)
    except RuntimeError as error:
        raise UnpicklingError(f"the file holds the device {name!r} as a value: {error}") from None


def _slice(*ends: Any) -> slice:
    if not 1 <= len(ends) <= 3:
        raise UnpicklingError("a slice of the file is damaged")
    return slice(*ends)


def _range(*ends: Any) -> range:
    if not 1 <= len(ends) <= 3 or not all(type(end) is int for end in ends):
        raise UnpicklingError("a range of the file is damaged")
    return range(*ends)


def _path(*parts: Any) -> pathlib.PurePath:
    if not all(type(part) is str for part in parts):
        raise UnpicklingError("a path of the file is damaged")
    return pathlib.Path(*parts)


FACTORIES: tuple[type, ...] = (list, dict, set, int, float, str, tuple, bool, OrderedDict)
_OTHER_DTYPES = re.compile(r"(q?u?int|bits|float|complex)\d\w*")
_PATHS = ("pathlib.PosixPath", "pathlib.WindowsPath", "pathlib._local.PosixPath")
_NAMESPACES = {
    "argparse.Namespace": argparse.Namespace,
    "types.SimpleNamespace": types.SimpleNamespace,
}


def _allowed() -> dict[str, Allowed]:
    functions: dict[str, Callable[..., Any]] = {
        "torch._utils._rebuild_tensor": _rebuild_tensor,
        "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
        "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
        "torch._utils._rebuild_parameter": _rebuild_parameter,
        "torch._utils._rebuild_parameter_with_state": _rebuild_parameter_with_state,
        "torch._utils._rebuild_meta_tensor_no_storage": _rebuild_meta,
        "torch._utils._rebuild_device_tensor_from_cpu_tensor": _rebuild_on_device,
        "torch._utils._rebuild_sparse_tensor": _SPARSE,
        "torch._utils._rebuild_sparse_csr_tensor": _SPARSE,
        "torch._utils._rebuild_qtensor": _QUANTIZED,
        "torch._utils._rebuild_nested_tensor": _NESTED,
        "torch._utils._rebuild_wrapper_subclass": _rebuild_wrapper,
        "torch.serialization._get_layout": _layout,
        "_codecs.encode": _encode,
    }
    found = {name: Allowed(function, function) for name, function in functions.items()}
    found["_codecs.encode"] = Allowed(codecs.encode, _encode)
    for name in _C.dtype_names():
        found[f"torch.{name}"] = Allowed(getattr(_C, name), None)
    for name, dtype in STORAGES.items():
        found[f"torch.{name}"] = found[f"torch.cuda.{name}"] = Allowed(StorageType(dtype), None)
    found["torch.storage.UntypedStorage"] = Allowed(StorageType(None), None)
    for name in ("QUInt8", "QInt8", "QInt32", "QUInt4x2", "QUInt2x4"):
        found[f"torch.{name}Storage"] = Allowed(StorageType(f"quantized {name}"), None)
    for cls in (int, float, str, bool):  # factories of a defaultdict; never called
        found[f"builtins.{cls.__name__}"] = Allowed(cls, None)
    classes: dict[str, tuple[Any, Callable[..., Any]]] = {
        "builtins.list": (list, lambda values=(): list(_items(values))),
        "builtins.dict": (dict, lambda values=(): dict(_pairs(values))),
        "builtins.tuple": (tuple, lambda values=(): tuple(_items(values))),
        "builtins.set": (set, _set),
        "builtins.frozenset": (frozenset, _frozenset),
        "builtins.bytearray": (bytearray, _bytearray),
        "builtins.bytes": (bytes, lambda: b""),  # protocol 2 writes empty bytes so
        "builtins.complex": (complex, _complex),
        "builtins.slice": (slice, _slice),
        "builtins.range": (range, _range),
        "collections.OrderedDict": (OrderedDict, _ordered_dict),
        "collections.defaultdict": (defaultdict, _default_dict),
        "collections.Counter": (Counter, _counter),
        "torch.Size": (_C.Size, _size),
        "torch.device": (_C.device, _device),
        **dict.fromkeys(_PATHS, (pathlib.Path, _path)),
        **{name: (cls, lambda cls=cls: cls()) for name, cls in _NAMESPACES.items()},
    }  # fmt: skip
    found.update({name: Allowed(*pair) for name, pair in classes.items()})
    found["torch.Tensor"] = Allowed(Tensor, None)
    return found


_ALLOWED = _allowed()


def special(full: str) -> Any:
    """What makes a tensor where PyTorch's pickles name a function or class of storages; None for other names."""
    known = _ALLOWED.get(full)
    if known is None:
        return None
    if isinstance(known.value, StorageType):
        return known.value
    return known.make if full.startswith(("torch._utils.", "torch.serialization.")) else None


_WITHOUT_ARGUMENTS = tuple(_NAMESPACES.values())


class TorchNames:
    """The allow list for one file.

    Args:
        storage: the storage of a persistent id.
    """

    def __init__(self, storage: Callable[[Any], Any]) -> None:
        self._storage = storage
        self._makers: dict[int, Allowed] = {}  # by id; they keep their values alive
        self._trusted: dict[int, Any] = {}

    # ---- names

    def find(self, module: str, name: str) -> Any:
        """The value of a global, by the allow list."""
        module = _RENAMED.get(module, module)
        full = f"{module}.{name}"
        if safe.is_blocked(module):
            raise UnpicklingError(
                f"Trying to load unsupported GLOBAL {full} whose module {module} is blocked."
            )
        if full == "torch._tensor._rebuild_from_type_v2":
            return self._known(Allowed(self._rebuild_from_type, self._rebuild_from_type))
        if full in ("torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer"):
            return structure.class_of_name(f"rabbet.{full.removeprefix('torch.')}", "load")
        if full in _ALLOWED:
            return self._known(_ALLOWED[full])
        declared = safe.by_name()
        if full in declared:
            self._trusted[id(declared[full])] = declared[full]
            return declared[full]
        made = numpy_values.find(module, name)
        if made is not None:
            return self._known(Allowed(*made))
        raise UnpicklingError(self._refusal(module, name))

    def allows(self, full: str) -> bool:
        """Whether a pickle may hold a name."""
        try:
            self.find(*full.rsplit(".", 1))
        except UnpicklingError:
            return False
        return True

    def _known(self, allowed: Allowed) -> Any:
        if allowed.make is not None:
            self._makers[id(allowed.value)] = allowed
        return allowed.value

    def _refusal(self, module: str, name: str) -> str:
        from .._as_torch.names import framework

        if module == "torch" and _OTHER_DTYPES.fullmatch(name):
            return f"the file holds torch.{name}, a dtype which rabbet has not"
        torch = framework()
        full = name if module == "builtins" else f"{module}.{name}"
        return (
            "Weights only load failed. This file can still be loaded, to do so you have two options, "
            "do those steps only if you trust the source of the checkpoint.\n"
            f"\t(1) Re-running `{torch}.load` with `weights_only` set to `False` will likely succeed, but it can "
            "result in arbitrary code execution. Do it only if you got the file from a trusted source.\n"
            f"\t(2) Alternatively, to load with `weights_only=True`: Unsupported global: GLOBAL {full} was not an "
            f"allowed global by default. Please use `{torch}.serialization.add_safe_globals([{name}])` or the "
            f"`{torch}.serialization.safe_globals([{name}])` context manager to allowlist this global if you trust "
            "this class/function."
        )

    # ---- calls

    def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        """What one of our makers, or a function that the user declared, gives."""
        known = self._makers.get(id(function))
        if known is not None and known.make is not None:
            with structure.refusing("the pickle is damaged", UnpicklingError):
                return known.make(*args)
        if id(function) in self._trusted:
            return function(*args)
        raise UnpicklingError(
            f"Trying to call reduce for unrecognized function {getattr(function, '__name__', type(function).__name__)}"
        )

    def new(self, cls: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """An object: of our makers, or of a class that the user declared."""
        if id(cls) in self._trusted and isinstance(cls, type):
            return cls.__new__(cls, *args, **keywords)
        if keywords or id(cls) not in self._makers or not isinstance(cls, type):
            raise UnpicklingError(
                "Can only create new object for classes allowlisted via `add_safe_globals` but got "
                f"{getattr(cls, '__name__', type(cls).__name__)}"
            )
        return self.call(cls, args)

    def build(self, value: Any, state: Any) -> None:
        """Give an object its state."""
        if id(type(value)) in self._trusted:
            set_state(value, state)
            return
        with structure.refusing("the pickle is damaged", UnpicklingError):
            if isinstance(value, (OrderedDict, Tensor, *_WITHOUT_ARGUMENTS)):
                set_attributes(value, state)
            elif not numpy_values.build(value, state):
                raise UnpicklingError(
                    "Can only build Tensor, Parameter, OrderedDict or types allowlisted via `add_safe_globals`, but "
                    f"got {type(value).__name__}"
                )

    def persistent(self, key: Any) -> Any:
        """The storage of a key ('storage', type, name, location, number of elements, ...)."""
        with structure.refusing("a persistent id of the file is damaged", UnpicklingError):
            checked = StorageKey.of(key)
        return self._storage(checked)

    def _rebuild_from_type(self, function: Any, cls: Any, args: Any, state: Any) -> Any:
        """A tensor of a class with attributes, or a composite of these."""
        if not isinstance(args, tuple):
            raise UnpicklingError("the arguments of a tensor are damaged")
        made = self.call(function, args)
        if not isinstance(made, Tensor) or not isinstance(cls, type):
            raise UnpicklingError(f"a tensor of the file is a {type(made).__name__}")
        if cls is not Tensor and type(made) is not cls:
            if id(cls) not in self._trusted or not issubclass(cls, Tensor):
                raise UnpicklingError(f"a tensor is of the class {cls.__name__}, which is none")
            made = Tensor._make_subclass(cls, made.detach(), made.requires_grad)
        elif isinstance(state, dict) and state.get("_is_buffer") is True:
            made = _as_class(made, structure.class_of_name(BUFFER, "load"), False)
            state = {key: value for key, value in state.items() if key != "_is_buffer"}
        setstate = getattr(cls, "__setstate__", None)
        if callable(setstate) and setstate is not getattr(Tensor, "__setstate__", None):
            setstate(made, state)
        else:
            set_attributes(made, state)
        return made


def set_state(value: Any, state: Any) -> None:
    """Give an object its state as pickle does."""
    if hasattr(value, "__setstate__"):
        value.__setstate__(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        vars(value).update(state)
    for key, attribute in (slots or {}).items():
        setattr(value, key, attribute)


class StorageKey(NamedTuple):
    """Which storage of the file a persistent id means; `dtype` None: it is of bytes."""

    dtype: str | None
    name: str
    location: str
    nbytes: int

    @staticmethod
    def of(key: Any) -> "StorageKey":
        """The checked key."""
        if isinstance(key, tuple) and len(key) > 1 and key[0] == "module":  # beside its source
            raise UnpicklingError(
                "the file holds a whole Module beside its source, as PyTorch once wrote it: if you trust the file, load "
                "it with weights_only=False"
            )
        if not isinstance(key, tuple) or len(key) not in (5, 6):
            raise UnpicklingError("a persistent id of the file is damaged")
        plain: list[Any] = [
            part.decode("ascii") if isinstance(part, bytes) else part for part in key
        ]
        tag, kind, name, location, count = plain[:5]
        if tag != "storage":
            raise UnpicklingError(
                f"Only persistent_load of storage is allowed, but got {type(key[0])}"
            )
        if not isinstance(kind, StorageType) or type(name) is not str or type(location) is not str:
            raise UnpicklingError("a storage of the file has a damaged type, name or location")
        if kind.dtype is not None and kind.dtype.startswith("quantized"):
            _QUANTIZED()
        if not is_count(count):
            raise UnpicklingError("a storage of the file has a damaged size")
        if len(key) > 5 and key[5] is not None:
            raise UnpicklingError(
                "the file holds a view of a storage, as PyTorch before 0.4 wrote it: load it by a later PyTorch and "
                "save it again"
            )
        size = count * (1 if kind.dtype is None else getattr(_C, kind.dtype).itemsize)
        return StorageKey(kind.dtype, name, location, size)


class StorageKeys(Skim):
    """Notes which storages a pickle wants."""

    def find(self, module: str, name: str) -> Any:
        """Classes of storages are themselves, all other names nothing."""
        known = _ALLOWED.get(f"{module}.{name}")
        if known is not None and isinstance(known.value, StorageType):
            return known.value
        return super().find(module, name)

    def persistent(self, key: Any) -> Inert:
        """Note a checked key of a storage."""
        if isinstance(key, tuple) and key[:1] == ("module",):  # the source of a class
            return Inert()
        return super().persistent(StorageKey.of(key))
