"""NVRTC from Python: texts of kernels to cubins, without a GPU."""

import ctypes
import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

CONTRACTED = "\n#define RB_CONTRACTED"


def options_of(text: str, target: str) -> list[str]:
    """As compile.cpp has them."""
    return [
        f"--gpu-architecture={target}",
        "--std=c++17",
        f"--fmad={'true' if CONTRACTED in text else 'false'}",
        "--device-as-default-execution-space",
    ]


def find_nvrtc(path: str | None = None) -> Path | None:
    """`path` or $RABBET_TEST_NVRTC, a library or its folder, else the nvidia-* wheels'; None where there is none."""
    if given := path or os.environ.get("RABBET_TEST_NVRTC"):
        return next(iter(_libraries(Path(given))), Path(given))
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or [] if spec else []:
        for folder in ("cu13/lib", "cuda_nvrtc/lib"):
            for found in _libraries(Path(root, folder)):
                return found
    return None


def _libraries(folder: Path) -> list[Path]:
    return sorted(folder.glob("libnvrtc.so.1*"))


class CompileError(Exception):
    """A text does not compile; the message is the log."""


@dataclass
class Compiled:
    """One cubin, the PTX that it was made of, and what ptxas says of it where it was asked to (-v)."""

    cubin: bytes
    ptx: str
    log: str

    def said(self, pattern: str) -> int:
        """The number that `pattern` catches in the log; 0 where it says nothing."""
        found = re.search(pattern, self.log)
        return int(found[1]) if found else 0

    @property
    def registers(self) -> int:
        return self.said(r"Used (\d+) registers")

    @property
    def spilled(self) -> int:
        """Bytes that are stored for want of registers, and loaded again."""
        return self.said(r"(\d+) bytes spill stores") + self.said(r"(\d+) bytes spill loads")

    @property
    def stack(self) -> int:
        """Bytes of local memory for each thread."""
        return self.said(r"(\d+) bytes stack frame")

    @property
    def shared(self) -> int:
        """Bytes of static shared memory of a block."""
        return self.said(r"(\d+) bytes smem")

    @property
    def saturates(self) -> int:
        """Conversions of floats to unsigned integers, which make 0 of negative numbers."""
        return len(re.findall(r"\bcvt\.rzi\S*\.u\d+\.f\d+\b", self.ptx))

    def widest(self, what: str) -> int:
        """Bytes of the widest access of global memory; `what`: "ld" or "st"."""
        sizes = [0]
        for count, bits in re.findall(
            rf"\b{what}\.global\S*?(?:\.v(\d))?\.[bsuf](\d+)\b", self.ptx
        ):
            sizes.append(int(count or 1) * int(bits) // 8)
        if what == "ld" and "cp.async.cg.shared.global" in self.ptx:
            sizes.append(16)
        return max(sizes)


class Nvrtc:
    """One library. It compiles for one thread after another: several at once need processes."""

    def __init__(self, path: Path) -> None:
        for builtins in path.parent.glob("libnvrtc-builtins.so.1*"):
            ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(path))

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw

    def compile(self, text: str, target: str, *more: str) -> Compiled:
        """Raise CompileError with the log where it does not compile."""
        library, program = self._library, ctypes.c_void_p()
        library.nvrtcCreateProgram(
            ctypes.byref(program), text.encode(), b"rabbet.cu", 0, None, None
        )
        words = [word.encode() for word in (*options_of(text, target), *more)]
        try:
            status = library.nvrtcCompileProgram(
                program, len(words), (ctypes.c_char_p * len(words))(*words)
            )
            log = self._bytes("ProgramLog", program).rstrip(b"\0").decode()
            if status:
                raise CompileError(log)
            ptx = self._bytes("PTX", program).rstrip(b"\0").decode()
            return Compiled(self._bytes("CUBIN", program), ptx, log)
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))


Result = TypeVar("Result")
_compiler: Nvrtc | None = None


def _open(library: Path) -> None:
    global _compiler
    _compiler = Nvrtc(library)


def _compiled(
    text: str, target: str, what: Callable[[Compiled | CompileError], Result], options: list[str]
) -> Result:
    assert _compiler is not None
    try:
        return what(_compiler.compile(text, target, *options))
    except CompileError as error:
        return what(error)


def compile_all(
    library: Path,
    jobs: list[tuple[str, str]],
    what: Callable[[Compiled | CompileError], Result],
    options: Iterable[str] = (),
) -> Iterator[Result]:
    """`what` a module's function makes of each text for an architecture, in processes of their own."""
    spawned = get_context("spawn")  # a process that has threads does not fork well
    with ProcessPoolExecutor(os.cpu_count(), spawned, _open, (library,)) as pool:
        texts, targets = [job[0] for job in jobs], [job[1] for job in jobs]
        more = (repeat(what, len(jobs)), repeat(list(options), len(jobs)))
        yield from pool.map(_compiled, texts, targets, *more, chunksize=4)
