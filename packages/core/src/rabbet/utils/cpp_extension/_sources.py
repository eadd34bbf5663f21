"""What the sources of an extension include: headers of PyTorch's C++ library are refused before anything is compiled."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from ... import _C

PORTING = "docs/reference/porting-extensions.md"
_PYTORCH = re.compile(r"(torch|ATen|c10|caffe2|torch_python)/")
# A string or a comment; only comments are replaced, so that "//" inside a string is none.
_COMMENT = re.compile(r'//(?:[^\\\n]|\\.|\\\n)*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.S)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.M)
_CUDA_SUFFIXES = (".cu", ".cuh")


def includes(text: str) -> Iterator[tuple[str, int]]:
    """The headers that a source names, each with its line; those in comments are left out."""

    def blank(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])

    plain = _COMMENT.sub(blank, text)
    for found in _INCLUDE.finditer(plain):
        yield found[2].strip(), plain.count("\n", 0, found.start()) + 1


def check_text(function: str, where: str, text: str) -> None:
    """Refuse a source that includes a header of PyTorch's.

    Raises:
        NotImplementedError: naming the source, the header and the line.
    """
    for header, line in includes(text):
        if _PYTORCH.match(header):
            raise _C.NotImplementedForError(
                f"{function}: {where} includes <{header}> in line {line}, a header of PyTorch's C++ library, which rabbet "
                f"does not have: extensions are written against rabbet's public headers ({PORTING} says how to port one)"
            )


def check_files(function: str, sources: Sequence[str], folders: Iterable[str]) -> None:
    """Check the sources and, in turn, the headers of the project that they include.

    Args:
        function: whose arguments they are.
        folders: where headers are looked up beside the including file's own folder.

    Raises:
        NotImplementedError: for CUDA sources, and for a header of PyTorch's.
        FileNotFoundError: if a source is missing.
    """
    places, seen = list(folders), set()
    for source in sources:
        if source.endswith(_CUDA_SUFFIXES):
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
        check_text(function, repr(path), text)
        for header, _ in includes(text):
            for folder in (os.path.dirname(path), *places):
                candidate = os.path.abspath(os.path.join(folder, header))
                if os.path.isfile(candidate):
                    todo.append(candidate)
                    break


def refuse_cuda(function: str, what: str) -> NoReturn:
    """Refuse what only nvcc compiles.

    Raises:
        NotImplementedError: always.
    """
    raise _C.NotImplementedForError(
        f"{function}: {what} cannot be compiled, as rabbet runs no nvcc. Compile kernels yourself, pass the objects and "
        "libraries as extra_ldflags, and launch them on RbCall.stream in kernels that the extension registers for 'cuda' "
        f"({PORTING})"
    )
