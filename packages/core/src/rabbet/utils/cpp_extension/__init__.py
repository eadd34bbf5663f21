"""Extensions in C and C++, compiled where they are used (`load`, `load_inline`) or by setuptools (`CppExtension`).

    module = load_inline("mine", "rb::Ref twice(const RbTensor& x) { ... }", functions=["twice"])
    module.twice(rabbet.ones(3))

An extension is written against rabbet's public headers: `rabbet/extension.hpp` makes functions of C++ a Python module, and
a library that exports `rabbet_plugin_v0` brings operators, kernels and layers. Sources that include headers of PyTorch's
C++ library are refused; docs/reference/porting-extensions.md says how to port them.
"""

import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ... import _C, get_include
from ..._plugins import is_plugin
from ...torch_version import TorchVersion
from . import _build
from ._sources import check_files, check_text, refuse_cuda

if TYPE_CHECKING:
    from ._setup import BuildExtension as BuildExtension
    from ._setup import CppExtension as CppExtension
    from ._setup import CUDAExtension as CUDAExtension
    from ._setup import SyclExtension as SyclExtension

__all__ = [
    "BuildExtension", "CppExtension", "CUDAExtension", "SyclExtension", "check_compiler_is_gcc",
    "check_compiler_ok_for_platform", "get_compiler_abi_compatibility_and_version", "get_cxx_compiler",
    "get_default_build_root", "include_paths", "is_ninja_available", "library_paths", "load", "load_inline",
    "remove_extension_h_precompiler_headers", "verify_ninja_availability",
]  # fmt: skip

CUDA_HOME: str | None = None  # there is no nvcc to be found
ROCM_HOME: str | None = None

_OF_SETUPTOOLS = {"BuildExtension", "CppExtension", "CUDAExtension", "SyclExtension"}


def __getattr__(name: str) -> Any:
    if name not in _OF_SETUPTOOLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    try:
        return getattr(importlib.import_module(f"{__name__}._setup"), name)
    except ModuleNotFoundError as error:
        if error.name != "setuptools":
            raise
        raise ImportError(f"cpp_extension.{name} needs the package setuptools") from None


# ---- paths


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
    """The folders of headers that an extension needs.

    Args:
        device_type: "cpu".
        torch_include_dirs: with those of rabbet.

    Raises:
        NotImplementedError: for another device.
    """
    _check_device("include_paths", device_type)
    return [get_include()] if torch_include_dirs else []


def library_paths(
    device_type: str = "cpu",
    torch_include_dirs: bool = True,
    cross_target_platform: str | None = None,
) -> list[str]:
    """The folders of libraries that an extension links: none, as core hands it a table of functions.

    Raises:
        NotImplementedError: for another device than "cpu".
    """
    _check_device("library_paths", device_type)
    return []


def _check_device(function: str, device_type: str) -> None:
    if device_type != "cpu":
        refuse_cuda(f"cpp_extension.{function}", f"device_type={device_type!r}")


def get_default_build_root() -> str:
    """The folder below which extensions are built: $RABBET_EXTENSIONS_DIR, $TORCH_EXTENSIONS_DIR, or one in ~/.cache."""
    named = os.environ.get("RABBET_EXTENSIONS_DIR") or os.environ.get("TORCH_EXTENSIONS_DIR")
    if named:
        return os.path.realpath(named)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return os.path.realpath(os.path.join(os.path.expanduser(cache), "rabbet_extensions"))


def _default_directory(name: str) -> str:
    """An extension's folder, other ones for each version of Python and of the headers."""
    major, minor = _C.abi
    tag = f"py{sys.version_info.major}{sys.version_info.minor}_rabbet{major}.{minor}"
    return os.path.join(get_default_build_root(), tag, name)


# ---- compilers


def is_ninja_available() -> bool:
    """Whether ninja is there; extensions are built without it."""
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """Does nothing: extensions are built without ninja."""


def remove_extension_h_precompiler_headers() -> None:
    """Does nothing: no header is precompiled."""


def get_cxx_compiler() -> str:
    """The C++ compiler: $CXX, else c++."""
    return _build.compiler_of("x.cpp")[0]


def check_compiler_is_gcc(compiler: str) -> bool:
    """Whether a compiler says that it is GCC."""
    said = _build.version_of((compiler,))
    return "Free Software Foundation" in said and "clang" not in said


