"""Runs a statement under Callgrind in another process."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

from ..common import TaskSpec
from .timer_interface import CallgrindStats, CopyIfCallgrind, FunctionCounts

__all__ = ["count_instructions"]

_TOOLS = ("valgrind", "callgrind_annotate")
_PLAIN = (bool, bytes, complex, float, int, str, type(None))
# Callgrind counts while this function runs, through which `ctypes` calls others: the script calls the loop by it.
_COUNTED = "ffi_call"
_LINE = re.compile(r"^\s*([\d,]+)(?:\s+\(\s*[\d.]+%\))?\s+(\S.*)$")
_SCRIPT = """\
import ctypes, importlib, pickle, sys
import rabbet
rabbet.set_num_threads({num_threads})
found = {{"rabbet": rabbet, "torch": rabbet}}
with open({pickled!r}, "rb") as file:
    for name, setup, data in pickle.load(file):
        if setup is not None:
            exec(setup, found)
        found[name] = importlib.import_module(data) if setup == "" else pickle.loads(data)
source = {source!r}
exec(compile(source, "<statement>", "exec"), found)
run = found["__run__"]
run(5)  # warm up
call = ctypes.pythonapi.PyObject_CallObject
call.restype = ctypes.py_object
call(ctypes.py_object(run), ctypes.py_object(({number},)))
"""


def _require_tools() -> None:
    for tool in _TOOLS:
        if shutil.which(tool) is None:
            raise OSError(
                f"Timer.collect_callgrind needs the program {tool!r}, which is not installed; it is part of Valgrind "
                "(apt-get install valgrind)"
            )


def _module(value: Any) -> bool:
    nn = sys.modules.get("rabbet.nn")
    return nn is not None and isinstance(value, nn.Module)


def _pickled(globals: dict[str, Any]) -> bytes:
    """The globals as (name, setup, data), where an empty setup means the name of a module."""
    rows: list[tuple[str, str | None, Any]] = []
    for name, value in globals.items():
        if name in ("rabbet", "torch", "__builtins__"):
            continue
        if isinstance(value, ModuleType):
            rows.append((name, "", value.__name__))
        elif isinstance(value, CopyIfCallgrind):
            rows.append((name, value.setup or None, pickle.dumps(value.value)))
        elif isinstance(value, _PLAIN) or _module(value):
            rows.append((name, None, pickle.dumps(value)))
        else:
            raise ValueError(
                f"Timer.collect_callgrind: the global {name!r} is a {type(value).__name__}, which the other process "
                "cannot share; make it in `setup`, or wrap it in CopyIfCallgrind to copy it"
            )
    return pickle.dumps(rows)


def _source(spec: TaskSpec, stmt: str) -> str:
    return (
        f"{spec.setup}\n"
        f"def __run__(number):\n    for _ in range(number):\n{textwrap.indent(stmt, ' ' * 8)}\n"
    )


def _call(command: list[str], folder: str, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        raise OSError(
            f"Timer.collect_callgrind: {command[0]} failed with status {done.returncode}:\n"
            f"{(done.stdout + done.stderr)[-2000:]}"
        )
    return done.stdout


def _parse(text: str, inclusive: bool) -> FunctionCounts:
    """The functions in the output of callgrind_annotate, after the line that begins with 'Ir'."""
    counts: dict[str, int] = {}
    rows = iter(text.splitlines())
    for line in rows:
        if line.startswith("Ir") and "file:function" in line:
            break
    for line in rows:
        if match := _LINE.match(line):
            name = match[2]
            counts[name] = counts.get(name, 0) + int(match[1].replace(",", ""))
    return FunctionCounts._from_dict(counts, inclusive)


def _measure(
    spec: TaskSpec, stmt: str, pickled: bytes, number: int
) -> tuple[FunctionCounts, FunctionCounts, str]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "globals").write_bytes(pickled)
        script = _SCRIPT.format(
            num_threads=spec.num_threads, pickled=str(Path(folder) / "globals"), source=_source(spec, stmt), number=number,
        )  # fmt: skip
        (Path(folder) / "script.py").write_text(script)
        # Fixed hashes make the lookups of names repeatable.
        _call(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=out", "--collect-atstart=no",
             f"--toggle-collect={_COUNTED}", sys.executable, "script.py"],
            folder, PYTHONHASHSEED="0", PYTHONPATH=os.pathsep.join(sys.path),
        )  # fmt: skip
        found = []
        for inclusive in (True, False):
            text = _call(["callgrind_annotate", f"--inclusive={'yes' if inclusive else 'no'}", "--threshold=100",
                          "--auto=no", "out"], folder)  # fmt: skip
            found.append(_parse(text, inclusive))
        if not found[1]:
            raise OSError(
                f"Timer.collect_callgrind: Valgrind did not see the function {_COUNTED!r} of libffi, which calls the statement"
            )
        return found[0], found[1], (Path(folder) / "out").read_text()


_baselines: dict[tuple[str, int, int], tuple[FunctionCounts, FunctionCounts]] = {}


def count_instructions(
    spec: TaskSpec,
    globals: dict[str, Any],
    number: int,
    collect_baseline: bool,
    retain_out_file: bool,
) -> CallgrindStats:
    """The instructions of `number` executions of the statement of `spec`.

    Raises:
        OSError: if Valgrind is missing or the statement fails.
        ValueError: for globals that cannot be copied to another process.
    """
    _require_tools()
    pickled = _pickled(globals)
    inclusive, exclusive, text = _measure(spec, spec.stmt, pickled, number)
    baseline = FunctionCounts((), True), FunctionCounts((), False)
    if collect_baseline:
        key = spec.setup, number, spec.num_threads
        if key not in _baselines:
            _baselines[key] = _measure(spec, "pass", pickled, number)[:2]
        baseline = _baselines[key]
    return CallgrindStats(
        spec, number, False, *baseline, inclusive, exclusive, text if retain_out_file else None
    )
