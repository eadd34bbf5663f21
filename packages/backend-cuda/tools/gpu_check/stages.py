"""The stages, in order. Each returns what it found; only what ran and held is passed."""

import importlib.util
import json
import os
import platform
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from runner import PACKAGE, ROOT, Check, Failed, Result, Stage, last_line

INDEPENDENT = ["backend-cpu", "backend-cuda", "autograd", "vmap", "nn", "optim", "distributions"]
INDEPENDENT += ["testing"]
BEHIND_AUTOGRAD = ["autocast"]


def machine(check: Check) -> Result:
    found = {"system": platform.platform(), "python": platform.python_version()}
    for name, command in {
        "gpu": [
            "nvidia-smi",
            "--query-gpu=name,driver_version,memory.total",
            "--format=csv,noheader",
        ],
        "revision": ["git", "-C", str(ROOT), "rev-parse", "HEAD"],
        "compiler": ["g++", "--version"],
        "cmake": ["cmake", "--version"],
    }.items():
        found[name] = ""
        if shutil.which(command[0]):
            found[name] = check.try_command(*command, seconds=10)[1].split("\n")[0]
    code = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"
    status, text = check.try_command(sys.executable, "-c", code, seconds=60)
    found["torch"] = text.strip() if status == 0 else "not there"
    if not found["gpu"] and not check.simulated:
        return Result("failed", "nvidia-smi finds no GPU", {"machine": found})
    return Result("passed", found["gpu"] or "no GPU: the simulator", {"machine": found})


def wheels(check: Check) -> Result:
    if check.given_site:
        return Result("skipped", f"--site: what is installed in {check.given_site} is tested")
    shutil.rmtree(check.site, ignore_errors=True)
    folder = check.site.with_name("wheels")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for packages in (["core"], [*INDEPENDENT], BEHIND_AUTOGRAD):
        build(check, packages, folder)
    sizes = {path.name: path.stat().st_size for path in sorted(folder.glob("*.whl"))}
    return Result("passed", f"{len(sizes)} wheels", {"bytes": sizes})