def check_compiler_ok_for_platform(compiler: str) -> bool:
    """Whether a compiler can be run."""
    return bool(_build.version_of((compiler,)))


def get_compiler_abi_compatibility_and_version(compiler: str) -> tuple[bool, TorchVersion]:
    """Whether a compiler can be run, and its version; every C++17 compiler fits, as the boundary is C."""
    try:
        done = subprocess.run([compiler, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True)  # fmt: skip
        version = done.stdout.split()[0] if done.returncode == 0 else "0.0.0"
    except (OSError, IndexError):
        version = "0.0.0"
    return version != "0.0.0", TorchVersion(version)


# ---- building and loading


class _Loaded:
    """An extension of this process: a version of a library."""

    def __init__(self, digest: str, path: str) -> None:
        self.digest = digest
        self.path = path
        self.modules: dict[str, ModuleType] = {}


_loaded: dict[str, list[_Loaded]] = {}  # versions of each library, by its path
_loading = threading.RLock()


def load(
    name: str,
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> Any:
    """Compile an extension, if anything that it is made of has changed, and load it.

    Whether something has changed is told by hashes of the commands and of the files that the compiler read, its own
    headers excepted. Processes that load one extension at the same time build it once. A library that exports
    `rabbet_plugin_v0` is loaded as a plugin, which registers its operators, kernels and layers.

    Args:
        name: of the extension and its module, an identifier; RABBET_EXTENSION_NAME in the sources.
        sources: paths of C (.c) and C++ files.
        extra_cflags: further options of the compilers, after -O2 and -std=c++17 (C: c11).
        extra_cuda_cflags, extra_sycl_cflags: no effect, as no such source is compiled.
        extra_ldflags: further options of the linker.
        extra_include_paths: further folders of headers.
        build_directory: an existing folder; None: one below `get_default_build_root()`.
        verbose: print the commands and what the compiler says.
        with_cuda, with_sycl: True is refused.
        is_python_module: return the module that the library holds (RABBET_MODULE, or PyInit_NAME).
        is_standalone: build a program; its path is returned.
        keep_intermediates: keep the objects, so that a change of one source compiles that one only.

    Returns:
        The module; without `is_python_module` the path of the library, which is loaded.

    Raises:
        NotImplementedError: for sources in CUDA or SYCL, and those that include headers of PyTorch's C++ library.
        RuntimeError: if the compiler or the linker fails, with what it said.
        ImportError: if the library has no module of the name.
        PluginError: if it is a plugin that does not load.

    Example:
        >>> module = load("scaling", ["scaling.cpp"], extra_cflags=["-O3"])
    """
    function = "cpp_extension.load"
    for what, asked in (("with_cuda", with_cuda), ("with_sycl", with_sycl)):
        if asked:
            refuse_cuda(function, f"{what}=True")
    _check_name(function, name)
    paths = [os.path.abspath(p) for p in _paths(function, "sources", sources)]
    if not paths:
        raise ValueError(f"{function}: `sources` is empty")
    folders = _paths(function, "extra_include_paths", extra_include_paths or ())
    directory = _directory(function, name, build_directory)
    job = _build.Job(
        function, name, name if is_standalone else f"{name}.so", paths, directory,
        _words(function, "extra_cflags", extra_cflags), _words(function, "extra_ldflags", extra_ldflags),
        [os.path.abspath(folder) for folder in folders], is_standalone, verbose, keep_intermediates,
    )  # fmt: skip
    check_files(function, job.sources, job.includes)
    return _loaded_from(job, is_python_module)


def _loaded_from(job: _build.Job, is_python_module: bool) -> Any:
    """The module of a job's library, or its path; the path of a program."""
    if job.is_standalone:
        with _build.built(job) as (path, _):
            return path
    with _loading, _build.built(job) as (path, digest):
        version = _version(path, digest)
        return _module(version, job.name) if is_python_module else version.path


def _check_name(function: str, name: Any) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{function}: `name` must be an identifier, got {name!r}")


def _directory(function: str, name: str, build_directory: str | os.PathLike[str] | None) -> str:
    """The folder to build in, which is there."""
    if build_directory is None:
        folder = _default_directory(name)
        os.makedirs(folder, exist_ok=True)
        return folder
    folder = os.path.abspath(build_directory)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{function}: there is no folder {folder!r} (build_directory)")
    return folder


def _paths(function: str, what: str, paths: Any) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if not isinstance(paths, Sequence) or not all(isinstance(p, (str, os.PathLike)) for p in paths):
        raise TypeError(f"{function}: `{what}` must be a path or a list of paths, got {paths!r}")
    return [os.fspath(p) for p in paths]


def _words(function: str, what: str, words: Any) -> list[str]:
    if words is None:
        return []
    if isinstance(words, str) or not all(isinstance(w, str) for w in words):
        raise TypeError(f"{function}: `{what}` must be a list of str, got {words!r}")
    return [w.strip() for w in words]


def _version(path: str, digest: str) -> _Loaded:
    """The library in this process. One that was loaded stays, as its functions may be in use, and is known to the dynamic
    loader by its path: a new version gets another one."""
    versions = _loaded.setdefault(path, [])
    if versions and versions[-1].digest == digest:
        return versions[-1]
    library = path
    if versions:
        library = f"{path.removesuffix('.so')}_v{len(versions)}.so"
        shutil.copyfile(path, f"{library}.new")
        os.replace(f"{library}.new", library)
    if is_plugin(library):
        _C.load_plugin(library)
    versions.append(_Loaded(digest, library))
    return versions[-1]


def _module(version: _Loaded, name: str) -> ModuleType:
    if name not in version.modules:
        spec = importlib.util.spec_from_file_location(name, version.path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        version.modules[name] = module
    return version.modules[name]


# ---- sources in strings


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | dict[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
) -> Any:
    """Compile and load an extension whose sources are strings.

    Args:
        cpp_sources: one after the other they are a file of C++, which begins with `rabbet/extension.hpp`.
        cuda_sources, sycl_sources: refused unless empty.
        functions: names of functions in the sources that the module shall have, or a dict of these with their docstrings.
            What they may take and return, `rabbet/extension.hpp` says.
        with_pytorch_error_handling, use_pch: no effect: exceptions always become Python's.
        no_implicit_headers: leave out the first line.

        The others are those of `load`.

    Returns:
        As `load`.

    Raises:
        As `load`.

    Example:
        >>> source = "double half(double x) { return x / 2; }"
        >>> load_inline("halves", source, functions=["half"]).half(3.0)
        1.5
    """
    function = "cpp_extension.load_inline"
    for what, given in (
        ("`cuda_sources`", cuda_sources),
        ("`sycl_sources`", sycl_sources),
        ("with_cuda=True", with_cuda),
        ("with_sycl=True", with_sycl),
    ):
        if given:
            refuse_cuda(function, what)
    _check_name(function, name)
    texts = _texts(function, "cpp_sources", cpp_sources)
    check_text(function, "`cpp_sources`", "\n".join(texts))
    docs = functions
    if not isinstance(docs, dict):
        docs = dict.fromkeys(_texts(function, "functions", functions or ()), "")
    if not no_implicit_headers:
        texts.insert(0, '#include "rabbet/extension.hpp"')
    if docs:
        lines = [f"  m.def<{key}>({_literal(key)}, {_literal(doc)});" for key, doc in docs.items()]
        texts.append("\n".join(["RABBET_MODULE(m) {", *lines, "}"]))
    text = "\n".join(texts) + "\n"
    directory = _directory(function, name, build_directory)
    # The name says what is in it: another process may be building another text.
    source = os.path.join(directory, f"main-{hashlib.sha256(text.encode()).hexdigest()[:16]}.cpp")
    _write(source, text)
    folders = _paths(function, "extra_include_paths", extra_include_paths or ())
    job = _build.Job(
        function, name, f"{name}.so", [source], directory,
        _words(function, "extra_cflags", extra_cflags), _words(function, "extra_ldflags", extra_ldflags),
        [os.path.abspath(folder) for folder in folders], False, verbose, keep_intermediates,
    )  # fmt: skip
    return _loaded_from(job, is_python_module)


def _texts(function: str, what: str, texts: Any) -> list[str]:
    found = [texts] if isinstance(texts, str) else texts
    if not isinstance(found, Sequence) or not all(isinstance(t, str) for t in found):
        raise TypeError(f"{function}: `{what}` must be a str or a list of str, got {texts!r}")
    return list(found)


def _literal(text: str) -> str:
    """A string of C++."""
    return json.dumps(text, ensure_ascii=False)


def _write(path: str, text: str) -> None:
    if os.path.exists(path):
        return
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), suffix=".cpp", delete=False) as file:  # fmt: skip
        file.write(text)
    os.replace(file.name, path)
