"""Checks the sources of an extension before it is compiled. Headers of PyTorch's C++ library are refused."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from ... import _C

PORTING = "docs/reference/porting-extensions.md"
_PYTORCH = re.compile(r"(torch|ATen|c10|caffe2|torch_python)/")
# Comments and strings. Strings are matched so that a "//" inside one does not begin a comment.
_COMMENT = re.compile(r'//(?:[^\\\n]|\\.|\\\n)*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.S)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.M)
CUDA_SUFFIXES = (".cu", ".cuh")


def _includes(text: str) -> Iterator[tuple[str, int]]:
    """The headers that a source includes, with their lines. Comments are ignored."""

    def blank(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])

    plain = _COMMENT.sub(blank, text)
    for found in _INCLUDE.finditer(plain):
        yield found[2].strip(), plain.count("\n", 0, found.start()) + 1


def check_text(function: str, where: str, text: str) -> list[str]:
    """The headers that a source includes, none of them from PyTorch's C++ library.

    Args:
        function: the function that errors name.
        where: the source's name in errors.
        text: the source.

    Raises:
        NotImplementedError: if it includes a header of PyTorch's C++ library.
    """
    found = []
    for header, line in _includes(text):
        if _PYTORCH.match(header):
            raise _C.NotImplementedForError(
                f"{function}: {where} includes <{header}> in line {line}, a header of PyTorch's C++ library, which rabbet "
                f"does not have: extensions are written against rabbet's public headers ({PORTING} says how to port one)"
            )
        found.append(header)
    return found


def check_files(function: str, sources: Sequence[str], folders: Iterable[str]) -> None:
    """Check sources and the project's headers that they include, directly or through other headers.

    Args:
        function: the function that errors name.
        sources: the paths of the sources.
        folders: folders of headers besides that of the including file.

    Raises:
        NotImplementedError: for CUDA sources and headers of PyTorch's C++ library.
        FileNotFoundError: if a source is missing.
    """
    places, seen = list(folders), set()
    for source in sources:
        if source.endswith(CUDA_SUFFIXES):
            refuse_cuda(function, f"the source {source!r}")
        if not os.path.isfile(source):
            raise FileNotFoundError(f"{function}: there is no source file {source!r}")
    todo = [os.path.abspath(source) for source in sources]
    while todo:
        path = todo.pop()
        if path in seen or path.endswith((".o", ".a", ".so")):
            continue
        seen.add(path)
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        for header in check_text(function, repr(path), text):
            candidates = (
                os.path.abspath(os.path.join(folder, header))
                for folder in (os.path.dirname(path), *places)
            )
            found = next(filter(os.path.isfile, candidates), None)
            if found is not None:
                todo.append(found)


def refuse_cuda(function: str, what: str) -> NoReturn:
    """Refuse code that needs nvcc.

    Raises:
        NotImplementedError: always.
    """
    raise _C.NotImplementedForError(
        f"{function}: {what} cannot be compiled, as rabbet runs no nvcc. Compile kernels yourself, pass the objects and "
        "libraries as extra_ldflags, and launch them on RbCall.stream in kernels that the extension registers for 'cuda' "
        f"({PORTING})"
    )
