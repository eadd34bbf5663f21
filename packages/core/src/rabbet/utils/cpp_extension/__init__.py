"""Extensions in C and C++, compiled on demand (`load`, `load_inline`) or by setuptools (`CppExtension`).

    module = load_inline("mine", "rb::Ref twice(const RbTensor& x) { ... }", functions=["twice"])
    module.twice(rabbet.ones(3))

An extension uses rabbet's public headers. `rabbet/extension.hpp` turns C++ functions into a Python module. A library that
exports `rabbet_plugin_v0` provides operators, kernels and layers. Sources that include headers of PyTorch's C++ library are
refused; docs/reference/porting-extensions.md describes how to port them.
"""

import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
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

CUDA_HOME: str | None = None  # rabbet does not run nvcc
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
    """The include folders of an extension.

    Args:
        device_type: must be "cpu".
        torch_include_dirs: whether to include rabbet's headers.

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
    """The library folders of an extension: an empty list, because core gives extensions a table of its functions.

    Raises:
        NotImplementedError: for a device other than "cpu".
    """
    _check_device("library_paths", device_type)
    return []


def _check_device(function: str, device_type: str) -> None:
    if device_type != "cpu":
        refuse_cuda(f"cpp_extension.{function}", f"device_type={device_type!r}")


def get_default_build_root() -> str:
    """The folder of all builds: $RABBET_EXTENSIONS_DIR, else $TORCH_EXTENSIONS_DIR, else a folder in the user's cache."""
    named = os.environ.get("RABBET_EXTENSIONS_DIR") or os.environ.get("TORCH_EXTENSIONS_DIR")
    if named:
        return os.path.realpath(named)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return os.path.realpath(os.path.join(os.path.expanduser(cache), "rabbet_extensions"))


def _default_directory(name: str) -> str:
    """The build folder of an extension, which depends on the versions of Python and of rabbet's headers."""
    major, minor = _C.abi
    tag = f"py{sys.version_info.major}{sys.version_info.minor}_rabbet{major}.{minor}"
    return os.path.join(get_default_build_root(), tag, name)


# ---- compilers


def is_ninja_available() -> bool:
    """Whether ninja is installed. Builds do not use it."""
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """Do nothing, because builds do not use ninja."""


def remove_extension_h_precompiler_headers() -> None:
    """Do nothing, because no header is precompiled."""


def get_cxx_compiler() -> str:
    """The C++ compiler: $CXX, else c++."""
    return _build.compiler()[0]


def check_compiler_is_gcc(compiler: str) -> bool:
    """Whether a compiler identifies itself as GCC."""
    said = _build.version_of((compiler,))
    return "Free Software Foundation" in said and "clang" not in said


def check_compiler_ok_for_platform(compiler: str) -> bool:
    """Whether a compiler can be run."""
    return bool(_build.version_of((compiler,)))


