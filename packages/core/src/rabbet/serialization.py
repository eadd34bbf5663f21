"""save() and load(): checkpoints as safetensors files (https://huggingface.co/docs/safetensors).

A file is 8 bytes with the header's length, a JSON header, and the tensors' bytes. A dict of tensors is an ordinary
safetensors file. Anything else (nested dicts, lists, numbers, strings) is stored as such a file whose metadata
holds a skeleton: the structure with tensors replaced by names. A composite tensor is stored as its parts, with what
its layer needs to make it again. Nothing in a file is ever executed.
"""

import base64
import json
import math
import os
import re
from collections.abc import Callable
from typing import Any

from . import _C, composite
from ._C import Tensor

__all__ = ["SerializationError", "load", "save"]

SKELETON = "rabbet.skeleton"
_MAX_HEADER = 100_000_000
_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint16": "U16",
    "uint32": "U32", "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "complex128": "C128",
}  # fmt: skip
_DTYPES = {code: name for name, code in _NAMES.items()}


class SerializationError(_C.RabbetError):
    """A file that cannot be read, or a value that cannot be saved."""


def tensor_bytes(t: Tensor) -> bytes:
    """The elements in row-major order, little-endian."""
    flat = t.cpu().contiguous()
    if flat.numel() == 0:
        return b""
    if _C.buffer_format(flat.dtype) is None:
        same_size = {1: _C.uint8, 2: _C.int16, 4: _C.int32, 8: _C.int64, 16: _C.complex128}
        flat = flat.view(same_size[flat.dtype.itemsize])
    return bytes(memoryview(flat).cast("B")) if flat.ndim else memoryview(flat).tobytes()


def _rebuild_tensor(
    data: bytes, dtype: str, shape: tuple[int, ...], requires_grad: bool, cls: type
) -> Tensor:
    made = (
        _C.from_buffer(bytearray(data), getattr(_C, dtype), list(shape))
        if data
        else _C.op("empty")(shape, dtype=getattr(_C, dtype))
    )
    if cls is not Tensor:
        return Tensor._make_subclass(cls, made, requires_grad)
    if requires_grad:
        made.requires_grad = True
    return made


# ---- structures


