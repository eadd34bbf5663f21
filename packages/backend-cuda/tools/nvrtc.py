"""NVRTC from Python: texts of kernels to cubins, without a GPU."""

import ctypes
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path


def options_of(target: str) -> list[str]:
    """As compile.cpp has them."""
    return [f"--gpu-architecture={target}", "--std=c++17", "--fmad=false"]


def find_nvrtc(path: str | None = None) -> Path | None:
    """`path`, $RABBET_CUDA_REAL_NVRTC, the nvidia-* wheels, or None."""
    if given := path or os.environ.get("RABBET_CUDA_REAL_NVRTC"):
        return Path(given)
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or [] if spec else []:
        for folder in ("cu13/lib", "cuda_nvrtc/lib"):
            for found in sorted(Path(root, folder).glob("libnvrtc.so.1*")):
                return found
    return None


class CompileError(Exception):
    """A text does not compile; the message is the log."""


@dataclass
class Compiled:
    """One cubin, and what ptxas says of it."""

    cubin: bytes
    log: str


class Nvrtc:
    """One library. Several threads may compile at once."""

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
        words = [word.encode() for word in (*options_of(target), *more)]
        try:
            status = library.nvrtcCompileProgram(
                program, len(words), (ctypes.c_char_p * len(words))(*words)
            )
            log = self._bytes("ProgramLog", program).rstrip(b"\0").decode()
            if status:
                raise CompileError(log)
            return Compiled(self._bytes("CUBIN", program), log)
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))
