"""Nested values as JSON, with tensors replaced by where they are: the skeleton of a file.

JSON's null, numbers and strings stand for themselves, everything else is an object of one key:

    {"t": name}                                     the entry of that name
    {"v": [name, dtype, shape, strides, offset]}    a view of its memory, `offset` in bytes
    {"o": [state, parts]}                           a composite tensor
    {"p": {"tensor": one of these, ...}}            the same with "class", "requires_grad", "attributes"
    {"r": i}                                        the i-th tensor of the skeleton once more
    {"d": [[key, value], ...]}  {"l": [...]}  {"u": [...]}      dict, list, tuple
    {"f": "nan"}  {"i": "hex"}  {"c": [re, im]}  {"b": "base64"}    numbers that JSON lacks, bytes
    {"y": "float32"}  {"e": "cpu"}  {"n": "strided"}    dtype, device, layout or memory format
"""

import base64
import binascii
import contextlib
import importlib
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from .. import _C, composite
from .._C import Tensor
from . import SerializationError, safe
from .header import is_count, is_shape, parse_json
from .sharing import Stored, place

_ENTRY = "t"
_MAX_DEPTH = 100  # of lists in lists; what a reader's recursion limit allows whatever calls it
_WHOLE = re.compile(r"-?0x[0-9a-f]+")
_ODD_FLOATS = ("nan", "inf", "-inf")
_SINGLETONS = {
    str(value)[len("rabbet.") :]: value
    for value in (
        _C.strided,
        _C.contiguous_format,
        _C.preserve_format,
        _C.channels_last,
        _C.channels_last_3d,
    )
}
_OF_OTHER_WHEELS = {
    "rabbet.nn.parameter.Parameter": "rabbet-nn",
    "rabbet.nn.parameter.Buffer": "rabbet-nn",
}


# ---- classes of tensors


def class_of_name(name: Any, file: str) -> type:
    """The class of tensors that a file calls so."""
    known = safe.by_name()
    if not isinstance(name, str) or name not in _OF_OTHER_WHEELS | known:
        raise SerializationError(
            f"{file}: a tensor is of the class {name!r}; if you trust that class, make it known by "
            "rabbet.serialization.add_safe_globals([it])"
        )
    if name in known:
        cls = known[name]
        if not isinstance(cls, type) or not issubclass(cls, Tensor):
            raise SerializationError(f"{file}: {name} is no class of tensors")
        return cls
    module, _, attribute = name.rpartition(".")
    try:
        found: type = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise SerializationError(
            f"{file}: a tensor is of the class {name}: pip install {_OF_OTHER_WHEELS[name]} ({error})"
        ) from None
    return found


# ---- writing


class NotCarried(SerializationError):
    """A value that a skeleton cannot hold; other forms of files may."""

    __module__ = "rabbet.serialization"


def check_outside_transforms(t: Tensor, path: str) -> None:
    """Refuse a tensor that has no data of its own."""
    if _C.transform_level(t):
        raise SerializationError(
            f"save: the tensor at '{path}' stands for others inside a transform and has no data"
        )