class _Packer:
    """Turns a structure into a JSON skeleton and named tensors; tensors that occur twice are stored once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def tensor(self, t: Tensor, path: str) -> str:
        if t.is_meta:
            raise SerializationError(
                f"save: the tensor at '{path}' is on the meta device and has no data"
            )
        key = (t._storage_id(), t.data_ptr(), tuple(t.shape), tuple(t.stride()), str(t.dtype))
        if key not in self._names:
            self._names[key] = path
            self.tensors[path] = t
        return self._names[key]

    def composite(self, stored: dict[str, Any], t: Tensor, path: str) -> Any:
        parts = composite.parts(t)
        if not parts:
            raise SerializationError(
                f"save: the tensor at '{path}' is a stub of the layer '{stored['layer']}' and has no data"
            )
        packed = [self.pack(part, f"{path}.{i}") for i, part in enumerate(parts)]
        text = {**stored, "blob": base64.b64encode(stored["blob"]).decode()}
        return {"o": [{**text, "shape": list(stored["shape"])}, packed]}

    def pack(self, value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            stored = composite.state(value)
            if stored is not None:
                return self.composite(stored, value, path or "tensor")
            return {"t": self.tensor(value, path or "tensor")}
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"f": repr(value)}
        if isinstance(value, complex):
            return {"c": [value.real, value.imag]}
        if isinstance(value, bytes):
            return {"b": base64.b64encode(value).decode()}
        if isinstance(value, dict):
            items = [
                [self.pack(k, path), self.pack(v, f"{path}.{k}" if path else str(k))]
                for k, v in value.items()
            ]
            return {"d": items}
        if isinstance(value, (list, tuple)):
            kind = "l" if isinstance(value, list) else "u"
            return {
                kind: [self.pack(v, f"{path}.{i}" if path else str(i)) for i, v in enumerate(value)]
            }
        if isinstance(value, _C.dtype):
            return {"y": str(value)[7:]}
        raise SerializationError(
            f"save: cannot store the {type(value).__name__} at '{path}': expected tensors, numbers, strings, bytes, "
            "None, and dicts, lists or tuples of them"
        )


def _unpack(node: Any, tensors: dict[str, Tensor], file: str) -> Any:
    if not isinstance(node, dict):
        return node
    if len(node) != 1:
        raise SerializationError(f"{file}: the skeleton is damaged")
    ((kind, value),) = node.items()
    if kind == "t":
        if value not in tensors:
            raise SerializationError(
                f"{file}: the skeleton names a tensor '{value}' that the file does not hold"
            )
        return tensors[value]
    if kind == "d":
        return {_key(_unpack(k, tensors, file), file): _unpack(v, tensors, file) for k, v in value}
    if kind in ("l", "u"):
        items = [_unpack(v, tensors, file) for v in value]
        return items if kind == "l" else tuple(items)
    if kind == "o":
        return _unpack_composite(*value, tensors=tensors, file=file)
    simple: dict[str, Callable[[Any], Any]] = {
        "f": float,
        "c": lambda v: complex(*v),
        "b": base64.b64decode,
        "y": lambda v: getattr(_C, v),
    }
    if kind not in simple:
        raise SerializationError(f"{file}: the skeleton has an unknown kind '{kind}'")
    return simple[kind](value)


def _unpack_composite(stored: Any, parts: Any, *, tensors: dict[str, Tensor], file: str) -> Tensor:
    wanted = {"name": str, "layer": str, "wheel": str, "blob": str, "dtype": str, "shape": list}
    whole = isinstance(stored, dict) and all(
        isinstance(stored.get(k), t) for k, t in wanted.items()
    )
    if (
        not whole
        or stored["dtype"] not in _NAMES
        or not all(type(size) is int and size >= 0 for size in stored["shape"])
        or not isinstance(parts, list)
    ):
        raise SerializationError(f"{file}: the skeleton of a composite tensor is damaged")
    made = [_unpack(part, tensors, file) for part in parts]
    if not all(part is None or isinstance(part, Tensor) for part in made):
        raise SerializationError(f"{file}: a part of a composite tensor is no tensor")
    try:
        blob = base64.b64decode(stored["blob"], validate=True)
        return composite.rebuild({**stored, "blob": blob}, tuple(made))
    except (_C.PluginError, ValueError, TypeError) as error:
        raise SerializationError(f"{file}: {error}") from None


def _key(key: Any, file: str) -> Any:
    try:
        hash(key)
    except TypeError:
        raise SerializationError(
            f"{file}: the skeleton has a dict key of type {type(key).__name__}"
        ) from None
    return key


# ---- files


def _is_plain(obj: Any) -> bool:
    if not isinstance(obj, dict) or not obj:
        return False
    if not all(
        isinstance(k, str) and k != "__metadata__" and isinstance(v, Tensor) for k, v in obj.items()
    ):
        return False
    if any(composite.is_composite(v) for v in obj.values()):
        return False
    places = {
        (v._storage_id(), v.data_ptr(), tuple(v.shape), tuple(v.stride())) for v in obj.values()
    }
    return len(places) == len(obj)


def _encode(obj: Any) -> tuple[bytes, list[Tensor]]:
    packer = _Packer()
    metadata: dict[str, str] = {"format": "rabbet"}
    if _is_plain(obj):
        for name, t in obj.items():
            packer.tensor(t, name)
    else:
        metadata[SKELETON] = json.dumps(packer.pack(obj, ""), allow_nan=False)
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, t in packer.tensors.items():
        nbytes = t.numel() * t.itemsize
        header[name] = {
            "dtype": _code_of_dtype(t.dtype.name),
            "shape": list(t.shape),
            "data_offsets": [offset, offset + nbytes],
        }
        offset += nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)  # tensors begin aligned, so that load() can map them
    return len(text).to_bytes(8, "little") + text, list(packer.tensors.values())


def save(obj: Any, f: Any) -> None:
    """Write `obj` (tensors, numbers, strings, nested dicts, lists and tuples) to a path or binary file.

    A path is replaced at once and only when everything is written: a crash leaves the old file.

    Raises:
        SerializationError: for a value of another type, naming where it stands.
    """
    head, tensors = _encode(obj)
    if hasattr(f, "write"):
        f.write(head)
        for t in tensors:
            f.write(tensor_bytes(t.detach()))
        return
    path = os.fspath(f)
    temporary = f"{path}.tmp{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            save_to = file.write
            save_to(head)
            for t in tensors:
                save_to(tensor_bytes(t.detach()))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def _read_header(data: Any, file: str) -> tuple[dict[str, Any], int]:
    if len(data) < 8:
        raise SerializationError(
            f"{file}: {len(data)} bytes are too few for a safetensors file; it is truncated"
        )
    length = int.from_bytes(data[:8], "little")
    if length > _MAX_HEADER:
        raise SerializationError(
            f"{file}: a header of {length} bytes is too large; this is no safetensors file"
        )
    if 8 + length > len(data):
        raise SerializationError(
            f"{file}: the header should have {length} bytes, {len(data) - 8} follow; it is truncated"
        )
    try:
        header = json.loads(bytes(data[8 : 8 + length]))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise SerializationError(f"{file}: the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise SerializationError(
            f"{file}: the header must be a JSON object, got {type(header).__name__}"
        )
    return header, 8 + length


def _code_of_dtype(name: str) -> str:
    """What files call a dtype: as safetensors does (float8_e4m3fn is F8_E4M3), others by their names."""
    small = re.fullmatch(r"float(\d+)_(e\d+m\d+)\w*", name)
    return _NAMES.get(name) or (f"F{small[1]}_{small[2].upper()}" if small else name)


def _name_of_dtype(code: Any) -> str | None:
    """The dtype that a file calls so; None: there is none."""
    found = _DTYPES.get(code)
    return found or next((n for n in _C.dtype_names() if _code_of_dtype(n) == code), None)


def _check_entry(name: str, entry: Any, room: int, file: str) -> tuple[str, list[int], int, int]:
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise SerializationError(
            f"{file}: the entry of '{name}' lacks dtype, shape or data_offsets"
        )
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    kind = _name_of_dtype(dtype)
    if kind is None:
        raise SerializationError(f"{file}: '{name}' has the unknown dtype {dtype!r}")
    whole = isinstance(shape, list) and all(type(s) is int and s >= 0 for s in shape)
    spans = isinstance(offsets, list) and len(offsets) == 2 and all(type(o) is int for o in offsets)
    if not whole or not spans or not 0 <= offsets[0] <= offsets[1]:
        raise SerializationError(f"{file}: '{name}' has a damaged shape or data_offsets")
    if offsets[1] > room:
        raise SerializationError(
            f"{file}: '{name}' ends at byte {offsets[1]} of the data, which has {room}; it is truncated"
        )
    nbytes = math.prod(shape) * getattr(_C, kind).itemsize
    if nbytes != offsets[1] - offsets[0]:
        raise SerializationError(
            f"{file}: '{name}' of shape {shape} and dtype {dtype} needs {nbytes} bytes, its offsets give "
            f"{offsets[1] - offsets[0]}"
        )
    return kind, shape, offsets[0], offsets[1]


def _read_tensors(data: Any, header: dict[str, Any], start: int, file: str) -> dict[str, Tensor]:
    room = len(data) - start
    entries = {n: _check_entry(n, e, room, file) for n, e in header.items() if n != "__metadata__"}
    at, before = 0, ""
    for name, (_, _, begin, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if begin < at:
            raise SerializationError(f"{file}: the data of '{name}' and '{before}' overlap")
        at, before = end, name
    tensors = {}
    for name, (dtype, shape, begin, end) in entries.items():
        kind = getattr(_C, dtype)
        if begin == end:
            tensors[name] = _C.op("empty")(shape, dtype=kind)
        elif (start + begin) % min(kind.itemsize, 8):
            tensors[name] = _C.from_buffer(
                bytearray(data[start + begin : start + end]), kind, shape
            )
        else:
            tensors[name] = _C.from_buffer(data, kind, shape, start + begin)
    return tensors


def _open(f: Any) -> tuple[Any, str]:
    """The file's bytes (a private mapping: writes stay in memory) and its name for messages."""
    if hasattr(f, "read"):
        return bytearray(f.read()), getattr(f, "name", "<file>")
    import mmap

    path = os.fspath(f)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise SerializationError(f"{path}: the file is empty")
        return mmap.mmap(
            file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
        ), str(path)


