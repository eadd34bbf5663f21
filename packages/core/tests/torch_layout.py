"""Writes files of PyTorch's byte by byte, for tests: pickles by their instructions, zip archives, the legacy form."""

import io
import pickle
import struct
import zipfile
from typing import Any, NamedTuple

MAGIC = 0x1950A86A20F9469CFC6C
STORAGES = {
    "float64": "DoubleStorage", "float32": "FloatStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage",
    "int64": "LongStorage", "int32": "IntStorage", "int16": "ShortStorage", "int8": "CharStorage",
    "uint8": "ByteStorage", "bool": "BoolStorage", "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}  # fmt: skip


class Name(NamedTuple):
    """A global."""

    module: str
    name: str


class Call(NamedTuple):
    """A call of a global, perhaps with a state that follows."""

    function: Any
    args: Any
    state: Any = None
    instruction: bytes = pickle.REDUCE
    items: Any = None


class Stored(NamedTuple):
    """A persistent id."""

    key: Any


class Raw(NamedTuple):
    """Instructions as they are."""

    code: bytes


def instructions(value: Any) -> bytes:
    """The instructions that make a value."""
    if isinstance(value, Raw):
        return value.code
    if isinstance(value, Name):
        return b"c" + f"{value.module}\n{value.name}\n".encode()
    if isinstance(value, Call):
        code = instructions(value.function) + instructions(value.args) + value.instruction
        if value.items is not None:
            pairs = b"".join(instructions(k) + instructions(v) for k, v in value.items.items())
            code += b"(" + pairs + b"u"
        return code + (b"" if value.state is None else instructions(value.state) + b"b")
    if isinstance(value, Stored):
        return instructions(value.key) + b"Q"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(instructions, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(instructions, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(instructions(k) + instructions(v) for k, v in value.items()) + b"u"
    if isinstance(value, bytes):
        return b"U" + bytes([len(value)]) + value
    return pickle.dumps(value, 2)[2:-1]  # numbers, strings, None


def pickled(value: Any, protocol: int = 2) -> bytes:
    """A whole pickle."""
    return b"\x80" + bytes([protocol]) + instructions(value) + b"."


def storage(dtype: str, key: str, count: int, location: str = "cpu", view: Any = ()) -> Stored:
    """The persistent id of a storage."""
    kind = (
        Name("torch", STORAGES[dtype])
        if dtype in STORAGES
        else Name("torch.storage", "UntypedStorage")
    )
    return Stored(("storage", kind, key, location, count, *view))  # fmt: skip


HOOKS = Call(Name("collections", "OrderedDict"), ())


def tensor(
    stored: Stored, size: Any, stride: Any, offset: int = 0, grad: bool = False, *more: Any
) -> Call:
    """A tensor as PyTorch writes it since 0.4."""
    args = (stored, offset, tuple(size), tuple(stride), grad, HOOKS, *more)
    return Call(Name("torch._utils", "_rebuild_tensor_v2"), args)  # fmt: skip


def parameter(data: Call, grad: bool = True) -> Call:
    """A parameter as PyTorch writes it."""
    return Call(Name("torch._utils", "_rebuild_parameter"), (data, grad, HOOKS))


def zipped(
    value: Any, storages: dict[str, bytes] | None = None, *, order: bytes | None = b"little", root: str = "archive",
    compression: int = zipfile.ZIP_STORED, version: bytes | None = b"3\n", more: dict[str, bytes] | None = None,
) -> bytes:  # fmt: skip
    """A file in the zip form."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr(f"{root}/data.pkl", value if isinstance(value, bytes) else pickled(value))
        if order is not None:
            archive.writestr(f"{root}/byteorder", order)
        for key, data in (storages or {}).items():
            archive.writestr(f"{root}/data/{key}", data)
        if version is not None:
            archive.writestr(f"{root}/version", version)
        for name, data in (more or {}).items():
            archive.writestr(f"{root}/{name}", data)
    return file.getvalue()


def legacy(
    value: Any, storages: dict[str, tuple[int, bytes]] | None = None, *, little: bool = True, protocol: int = 1001,
    keys: Any = None,
) -> bytes:  # fmt: skip
    """A file in the legacy form; a storage is its number of elements and its bytes."""
    storages = storages or {}
    sizes = {"short": 2, "int": 4, "long": 4}
    machine = {"protocol_version": protocol, "little_endian": little, "type_sizes": sizes}
    body = value if isinstance(value, bytes) else pickled(value)
    parts = [pickled(MAGIC), pickled(protocol), pickled(machine), body]
    parts.append(pickled(list(storages) if keys is None else keys))
    for count, data in storages.values():
        parts.append(struct.pack("<q", count) + data)
    return b"".join(parts)
