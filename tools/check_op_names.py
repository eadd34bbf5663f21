"""Check that an operator's name stands in its record, its kernel and its tests, and nowhere else.

Counts the string literals in C++ and Python of core, autograd, vmap, autocast and the kit that are the name of an
operator of ours. EXCEPTIONS are the files that may hold them, each with the reason. All others together may have BUDGET
of them, which only falls: a new one belongs into a field of the record. `--list` shows the literals themselves.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUDGET = 133
KERNEL = "kernels and rules that core runs itself, each under the name of its operator"
PARTS = "decompositions in Python, made of operators by their names"
BATCH = "hand-written batching rules, each under the name of its operator"
LANGUAGE = "words of the language of records that are also names of operators"
TEST = "oracles and tests, each under the name of its operator"
WORDS = "words of files, arguments and classes of dtypes that are also names of operators"
NAMESPACE = "modules and functions of the public namespace that share a name with an operator"
OVERLOADS = "names of PyTorch's overloads by the record, which no rule gives"
EXCEPTIONS = {
    "core/src/rabbet/_aten.py": OVERLOADS,
    "autograd/csrc/tape/node_names.cpp": OVERLOADS,
    "autograd/src/rabbet/utils/flop_counter.py": "counts of operations, each under the name of its operator",
    "core/src/rabbet/_torch_dispatch.py": OVERLOADS,
    "core/src/rabbet/__init__.py": NAMESPACE,
    "core/src/rabbet/cuda/": NAMESPACE,
    "core/src/rabbet/array_api/": NAMESPACE,
    "core/src/rabbet/_array_interface.py": WORDS,
    "core/src/rabbet/jit/__init__.py": NAMESPACE,
    "core/src/rabbet/_absent/": NAMESPACE,
    "core/src/rabbet/_as_torch/functions.py": NAMESPACE,
    "core/src/rabbet/functional.py": NAMESPACE,
    "core/src/rabbet/linalg.py": NAMESPACE,
    "core/src/rabbet/masked/": NAMESPACE,
    "core/src/rabbet/signal/": NAMESPACE,
    "core/src/rabbet/_files/": WORDS,
    "core/src/rabbet/_foreach.py": PARTS,
    "core/src/rabbet/_tensor.py": NAMESPACE,
    "core/src/rabbet/_printing.py": WORDS,
    "core/src/rabbet/_settings.py": WORDS,
    "core/src/rabbet/utils/benchmark/": WORDS,
    "core/src/rabbet/_doctor": WORDS,
    "autograd/src/rabbet/autograd/_tape_reports.py": WORDS,
    "autograd/src/rabbet/autograd/graph.py": WORDS,
    "testing/src/rabbet_testing/judges/reference.py": WORDS,
    "core/csrc/core/rules/views.cpp": KERNEL,
    "core/csrc/core/call/core_functions.cpp": KERNEL,
    "core/csrc/core/call/decomp_functions.cpp": KERNEL,
    "core/csrc/core/call/decomp_recurrent.cpp": KERNEL,
    "core/csrc/core/rules/shape_rules.cpp": KERNEL,
    "core/csrc/core/rules/shape_rules_layers.cpp": KERNEL,
    "core/src/rabbet/_decompositions/": PARTS,
    "core/csrc/core/formula/primitives.cpp": LANGUAGE,
    "core/csrc/core/formula/emit.cpp": LANGUAGE,
    "core/csrc/core/formula/formula_program.cpp": LANGUAGE,
    "core/csrc/core/formula/formula_host.cpp": LANGUAGE,
    "core/csrc/core/formula/formula_parse.cpp": LANGUAGE,
    "core/csrc/core/record/record": LANGUAGE,  # records.cpp, record_signature.cpp, ...
    "core/csrc/core/record/join.h": LANGUAGE,
    "core/csrc/core/record/examples.cpp": LANGUAGE,
    "core/csrc/python/module.cpp": LANGUAGE,
    "vmap/csrc/batch/exact.cpp": BATCH,
    "testing/src/rabbet_testing/fuzz/": TEST,
    "testing/src/rabbet_testing/judges/altered.py": TEST,
    "testing/src/rabbet_testing/judges/references/": TEST,
    "testing/src/rabbet_testing/judges/numbers.py": TEST,
    "testing/src/rabbet_testing/conformance/test_": TEST,
}
PLACES = ("core", "autograd", "vmap", "autocast", "testing")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
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
    text = source.read_text()
    if source.suffix != ".py":
        text = COMMENT.sub(lambda m: "\n" * m[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
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
    unused, excepted = set(EXCEPTIONS), 0
    for source in sources():
        path = str(source.relative_to(ROOT / "packages"))
        found = literals(source, names)
        exception = next((e for e in EXCEPTIONS if path.startswith(e)), None)
        if exception and found:
            unused.discard(exception)
            excepted += len(found)
            continue
        if found:
            counts[path] = len(found)
        if args.list:
            for line, name in found:
                print(f"packages/{path}:{line}: {name}")
    if args.list:
        for path, count in counts.most_common():
            print(f"{count:5} packages/{path}")
    print(
        f"names of operators as literals: {counts.total()} of {BUDGET}, {excepted} in files of the list"
    )
    for exception in sorted(unused):
        print(f"packages/{exception} holds none: take it out of the list")
    if counts.total() > BUDGET:
        print(
            "more than the budget: say it in a field of the record, or lower another count (--list)"
        )
    return int(counts.total() > BUDGET or bool(unused))


if __name__ == "__main__":
    sys.exit(main())