class _Packer:
    """Turns a value into a skeleton; the nodes of tensors are filled when all of them are known."""

    def __init__(self) -> None:
        self._plain: list[Tensor] = []
        self._paths: list[str] = []
        self._nodes: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}  # of tensors that the skeleton defines, by id
        self._alive: list[Tensor] = []
        self._open: set[int] = set()
        self._names: set[str] = {"__metadata__"}

    def _unique(self, path: str) -> str:
        wanted = path.encode("utf-8", "backslashreplace").decode()
        name, count = wanted, 1
        while name in self._names:
            count += 1
            name = f"{wanted}#{count}"
        self._names.add(name)
        return name

    def place(self) -> dict[str, Tensor]:
        """Fill the nodes of tensors; returns the entries of the file."""
        entries, stored = place(self._plain, self._paths, self._unique)
        for i, node in enumerate(self._nodes):
            node.update(_located(self._plain[i], stored[i]))
        return entries

    def _tensor(self, t: Tensor, path: str) -> dict[str, Any]:
        if id(t) in self._numbers:
            return {"r": self._numbers[id(t)]}
        node = self._node(t, path)
        extra: dict[str, Any] = {}
        if type(t) is not Tensor:
            extra["class"] = _checked_class(type(t), path)
        if t.requires_grad:
            extra["requires_grad"] = True
        if vars(t):
            extra["attributes"] = self.pack(vars(t), path)
        self._numbers[id(t)] = len(self._numbers)
        self._alive.append(t)
        return {"p": {"tensor": node, **extra}} if extra else node

    def _node(self, t: Tensor, path: str) -> dict[str, Any]:
        check_outside_transforms(t, path)
        stored = composite.state(t)
        if stored is not None:
            return self._composite(stored, t, path)
        if t.is_meta:
            raise SerializationError(
                f"save: the tensor at '{path}' is on the meta device and has no data"
            )
        self._plain.append(t)
        self._paths.append(path)
        self._nodes.append({})
        return self._nodes[-1]

    def _composite(self, stored: dict[str, Any], t: Tensor, path: str) -> dict[str, Any]:
        parts = composite.parts(t.detach())
        if not parts:
            raise SerializationError(
                f"save: the tensor at '{path}' is a stub of the layer '{stored['layer']}' and has no data"
            )
        packed = [self.pack(part, f"{path}.{i}") for i, part in enumerate(parts)]
        text = {**stored, "blob": base64.b64encode(stored["blob"]).decode()}
        return {"o": [{**text, "shape": list(stored["shape"])}, packed]}

    def pack(self, value: Any, path: str) -> Any:
        """The node of a value that stands at `path`."""
        if isinstance(value, Tensor):
            return self._tensor(value, path or "tensor")
        if isinstance(value, (dict, list, tuple)):
            return self._container(value, path)
        return _packed_leaf(value, path)

    def _container(self, value: Any, path: str) -> dict[str, Any]:
        if id(value) in self._open:
            raise SerializationError(f"save: the {type(value).__name__} at '{path}' holds itself")
        if len(self._open) >= _MAX_DEPTH:
            raise SerializationError(
                f"save: the {type(value).__name__} at '{path[:60]}...' is nested more than {_MAX_DEPTH} deep"
            )
        self._open.add(id(value))
        if isinstance(value, dict):
            node: dict[str, Any] = {
                "d": [
                    [self.pack(k, f"{path} (a key)"), self.pack(v, below(path, k, i))]
                    for i, (k, v) in enumerate(value.items())
                ]
            }
        else:
            kind = "l" if isinstance(value, list) else "u"
            node = {kind: [self.pack(v, below(path, i)) for i, v in enumerate(value)]}
        self._open.remove(id(value))
        return node


def below(path: str, key: Any, index: int = 0) -> str:
    """The path of what stands at a key, the `index`-th one, of the container at `path`."""
    simple = key is None or isinstance(key, (str, bool, int, float))
    step = str(key) if simple else f"#{index}"
    return f"{path}.{step}" if path else step


def _checked_class(cls: type, path: str) -> str:
    name = safe.name_of(cls)
    if name not in _OF_OTHER_WHEELS and safe.by_name().get(name) is not cls:
        raise SerializationError(
            f"save: the tensor at '{path}' is of the class {name}, which load() would refuse: make it known by "
            "rabbet.serialization.add_safe_globals([it]), here and where the file is loaded"
        )
    return name


def _located(t: Tensor, stored: Stored) -> dict[str, Any]:
    if stored.offset is None:
        return {_ENTRY: stored.entry}
    return {"v": [stored.entry, t.dtype.name, list(t.shape), list(t.stride()), stored.offset]}


