"""Extensions in projects built by setuptools.

setup(ext_modules=[CppExtension("mine._C", ["mine.cpp"])], cmdclass={"build_ext": BuildExtension})
"""

from collections.abc import Sequence
from typing import Any

from setuptools import Extension
from setuptools.command.build_ext import build_ext

from ... import _C, get_include
from . import _build
from ._sources import CUDA_SUFFIXES, check_files, refuse_cuda


def CppExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> Extension:
    """A setuptools.Extension in C++ with rabbet's headers among its include_dirs.

    Args:
        name: the full name of the module.
        sources: paths of C++ files.
        args, kwargs: further arguments of setuptools.Extension.

    Raises:
        NotImplementedError: for CUDA sources.
    """
    if any(source.endswith(CUDA_SUFFIXES) for source in sources):
        refuse_cuda("cpp_extension.CppExtension", f"a source of {name!r}")
    kwargs["include_dirs"] = [*kwargs.get("include_dirs", ()), get_include()]
    kwargs.setdefault("language", "c++")
    return Extension(name, sources, *args, **kwargs)


def CUDAExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> Extension:
    """Not implemented: rabbet runs no nvcc.

    Raises:
        NotImplementedError: always.
    """
    refuse_cuda("cpp_extension.CUDAExtension", f"{name!r}")


def SyclExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> Extension:
    """Not implemented: rabbet has no SYCL devices.

    Raises:
        NotImplementedError: always.
    """
    raise _C.NotImplementedForError(
        f"cpp_extension.SyclExtension: {name!r} cannot be compiled, as rabbet has no SYCL devices"
    )


class BuildExtension(build_ext):  # type: ignore[misc]
    """The build_ext command for extensions of rabbet.

    It refuses sources that include headers of PyTorch's C++ library and adds the compiler options that rabbet's headers
    need.

    Args:
        no_python_abi_suffix: omit the tag of Python's ABI from file names, for plugins without a Python module.
        use_ninja: has no effect.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._has_no_suffix = bool(kwargs.pop("no_python_abi_suffix", False))
        kwargs.pop("use_ninja", None)
        super().__init__(*args, **kwargs)

    @classmethod
    def with_options(cls, **options: Any) -> type["BuildExtension"]:
        """A subclass whose constructor gets these options."""

        class WithOptions(cls):  # type: ignore[valid-type,misc]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **{**kwargs, **options})

        return WithOptions

    def build_extension(self, ext: Any) -> None:
        """Check the sources of an extension, then build it."""
        check_files("cpp_extension.BuildExtension", list(ext.sources), ext.include_dirs)
        flags = ext.extra_compile_args
        if isinstance(flags, dict):  # one list for each compiler
            flags = flags.get("cxx", [])
        own = [
            *_build.common_flags(ext.sources[0]),
            *_build.definitions(ext.name.rpartition(".")[2]),
        ]
        ext.extra_compile_args = [*own, *flags]
        super().build_extension(ext)

    def get_ext_filename(self, fullname: str) -> str:
        """The file name of an extension."""
        filename: str = super().get_ext_filename(fullname)
        if not self._has_no_suffix:
            return filename
        stem, _, ending = filename.partition(".")
        return f"{stem}.{ending.rpartition('.')[2]}"
