"""Datasets of files: tables of Arrow and Parquet, tar shards, raw arrays, and safetensors.

They keep paths, not contents: a worker process opens the files itself, and what is mapped is in memory once for all of them.
"""

from __future__ import annotations

import glob
import math
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ... import _C, storage
from ..._C import Generator, Tensor
from ...serialization import load
from ._utils.worker import get_worker_info
from .dataset import Dataset, IterableDataset
from .permutation import Permutation
from .sampler import random_seed

__all__ = ["MappedDataset", "SafetensorsDataset", "TableDataset", "TarShards"]

Path = str | os.PathLike[str]


def _paths(what: str, given: Path | Sequence[Path]) -> list[str]:
    """Paths, with those of patterns in order.

    Raises:
        FileNotFoundError: for one that is not there, or a pattern that fits none.
    """
    found: list[str] = []
    for path in [given] if isinstance(given, (str, os.PathLike)) else given:
        fitting = sorted(glob.glob(os.fspath(path)))
        if not fitting:
            raise FileNotFoundError(f"{what}: there is no file {os.fspath(path)!r}")
        found += fitting
    if not found:
        raise ValueError(f"{what}: expected at least one path, got none")
    return found


class _OfFiles:
    """What opens its files at the first use in each process, and travels to others as its arguments."""

    _opened: Any = None

    def _open(self) -> Any:
        raise NotImplementedError

    @property
    def _content(self) -> Any:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), self._open()
        return self._opened[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


class TableDataset(_OfFiles, Dataset[dict[str, Any]]):
    """Rows of a table of Arrow as dicts by the names of columns; needs pyarrow.

    Numbers without nulls are tensors, read without a copy where the column is one chunk of a mapped file. Fixed lists of them are
    vectors. All else is what pyarrow makes of it: texts, bytes, lists, None.

    Args:
        source: a `pyarrow.Table`, or paths of `.parquet`, `.arrow` and `.feather` files with the same columns.
        columns: those to read; None: all.

    Raises:
        ModuleNotFoundError: without pyarrow.
        FileNotFoundError, ValueError: for paths that are not there, or end in something else.
        KeyError: for a column that is not there.
    """

    def __init__(self, source: Any, columns: Sequence[str] | None = None) -> None:
        _arrow()
        is_table = hasattr(source, "column_names")
        self._table = source if is_table else None
        self._files = [] if is_table else _paths("TableDataset", source)
        self._columns = None if columns is None else list(columns)
        for path in self._files:
            if _kind_of_table(path) is None:
                raise ValueError(
                    f"TableDataset: expected paths that end in .parquet, .arrow or .feather, got {path!r}"
                )
        self._length: int = self._content[0]

    def _open(self) -> Any:
        arrow = _arrow()
        table = self._table
        if table is None:
            table = arrow.concat_tables([_read_table(path) for path in self._files])
        names = table.column_names if self._columns is None else self._columns
        missing = [name for name in names if name not in table.column_names]
        if missing:
            raise KeyError(
                f"TableDataset: there is no column {missing[0]!r}, but {table.column_names}"
            )
        return table.num_rows, {name: _column(arrow, table.column(name)) for name in names}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not -self._length <= index < self._length:
            raise IndexError(f"TableDataset: index {index} of {self._length} rows")
        index %= self._length
        return {
            name: column[index] if isinstance(column, Tensor) else column[index].as_py()
            for name, column in self._content[1].items()
        }


def _arrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "TableDataset reads tables by pyarrow, which is not installed: pip install pyarrow"
        ) from None
    return pyarrow


def _kind_of_table(path: str) -> str | None:
    suffix = os.path.splitext(path)[1]
    return suffix if suffix in (".parquet", ".arrow", ".feather") else None


def _read_table(path: str) -> Any:
    arrow = _arrow()
    if _kind_of_table(path) == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(path, memory_map=True)
    file = arrow.memory_map(path)
    try:
        return arrow.ipc.open_file(file).read_all()
    except arrow.ArrowInvalid:
        file.seek(0)
        return arrow.ipc.open_stream(file).read_all()


def _column(arrow: Any, column: Any) -> Any:
    """A column as a tensor where it is one of numbers, else as it is."""
    kind, rows = column.type, len(column)
    if arrow.types.is_fixed_size_list(kind) and not column.null_count:
        values = column.combine_chunks()
        values = values.chunk(0) if hasattr(values, "chunks") and values.num_chunks else values
        flat = _column(arrow, arrow.chunked_array([values.flatten()]))
        return flat.reshape(rows, kind.list_size) if isinstance(flat, Tensor) else column
    is_number = arrow.types.is_integer(kind) or arrow.types.is_floating(kind)
    if column.null_count or not (is_number or arrow.types.is_boolean(kind)):
        return column
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if hasattr(array, "chunks"):
        array = array.chunk(0) if array.num_chunks else arrow.array([], kind)
    values = array.to_numpy(zero_copy_only=False)
    if not values.flags.writeable:  # tensors of mapped files are read, as a rule
        return _C.from_buffer(memoryview(values), _C.as_tensor(values[:0].copy()).dtype, [rows])
    return _C.as_tensor(values)