def _packed_leaf(value: Any, path: str) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value) if is_count(abs(int(value))) else {"i": hex(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"f": repr(float(value))}
    if isinstance(value, complex):
        return {"c": [_packed_leaf(part, path) for part in (value.real, value.imag)]}
    if isinstance(value, bytes):
        return {"b": base64.b64encode(value).decode()}
    if isinstance(value, _C.dtype):
        return {"y": value.name}
    if isinstance(value, _C.device):
        return {"e": str(value)}
    if isinstance(value, (_C.layout, _C.memory_format)):
        return {"n": str(value)[len("rabbet.") :]}
    raise NotCarried(
        f"save: cannot store the {type(value).__name__} at '{path}': expected tensors, numbers, strings, bytes, "
        "None, dtypes, devices, and dicts, lists or tuples of them"
    )


def pack(value: Any) -> tuple[str | None, dict[str, Tensor]]:
    """The skeleton of a value, None if it is a dict of the entries, and the entries."""
    packer = _Packer()
    try:
        node = packer.pack(value, "")
    except RecursionError:
        raise SerializationError("save: the value is nested too deeply") from None
    entries = packer.place()
    if entries and node == {"d": [[name, {_ENTRY: name}] for name in entries]}:
        return None, entries
    return json.dumps(node, separators=(",", ":"), allow_nan=False), entries


# ---- reading


@contextlib.contextmanager
def refusing(what: str, refusal: type[SerializationError] = SerializationError) -> Iterator[None]:
    """What a call refuses is the file's fault."""
    try:
        yield
    except (SerializationError, _C.OutOfMemoryError):
        raise
    except (RuntimeError, ValueError, TypeError, OverflowError, LookupError) as error:
        raise refusal(f"{what}: {error}") from None


def _is_composite(stored: Any, parts: Any) -> bool:
    wanted = {"name": str, "layer": str, "wheel": str, "blob": str, "dtype": str, "shape": list}
    if not isinstance(stored, dict) or not isinstance(parts, list):
        return False
    if not all(isinstance(stored.get(key), kind) for key, kind in wanted.items()):
        return False
    if stored.get("layout", "strided") not in composite.LAYOUTS:
        return False
    return stored["dtype"] in _C.dtype_names() and is_shape(stored["shape"])


class _Unpacker:
    """Makes the value that a skeleton describes."""

    def __init__(self, tensors: dict[str, Tensor], file: str) -> None:
        self._tensors = tensors
        self._file = file
        self._defined: list[Tensor] = []

    def _damaged(self, kind: str) -> Any:
        raise SerializationError(f"{self._file}: the skeleton is damaged, in a node '{kind}'")

    def _among(self, value: Any, names: Any, kind: str) -> Any:
        return value if isinstance(value, str) and value in names else self._damaged(kind)

    def unpack(self, node: Any) -> Any:
        """The value of a node."""
        if node is None or isinstance(node, (bool, int, str)):
            return node
        if isinstance(node, float) and math.isfinite(node):
            return node
        if not isinstance(node, dict) or len(node) != 1:
            return self._damaged(type(node).__name__)
        ((kind, value),) = node.items()
        if kind in _TENSOR_KINDS:
            self._defined.append(made := _TENSOR_KINDS[kind](self, value))
            return made
        if kind not in _KINDS:
            raise SerializationError(f"{self._file}: the skeleton has an unknown kind '{kind}'")
        return _KINDS[kind](self, value)

    # ---- tensors

    def _entry(self, name: Any) -> Tensor:
        if not isinstance(name, str) or name not in self._tensors:
            raise SerializationError(
                f"{self._file}: the skeleton names a tensor {name!r} that the file does not hold"
            )
        return self._tensors[name]

    def _view(self, value: Any) -> Tensor:
        if not isinstance(value, list) or len(value) != 5:
            return self._damaged("v")
        name, dtype, shape, strides, offset = value
        base = self._entry(name)
        kind = self._dtype(dtype)
        fits = is_shape(shape) and isinstance(strides, list) and len(strides) == len(shape)
        if not fits or not all(map(is_count, [*strides, offset])) or offset % kind.itemsize:
            return self._damaged("v")
        last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        end = offset + (last + 1) * kind.itemsize
        if 0 in shape or end > base.numel() * base.itemsize:  # save makes no views without elements
            return self._damaged("v")
        with refusing(f"{self._file}: a view of '{name}'"):
            whole = base.numel() * base.itemsize // kind.itemsize * kind.itemsize
            flat = base.reshape(-1)[: whole // base.itemsize].view(kind)
            return flat.as_strided(shape, strides, offset // kind.itemsize)

    def _composite(self, value: Any) -> Tensor:
        if not isinstance(value, list) or len(value) != 2 or not _is_composite(*value):
            raise SerializationError(f"{self._file}: the skeleton of a composite tensor is damaged")
        stored, parts = value
        made = [self.unpack(part) for part in parts]
        if not all(part is None or isinstance(part, Tensor) for part in made):
            raise SerializationError(f"{self._file}: a part of a composite tensor is no tensor")
        with refusing(self._file):
            blob = base64.b64decode(stored["blob"], validate=True)
            return composite.rebuild({**stored, "blob": blob}, tuple(made))

    def _described(self, value: Any) -> Tensor:
        known = {"tensor", "class", "requires_grad", "attributes"}
        if not isinstance(value, dict) or "tensor" not in value or not value.keys() <= known:
            return self._damaged("p")
        inner, needs_grad = value["tensor"], value.get("requires_grad", False)
        if not isinstance(inner, dict) or len(inner) != 1 or not isinstance(needs_grad, bool):
            return self._damaged("p")
        ((kind, where),) = inner.items()
        if kind not in _TENSOR_KINDS or kind == "p":
            return self._damaged("p")
        made = _TENSOR_KINDS[kind](self, where)
        cls = class_of_name(value["class"], self._file) if "class" in value else Tensor
        attributes = self.unpack(value.get("attributes", {"d": []}))
        if not isinstance(attributes, dict) or not all(isinstance(k, str) for k in attributes):
            return self._damaged("p")
        with refusing(f"{self._file}: a tensor of the class {cls.__name__}"):
            if cls is not Tensor:
                made = Tensor._make_subclass(cls, made, needs_grad)
            elif needs_grad:
                made = made.detach()  # other views of the entry need no gradients
                made.requires_grad = True
            vars(made).update(attributes)
        return made

    def _again(self, index: Any) -> Tensor:
        if not is_count(index) or index >= len(self._defined):
            return self._damaged("r")
        return self._defined[index]

    # ---- containers and leaves

    def _list(self, value: Any) -> list[Any]:
        return [self.unpack(v) for v in value] if isinstance(value, list) else self._damaged("l")

    def _dict(self, value: Any) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        if not isinstance(value, list):
            return self._damaged("d")
        for i, pair in enumerate(value):
            if not isinstance(pair, list) or len(pair) != 2:
                return self._damaged("d")
            key = self.unpack(pair[0])
            try:
                hash(key)
            except TypeError:
                raise SerializationError(
                    f"{self._file}: the skeleton has a dict key of type {type(key).__name__}"
                ) from None
            made[key] = self.unpack(pair[1])
            if len(made) != i + 1:
                raise SerializationError(f"{self._file}: the skeleton has the key {key!r} twice")
        return made

    def _tuple(self, value: Any) -> tuple[Any, ...]:
        return tuple(self._list(value))

    def _odd_float(self, value: Any) -> float:
        return float(self._among(value, _ODD_FLOATS, "f"))

    def _int(self, value: Any) -> int:
        whole = isinstance(value, str) and _WHOLE.fullmatch(value)
        return int(value, 16) if whole else self._damaged("i")

    def _complex(self, value: Any) -> complex:
        parts = self._list(value)
        if len(parts) != 2 or not all(type(part) in (int, float) for part in parts):
            return self._damaged("c")
        with refusing(self._file):
            return complex(*parts)

    def _bytes(self, value: Any) -> bytes:
        try:
            return base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error):
            return self._damaged("b")

    def _dtype(self, value: Any) -> Any:
        return getattr(_C, self._among(value, _C.dtype_names(), "y"))

    def _singleton(self, value: Any) -> Any:
        return _SINGLETONS[self._among(value, _SINGLETONS, "n")]

    def _device(self, value: Any) -> Any:
        if not isinstance(value, str) or not re.fullmatch(r"\w+(:\d+)?", value):
            return self._damaged("e")
        with refusing(self._file):
            return _C.device(value)


_TENSOR_KINDS: dict[str, Callable[[_Unpacker, Any], Tensor]] = {
    _ENTRY: _Unpacker._entry,
    "v": _Unpacker._view,
    "o": _Unpacker._composite,
    "p": _Unpacker._described,
}
_KINDS: dict[str, Callable[[_Unpacker, Any], Any]] = {
    "r": _Unpacker._again,
    "d": _Unpacker._dict,
    "l": _Unpacker._list,
    "u": _Unpacker._tuple,
    "f": _Unpacker._odd_float,
    "i": _Unpacker._int,
    "c": _Unpacker._complex,
    "b": _Unpacker._bytes,
    "y": _Unpacker._dtype,
    "e": _Unpacker._device,
    "n": _Unpacker._singleton,
}


def unpack(skeleton: str, tensors: dict[str, Tensor], file: str) -> Any:
    """The value that a skeleton describes, of these tensors."""
    node = parse_json(skeleton, f"{file}: the skeleton is damaged")
    try:
        return _Unpacker(tensors, file).unpack(node)
    except RecursionError:
        raise SerializationError(f"{file}: the skeleton is nested too deeply") from None
