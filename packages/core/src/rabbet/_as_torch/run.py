"""The command `rabbet run`: a Python program in which torch is rabbet."""

import builtins
import importlib.machinery
import io
import os
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType, ModuleType, TracebackType
from typing import Any

from . import as_torch

_USAGE = """usage: rabbet run PROGRAM.py [ARGUMENTS]
       rabbet run -m MODULE [ARGUMENTS]
       rabbet run --scan FILES_OR_FOLDERS"""


def _program_code(path: str) -> Any:
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec")


def _run_file(path: str, arguments: Sequence[str]) -> None:
    """What `python PATH ARGUMENTS` does."""
    sys.argv[:] = [path, *arguments]
    if os.path.isdir(path):
        sys.path.pop(0)  # runpy puts the folder there
        runpy.run_path(path, run_name="__main__")
        return
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    main = ModuleType("__main__")
    main.__file__ = os.path.abspath(path)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    vars(main).update(__builtins__=builtins, __cached__=None, __spec__=None)
    sys.modules["__main__"] = main
    exec(_program_code(path), vars(main))


def _run_module(name: str, arguments: Sequence[str]) -> None:
    """What `python -m NAME ARGUMENTS` does."""
    sys.argv[:] = [name, *arguments]
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return name in (__name__, "runpy") or frame.f_code.co_filename.startswith("<frozen runpy")


def _of_the_program(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that lead to the program."""
    while trace is not None and _is_ours(trace.tb_frame):
        trace = trace.tb_next
    return trace


def _note(error: BaseException) -> None:
    """Say of a failed import which torch name is missing: Python's own text names rabbet's module."""
    text = str(error)
    if not isinstance(error, ImportError) or "is not in rabbet" in text:
        return
    parts = text.split("'")
    if text.startswith("No module named 'torch.") and len(parts) > 1:
        error.add_note(f"{parts[1]} is not in rabbet yet")
    elif text.startswith("cannot import name '") and len(parts) > 3:
        package = parts[3]
        if package.split(".")[0] in ("torch", "rabbet"):
            error.add_note(
                f"torch{package[len(package.split('.')[0]) :]}.{parts[1]} is not in rabbet yet"
            )


def _guarded(
    body: Callable[[str, Sequence[str]], None], name: str, arguments: Sequence[str]
) -> int:
    """Run a program; what it does not catch is shown as Python does."""
    try:
        body(name, arguments)
    except SystemExit:
        raise
    except BaseException as error:
        trace = _of_the_program(error.__traceback__)
        _note(error)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        if isinstance(error, KeyboardInterrupt):
            return 128 + signal.SIGINT
        return 1
    return 0


def main(arguments: list[str]) -> int:
    """Run what the arguments name; returns the exit code."""
    if arguments[:1] == ["--scan"] and len(arguments) > 1:
        from .scan import main as scan

        return scan(arguments[1:])
    is_module = arguments[:1] == ["-m"]
    target = arguments[1:2] if is_module else arguments[:1]
    if not target or (target[0].startswith("-") and not is_module):
        asked = arguments in (["-h"], ["--help"])
        print(_USAGE, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    if not is_module and not os.path.exists(target[0]):
        print(f"rabbet run: there is no file {target[0]!r}", file=sys.stderr)
        return 2
    as_torch()
    if is_module:
        return _guarded(_run_module, target[0], arguments[2:])
    return _guarded(_run_file, target[0], arguments[1:])