def build(check: Check, packages: list[str], folder: Path) -> None:
    """Wheels of packages that do not need each other, at a time, then all of them installed."""
    pip = [sys.executable, "-m", "pip"]
    share = str(max(1, (os.cpu_count() or 2) // (2 if len(packages) > 1 else 1)))
    jobs = {}
    for name in packages:
        to = folder / name
        command = [*pip, "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(to)]
        log = check.out / f"wheel-{name}.log"
        log.write_text("")
        jobs[name] = check.start(
            [*command, str(ROOT / "packages" / name)], log, CMAKE_BUILD_PARALLEL_LEVEL=share
        )
    failed = [name for name, job in jobs.items() if check.wait(job, check.left()) != 0]
    if failed:
        raise Failed(f"no wheel of {', '.join(failed)}: see wheel-NAME.log")
    made = [next((folder / name).glob("*.whl")) for name in packages]
    install = ["install", "-q", "--no-index", "--no-deps", "--target", str(check.site)]
    check.command(*pip, *install, *map(str, made))
    for path in made:
        path.rename(folder / path.name)


def smoke(check: Check) -> Result:
    found = check.script("smoke.py")
    return Result("passed", f"{found['device']}: add, matmul, conv, sdpa", found)


def first_calls(check: Check) -> Result:
    """Seconds of first calls: with nothing compiled before, and in a process after that one."""
    folder = check.out / "kernel-cache"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = ("cold", "again")
    found = {name: check.script("first_calls.py", RABBET_CUDA_CACHE=str(folder)) for name in names}
    kept = sum(1 for path in folder.rglob("*") if path.is_file())
    shutil.rmtree(folder, ignore_errors=True)
    note = ", ".join(f"{name} {found[name]['total_ms']:.0f} ms" for name in names)
    return Result("passed", f"{found['cold']['calls']} calls: {note}; {kept} files kept", found)


def totals(path: Path) -> dict[str, int]:
    """Of a JUnit file."""
    if not path.exists():
        return {}
    suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
    kinds = ("tests", "failures", "errors", "skipped")
    return {kind: sum(int(s.get(kind, 0)) for s in suites) for kind in kinds}


def judged(check: Check, name: str, *words: str | Path, **env: str) -> Result:
    """Of a run of pytest: passed only if it ended in time, something ran, and nothing failed."""
    report = check.out / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"]
    parallel = ["-n", "6"] if importlib.util.find_spec("xdist") and not check.simulated else []
    status, _ = check.try_command(
        *command, *parallel, f"--junitxml={report}", *words, seconds=check.left() - 12, **env
    )
    counts = totals(report)
    ran = counts.get("tests", 0) - counts.get("skipped", 0)
    bad = counts.get("failures", 0) + counts.get("errors", 0)
    note = f"{ran} ran, {bad} failed, {counts.get('skipped', 0)} skipped"
    if status is None:
        return Result("failed", f"cut off: {note}", counts)
    return Result("passed" if status == 0 and ran else "failed", note, counts)


def kit(check: Check) -> Result:
    every = os.environ.get("KIT_EVERY") or ("400" if check.simulated else "4")
    result = judged(
        check,
        "kit",
        *("-p", "share", "--pyargs", "rabbet_testing", "--device=cuda", "--level=L2"),
        GPU_CHECK_EVERY=every,
    )
    result.note += f" (one of {every})"
    return result


def own_tests(check: Check) -> Result:
    """The tests of the backend against this device, and numbers beside the simulator's."""
    tests = PACKAGE / "tests"
    if check.simulated:
        result = judged(check, "own-tests", tests / "test_attention.py", "-k", "softmax")
    else:
        result = judged(check, "own-tests", tests, RABBET_CUDA_TEST_DEVICE="real")
    if not check.simulated and not shutil.which("g++"):
        result.details["beside_simulator"] = "skipped: the simulator needs g++"
        return result
    here, there = check.site.with_name("here.npz"), check.site.with_name("simulated.npz")
    here.parent.mkdir(parents=True, exist_ok=True)
    check.script("golden.py", here)
    check.script("golden.py", there, **check.simulator())
    found = check.script("golden.py", here, "--beside", there)
    result.details["beside_simulator"] = found
    if found["wrong"]:
        return Result(
            "failed", f"{result.note}; not the simulator's: {found['wrong']}", result.details
        )
    return result


def sanitizer(check: Check) -> Result:
    if check.simulated:
        return Result("skipped", "the simulator has checks of its own")
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        return Result("skipped", "compute-sanitizer is not here")
    found = {}
    for name in ("memcheck", "synccheck", "initcheck", "racecheck"):
        status, text = check.try_command(
            *(
                tool,
                "--tool",
                name,
                "--error-exitcode",
                "9",
                sys.executable,
                PACKAGE / "tools/gpu_check/mini.py",
            ),
            seconds=max(15.0, check.left() / 2),
        )
        found[name] = (
            "passed" if status == 0 else "out of time" if status is None else f"failed: {status}"
        )
        if "not supported" in text and status not in (0, 9):
            found[name] = "skipped: not supported on this machine"
    status = "failed" if any(f.startswith(("failed", "out")) for f in found.values()) else "passed"
    if all(f.startswith("skipped") for f in found.values()):
        status = "skipped"
    return Result(status, ", ".join(f"{k}: {v}" for k, v in found.items()), {"tools": found})


def stress(check: Check) -> Result:
    found = check.script("stress.py")
    return Result("passed", ", ".join(f"{k} {v}" for k, v in found.items()), found)


def benchmarks(check: Check) -> Result:
    found = check.script(str(ROOT / "benchmarks" / "cuda.py"), check.out / "bench.json")
    rows = [row for row in found["rows"] if row.get("ratio")]
    beside = f"{len(rows)} beside torch" if rows else "torch has no CUDA device here: only ours"
    failed = [row["name"] for row in found["rows"] if row.get("error")]
    note = f"{len(found['rows'])} rows, {beside}" + (f"; errors: {failed}" if failed else "")
    return Result("failed" if failed else "passed", note)


def gpt2(check: Check) -> Result:
    """Training steps of GPT-2 small: ours and torch's, eager and as a graph; losses must agree."""
    script = PACKAGE / "tools" / "gpu_check" / "gpt2.py"
    commands = {"rabbet": ["-m", "rabbet", "run", script], "torch": [script]}
    runs = {}
    for kind, command in commands.items():
        if kind == "torch" and (check.simulated or not importlib.util.find_spec("torch")):
            runs[kind] = {"skipped": "torch has no CUDA device here"}
        else:
            runs[kind] = json.loads(last_line(check.command(sys.executable, *command)))
    measured = {
        f"{kind} {how}": runs[kind][how]
        for kind in runs
        for how in ("eager", "graph")
        if how in runs[kind]
    }
    if "rabbet eager" not in measured:
        return Result("failed", f"rabbet did not run: {runs['rabbet']}", {"runs": runs})
    apart = {name: loss_distance(measured["rabbet eager"], run) for name, run in measured.items()}
    note = ", ".join(f"{name} {run['ms']:.1f} ms" for name, run in measured.items())
    left = [kind for kind in runs if "skipped" in runs[kind]]
    note += f" (not run: {', '.join(left)})" if left else ""
    details = {"runs": runs, "losses_apart": apart}
    wrong = {
        name: by
        for name, by in apart.items()
        if not by < (1e-3 if name.startswith("rabbet") else 2e-2)
    }
    if wrong:
        return Result("failed", f"losses differ: {wrong}; {note}", details)
    return Result("passed", note, details)


def loss_distance(run: dict, other: dict) -> float:
    """The largest relative difference; NaN counts."""
    pairs = zip(run["losses"], other["losses"], strict=True)
    distances = [abs(a - b) / max(abs(a), 1e-6) for a, b in pairs]
    return max(distances) if all(d == d for d in distances) else float("nan")


STAGES = [
    Stage("machine", 60, machine),
    Stage("wheels", 200, wheels),
    Stage("smoke", 40, smoke),
    Stage("first-calls", 40, first_calls),
    Stage("kit", 140, kit),
    Stage("own-tests", 90, own_tests),
    Stage("sanitizer", 80, sanitizer),
    Stage("stress", 40, stress),
    Stage("benchmarks", 110, benchmarks),
    Stage("gpt2", 80, gpt2),
]
