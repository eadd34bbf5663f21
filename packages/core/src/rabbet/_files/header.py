"""The header of a file: which tensors it holds, where they lie, what their bytes sum up to."""

import json
import math
import re
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

from .. import _C
from . import SerializationError

SKELETON = "rabbet.skeleton"
_VERSION = "rabbet.version"
_CHECKSUMS = "rabbet.crc32"
_MAX_HEADER = 100_000_000
_MAX_DIMS = 32  # RB_MAX_DIMS
_LARGEST = 2**63 - 1
_MOST_ELEMENTS = _LARGEST // 16  # their bytes can be counted, whatever the dtype
_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint16": "U16",
    "uint32": "U32", "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "complex128": "C128",
}  # fmt: skip


class Entry(NamedTuple):
    """A tensor of the file. `begin` and `end` count from the first byte of the data."""

    dtype: str
    shape: list[int]
    begin: int
    end: int


class Header(NamedTuple):
    """A header that was read; `checksums` are of the entries in order, None: the file has none."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    checksums: list[int] | None


# ---- dtypes


def _code_of_dtype(name: str) -> str:
    """What files call a dtype: as safetensors does (float8_e4m3fn is F8_E4M3), others by their names."""
    small = re.fullmatch(r"float(\d+)_(e\d+m\d+)\w*", name)
    return _NAMES.get(name) or (f"F{small[1]}_{small[2].upper()}" if small else name)


def _dtype_of_code(code: Any) -> str | None:
    """The dtype that a file calls so; None: there is none."""
    return next((n for n in _C.dtype_names() if _code_of_dtype(n) == code), None)


def is_count(value: Any) -> bool:
    """Whether a value read from JSON is a size, a stride or an offset."""
    return type(value) is int and 0 <= value <= _LARGEST


def is_shape(value: Any) -> bool:
    """Whether a value read from JSON is the shape of a tensor that can exist."""
    if not isinstance(value, list) or len(value) > _MAX_DIMS or not all(map(is_count, value)):
        return False
    return math.prod(size for size in value if size) <= _MOST_ELEMENTS


# ---- writing


def layout(tensors: dict[str, _C.Tensor]) -> dict[str, Entry]:
    """Places for the tensors without gaps, those of large items first: so all of them are aligned."""
    places, at = {}, 0
    for name, t in sorted(tensors.items(), key=lambda item: -item[1].itemsize):
        end = at + t.numel() * t.itemsize
        places[name] = Entry(t.dtype.name, list(t.shape), at, end)
        at = end
    return {name: places[name] for name in tensors}


def encode(entries: dict[str, Entry], skeleton: str | None, checksums: Iterable[int]) -> bytes:
    """The file up to its data. Its length does not depend on the checksums."""
    sums = "".join(f"{crc:08x}" for crc in checksums)
    metadata = {"format": "rabbet", _VERSION: "2", _CHECKSUMS: f"{0:08x}{sums}"}
    if skeleton is not None:
        metadata[SKELETON] = skeleton
    header: dict[str, Any] = {"__metadata__": metadata}
    for name, e in entries.items():
        code = _code_of_dtype(e.dtype)
        header[name] = {"dtype": code, "shape": e.shape, "data_offsets": [e.begin, e.end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    if len(text) > _MAX_HEADER:
        raise SerializationError(
            f"save: the header would have {len(text)} bytes, readers take {_MAX_HEADER}: save fewer values, or "
            "numbers as tensors"
        )
    head = len(text).to_bytes(8, "little") + text
    mark = f'"{_CHECKSUMS}":"'.encode()
    return head.replace(mark + b"00000000", mark + f"{zlib.crc32(head):08x}".encode(), 1)


# ---- reading


def read_length(start: bytes, size: int, file: str) -> int:
    """The length of the header, from the first 8 bytes of a file of `size` bytes."""
    if size == 0:
        raise SerializationError(f"{file}: the file is empty")
    if len(start) < 8:
        raise SerializationError(
            f"{file}: {size} bytes are too few for a safetensors file; it is truncated"
        )
    length = int.from_bytes(start, "little")
    if length > _MAX_HEADER:
        raise SerializationError(
            f"{file}: a header of {length} bytes is too large; this is no safetensors file"
        )
    if 8 + length > size:
        raise SerializationError(
            f"{file}: the header should have {length} bytes, {size - 8} follow; it is truncated"
        )
    return length


def parse_json(text: str, what: str) -> Any:
    """JSON without duplicate keys and without numbers that JSON has not.

    Raises:
        SerializationError: beginning with `what`.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"{what}: {error}") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} occurs twice")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def parse(head: bytes, room: int, file: str, verify: bool) -> Header:
    """Read the header from `head`, the file up to its data, of which there are `room` bytes."""
    try:
        text = head[8:].decode()
    except UnicodeDecodeError as error:
        raise SerializationError(f"{file}: the header is no JSON: {error}") from None
    header = parse_json(text, f"{file}: the header is no JSON")
    if not isinstance(header, dict):
        raise SerializationError(
            f"{file}: the header must be a JSON object, got {type(header).__name__}"
        )
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise SerializationError(f"{file}: the header's __metadata__ must be an object of strings")
    checksums = _checksums(head, metadata, len(header), file, verify)
    entries = {name: _entry(name, entry, room, file) for name, entry in header.items()}
    _check_places(entries, room, file)
    return Header(entries, metadata, checksums)


