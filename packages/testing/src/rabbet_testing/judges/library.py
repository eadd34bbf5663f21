"""What a plugin's library exports and needs, by its symbol tables."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import rabbet

ENTRY = "rabbet_plugin_v0"


def can_read_symbols() -> bool:
    """Whether the tool `nm` is there."""
    return shutil.which("nm") is not None


def symbols(path: str | Path, *options: str) -> set[str]:
    """Names in the dynamic symbol table, without versions."""
    listed = subprocess.run(
        ["nm", "-D", *options, str(path)], check=True, capture_output=True, text=True
    )
    return {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines()}


def core_library() -> Path:
    """The shared library of the installed core."""
    return next(Path(str(rabbet._C.__file__)).parent.glob("librabbet_core*"))


def exported(path: str | Path) -> set[str]:
    """Names that the library defines for others."""
    return symbols(path, "--defined-only")


def python_symbols(path: str | Path) -> set[str]:
    """Names of Python that the library needs: with them it does not load where there is no Python."""
    return {s for s in symbols(path, "--undefined-only") if re.match(r"_?Py", s)}


def core_symbols(path: str | Path) -> set[str]:
    """Names of core that the library needs: there is no way to core but the table that `init` gets."""
    core = {s for s in symbols(core_library(), "--defined-only") if "rabbet" in s}
    needed = symbols(path, "--undefined-only")
    return {s for s in needed if s in core or "6rabbet" in s}


def judge(path: str | Path) -> list[str]:
    """What is wrong with the library's symbols."""
    findings = []
    defined = exported(path)
    if ENTRY not in defined:
        findings.append(f"the library does not export {ENTRY}")
    leaked = sorted(s for s in defined if s.startswith("_Z"))
    if leaked:
        findings.append(
            f"the library exports {len(leaked)} C++ symbols, such as {leaked[0]}: other libraries may bind to them "
            "(-fvisibility=hidden, or a version script)"
        )
    for what, names in (("Python", python_symbols(path)), ("rabbet-core", core_symbols(path))):
        if names:
            findings.append(f"the library needs symbols of {what}: {', '.join(sorted(names)[:5])}")
    return findings
