"""Writes packages: zip archives with values, files and the sources of the modules that they need, in PyTorch's format.

| file | contents |
|---|---|
| `NAME/.data/N.storage` | the bytes of a storage |
| `NAME/.data/extern_modules` | the names of the modules that the reading program must provide, one per line |
| `NAME/PACKAGE/RESOURCE` | a pickle, a text or bytes; the path has `/` where the package's name has `.` |
| `NAME/MODULE.py`, `NAME/MODULE/__init__.py` | the source of a module |
"""

import collections
import contextlib
import functools
import io
import itertools
import linecache
import os
import pickle
import platform
import secrets
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NamedTuple

from .._files import memory, replacing, torch_file, trusted
from .._files.pickling import Storages
from ..utils.hooks import RemovableHandle
from . import _mangling, _mock_source
from ._graph import DiGraph
from .find_file_dependencies import find_files_source_depends_on
from .glob_group import GlobGroup, GlobPattern
from .importer import Importer, OrderedImporter, sys_importer

__all__ = ["EmptyMatchError", "PackageExporter", "PackagingError"]

_FRAMEWORKS = {"torch", "rabbet"}
_NOT_IMPLIED = {"sys", "io"}  # access to the system needs an explicit pattern
_EXTENSIONS = (".so", ".pyd")

_NO_ACTION = "Module did not match against any action pattern. Extern, mock, or intern it."
_DENIED = "Module was denied by a pattern."
_NATIVE = "Module is a C extension module. Only Python modules can be packaged: extern or mock it."
_NO_FILE = "Module had no __file__ defined."
_NO_SOURCE = "Module source file could not be found."
_MOCKED = (
    "Module was mocked out, but is still being used in the package. Please intern or extern the mocked modules if "
    "objects are supposed to be in the package."
)
_SYS_NOTE = "It gives access to the system and is external only on request: call PackageExporter.extern(...) with its name."


class EmptyMatchError(Exception):
    """No module matched a pattern with `allow_empty=False`."""


class PackagingError(Exception):
    """Some modules cannot be packaged. The message lists them with the reasons.

    Args:
        dependency_graph: the graph of the modules; the nodes with an "error" are the causes.
        debug: add to the message the chain of dependencies that leads to each module.
    """

    def __init__(self, dependency_graph: DiGraph, debug: bool = False) -> None:
        self.dependency_graph = dependency_graph
        reasons: dict[str, list[str]] = {}
        for name, node in dependency_graph.nodes.items():
            if node.get("error"):
                reasons.setdefault(node["error"], []).append(name)
        lines = [""]
        for reason, names in reasons.items():
            lines.append(f"* {reason}")
            for name in names:
                lines.append(f"    {name}")
                note = dependency_graph.nodes[name].get("note")
                lines += [f"      {note}"] if note else []
                if debug:
                    lines.append(f"      Path: {' -> '.join(dependency_graph.path_to(name))}")
        if not debug:
            lines += [
                "",
                "PackageExporter(debug=True) adds the dependencies that lead to these modules.",
            ]
        super().__init__("\n".join(lines) + "\n")


class _Rule(NamedTuple):
    """The action for the modules of a group."""

    action: str  # intern, extern, mock or deny
    group: GlobGroup
    allow_empty: bool
    matched: list[str]


