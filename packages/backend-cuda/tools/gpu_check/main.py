"""Check this tree on a machine with a GPU and without network, in stages; results under $OUT.

    tools/gpu_check.sh [--simulate] [--site FOLDER | --wheels FOLDER] [STAGE ...]

After each stage $OUT/summary.json, $OUT/table.md and $OUT/logs.tar.gz, with the log of each stage, are written anew; the
benchmarks add bench.json and bench.md. A stage passed, failed or was skipped, and says why; the others go on. The exit
status is 1 if one failed, 2 if none passed. Clocks of the GPU are left as they are.

--simulate: the simulator is the device and sizes are small. --site: what is installed there is tested, nothing is built.
--wheels: stage 1 installs the wheels of the folder instead of building them.

A call takes 10 minutes at most. All stages take longer where each uses its time; then, on one machine,
`0 1 2 3`, `4 5 6` and `7 8 9`: what stage 1 installs stays in build/gpu_check.
"""

import argparse
import json
import os
import sys
import tarfile
import time
from pathlib import Path

from runner import ROOT, Check, Result
from stages import STAGES

TOTAL_SECONDS = 570
MOST_BYTES = 50 << 20  # of a log


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", type=int, help="numbers; all, or $STAGES, if left out")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--site", type=Path, help="folder with the installed packages")
    parser.add_argument("--wheels", type=Path, help="folder with wheels of them")
    return parser.parse_args()


def write(out: Path, rows: dict[str, dict], simulated: bool, began: float) -> None:
    seconds = round(time.monotonic() - began, 1)
    summary = {"simulated": simulated, "seconds": seconds, "stages": rows}
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    lines = ["| stage | status | s | what |", "|---|---|---|---|"]
    lines += [f"| {k} | {r['status']} | {r['seconds']} | {r['note']} |" for k, r in rows.items()]
    if simulated:
        lines += ["", "On the simulator: no time here is a GPU's."]
    (out / "table.md").write_text("\n".join(lines) + "\n")


def pack(logs: Path, out: Path) -> None:
    """One file: few come back from a lent machine."""
    with tarfile.open(out / "logs.tar.gz", "w:gz") as tar:
        for path in sorted(logs.iterdir()):
            if path.is_file() and path.stat().st_size < MOST_BYTES:
                tar.add(path, path.name)


def main() -> int:
    given = options()
    chosen = given.stages or [int(word) for word in os.environ.get("STAGES", "").split()]
    out = Path(os.environ.get("OUT") or ROOT / "build" / "gpu_check").resolve()
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    check = Check(
        out,
        given.simulate,
        given.site and given.site.resolve(),
        given.wheels and given.wheels.resolve(),
    )
    rows: dict[str, dict] = {}
    for number, stage in enumerate(STAGES):
        name = f"{number} {stage.name}"
        if chosen and number not in chosen:
            continue
        left = TOTAL_SECONDS - (time.monotonic() - began)
        start = time.monotonic()
        if left < 5:
            result = Result("skipped", "no time is left")
        else:
            print(f"stage {name} ...", flush=True)
            result = check.run(stage, min(stage.seconds, left))
        seconds = round(time.monotonic() - start, 1)
        rows[name] = {
            "status": result.status,
            "seconds": seconds,
            "note": result.note,
            **result.details,
        }
        write(out, rows, given.simulate, began)
        pack(check.logs, out)
    print((out / "table.md").read_text())
    statuses = [row["status"] for row in rows.values()]
    return 1 if "failed" in statuses else 0 if "passed" in statuses else 2


if __name__ == "__main__":
    sys.exit(main())