def _checksums(
    head: bytes, metadata: dict[str, str], count: int, file: str, verify: bool
) -> list[int] | None:
    """The checksums of the entries, after that of the header was compared."""
    version, sums = metadata.get(_VERSION), metadata.get(_CHECKSUMS)
    if version is None and sums is None:
        return None
    if version is not None and re.fullmatch(r"[3-9]|[1-9]\d+", version):
        raise SerializationError(
            f"{file}: a later rabbet wrote it (version {version} of its files, this one reads 2)"
        )
    if version != "2" or sums is None or not re.fullmatch(rf"[0-9a-f]{{{8 + 8 * count}}}", sums):
        raise SerializationError(f"{file}: the header's checksums are damaged")
    mark = f'"{_CHECKSUMS}":"'.encode()
    found = zlib.crc32(head.replace(mark + sums[:8].encode(), mark + b"00000000", 1))
    if verify and found != int(sums[:8], 16):
        raise SerializationError(
            f"{file}: the header is damaged: its CRC-32 is {found:08x}, it should be {sums[:8]}"
        )
    return [int(sums[at : at + 8], 16) for at in range(8, len(sums), 8)]


def _entry(name: str, entry: Any, room: int, file: str) -> Entry:
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise SerializationError(
            f"{file}: the entry of '{name}' lacks dtype, shape or data_offsets"
        )
    shape, offsets = entry["shape"], entry["data_offsets"]
    dtype = _dtype_of_code(entry["dtype"])
    if dtype is None:
        raise SerializationError(f"{file}: '{name}' has the unknown dtype {entry['dtype']!r}")
    spans = isinstance(offsets, list) and len(offsets) == 2 and all(map(is_count, offsets))
    if not is_shape(shape) or not spans or offsets[0] > offsets[1]:
        raise SerializationError(f"{file}: '{name}' has a damaged shape or data_offsets")
    begin, end = offsets
    if end > room:
        raise SerializationError(
            f"{file}: '{name}' ends at byte {end} of the data, which has {room}; it is truncated"
        )
    nbytes = math.prod(shape) * getattr(_C, dtype).itemsize
    if nbytes != end - begin:
        raise SerializationError(
            f"{file}: '{name}' of shape {shape} and dtype {entry['dtype']} needs {nbytes} bytes, its offsets give "
            f"{end - begin}"
        )
    return Entry(dtype, shape, begin, end)


def _check_places(entries: dict[str, Entry], room: int, file: str) -> None:
    """Each byte of the data belongs to one tensor."""
    at, before = 0, ""
    for name, e in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if e.begin < at:
            raise SerializationError(f"{file}: the data of '{name}' and '{before}' overlap")
        if e.begin > at:
            raise SerializationError(
                f"{file}: {e.begin - at} bytes before the data of '{name}' belong to no tensor"
            )
        at, before = e.end, name
    if at < room:
        raise SerializationError(f"{file}: {room - at} bytes at the end belong to no tensor")