class PackageExporter:
    """Writes a package, in a `with` block or until `close()`.

        with PackageExporter("model.pt") as exporter:
            exporter.intern("project.**")
            exporter.extern("numpy.**")
            exporter.save_pickle("model", "model.pkl", net)

    Each module that a pickle or a source needs must match a pattern. `intern` stores its source and applies the patterns
    to its imports. `extern` leaves the module to the reading program. `mock` stores a placeholder that can be imported but
    not used. `deny` makes it an error. The first pattern that matches decides. rabbet, torch and Python's standard library
    except `sys` and `io` are external unless a pattern says otherwise. Reading a package executes the code in it.

    Args:
        f: a path or a binary file.
        importer: the importers of the objects' modules, in order of search; objects from other packages need their
            PackageImporters.
        debug: name in errors the dependencies that lead to each module.

    Raises:
        PackagingError: at the end, if a module cannot be packaged.
        EmptyMatchError: at the end, if no module matched a pattern with `allow_empty=False`.
    """

    def __init__(
        self,
        f: str | os.PathLike[str] | IO[bytes],
        importer: Importer | Sequence[Importer] = sys_importer,
        debug: bool = False,
    ) -> None:
        self.importer = importer if isinstance(importer, Importer) else OrderedImporter(*importer)
        self.debug = debug
        self.dependency_graph = DiGraph()
        self._open = contextlib.ExitStack()
        self._archive = self._open.enter_context(_archive(f))
        self._root = Path(f).stem if isinstance(f, (str, os.PathLike)) else "archive"
        self._files: set[str] = set()
        self._storages = Storages()
        self._written = 0  # storages in the archive
        self._rules: list[_Rule] = []
        self._hooks: dict[str, collections.OrderedDict[int, Any]] = {
            action: collections.OrderedDict() for action in ("intern", "extern", "mock")
        }
        self._reduced: dict[
            int, tuple[Any, tuple[Any, ...]]
        ] = {}  # objects and their persistent ids
        self._ids = itertools.count()
        self._is_closed = False

    # ---- patterns

    def intern(
        self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True
    ) -> None:
        """Store the sources of the matching modules and apply the patterns to their imports.

        Args:
            include: patterns of names. `*` matches any characters within a segment, `**` any number of segments.
            exclude: patterns of names to leave out.
            allow_empty: whether it is no error if no module matches.
        """
        self._add_rule("intern", include, exclude, allow_empty)

    def extern(
        self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True
    ) -> None:
        """Leave the matching modules to the reading program. The arguments are those of `intern`."""
        self._add_rule("extern", include, exclude, allow_empty)

    def mock(
        self, include: GlobPattern, *, exclude: GlobPattern = (), allow_empty: bool = True
    ) -> None:
        """Store placeholders for the matching modules; using their objects raises NotImplementedError. The arguments are
        those of `intern`."""
        self._add_rule("mock", include, exclude, allow_empty)

    def deny(self, include: GlobPattern, *, exclude: GlobPattern = ()) -> None:
        """Make it an error to need one of the matching modules. The arguments are those of `intern`."""
        self._add_rule("deny", include, exclude, True)

    def _add_rule(
        self, action: str, include: GlobPattern, exclude: GlobPattern, allow_empty: bool
    ) -> None:
        self._rules.append(_Rule(action, GlobGroup(include, exclude=exclude), allow_empty, []))

    def register_intern_hook(
        self, hook: Callable[["PackageExporter", str], None]
    ) -> RemovableHandle:
        """Call `hook(exporter, module_name)` for each module whose source is stored."""
        return self._register("intern", hook)

    def register_extern_hook(
        self, hook: Callable[["PackageExporter", str], None]
    ) -> RemovableHandle:
        """Call `hook(exporter, module_name)` for each external module."""
        return self._register("extern", hook)

    def register_mock_hook(self, hook: Callable[["PackageExporter", str], None]) -> RemovableHandle:
        """Call `hook(exporter, module_name)` for each mocked module."""
        return self._register("mock", hook)

    def _register(self, action: str, hook: Any) -> RemovableHandle:
        handle = RemovableHandle(self._hooks[action])
        self._hooks[action][handle.id] = hook
        return handle

    # ---- saving

    def save_text(self, package: str, resource: str, text: str) -> None:
        """Store a text.

        Args:
            package: the name of the package whose folder contains the file.
            resource: the name of the file.
        """
        if not isinstance(text, str):
            raise TypeError(f"save_text: expected a str, got {type(text).__name__}")
        self._write(_path(package, resource), text.encode())

    def save_binary(self, package: str, resource: str, binary: bytes) -> None:
        """Store bytes. The arguments are those of `save_text`."""
        self._write(_path(package, resource), bytes(binary))

    def save_pickle(
        self,
        package: str,
        resource: str,
        obj: Any,
        dependencies: bool = True,
        pickle_protocol: int = 3,
    ) -> None:
        """Store a value as a pickle. Tensors of one package that share a storage share it after reading.

        Args:
            package, resource: as in `save_text`.
            obj: any value that pickle takes, such as a tensor or a Module. Its class may define
                `__reduce_package__(exporter)`, which returns a function and arguments. On reading,
                `function(importer, *arguments)` recreates the object.
            dependencies: whether the patterns apply to the modules of its classes and functions.
            pickle_protocol: the protocol, from 2 to 5.

        Raises:
            pickle.PicklingError: if pickle cannot store an object, or the importer cannot find it by name.
        """
        if type(pickle_protocol) is not int or not 2 <= pickle_protocol <= 5:
            raise ValueError(
                f"save_pickle: expected `pickle_protocol` from 2 to 5, got {pickle_protocol!r}"
            )
        used: dict[str, dict[str, None]] = {}
        more = trusted.Writing(
            self._name_of, lambda m, n: used.setdefault(m, {}).update({n: None}), self._reduce
        )
        data = trusted.pickled(obj, self._storages, (), None, pickle_protocol, more)
        for storage, _ in self._storages.all[self._written :]:
            pieces = memory.snapshot(storage._bytes())
            self._add(f".data/{self._written}.storage", pieces, storage.nbytes())
            self._written += 1
        self._write(_path(package, resource), data)
        if dependencies:
            node = f"<{package}.{resource}>"
            self.dependency_graph.add_node(node, action="pickle")
            for module, names in used.items():
                self.add_dependency(module)
                self.dependency_graph.add_edge(node, module)
                self._check_mocked(module, list(names), f"`{resource}` in package `{package}`")

    def _name_of(self, obj: Any, name: str | None) -> tuple[str, str, Any]:
        try:
            module, found = self.importer.get_name(obj, name)
        except Exception as error:
            raise pickle.PicklingError(f"Can't pickle {obj!r}: {error}") from error
        module = _mangling.demangled(module)
        owner: Any = None
        if "." in found:
            path = found.split(".")[:-1]
            owner = functools.reduce(getattr, path, self.importer.import_module(module))
        return module, found, owner

    def _reduce(self, obj: Any) -> tuple[Any, ...] | None:
        """The persistent id of an object whose class defines `__reduce_package__`; None for other objects."""
        reduce = getattr(type(obj), "__reduce_package__", None)
        if reduce is None or isinstance(obj, type):
            return None
        if id(obj) not in self._reduced:  # keeps the object alive, so that no other gets its id
            self._reduced[id(obj)] = obj, ("reduce_package", id(obj), *reduce(obj, self))
        return self._reduced[id(obj)][1]

    def _check_mocked(self, module: str, names: list[str], where: str) -> None:
        node = self.dependency_graph.nodes[module]
        if node.get("action") == "mock":
            node["error"] = _MOCKED
            node["note"] = f"{', '.join(names)} of `{module}` is used in the resource {where}"

    def save_module(self, module_name: str, dependencies: bool = True) -> None:
        """Store the source of a module as if it matched a pattern of `intern`.

        Args:
            module_name: the name of the module.
            dependencies: whether the patterns apply to its imports.
        """
        if not isinstance(module_name, str):
            raise TypeError(
                f"save_module: expected the name of a module, got {type(module_name).__name__}"
            )
        self._intern(module_name, dependencies)

    def save_source_string(
        self, module_name: str, src: str, is_package: bool = False, dependencies: bool = True
    ) -> None:
        """Store a text as the source of a module.

        Args:
            module_name: the name of the module.
            src: the source.
            is_package: whether the module is a package.
            dependencies: as in `save_module`.
        """
        self.dependency_graph.add_node(
            module_name, action="intern", source=src, is_package=is_package
        )
        if dependencies:
            self._follow(module_name, src, is_package)

    def save_source_file(
        self, module_name: str, file_or_directory: str | os.PathLike[str], dependencies: bool = True
    ) -> None:
        """Store a file as the source of a module, or the Python files below a folder as the sources of a package.

        Args:
            module_name: the name of the module or package.
            file_or_directory: the path of the file or folder.
            dependencies: as in `save_module`.
        """
        path = Path(file_or_directory)
        if not path.is_dir():
            self.save_source_string(module_name, path.read_text("utf-8"), False, dependencies)
            return
        for file in sorted(path.rglob("*.py")):
            parts = [module_name, *file.relative_to(path).with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            self.save_source_string(name, file.read_text("utf-8"), is_package, dependencies)

    # ---- modules

    def add_dependency(self, module_name: str, dependencies: bool = True) -> None:
        """Apply the patterns to a module unless it already has an action."""
        graph = self.dependency_graph
        if graph.nodes.get(module_name, {}).get("action"):
            return
        rule = next((r for r in self._rules if r.group.matches(module_name)), None)
        if rule is not None:
            rule.matched.append(module_name)
            if rule.action == "intern":
                self._intern(module_name, dependencies)
            else:
                error = _DENIED if rule.action == "deny" else None
                graph.add_node(module_name, action=rule.action, error=error)
        elif _is_implied(module_name):
            graph.add_node(module_name, action="extern")
        else:
            note = _SYS_NOTE if module_name in _NOT_IMPLIED else None
            graph.add_node(module_name, action="none", error=_NO_ACTION, note=note)

    def _intern(self, name: str, dependencies: bool) -> None:
        module = self.importer.import_module(name)
        source = _source_of(module)
        if source is None:
            error = _why_no_source(module)
            self.dependency_graph.add_node(name, action="intern", error=error)
        else:
            self.save_source_string(name, source, hasattr(module, "__path__"), dependencies)

    def _follow(self, name: str, source: str, is_package: bool) -> None:
        package = name if is_package else name.rpartition(".")[0]
        for module, below in find_files_source_depends_on(source, package):
            target = module
            if below is not None and self._is_module(f"{module}.{below}"):
                target = f"{module}.{below}"
            self.add_dependency(target)
            self.dependency_graph.add_edge(name, target)

    def _is_module(self, name: str) -> bool:
        if name in self.dependency_graph:
            return True
        try:
            return isinstance(self.importer.import_module(name), ModuleType)
        except Exception:  # no module has that name, or importing it fails
            return False

    def _with_action(self, action: str) -> list[str]:
        return [n for n, node in self.dependency_graph.nodes.items() if node.get("action") == action]  # fmt: skip

    def interned_modules(self) -> list[str]:
        """The modules whose sources the package contains so far."""
        return self._with_action("intern")

    def externed_modules(self) -> list[str]:
        """The modules that the reading program must provide, as known so far."""
        return self._with_action("extern")

    def mocked_modules(self) -> list[str]:
        """The modules with placeholders so far."""
        return self._with_action("mock")

    def denied_modules(self) -> list[str]:
        """The modules needed so far that a pattern denies."""
        return self._with_action("deny")

    def get_rdeps(self, module_name: str) -> list[str]:
        """The modules and pickles that need a module; an empty list if the graph lacks the module."""
        if module_name not in self.dependency_graph:
            return []
        return list(self.dependency_graph.predecessors(module_name))

    def all_paths(self, src: str, dst: str) -> str:
        """The paths of dependencies from one module to another, in Graphviz's DOT language.

        Raises:
            ValueError: if the graph lacks one of the two modules.
        """
        return self.dependency_graph.all_paths(src, dst)

    def dependency_graph_string(self) -> str:
        """The graph of all dependencies, in Graphviz's DOT language."""
        return self.dependency_graph.to_dot()

    def get_unique_id(self) -> str:
        """A string that is unique within this package, for names of files."""
        return str(next(self._ids))

    # ---- closing

    def __enter__(self) -> "PackageExporter":
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            self.close()
        elif not self._is_closed:
            self._is_closed = True
            self._open.__exit__(kind, value, traceback)

    def close(self) -> None:
        """Write the package.

        Raises:
            PackagingError, EmptyMatchError: as described in the class; the file at the path then remains unchanged.
        """
        if self._is_closed:
            return
        try:
            with self._open:
                self._check()
                self._finish_all()
        finally:
            self._is_closed = True

    def _check(self) -> None:
        if any(node.get("error") for node in self.dependency_graph.nodes.values()):
            raise PackagingError(self.dependency_graph, self.debug)
        for rule in self._rules:
            if not rule.allow_empty and not rule.matched:
                raise EmptyMatchError(
                    f"Exporter did not match any modules to {rule.group}, which was marked as allow_empty=False"
                )

    def _finish_all(self) -> None:
        for name in list(self.dependency_graph.nodes):
            self._finish(name)
        externs = "".join(f"{name}\n" for name in self.externed_modules())
        self._write(".data/extern_modules", externs.encode())
        self._write(".data/python_version", platform.python_version().encode())
        self._write(".data/version", b"6\n")
        self._write("byteorder", sys.byteorder.encode())
        self._write(".data/serialization_id", f"{secrets.randbelow(10**40):040}".encode())

    def _finish(self, name: str) -> None:
        """Write a module's file, if it has one, and call its hooks."""
        node = self.dependency_graph.nodes[name]
        action = node.get("action")
        if action == "intern":
            self._write(_file_of(name, node["is_package"]), node["source"].encode())
        elif action == "mock":
            if _mock_source.FILE not in self._files:
                self._write(_mock_source.FILE, _mock_source.text().encode())
            is_package = any(n.startswith(f"{name}.") for n in self.dependency_graph.nodes)
            self._write(_file_of(name, is_package), _mock_source.MODULE.encode())
        for hook in list(self._hooks.get(action or "", {}).values()):
            hook(self, name)

    def _write(self, path: str, data: bytes) -> None:
        self._add(path, [data], len(data))

    def _add(self, path: str, pieces: Iterable[Any], size: int) -> None:
        if self._is_closed:
            raise RuntimeError("PackageExporter: the package is closed")
        if path in self._files:
            raise ValueError(f"PackageExporter: the package has a file {path!r} already")
        self._files.add(path)
        torch_file.add(self._archive, f"{self._root}/{path}", pieces, size)


@contextlib.contextmanager
def _archive(target: Any) -> Iterator[zipfile.ZipFile]:
    """The archive to write to. Its file appears only when the block ends without an error."""
    if isinstance(target, (str, os.PathLike)):
        path = os.fspath(target)
        if replacing.is_special(path):
            raise ValueError(f"PackageExporter: {path!r} exists and is not a regular file")
        with (
            replacing.replacing(path) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        ):
            yield archive
    elif hasattr(target, "write"):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            yield archive
        target.write(buffer.getvalue())
    else:
        raise TypeError(
            f"PackageExporter: expected a path or a file to write to, got {type(target).__name__}"
        )


def _path(package: str, resource: str) -> str:
    """The path of a resource in the archive."""
    if not isinstance(package, str) or not isinstance(resource, str) or not resource:
        raise TypeError(f"expected a package and a resource by name, got {package!r} and {resource!r}")  # fmt: skip
    return f"{package.replace('.', '/')}/{resource}" if package else resource


def _file_of(module: str, is_package: bool) -> str:
    return module.replace(".", "/") + ("/__init__.py" if is_package else ".py")


def _is_implied(module: str) -> bool:
    """Whether a module that matches no pattern is external."""
    top = module.partition(".")[0]
    return top in _FRAMEWORKS or (top in sys.stdlib_module_names and module not in _NOT_IMPLIED)


def _source_of(module: ModuleType) -> str | None:
    """The source of a module, which is empty for a namespace package; None if it cannot be found."""
    spec = getattr(module, "__spec__", None)
    get_source = getattr(getattr(module, "__loader__", None), "get_source", None)
    if get_source is not None and spec is not None:
        with contextlib.suppress(ImportError, OSError, UnicodeDecodeError):
            found = get_source(spec.name)
            if found is not None:
                return str(found)
    file = getattr(module, "__file__", None)
    if file is None:
        return "" if hasattr(module, "__path__") else None
    if file.endswith(_EXTENSIONS):
        return None
    return "".join(linecache.getlines(file, module.__dict__)) or None


def _why_no_source(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    if file is None:
        return _NATIVE if getattr(module.__spec__, "origin", None) == "built-in" else _NO_FILE
    return _NATIVE if file.endswith(_EXTENSIONS) else _NO_SOURCE