class TarShards(IterableDataset[dict[str, Any]]):
    """Samples out of tar files in webdataset's layout: files of one name before the first dot are one sample.

    A sample is a dict: `__key__`, the name; `__shard__`, the file; and for each suffix the bytes, or what `decode` makes of them.
    Files are read from front to back. Each worker reads shards of its own, so that there should be at least as many as workers.

    Args:
        paths: of tar files, also compressed, or patterns of them.
        decode: functions of bytes, by suffix: `{"cls": int, "json": json.loads}`.
        shuffle: shards in a new random order in each pass.
        generator: of that order.
        rank, world_size: of several programs, of which each reads a part of the shards.

    Raises:
        FileNotFoundError: for a path that is not there.
        ValueError: for a rank that is none; as it is read, for a file that is no tar file, or a suffix twice in a sample.
    """

    def __init__(
        self,
        paths: Path | Sequence[Path],
        decode: Mapping[str, Callable[[bytes], Any]] | None = None,
        shuffle: bool = False,
        generator: Generator | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(
                f"TarShards: expected a rank from 0 to {world_size - 1}, got {rank} of {world_size}"
            )
        self.paths = _paths("TarShards", paths)
        self.decode = dict(decode or {})
        self.shuffle, self._generator = shuffle, generator
        self.rank, self.world_size = rank, world_size

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_generator": None}  # workers have the loader's seed

    def _own_shards(self) -> list[str]:
        worker = get_worker_info()
        order: Sequence[int] = range(len(self.paths))
        if self.shuffle:
            seed = random_seed(self._generator) if worker is None else worker.seed - worker.id
            order = Permutation(len(self.paths), seed=seed & (2**63 - 1))
        number, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        place, step = self.rank * count + number, self.world_size * count
        return [self.paths[order[i]] for i in range(place, len(self.paths), step)]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for path in self._own_shards():
            yield from self._samples(path)

    def _samples(self, path: str) -> Iterator[dict[str, Any]]:
        sample: dict[str, Any] = {}
        for name, content in _members(path):
            folder, base = os.path.split(name)
            stem, _, suffix = base.partition(".")
            key = os.path.join(folder, stem)
            if sample and sample["__key__"] != key:
                yield sample
                sample = {}
            sample = sample or {"__key__": key, "__shard__": path}
            if suffix in sample:
                raise ValueError(
                    f"TarShards: {path}: the sample {key!r} has {suffix!r} twice; files of a sample lie behind each other, "
                    "and samples have names of their own"
                )
            sample[suffix] = self._decoded(path, name, suffix, content)
        if sample:
            yield sample

    def _decoded(self, path: str, name: str, suffix: str, content: bytes) -> Any:
        decode = self.decode.get(suffix)
        if decode is None:
            return content
        try:
            return decode(content)
        except Exception as error:
            error.add_note(f"It is the file {name!r} of {path}.")
            raise


def _members(path: str) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(path, "r|*") as file:
            for member in file:
                opened = file.extractfile(member) if member.isfile() else None
                if opened is not None:
                    yield member.name, opened.read()
    except tarfile.TarError as error:
        raise ValueError(f"TarShards: {path} is damaged, or no tar file: {error}") from None


class MappedDataset(_OfFiles, Dataset[Tensor]):
    """Rows of a file that holds nothing but elements of one dtype; mapped, so that only rows that are read are in memory.

    Args:
        path: of the file.
        dtype: of the elements.
        shape: of a row.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for a size that is not a whole number of rows.
    """

    def __init__(self, path: Path, dtype: Any, shape: Sequence[int] = ()) -> None:
        self._path, self._dtype, self._shape = os.fspath(path), dtype, list(shape)
        size, row = os.stat(self._path).st_size, math.prod(shape) * dtype.itemsize
        if row < 1 or size % row:
            raise ValueError(
                f"MappedDataset: expected whole rows of {row} bytes ({dtype}, shape {tuple(shape)}), got {size} in "
                f"{self._path!r}"
            )
        self._length = size // row

    def _open(self) -> Any:
        if not self._length:
            return _C.tensor([], self._dtype).reshape([0, *self._shape])
        size = os.stat(self._path).st_size
        mapped = storage.UntypedStorage.from_file(self._path, False, size)
        return mapped._bytes().view(self._dtype).reshape([self._length, *self._shape])

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Tensor:
        if not -self._length <= index < self._length:
            raise IndexError(f"MappedDataset: index {index} of {self._length} rows")
        row: Tensor = self._content[index]
        return row


class SafetensorsDataset(_OfFiles, Dataset[dict[str, Tensor]]):
    """Rows of the tensors of safetensors files, as dicts by name; mapped. Files follow each other.

    Args:
        paths: of the files, which have tensors of the same names; all tensors of a file have as many rows.
        names: those to read; None: all of the first file.

    Raises:
        FileNotFoundError: for a path that is not there.
        ValueError: if tensors of a file differ in their number of rows, or lack rows.
        KeyError: if a file lacks a tensor.
    """

    def __init__(self, paths: Path | Sequence[Path], names: Sequence[str] | None = None) -> None:
        self._files = _paths("SafetensorsDataset", paths)
        self._names = None if names is None else list(names)
        self._ends: list[int] = []
        for path, tensors in zip(self._files, self._content, strict=True):
            counts = {name: len(t) if t.ndim else -1 for name, t in tensors.items()}
            if len(set(counts.values())) != 1 or -1 in counts.values():
                raise ValueError(
                    f"SafetensorsDataset: expected tensors with one number of rows, got {counts} in {path!r}"
                )
            self._ends.append((self._ends or [0])[-1] + next(iter(counts.values())))

    def _open(self) -> Any:
        found = []
        for path in self._files:
            tensors = load(path, mmap=True, verify=False)
            names = self._names = list(tensors) if self._names is None else self._names
            missing = [name for name in names if name not in tensors]
            if missing:
                raise KeyError(
                    f"SafetensorsDataset: {path!r} has no tensor {missing[0]!r}, but {list(tensors)}"
                )
            found.append({name: tensors[name] for name in names})
        return found

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"SafetensorsDataset: index {index} of {length} rows")
        index %= length
        file = next(i for i, end in enumerate(self._ends) if index < end)
        row = index - (self._ends[file - 1] if file else 0)
        return {name: tensor[row] for name, tensor in self._content[file].items()}
