"""Check this tree on a machine with a GPU and without network, in five runs of at most ten minutes; results under $OUT.

    tools/gpu_check.sh RUN [--simulate] [--wheels FOLDER | --site FOLDER] [--stage NAME ...]
    tools/gpu_check.sh 5 [--family NAME ...] [--case TEXT ...] [--test EXPRESSION ...] [--row TEXT ...] [--kernel "ARGUMENTS" ...]
    tools/gpu_check.sh --build-wheels FOLDER

Nothing needs to stay on the machine between two runs. Each begins with what the machine has and with installing the
packages: wheels of --wheels, or of `dist-gpu` in the tree, where they match the sources; the others are built. What was
built is under $OUT in `wheels.tar.NN`, to be put into that folder for the next run.

After each stage $OUT/summary.json, $OUT/table.md and $OUT/logs.tar.gz are written anew; the benchmarks add bench.json and
bench.md. A stage passed, failed, was skipped, or was cut: nothing failed, but its time did not suffice for all of it. Each says
why, and the others go on. The exit status is 1 if one failed, 2 if none passed, 3 if one was cut. Clocks of the GPU are left
as they are.

--simulate: the simulator is the device and sizes are small. --site: what is installed there is tested, nothing is built.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from results import beyond_limits, pack, write
from runner import ROOT, Check, Result, Stage
from stages import RUNS
from wheels import build_wheels

RUN_SECONDS = 570
PACK_SECONDS = 5  # for writing the results
CHOICES = ("family", "case", "test", "row", "kernel")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_check.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", nargs="?", type=int, choices=list(RUNS))
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--wheels", type=Path, help="folder with wheels of a run before")
    parser.add_argument("--site", type=Path, help="folder with the installed packages")
    parser.add_argument("--stage", action="append", help="only these stages of the run")
    parser.add_argument("--seed", type=int, help="of the inputs; another one each time if left out")
    parser.add_argument(
        "--build-wheels", type=Path, metavar="FOLDER", help="only build what lacks there"
    )
    selection = parser.add_argument_group("run 5: what is chosen by name")
    for name in CHOICES:
        selection.add_argument(f"--{name}", action="append", default=[])
    given = parser.parse_args()
    if (given.run is None) == (given.build_wheels is None):
        parser.error("expected RUN or --build-wheels FOLDER")
    if given.run:
        names = [stage.name for stage in RUNS[given.run]]
        wrong = set(given.stage or []) - set(names)
        if wrong:
            parser.error(
                f"run {given.run} has no stage {', '.join(sorted(wrong))}; it has {', '.join(names)}"
            )
        if given.run != 5 and any(getattr(given, name) for name in CHOICES):
            parser.error("--family, --case, --test, --row and --kernel belong to run 5")
    return given


def run_stages(check: Check, stages: list[Stage], head: dict) -> dict[str, dict]:
    began = time.monotonic()
    rows: dict[str, dict] = {}
    for number, stage in enumerate(stages):
        start = time.monotonic()
        left = RUN_SECONDS - PACK_SECONDS - (start - began)
        limit = stage.limit(left, sum(later.seconds for later in stages[number + 1 :]))
        if rows.get("wheels", {}).get("status") == "failed":
            result = Result("skipped", "the packages are not installed")
        elif limit < 1:
            result = Result("cut", f"no time is left of {RUN_SECONDS} s")
        else:
            print(f"{stage.name} ...", flush=True)
            result = check.run(stage, limit)
        now = time.monotonic()
        rows[stage.name] = {
            "status": result.status,
            "seconds": round(now - start, 1),
            "limit": round(limit),
            "note": result.note,
            **result.details,
        }
        head["seconds"] = round(now - began, 1)
        write(check.out, head, rows)
        pack(check.logs, check.out)
    return rows


def exit_status(statuses: list[str]) -> int:
    if "failed" in statuses:
        return 1
    if "passed" not in statuses:
        return 2
    return 3 if "cut" in statuses else 0


def emptied(out: Path) -> Path:
    """Our files of an earlier run would be taken for results of this one."""
    out.mkdir(parents=True, exist_ok=True)
    for pattern in ("summary.json", "table.md", "logs.tar.gz", "bench.*", "wheels.tar.*"):
        for path in out.glob(pattern):
            path.unlink()
    return out


def main() -> int:
    given = options()
    # Processes lead sessions of their own: they are ended with this one by the `finally` of those who wait for them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    out = Path(os.environ.get("OUT") or ROOT / "build" / "gpu_check" / "out").resolve()
    if given.build_wheels:
        return build_wheels(given.build_wheels.resolve())
    beside = ROOT / "dist-gpu"
    wheels = given.wheels or (beside if beside.exists() and not given.site else None)
    if wheels and not wheels.is_dir():
        raise SystemExit(f"gpu_check.sh: --wheels: {wheels} is no folder")
    seed = random.randrange(1 << 31) if given.seed is None else given.seed
    check = Check(
        emptied(out),
        given.simulate,
        given.site and given.site.resolve(),
        wheels and wheels.resolve(),
        {name: getattr(given, name) for name in CHOICES},
        seed,
    )
    stages = [s for s in RUNS[given.run] if not given.stage or s.name in given.stage]
    rows = run_stages(check, stages, {"run": given.run, "simulated": given.simulate, "seed": seed})
    shutil.rmtree(check.work / "given", ignore_errors=True)
    print((out / "table.md").read_text())
    wrong = beyond_limits(out)
    if wrong:
        print(f"beyond what is brought back: {'; '.join(wrong)}", file=sys.stderr)
        return 1
    return exit_status([row["status"] for row in rows.values()])


if __name__ == "__main__":
    sys.exit(main())
