"""Check that core's folders include only folders below them, in the order of packages/core/csrc/core/order.txt.

python tools/check_order.py           # problems; the exit status says whether there are any
python tools/check_order.py --cycles  # the groups of modules that include each other in a circle
"""

import re
import sys
from pathlib import Path

CORE = Path(__file__).resolve().parent.parent / "packages/core/csrc/core"
INCLUDE = re.compile(r'^#include "(\w+)/(\w+)\.h"', re.M)


def ranks() -> dict[str, int]:
    """The rank of each folder, lowest first."""
    lines = (CORE / "order.txt").read_text().splitlines()
    names = [line.split()[0] for line in lines if line and not line.startswith("#")]
    return {name: rank for rank, name in enumerate(names)}


def included() -> dict[str, set[str]]:
    """The modules that each module includes; a module is a header with its source, as "call/dispatch"."""
    found: dict[str, set[str]] = {}
    for source in CORE.glob("*/*.[ch]*"):
        module = f"{source.parent.name}/{source.stem}"
        others = {"/".join(pair) for pair in INCLUDE.findall(source.read_text())}
        found.setdefault(module, set()).update(others - {module})
    return found


def problems() -> list[str]:
    """Includes of a folder that is not below the including one, and folders without a rank."""
    rank = ranks()
    folders = {path.name for path in CORE.iterdir() if path.is_dir()}
    wrong = [f"order.txt has no rank for {name}/" for name in sorted(folders - rank.keys())]
    for module, others in sorted(included().items()):
        own = module.split("/")[0]
        for other in sorted(others):
            folder = other.split("/")[0]
            if folder in rank and own in rank and rank[folder] > rank[own]:
                wrong.append(f"{module} includes {other}.h, of a higher folder")
    return wrong


def cycles() -> list[list[str]]:
    """The strongly connected components of more than one module, the largest first (Tarjan 1972)."""
    graph = included()
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph.get(module, ())):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            component = sorted(stack[at:])
            del stack[at:]
            if len(component) > 1:
                components.append(component)

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return sorted(components, key=len, reverse=True)


def main() -> int:
    if "--cycles" in sys.argv[1:]:
        for component in cycles():
            print(f"{len(component)} modules: {', '.join(component)}")
        return 0
    found = problems()
    print("\n".join(found) or "core's folders are in order")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
