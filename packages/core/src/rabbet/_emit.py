"""The command `rabbet emit`: elementwise formulas of the op records as source text."""

import argparse
from pathlib import Path

from . import _C


def main(arguments: list[str]) -> int:
    """Write the files of one dialect; returns the exit code."""
    parser = argparse.ArgumentParser(prog="rabbet emit")
    parser.add_argument("--dialect", choices=["cpu", "c"], required=True)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, text in _C.emit(given.dialect).items():
        path = given.folder / name
        if not path.exists() or path.read_text() != text:  # an equal file rebuilds nothing
            path.write_text(text)
    return 0
