"""Print the sizes of the wheels in a folder; fail if one is over its budget or lacks the licence."""

import sys
import zipfile
from pathlib import Path

BUDGET_MB = {
    "rabbet_core": 5.0,
    "rabbet_backend_cpu": 30.0,
    "rabbet_backend_cuda": 10.0,
    "rabbet_autocast": 0.5,
    "rabbet_profiler": 0.5,
    "rabbet_compile": 0.5,
    "rabbet_graph": 0.5,
}
LICENSE = Path(__file__).parents[1] / "LICENSE"


def carries_license(wheel: Path) -> bool:
    """Whether the wheel holds the repository's LICENSE, and its metadata names it."""
    with zipfile.ZipFile(wheel) as files:
        info = next(n.split("/")[0] for n in files.namelist() if ".dist-info/" in n)
        held = f"{info}/licenses/LICENSE"
        if held not in files.namelist() or files.read(held) != LICENSE.read_bytes():
            return False
        metadata = files.read(f"{info}/METADATA").decode().partition("\n\n")[0].splitlines()
    return {"License-Expression: Apache-2.0", "License-File: LICENSE"} <= set(metadata)


def main(folder: str) -> int:
    """Return 1 if a wheel is missing, too large, or without the licence."""
    wheels = sorted(Path(folder).glob("*.whl"))
    bad = [name for name in BUDGET_MB if not any(w.name.startswith(name + "-") for w in wheels)]
    for name in bad:
        print(f"no wheel of {name} in {folder}")
    for wheel in wheels:
        size = wheel.stat().st_size / 1e6
        budget = BUDGET_MB.get(wheel.name.split("-")[0])
        print(f"{wheel.name:<60} {size:7.3f} MB" + (f"  (budget {budget} MB)" if budget else ""))
        if budget is not None and size > budget:
            bad.append(wheel.name)
        if not carries_license(wheel):
            print(f"{wheel.name}: no LICENSE in its dist-info, or one that is not the repository's")
            bad.append(wheel.name)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
