"""Hold small calls to their budget of instructions (benchmarks/instructions.json); --write sets it."""

import argparse
import json
import platform
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import tiny_calls  # noqa: E402

BUDGET = BENCHMARKS / "instructions.json"
TOLERANCE = 1.03  # compilers differ a little


def interpreter() -> str:
    """What a budget is for: an interpreter takes its own share of the instructions."""
    version = ".".join(platform.python_version_tuple()[:2])
    return f"{platform.python_implementation()} {version}, {platform.machine()}"


def exceeded(counts: dict[str, int], budget: dict[str, int]) -> list[str]:
    """A line for each statement that takes more than its budget, or has none."""
    lines = []
    for code, count in counts.items():
        if code not in budget:
            lines.append(f"{code}: {count} instructions, no budget")
        elif count > budget[code] * TOLERANCE:
            lines.append(f"{code}: {count} instructions, the budget is {budget[code]}")
    return lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="make today's counts the budget")
    write = parser.parse_args(arguments).write
    kept = json.loads(BUDGET.read_text()) if BUDGET.exists() else {}
    reason = tiny_calls.why_not()
    if not reason and not write and kept.get("interpreter") != interpreter():
        reason = f"the budget is for {kept.get('interpreter')}, this is {interpreter()}"
    if reason:
        print(f"instructions of small calls: skipped, {reason}")
        return 0
    counts = tiny_calls.count_instructions(tiny_calls.STATEMENTS)
    if write:
        text = json.dumps({"interpreter": interpreter(), "instructions": counts}, indent=1)
        BUDGET.write_text(text + "\n")
        return 0
    lines = exceeded(counts, kept["instructions"])
    for line in lines:
        print(line)
    if lines:
        print("see docs/decisions/0016; a new budget: python tools/check_instructions.py --write")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
