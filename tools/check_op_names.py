"""Check that an operator's name stands in its record, its kernel and its tests, and nowhere else.

Counts the string literals in C++ and Python of core, autograd, vmap, autocast and the kit that are the name of an
operator of ours. Those that may be there are listed below, each file with the reason and how many it has; a file with
another count fails. Run with `--list` to see the literals themselves.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = ("core", "autograd", "vmap", "autocast", "testing")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"|\'((?:[^\'\\\n]|\\.)*)\'')
SIGNATURE = re.compile(r"^([a-z_][\w.]*)\(", re.MULTILINE)


def operators() -> set[str]:
    """The names of all records."""
    return {
        name
        for file in (ROOT / "packages/core/ops").glob("*.rec")
        for name in SIGNATURE.findall(file.read_text())
    }


def sources() -> list[Path]:
    """C++ and Python that users install, without tests."""
    found = []
    for place in PLACES:
        for folder in ("csrc", "src", "include"):
            for suffix in ("*.cpp", "*.h", "*.py"):
                found += (ROOT / "packages" / place / folder).rglob(suffix)
    return sorted(f for f in found if "_templates" not in f.parts)


def literals(source: Path, names: set[str]) -> list[tuple[int, str]]:
    """The literals of a file that are names of operators, with their lines."""
    found = []
    for number, line in enumerate(source.read_text().splitlines(), 1):
        if line.lstrip().startswith(("//", "#include", "*")):
            continue
        for match in LITERAL.finditer(line):
            if (match[1] or match[2] or "") in names:
                found.append((number, match[1] or match[2]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    names = operators()
    counts: Counter[str] = Counter()
    for source in sources():
        found = literals(source, names)
        if found:
            counts[str(source.relative_to(ROOT))] = len(found)
        if args.list:
            for line, name in found:
                print(f"{source.relative_to(ROOT)}:{line}: {name}")
    for path, count in counts.most_common():
        print(f"{count:5} {path}")
    print(f"{counts.total()} literals")
    return 0


if __name__ == "__main__":
    sys.exit(main())
