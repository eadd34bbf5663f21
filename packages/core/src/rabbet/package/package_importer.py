"""Reads packages: the values and files in them, and their modules, which do not mix with the program's own."""

import builtins
import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import io
import linecache
import os
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from .._files import SerializationError, memory, reading, torch_file, trusted
from .._files.header import Entry
from .._files.torch_names import StorageKey
from ..serialization import restorer
from ..storage import UntypedStorage
from . import _mangling
from .file_structure_representation import Directory, structure_of
from .glob_group import GlobPattern
from .importer import Importer

__all__ = ["PackageImporter"]

_OWN_NAME = "torch_package_importer"  # modules of a package import their importer by this name
_ORIGIN = "<package_importer>"


class PackageImporter(Importer):
    """Reads a package that rabbet's or PyTorch's PackageExporter wrote.

        importer = PackageImporter("model.pt")
        net = importer.load_pickle("model", "model.pkl")

    Modules of the package have names of their own, such as `<torch_package_0>.project.net`. They can import the program's
    modules only if the package lists them as external. This is no protection: importing a module or loading a pickle
    executes the code in the package, which can do whatever the program can. Read only packages that you trust. To load
    weights alone, use `rabbet.load`, which executes nothing.

    Args:
        file_or_buffer: a path, a binary file, or the folder of an unpacked archive.
        module_allowed: returns whether the package may import the external module of this name.

    Raises:
        SerializationError: if the file is damaged or not a package.
        ImportError: if `module_allowed` refuses a module.
    """

    def __init__(
        self,
        file_or_buffer: str | os.PathLike[str] | IO[bytes],
        module_allowed: Callable[[str], bool] = lambda module_name: True,
    ) -> None:
        self._records = _records(file_or_buffer)
        self.filename = self._records.name
        self._prefix = _mangling.new_prefix()
        self.modules: dict[str, Any] = {_OWN_NAME: self}
        self._lock = threading.RLock()
        self.extern_modules = self._text(".data/extern_modules").split()
        for name in self.extern_modules:
            if not module_allowed(name):
                raise ImportError(
                    f"package '{self.filename}' needs the external module '{name}' but that module has been disallowed"
                )
        self._builtins = {**vars(builtins), "__import__": self.__import__}

    # ---- values and files

    def id(self) -> str:
        """A string that identifies this importer within the process."""
        return self._prefix

    def load_binary(self, package: str, resource: str) -> bytes:
        """The bytes of a resource.

        Args:
            package: the name of the package whose folder contains the file.
            resource: the name of the file.

        Raises:
            SerializationError: if the resource is missing or damaged.
        """
        return self._records.read(_path(package, resource))

    def load_text(
        self, package: str, resource: str, encoding: str = "utf-8", errors: str = "strict"
    ) -> str:
        """The text of a resource. The arguments are those of `load_binary` and `bytes.decode`."""
        return self.load_binary(package, resource).decode(encoding, errors)

    def load_pickle(self, package: str, resource: str, map_location: Any = None) -> Any:
        """The value of a resource that `save_pickle` wrote. Loading it executes the code that the pickle names.

        Args:
            package, resource: as in `load_binary`.
            map_location: as in `rabbet.load`.

        Raises:
            SerializationError: as in `load_binary`.
        """
        data = self.load_binary(package, resource)
        restore = restorer(map_location, UntypedStorage)
        storages: dict[str, Any] = {}
        reduced: dict[Any, Any] = {}

        def storage(key: StorageKey) -> Any:
            if key.name not in storages:
                storages[key.name] = restore(self._storage(key), key.location)
            return torch_file.storage_value(storages[key.name], key.dtype)

        def persistent(key: tuple[Any, ...]) -> Any:
            if len(key) not in (3, 4) or key[0] != "reduce_package":
                raise SerializationError(
                    f"{self.filename}: a persistent id of the pickle is damaged"
                )
            function, arguments = key[-2:]
            if len(key) == 3:  # early versions of PyTorch wrote no number
                return function(self, *arguments)
            number = key[1]
            if number not in reduced:
                reduced[number] = function(self, *arguments)
            return reduced[number]

        more = trusted.Reading(self._find_global, persistent)
        return trusted.unpickle(io.BytesIO(data), storage, None, "utf-8", more)

    def _find_global(self, module: str, name: str) -> Any:
        return functools.reduce(getattr, name.split("."), self.import_module(module))

    def _storage(self, key: StorageKey) -> Any:
        data = self._records.read(f".data/{key.name}.storage")
        if len(data) != key.nbytes:
            raise SerializationError(
                f"{self.filename}: the storage {key.name} has {len(data)} bytes, its tensors want {key.nbytes}"
            )
        made = reading.empty_entry(Entry("uint8", [key.nbytes], 0, key.nbytes), key.name)
        if data:
            memory.writable_bytes(made)[:] = data
        return made

    def python_version(self) -> str | None:
        """The version of Python that wrote the package; None if the package does not record it."""
        return self._text(".data/python_version") or None

    def file_structure(
        self, *, include: GlobPattern = "**", exclude: GlobPattern = ()
    ) -> Directory:
        """The files of the package as a tree.

        Args:
            include: patterns of paths. `*` matches any characters within a name, `**` any number of folders.
            exclude: patterns of paths to leave out.
        """
        return structure_of(self.filename, self._records.paths, include, exclude)

    def _text(self, path: str) -> str:
        return self._records.read(path).decode() if path in self._records else ""

    # ---- modules

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """Import a module of the package or an external module.

        Args:
            name: its name in the program that wrote the package, which may be relative.
            package: the package that a relative name refers to.

        Raises:
            ModuleNotFoundError: if the package neither contains the module nor lists it as external.
        """
        if name.startswith("."):
            name = importlib.util.resolve_name(name, _mangling.demangled(package or ""))
        return self._import(_mangling.demangled(name))

    def whichmodule(self, obj: Any, name: str) -> str:
        """The name of the module that defines an object."""
        for module_name, module in self.modules.copy().items():
            if module_name != _OWN_NAME and _attribute(module, name) is obj:
                return str(module.__name__)
        return super().whichmodule(obj, name)

    def get_source(self, module_name: str) -> str:
        """The source of a module of the package.

        Raises:
            ModuleNotFoundError: if the package does not contain the module.
        """
        path = self._source_path(_mangling.demangled(module_name))
        if path is None:
            raise self._not_found(module_name)
        return self._records.read(path).decode()

    def is_package(self, module_name: str) -> bool:
        """Whether a module of the package is itself a package."""
        return (self._source_path(module_name) or "").endswith("/__init__.py")

    def get_resource_reader(self, fullname: str) -> "_ResourceReader | None":
        """The reader that `importlib.resources` uses for the files in a module's folder; None if there is no folder."""
        folder = _mangling.demangled(fullname).replace(".", "/") + "/"
        return _ResourceReader(self._records, folder) if self._records.has_folder(folder) else None

    def _source_path(self, name: str) -> str | None:
        path = name.replace(".", "/")
        return next((p for p in (f"{path}.py", f"{path}/__init__.py") if p in self._records), None)

    def _is_external(self, name: str) -> bool:
        return any(f"{name}.".startswith(f"{extern}.") for extern in self.extern_modules)

    def _not_found(self, name: str) -> ModuleNotFoundError:
        return ModuleNotFoundError(
            f'No module named "{name}" in self-contained archive "{self.filename}" and the module is also not in the '
            f"list of allowed external modules: {self.extern_modules}",
            name=name,
        )

    def _import(self, name: str) -> ModuleType:
        with self._lock:
            if name in self.modules:
                return self.modules[name]
            parent, _, last = name.rpartition(".")
            if parent:
                self._import(parent)
            if name not in self.modules:  # the parent may have imported it
                if self._is_external(name):
                    self.modules[name] = importlib.import_module(name)
                else:
                    self._load(name)
            module = self.modules[name]
            if parent and not self._is_external(parent):
                setattr(self.modules[parent], last, module)
            return module

    def _load(self, name: str) -> None:
        path = self._source_path(name)
        folder = name.replace(".", "/") + "/"
        is_folder = self._records.has_folder(folder) or any(
            extern.startswith(f"{name}.") for extern in self.extern_modules
        )
        if path is None and not is_folder:
            raise self._not_found(name)
        is_package = path is None or path.endswith("/__init__.py")
        spec = importlib.machinery.ModuleSpec(name, self, origin=_ORIGIN, is_package=is_package)  # type: ignore[arg-type]
        module = ModuleType(f"{self._prefix}.{name}")
        module.__spec__, module.__loader__ = spec, self  # type: ignore[assignment]
        module.__package__ = name if is_package else name.rpartition(".")[0]
        module.__dict__.update(__builtins__=self._builtins, __torch_package__=True, __cached__=None)
        if is_package:
            module.__path__ = []
        module.__file__ = None if path is None else f"{self._prefix}.{path}"
        self.modules[name] = module
        if path is None:
            return
        try:
            source = self._records.read(path).decode()
            assert module.__file__ is not None
            lines = source.splitlines(keepends=True)
            linecache.cache[module.__file__] = (len(source), None, lines, module.__file__)
            exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)
        except BaseException:
            self.modules.pop(name, None)
            raise

    def __import__(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import a module for an import statement in a module of the package."""
        if level:
            package = globals.get("__package__") or ""
            full = importlib.util.resolve_name("." * level + name, package)
        else:
            full = name
        module = self._import(full)
        if not fromlist:
            return module if level else self._import(name.partition(".")[0])
        for attribute in list(getattr(module, "__all__", ())) if "*" in fromlist else fromlist:
            if not hasattr(module, attribute):
                with contextlib.suppress(ModuleNotFoundError):
                    self._import(f"{full}.{attribute}")
        return module


def _attribute(module: Any, name: str) -> Any:
    found = module
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found


def _path(package: str, resource: str) -> str:
    return f"{_mangling.demangled(package).replace('.', '/')}/{resource}" if package else resource


# ---- files


class _Records:
    """Reads the files of a package by their paths."""

    def __init__(self, name: str, paths: Sequence[str], read: Callable[[str], bytes]) -> None:
        self.name = name
        self.paths = sorted(paths)
        self._known = set(paths)
        self._folders = {p[: i + 1] for p in paths for i, c in enumerate(p) if c == "/"}
        self._read = read

    def __contains__(self, path: object) -> bool:
        return path in self._known

    def has_folder(self, folder: str) -> bool:
        return folder in self._folders

    def read(self, path: str) -> bytes:
        """The bytes of a file.

        Raises:
            SerializationError: if the file is missing or damaged.
        """
        if path not in self._known:
            raise SerializationError(f"{self.name}: there is no file {path!r} in the package")
        try:
            return self._read(path)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:  # fmt: skip
            raise SerializationError(
                f"{self.name}: the file {path!r} is damaged: {error}"
            ) from error


def _records(source: Any) -> _Records:
    if isinstance(source, (str, os.PathLike)) and os.path.isdir(source):
        return _folder(Path(source))
    is_path = isinstance(source, (str, os.PathLike))
    name = os.fspath(source) if is_path else "<binary>"
    if not is_path and not hasattr(source, "read"):
        raise TypeError(
            f"PackageImporter: expected a path or a file to read, got {type(source).__name__}"
        )
    try:
        archive = zipfile.ZipFile(source)
    except zipfile.BadZipFile as error:
        raise SerializationError(f"{name}: this is no package: {error}") from None
    found = [info.filename for info in archive.infolist() if not info.is_dir()]
    roots = {path.partition("/")[0] for path in found}
    if len(roots) != 1 or not any(path.endswith("/.data/extern_modules") for path in found):
        raise SerializationError(
            f"{name}: this is a zip archive, but no package of a PackageExporter"
        )
    (root,) = roots
    paths = [path[len(root) + 1 :] for path in found]
    return _Records(name, paths, lambda path: archive.read(f"{root}/{path}"))


def _folder(folder: Path) -> _Records:
    """The files of an unpacked package, whose folder contains `.data`."""
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    if ".data/extern_modules" not in paths:
        raise SerializationError(
            f"{folder}: this is no unpacked package, as it has no .data/extern_modules"
        )
    return _Records(str(folder), paths, lambda path: (folder / path).read_bytes())


class _ResourceReader:
    """Gives `importlib.resources` the files of a folder."""

    def __init__(self, records: _Records, folder: str) -> None:
        self._records = records
        self._folder = folder

    def open_resource(self, resource: str) -> IO[bytes]:
        try:
            return io.BytesIO(self._records.read(self._folder + resource))
        except SerializationError as error:
            raise FileNotFoundError(str(error)) from None

    def resource_path(self, resource: str) -> str:
        raise FileNotFoundError(f"{self._folder}{resource} is not a file of its own")

    def is_resource(self, path: str) -> bool:
        return self._folder + path in self._records

    def contents(self) -> Iterator[str]:
        inner = (path[len(self._folder) :] for path in self._records.paths if path.startswith(self._folder))  # fmt: skip
        return iter(dict.fromkeys(path.partition("/")[0] for path in inner))
