"""PyTorch's files (.pt, .pth): a pickle of the value, and the bytes of its storages beside it.

| form | what |
|---|---|
| zip | `NAME/data.pkl`, a record `NAME/data/KEY` per storage, `NAME/byteorder`, `NAME/version` |
| legacy | pickles of a magic number, a version, the machine, the value and the storages' keys; then the storages, each after its number of elements |
"""  # fmt: skip

import contextlib
import io
import os
import pickle
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from .. import _C
from .._C import Tensor
from ..storage import TypedStorage, UntypedStorage
from . import SerializationError, memory, reading, trusted
from .forms import MAGIC
from .header import Entry
from .pickling import NotPlain, Pickler, Storages
from .torch_names import StorageKey, StorageKeys, TorchNames
from .unpickling import Names, Source, Unpickler, UnpicklingError

_PROTOCOL = 1001
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_ALIGNMENT = 64
_MOST_OF_DEFLATE = 1032  # bytes that one compressed byte can give
_MOST_VERSIONS = 10

Restore = Callable[
    [Tensor, str], Tensor
]  # the memory of a storage, and where it was when it was saved


class Request:
    """How a file shall be read."""

    def __init__(
        self, name: str, restore: Restore, mapped: bool, verify: bool, weights_only: bool, encoding: str,
        default_order: str, pickle_module: Any = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.restore = restore
        self.mapped = mapped
        self.verify = verify
        self.weights_only = weights_only
        self.encoding = encoding
        self.default_order = default_order
        self.pickle_module = pickle_module

    def unpickle(self, source: Source, storage: Callable[[StorageKey], Any]) -> Any:
        """The value of the pickle at the source's position."""
        if self.weights_only:
            return Unpickler(source, TorchNames(storage), self.encoding).load()
        return trusted.unpickle(source.file, storage, self.pickle_module, self.encoding)


def read(file: Any, form: str, request: Request) -> Any:
    """The value of a file."""
    try:
        if form == "zip":
            return _ZipFile(file, request).load()
        if request.mapped:
            raise SerializationError(
                "mmap=True needs the zip form; save the file again, or load it with mmap=False"
            )
        return _read_legacy(file, request)
    except SerializationError as error:
        error.args = (f"{request.name}: {error}",)
        raise


def refused_names(file: Any, name: str) -> list[str]:
    """The names in a file of the zip form that are not allowed."""
    found = _ZipFile(file, Request(name, lambda t, place: t, False, True, True, "utf-8", "little"))
    seen = StorageKeys()
    found.run(seen)
    names = TorchNames(_no_storage)
    return sorted({full for full in seen.globals if not names.allows(full)})


def storage_value(data: Tensor, dtype: str | None) -> TypedStorage | UntypedStorage:
    """A storage as a pickle names it: typed unless `dtype` is None."""
    if dtype is None:
        return UntypedStorage(data)
    return TypedStorage(data.view(getattr(_C, dtype)))


def _swap(data: Tensor, dtype: str | None) -> None:
    if dtype is None:
        raise SerializationError(
            "the file is of a big-endian machine and holds a storage without a dtype"
        )
    size = getattr(_C, dtype).itemsize
    memory.swap_bytes(data, size // 2 if dtype.startswith("complex") else size)


# ---- zip


class _ZipFile:
    """A file of the zip form."""

    def __init__(self, file: Any, request: Request) -> None:
        self._file = file
        self._request = request
        self._storages: dict[str, Tensor] = {}
        self._size = file.seek(0, os.SEEK_END)
        self._records = self._directory()
        self._starts = self._places()
        self._root = self._find_root()
        self._mapping = reading.mapping(file) if request.mapped else None
        self._big = self._order() == "big"

    def load(self) -> Any:
        """The value."""
        return self._request.unpickle(self._pickle(), self._storage)

    def run(self, names: Names) -> Any:
        """What the pickle gives with these names."""
        return Unpickler(self._pickle(), names, self._request.encoding).load()

    def _pickle(self) -> Source:
        data = self._bytes(f"{self._root}/data.pkl")
        return Source(io.BytesIO(data), len(data))

    # ---- records

    def _directory(self) -> dict[str, zipfile.ZipInfo]:
        try:
            with zipfile.ZipFile(self._file) as archive:
                found = archive.infolist()
        except (
            zipfile.BadZipFile,
            NotImplementedError,
            ValueError,
            OSError,
            struct.error,
            EOFError,
            OverflowError,
        ) as error:
            raise SerializationError(
                f"the zip archive is truncated or damaged: {error}"
            ) from None  # fmt: skip
        records = {info.filename: info for info in found}
        if len(records) != len(found):
            raise SerializationError("the zip archive is damaged: two records have one name")
        return records

    def _places(self) -> dict[str, int]:
        """Where the data of each record begins; no byte belongs to two."""
        starts, end = {}, 0
        for name, info in sorted(self._records.items(), key=lambda item: item[1].header_offset):
            starts[name] = self._start(info, end)
            end = starts[name] + info.compress_size
            if end > self._size:
                raise SerializationError(
                    f"the record '{name}' ends after the file; it is truncated"
                )
            _check_sizes(info)
        return starts

    def _start(self, info: zipfile.ZipInfo, after: int) -> int:
        """Where the data of a record begins, by its own header, which begins at `after` or later."""
        mark, name_length, extra_length = b"", 0, 0
        if after <= info.header_offset <= self._size - _LOCAL_HEADER.size:
            self._file.seek(info.header_offset)
            head = reading.beginning(self._file, _LOCAL_HEADER.size)
            mark, name_length, extra_length = _LOCAL_HEADER.unpack(head)
        if mark != b"PK\x03\x04":
            raise SerializationError(f"the zip archive is damaged at the record '{info.filename}'")
        return info.header_offset + _LOCAL_HEADER.size + name_length + extra_length

    def _find_root(self) -> str:
        roots = [
            name[: -len("/data.pkl")]
            for name in self._records
            if re.fullmatch(r"[^/]+/data\.pkl", name)
        ]
        if len(roots) != 1:
            raise SerializationError("this is a zip archive, but not one that torch.save wrote")
        root = roots[0]
        if f"{root}/constants.pkl" in self._records:
            raise SerializationError(
                "this is a TorchScript archive, which holds code: save the module's state_dict() in the program that "
                "made it"
            )
        version = self._bytes(f"{root}/version") if f"{root}/version" in self._records else b""
        if not re.fullmatch(rb"\d{1,9}\n?", version):
            raise SerializationError(
                "the zip archive has no version; this is no file of torch.save, or damaged"
            )
        if int(version) > _MOST_VERSIONS:
            raise SerializationError(
                f"a later PyTorch wrote it (version {int(version)}, versions up to {_MOST_VERSIONS} are read)"
            )
        return root  # fmt: skip

    def _order(self) -> str:
        name = f"{self._root}/byteorder"
        if name not in self._records:
            return self._request.default_order
        order = self._bytes(name)
        if order not in (b"little", b"big"):
            raise SerializationError(f"Unknown endianness type: {order[:20]!r}")
        return order.decode()

    def _fill(self, name: str, view: memoryview) -> None:
        """The data of a record into `view`, which has its size."""
        info = self._records[name]
        self._file.seek(self._starts[name])
        pieces = (
            self._inflated(info, view) if info.compress_type else reading.fill(self._file, view)
        )
        crc = size = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc) if self._request.verify else 0
            size += len(piece)
        if size != len(view):
            raise SerializationError(f"the record '{name}' ends early; it is truncated")
        self._check(name, crc)

    def _check(self, name: str, crc: int) -> None:
        expected = self._records[name].CRC  # 0: PyTorch was told to compute none
        if self._request.verify and expected not in (0, crc):
            raise SerializationError(
                f"the record '{name}' is damaged: its CRC-32 is {crc:08x}, it should be {expected:08x}"
            )

    def _inflated(self, info: zipfile.ZipInfo, view: memoryview) -> Iterator[memoryview]:
        inflater, at, left = zlib.decompressobj(-zlib.MAX_WBITS), 0, info.compress_size
        data = b""
        try:
            while at < len(view) and not inflater.eof:
                if not data and left:
                    data = self._file.read(min(left, 1 << 20))
                    left -= len(data)
                made = inflater.decompress(data, min(len(view) - at, 1 << 20))
                if not made and not data and not inflater.unconsumed_tail:
                    return
                data = inflater.unconsumed_tail
                view[at : at + len(made)] = made
                at += len(made)
                yield view[at - len(made) : at]
        except zlib.error as error:
            raise SerializationError(f"the record '{info.filename}' is damaged: {error}") from None

    def _bytes(self, name: str) -> bytes:
        data = bytearray(self._records[name].file_size)
        self._fill(name, memoryview(data))
        return bytes(data)

    # ---- storages

    def _storage(self, key: StorageKey) -> TypedStorage | UntypedStorage:
        name = f"{self._root}/data/{key.name}"
        if name not in self._records:
            raise SerializationError(f"the record '{name}' of a storage is missing")
        if self._records[name].file_size != key.nbytes:
            raise SerializationError(
                f"the record '{name}' has {self._records[name].file_size} bytes, its storage {key.nbytes}"
            )
        if key.name not in self._storages:
            data = self._memory(name, key)
            if self._big:
                _swap(data, key.dtype)
            self._storages[key.name] = self._request.restore(data, key.location)
        return storage_value(self._storages[key.name], key.dtype)

    def _memory(self, name: str, key: StorageKey) -> Tensor:
        start, entry = self._starts[name], Entry("uint8", [key.nbytes], 0, key.nbytes)
        if memory.skipping.active:
            return reading.empty_entry(entry, name)
        if self._mapping is None or self._records[name].compress_type:
            data = reading.empty_entry(entry, name)
            self._fill(name, memory.writable_bytes(data) if key.nbytes else memoryview(b""))
            return data
        if self._request.verify:
            view = memoryview(self._mapping)[start : start + key.nbytes]
            self._check(name, reading.crc_of(view))
        return reading.mapped_entry(self._mapping, start, entry, True, name)


def _check_sizes(info: zipfile.ZipInfo) -> None:
    """Refuse what no writer makes: nothing is allocated for sizes that cannot be."""
    stored = info.compress_type == zipfile.ZIP_STORED
    if info.flag_bits & 1 or (not stored and info.compress_type != zipfile.ZIP_DEFLATED):
        raise SerializationError(
            f"the record '{info.filename}' is encrypted or compressed in an unknown way"
        )
    most = info.compress_size * (1 if stored else _MOST_OF_DEFLATE)
    if info.file_size > most or (stored and info.file_size != most):
        raise SerializationError(f"the record '{info.filename}' has a damaged size")


# ---- legacy


@contextlib.contextmanager
def _buffered(file: Any) -> Iterator[Any]:
    """The file with reads of single bytes made cheap; it ends where reading ended."""
    if not isinstance(file, io.RawIOBase):
        yield file
        return
    buffered = io.BufferedReader(file)
    try:
        yield buffered
        at = buffered.tell()
    finally:
        buffered.detach()
    file.seek(at)


def _read_legacy(raw: Any, request: Request) -> Any:
    with _buffered(raw) as file:
        begin = file.tell()
        size = file.seek(0, os.SEEK_END)
        file.seek(begin)
        source = Source(file, size - begin)
        nothing = TorchNames(_no_storage)
        Unpickler(source, nothing).load()  # the magic number
        if Unpickler(source, nothing).load() != _PROTOCOL:
            raise SerializationError("the file has an unknown version of PyTorch's legacy format")
        machine = Unpickler(source, nothing).load()
        if isinstance(machine, dict) and machine.get("little_endian") is False:
            raise SerializationError(
                "the file is in the legacy format of a big-endian machine, which is not read"
            )
        start = file.tell()
        wanted = StorageKeys()
        Unpickler(source, wanted, request.encoding).load()
        order = Unpickler(source, nothing).load()
        storages = _legacy_storages(file, source, wanted.keys, order, request.restore)
        end = file.tell()
        file.seek(start)
        value = request.unpickle(
            Source(file, end - start), lambda key: storage_value(storages[key.name], key.dtype)
        )
        file.seek(end)
        return value  # fmt: skip


def _no_storage(key: StorageKey) -> Any:
    raise UnpicklingError("a storage stands where none can be")


def _legacy_storages(
    file: Any, source: Source, wanted: list[StorageKey], order: Any, restore: Restore
) -> dict[str, Tensor]:
    """The memory of the storages, which follow the pickles in this order."""
    keys: dict[str, StorageKey] = {}
    for key in wanted:
        if keys.setdefault(key.name, key).nbytes != key.nbytes:
            raise SerializationError(f"the storage '{key.name}' has two sizes; the file is damaged")
    if not isinstance(order, list) or sorted(map(str, order)) != sorted(keys):
        raise SerializationError("the list of storages does not fit the value; the file is damaged")
    storages = {}
    for name in order:
        key = keys[name]
        item = 1 if key.dtype is None else getattr(_C, key.dtype).itemsize
        with _refusing_truncation():
            count = struct.unpack("<q", source.take(8))[0]
        if count * item != key.nbytes:
            raise SerializationError(
                f"the storage '{name}' has {count} elements of {item} bytes, its tensors want {key.nbytes} bytes"
            )
        if key.nbytes > source.left:
            raise SerializationError(
                f"the storage '{name}' has {key.nbytes} bytes, {source.left} are left; the file is truncated"
            )
        data = reading.empty_entry(Entry("uint8", [key.nbytes], 0, key.nbytes), name)
        if key.nbytes:
            for piece in reading.fill(file, memory.writable_bytes(data)):
                source.left -= len(piece)
        storages[name] = restore(data, key.location)
    return storages  # fmt: skip


@contextlib.contextmanager
def _refusing_truncation() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise SerializationError(str(error)) from None


# ---- writing


def pack(value: Any, legacy: bool, module: Any, protocol: int) -> tuple[bytes, Storages]:
    """The pickle of a value and its storages."""
    suffix = (None,) if legacy else ()
    if module in (None, pickle) and protocol == 2:
        with contextlib.suppress(NotPlain):
            storages = Storages()
            return Pickler(storages, suffix).dump(value), storages
    storages = Storages()
    return trusted.pickled(value, storages, suffix, module, protocol), storages


def write_zip(file: Any, data: bytes, storages: Storages) -> None:
    """Write a file of the zip form that can seek."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        add(archive, "archive/data.pkl", [data], len(data))
        add(archive, "archive/.format_version", [b"1"], 1)
        add(archive, "archive/.storage_alignment", [str(_ALIGNMENT).encode()], 2)
        add(archive, "archive/byteorder", [b"little"], 6)
        for i, (storage, _) in enumerate(storages.all):
            size = storage.nbytes()
            skips = memory.skipping.active
            pieces = memory.zeros(size) if skips else memory.snapshot(storage._bytes())
            add(archive, f"archive/data/{i}", pieces, size)
        add(archive, "archive/version", [b"3\n"], 2)


def add(archive: zipfile.ZipFile, name: str, pieces: Any, size: int) -> None:
    """Add a record whose data is aligned, as PyTorch maps it."""
    info = zipfile.ZipInfo(name)
    large = size > zipfile.ZIP64_LIMIT // 2
    assert archive.fp is not None
    at = archive.fp.tell() + _LOCAL_HEADER.size + len(name.encode()) + (20 if large else 0) + 4
    padding = -at % _ALIGNMENT
    info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    with archive.open(info, "w", force_zip64=large) as record:
        for piece in pieces:
            record.write(piece)


def write_legacy(file: Any, data: bytes, storages: Storages) -> None:
    """Write a file of the legacy form."""
    sizes = {"short": 2, "int": 4, "long": 4}
    machine = {"protocol_version": _PROTOCOL, "little_endian": True, "type_sizes": sizes}
    for plain in (MAGIC, _PROTOCOL, machine):
        file.write(Pickler(Storages()).dump(plain))
    file.write(data)
    file.write(Pickler(Storages()).dump([str(i) for i in range(len(storages.all))]))
    for storage, dtype in storages.all:
        item = 1 if dtype is None else getattr(_C, dtype).itemsize
        file.write(struct.pack("<q", storage.nbytes() // item))
        for piece in memory.snapshot(storage._bytes()):
            file.write(piece)