def _mover(map_location: Any) -> Any:
    if map_location is None:
        return lambda t: t
    if callable(map_location):
        return lambda t: map_location(t, str(t.device))
    if isinstance(map_location, dict):
        return lambda t: t.to(map_location.get(str(t.device), t.device))
    return lambda t: t.to(map_location)


def load(f: Any, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """Read what save() wrote, or any safetensors file (as a dict), from a path or binary file.

    Args:
        map_location: a device, a dict of devices, or a function of (tensor, device name).
        weights_only: accepted for compatibility; files never hold code.

    Raises:
        SerializationError: for a corrupt or truncated file, saying what is wrong.
        FileNotFoundError: if there is no such file.
    """
    data, name = _open(f)
    header, start = _read_header(data, name)
    tensors = _read_tensors(data, header, start, name)
    move = _mover(map_location)
    tensors = {n: move(t) for n, t in tensors.items()}
    metadata = header.get("__metadata__", {})
    if not isinstance(metadata, dict) or SKELETON not in metadata:
        return tensors
    try:
        skeleton = json.loads(metadata[SKELETON])
        return _unpack(skeleton, tensors, name)
    except (json.JSONDecodeError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, SerializationError):
            raise
        raise SerializationError(f"{name}: the skeleton is damaged: {error}") from None
