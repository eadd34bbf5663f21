"""Print the sizes of the wheels in a folder and fail if one is over its budget."""

import sys
from pathlib import Path

BUDGET_MB = {"rabbet_core": 5.0, "rabbet_backend_cpu": 30.0, "rabbet_autocast": 0.5}


def main(folder: str) -> int:
    """Return 1 if a wheel is missing or too large."""
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
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