def get_compiler_abi_compatibility_and_version(compiler: str) -> tuple[bool, TorchVersion]:
    """Whether a compiler can be run, and its version. Every C++17 compiler is compatible, because the ABI is plain C."""
    try:
        done = subprocess.run([compiler, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True)  # fmt: skip
        version = done.stdout.split()[0] if done.returncode == 0 else "0.0.0"
    except (OSError, IndexError):
        version = "0.0.0"
    return version != "0.0.0", TorchVersion(version)


# ---- building and loading


@dataclass
class _Loaded:
    """A version of an extension's library that this process has loaded."""

    digest: str
    path: str
    module: ModuleType | None = None


_loaded: dict[str, list[_Loaded]] = {}  # the versions of each library, by the path of its first
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
    """Compile an extension if its sources or commands have changed, and load it.

    Changes are found by hashes of the commands and of the files that the compiler read, except system headers. Processes
    that load the same extension at the same time build it once. A library that exports `rabbet_plugin_v0` is loaded as a
    plugin, which registers its operators, kernels and layers.

    Args:
        name: the name of the extension and its module, an identifier. Sources get it as RABBET_EXTENSION_NAME.
        sources: paths of C (.c) and C++ files.
        extra_cflags: further compiler options, after -O2 and -std=c++17 (for C, -std=c11).
        extra_cuda_cflags, extra_sycl_cflags: have no effect, because no such sources are compiled.
        extra_ldflags: further linker options.
        extra_include_paths: further include folders.
        build_directory: an existing folder; by default one below `get_default_build_root()`.
        verbose: print the commands and the compiler's output.
        with_cuda, with_sycl: True is refused.
        is_python_module: return the Python module in the library (RABBET_MODULE or PyInit_NAME).
        is_standalone: build a program instead of a library.
        keep_intermediates: keep the objects, so that a change of one source recompiles only that source.

    Returns:
        The module. Without `is_python_module`, the path of the loaded library; with `is_standalone`, the path of the program.

    Raises:
        NotImplementedError: for sources in CUDA or SYCL, and those that include headers of PyTorch's C++ library.
        RuntimeError: if the compiler or the linker fails; the message contains its output.
        ImportError: if the library does not contain the module.
        PluginError: if the library is a plugin that cannot be loaded.

    Example:
        >>> module = load("scaling", ["scaling.cpp"], extra_cflags=["-O3"])
    """
    function = "cpp_extension.load"
    for what, asked in (("with_cuda", with_cuda), ("with_sycl", with_sycl)):
        if asked:
            refuse_cuda(function, f"{what}=True")
    _check_name(function, name)
    paths = _paths(function, "sources", sources)
    if not paths:
        raise ValueError(f"{function}: `sources` is empty")
    job = _build.Job(
        function,
        name,
        output=name if is_standalone else f"{name}.so",
        sources=paths,
        includes=_paths(function, "extra_include_paths", extra_include_paths or ()),
        directory=_directory(function, name, build_directory),
        cflags=_words(function, "extra_cflags", extra_cflags),
        ldflags=_words(function, "extra_ldflags", extra_ldflags),
        is_standalone=is_standalone,
        is_verbose=verbose,
        keeps_objects=keep_intermediates,
    )
    check_files(function, job.sources, job.includes)
    return _loaded_from(job, is_python_module)


def _loaded_from(job: _build.Job, is_python_module: bool) -> Any:
    """Build and load a library, and return its module or path. Of a program, only build it and return the path."""
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
    """The folder to build in. The default one is created, another one must exist."""
    if build_directory is None:
        folder = _default_directory(name)
        os.makedirs(folder, exist_ok=True)
        return folder
    folder = os.path.abspath(build_directory)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{function}: there is no folder {folder!r} (build_directory)")
    return folder


def _paths(function: str, what: str, paths: Any) -> list[str]:
    """Absolute paths from an argument, a path or a list of paths."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if not isinstance(paths, Sequence) or not all(isinstance(p, (str, os.PathLike)) for p in paths):
        raise TypeError(f"{function}: `{what}` must be a path or a list of paths, got {paths!r}")
    return [os.path.abspath(p) for p in paths]


def _words(function: str, what: str, words: Any) -> list[str]:
    if words is None:
        return []
    if isinstance(words, str) or not all(isinstance(w, str) for w in words):
        raise TypeError(f"{function}: `{what}` must be a list of str, got {words!r}")
    return [w.strip() for w in words]


def _version(path: str, digest: str) -> _Loaded:
    """The loaded version of a library.

    Earlier versions stay loaded, because their functions may be in use. The dynamic loader identifies a library by its
    path, so a new version is copied to a path of its own.
    """
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
    if version.module is None:
        spec = importlib.util.spec_from_file_location(name, version.path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        version.module = module
    return version.module


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
        cpp_sources: one or more texts. Together they form one C++ file, which starts by including `rabbet/extension.hpp`.
        cuda_sources, sycl_sources: refused unless empty.
        functions: the names of the functions in the module, or a dict from these names to docstrings.
            `rabbet/extension.hpp` lists the types of parameters and results.
        with_pytorch_error_handling: has no effect, because exceptions always become Python exceptions.
        use_pch: has no effect, because no header is precompiled.
        no_implicit_headers: do not include `rabbet/extension.hpp`.

        The other arguments are those of `load`.

    Returns:
        As for `load`.

    Raises:
        As for `load`.

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
    # The name depends on the text, because another process may be building a different one.
    source = os.path.join(directory, f"main-{hashlib.sha256(text.encode()).hexdigest()[:16]}.cpp")
    if not os.path.exists(source):
        _build.write(source, text)
    job = _build.Job(
        function,
        name,
        output=f"{name}.so",
        sources=[source],
        includes=_paths(function, "extra_include_paths", extra_include_paths or ()),
        directory=directory,
        cflags=_words(function, "extra_cflags", extra_cflags),
        ldflags=_words(function, "extra_ldflags", extra_ldflags),
        is_standalone=False,
        is_verbose=verbose,
        keeps_objects=keep_intermediates,
    )
    return _loaded_from(job, is_python_module)


def _texts(function: str, what: str, texts: Any) -> list[str]:
    found = [texts] if isinstance(texts, str) else texts
    if not isinstance(found, Sequence) or not all(isinstance(t, str) for t in found):
        raise TypeError(f"{function}: `{what}` must be a str or a list of str, got {texts!r}")
    return list(found)


def _literal(text: str) -> str:
    """A C++ string literal."""
    return json.dumps(text, ensure_ascii=False)
