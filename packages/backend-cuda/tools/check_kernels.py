"""Compile the device's kernels by the real NVRTC for four architectures and compare with kernel_budget.json.

    python packages/backend-cuda/tools/check_kernels.py [--every | --update [FAMILY ...]] [--nvrtc libnvrtc.so.13]

Needs NVRTC (pip install nvidia-cuda-nvrtc), g++ for the driver that does nothing, the installed backend and no GPU. The
kernels are those that every_kernel.py asks for, and all macros and literals that make kernels must be among them. No
kernel may spill, or convert floats to unsigned integers by the device's instruction. Of representative ones the budget says the registers for sm_90, the widest loads and stores, shared
memory and stack; --update writes it anew, or what it says of some families (the names of kernels/). --every compiles the
other texts, too, for which there is no budget.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_texts import PACKAGE, Kernel, kernels_of, missing
from nvrtc import Compiled, CompileError, compile_all, find_nvrtc

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
MAIN = "sm_90"
BUDGET = PACKAGE / "tools/kernel_budget.json"
PROGRAM = PACKAGE / "tools/every_kernel.py"
KNOWN = PACKAGE / "build/kernels-measured.jsonl"
RULES = "3"  # of `measure` and the options; another number forgets what was measured
SLACK = 1.1  # of registers

Job = tuple[str, str, str]  # name, text, architecture
Budget = dict[str, dict[str, Any]]


KINDS = ("complex", "double", "float", "whole", "half", "byte")
MACRO = re.compile(r"\bRB_[A-Z0-9_]+(?=\(|$)")
WAY = re.compile(
    r"(RB_(?:FLAT|ROWS|PLACES|PLACES64|CONV_MMA|CONV_MMA_DW|NORM|NORM_DX|PAIR_SUMS|CHANNEL_NORM|CHANNEL_DX"
    r"|SOFTMAX|SOFTMAX_VJP|REDUCE))\(|RB_PRODUCT\(.*?(\w+(?:<[^<>]*>)?)\)$"
)


def representatives(kernels: Iterable[Kernel]) -> list[Kernel]:
    """Of each macro the longest text in the numbers that need most room; of loops, lines, products and convolutions on tensor cores, in each kind of numbers."""
    groups: dict[tuple[str, ...], list[Kernel]] = {}
    for kernel in kernels:
        way = WAY.search(kernel.behind)
        macro = next(iter(MACRO.findall(kernel.behind)), "")
        key = (*filter(None, way.groups()), kernel.kind) if way else (macro,)
        groups.setdefault((kernel.family, *key), []).append(kernel)

    def room(kernel: Kernel) -> tuple[int, int, str]:
        return -KINDS.index(kernel.kind), len(kernel.text), kernel.name

    chosen = []
    for (family, what, *_), group in groups.items():
        kernel = max(group, key=room)
        # Formulas are numbered: a name that lasts says what the kernel is here.
        longest = replace(kernel, behind=f"{what}(the longest)")
        chosen.append(longest if family == "elementwise" else kernel)
    return sorted(chosen, key=lambda kernel: kernel.name)


def measure(made: Compiled | CompileError) -> dict[str, Any]:
    """What the compiler says of one text; {"error": ...} where it does not compile."""
    if isinstance(made, CompileError):
        return {"error": str(made)}
    return {"registers": made.registers, "spilled": made.spilled, "stack": made.stack,
            "shared": made.shared, "saturates": made.saturates, "load": made.widest("ld"), "store": made.widest("st")}  # fmt: skip


def measured(library: Path, jobs: list[Job]) -> Iterator[tuple[Job, dict[str, Any]]]:
    """What was measured by this compiler before is not compiled again: build/ remembers it by the hash of the text."""

    def key(job: Job) -> str:
        words = (job[1], job[2], str(library.resolve()), str(library.stat().st_size), RULES)
        return hashlib.sha256("\0".join(words).encode()).hexdigest()

    known: dict[str, dict[str, Any]] = {}
    if KNOWN.exists():
        known = dict(json.loads(line) for line in KNOWN.read_text().splitlines())
    left = [job for job in jobs if key(job) not in known]
    KNOWN.parent.mkdir(exist_ok=True)
    with open(KNOWN, "a") as file:
        found = compile_all(library, [job[1:] for job in left], measure, ["--ptxas-options=-v"])
        for job, result in zip(left, found, strict=True):
            known[key(job)] = result
            file.write(json.dumps([key(job), result]) + "\n")
            file.flush()
    yield from ((job, known[key(job)]) for job in jobs)


def broken(name: str, architecture: str, found: dict[str, Any]) -> list[str]:
    """What no kernel may do."""
    if "error" in found:
        return [f"{name} does not compile for {architecture}: {found['error']}"]
    if found["spilled"]:
        return [f"{name} spills {found['spilled']} bytes on {architecture}"]
    if found["saturates"]:
        return [f"{name} converts floats to unsigned integers other than by As on {architecture}"]
    return []


def beyond(name: str, found: dict[str, Any], allowed: dict[str, Any]) -> list[str]:
    """What is worse than the budget."""
    worse, most = [], int(allowed["registers"] * SLACK)
    if found["registers"] > most:
        worse.append(f"uses {found['registers']} registers, {most} are allowed")
    for what in ("stack", "shared"):
        most = allowed.get(what, 0)
        if found[what] > most:
            worse.append(f"uses {found[what]} bytes of {what}, the budget has {most}")
    for what in ("load", "store"):
        if found[what] < allowed[what]:
            worse.append(f"has {what}s of {found[what]} bytes, the budget has {allowed[what]}")
    return [f"{name} {text}" for text in worse]


def jobs_of(kernels: Iterable[Kernel]) -> list[Job]:
    """Each kernel for each architecture."""
    return [(k.name, k.text, architecture) for k in kernels for architecture in ARCHITECTURES]


def check(library: Path, jobs: list[Job], budget: Budget, names: set[str]) -> list[str]:
    """What is wrong, a line each. Of `names` the budget must say something, and of nothing else."""
    wrong = [f"{name} is in the budget, but not a kernel: --update" for name in set(budget) - names]
    wrong += [f"{name} is not in the budget: --update" for name in names - set(budget)]
    for (name, _, architecture), found in measured(library, jobs):
        bad = broken(name, architecture, found)
        if not bad and name in budget and architecture == MAIN:
            bad = beyond(name, found, budget[name])
        wrong += bad
    return sorted(wrong)


def new_budget(library: Path, kernels: list[Kernel]) -> tuple[Budget, list[str]]:
    """What is true now, and what no budget allows."""
    budget: Budget = {}
    wrong = []
    for (name, *_), found in measured(library, [(k.name, k.text, MAIN) for k in kernels]):
        wrong += broken(name, MAIN, found)
        kept = ("registers", "load", "store", *(w for w in ("stack", "shared") if found.get(w)))
        budget[name] = {what: found.get(what, 0) for what in kept}
    return budget, wrong


def left_out(kernel: Kernel, families: list[str], budget: Budget) -> bool:
    """Whether an update of some families keeps what the budget says of a kernel."""
    return bool(families) and kernel.family not in families and kernel.name in budget


def write_budget(path: Path, budget: Budget) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(budget[name])}" for name in sorted(budget)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvrtc", help="path of libnvrtc.so")
    parser.add_argument("--budget", type=Path, default=BUDGET)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--update", nargs="*", metavar="FAMILY")
    how.add_argument("--every", action="store_true")
    given = parser.parse_args(arguments)
    library = find_nvrtc(given.nvrtc)
    if not library:
        parser.error("NVRTC was not found: pip install nvidia-cuda-nvrtc, or --nvrtc PATH")
    kernels = kernels_of(PROGRAM)
    wrong = [f"{what}: every_kernel.py asks for no kernel with it" for what in missing(kernels)]
    chosen = representatives(kernels)
    budget = json.loads(given.budget.read_text()) if given.update != [] else {}
    if given.update is not None:
        old = {k.name: budget[k.name] for k in chosen if left_out(k, given.update, budget)}
        budget, bad = new_budget(library, [k for k in chosen if k.name not in old])
        write_budget(given.budget, old | budget)
        wrong += bad
    else:
        names = {kernel.name for kernel in chosen}
        jobs = jobs_of(chosen)
        if given.every:
            jobs += jobs_of(k for k in kernels if k.name not in names)
        wrong += check(library, jobs, budget, names)
    print(*wrong, f"{len(chosen)} kernels, {len(wrong)} faults", sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
