"""The stages, in order. Each returns what it found; only what ran and held is passed."""

import importlib.util
import json
import os
import platform
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from runner import LAST_WORDS, PACKAGE, ROOT, Check, Failed, Result, Stage, last_line

INDEPENDENT = ["backend-cpu", "backend-cuda", "autograd", "vmap", "nn", "optim", "distributions"]
INDEPENDENT += ["testing"]
BEHIND_AUTOGRAD = ["autocast"]
# Where float32 is compared with the CPU's: cuDNN rounds operands of convolutions otherwise.
EXACT = {"NVIDIA_TF32_OVERRIDE": "0"}


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
    if check.given_wheels:
        made = sorted(check.given_wheels.glob("*.whl"))
        install(check, made)
        return Result("passed", f"{len(made)} wheels of {check.given_wheels} installed")
    folder = check.work / "wheels"
    shutil.rmtree(folder, ignore_errors=True)
    made = []
    for packages in (["core"], [*INDEPENDENT], BEHIND_AUTOGRAD):
        made += build(check, packages, folder)
        install(check, made)
    sizes = {path.name: path.stat().st_size for path in made}
    return Result("passed", f"{len(sizes)} wheels", {"bytes": sizes})


def build(check: Check, packages: list[str], folder: Path) -> list[Path]:
    """Wheels of packages that do not need each other, at a time."""
    share = str(max(1, (os.cpu_count() or 2) // (2 if len(packages) > 1 else 1)))
    jobs = {}
    for name in packages:
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-index", "--no-build-isolation"]
        command += ["--no-deps", "-w", str(folder / name), str(ROOT / "packages" / name)]
        log = check.logs / f"wheel-{name}.log"
        jobs[name] = check.start(command, log, CMAKE_BUILD_PARALLEL_LEVEL=share)
    failed = [name for name, job in jobs.items() if check.wait(job, check.left()) != 0]
    if failed:
        raise Failed(f"no wheel of {', '.join(failed)}: see wheel-NAME.log")
    return [next((folder / name).glob("*.whl")) for name in packages]


def install(check: Check, made: list[Path]) -> None:
    """All at once: pip keeps a folder that is there, and several wheels have parts of `rabbet`."""
    shutil.rmtree(check.site, ignore_errors=True)
    words = ["-q", "--no-index", "--no-deps", "--target", check.site]
    check.command(sys.executable, "-m", "pip", "install", *words, *made)


def smoke(check: Check) -> Result:
    found = check.script("smoke.py", **EXACT)
    return Result("passed", f"{found['device']}: add, matmul, conv, sdpa", found)


def first_calls(check: Check) -> Result:
    """Seconds of first calls: with nothing compiled before, and in a process after that one."""
    folder = check.work / "kernel-cache"
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
    report = check.logs / f"{name}.xml"
    # Plugins of the machine, and what they warn of, are none of our business.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-rs",
        "-W",
        "default",
    ]
    for plugin in ("rabbet_testing_pytest", "share"):
        command += ["-p", plugin]
    if importlib.util.find_spec("xdist") and not check.simulated:
        command += ["-p", "xdist", "-n", str(max(1, min(12, (os.cpu_count() or 2) - 2)))]
    status, _ = check.try_command(
        *command,
        f"--junitxml={report}",
        *words,
        seconds=max(1.0, check.left() - LAST_WORDS - 2),
        **{"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env},
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
        *("--pyargs", "rabbet_testing", "--device=cuda", "--level=L2"),
        GPU_CHECK_EVERY=every,
        RABBET_CUDA_FALLBACK="error",
        **EXACT,
    )
    result.note += f" (one of {every})"
    return result


def own_tests(check: Check) -> Result:
    """The tests of the backend against this device, and numbers beside the simulator's."""
    tests = PACKAGE / "tests"
    if check.simulated:
        result = judged(check, "own-tests", tests / "test_attention.py", "-k", "softmax")
    else:
        # As on the simulator kernels of ours run; the kit runs cuDNN's.
        env = EXACT | {"RABBET_CUDA_TEST_DEVICE": "real", "RABBET_CUDA_CUDNN": ""}
        result = judged(check, "own-tests", tests, **env)
    if not check.simulated and not shutil.which("g++"):
        result.details["beside_simulator"] = "skipped: the simulator needs g++"
        return result
    here, there = check.work / "here.npz", check.work / "simulated.npz"
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
    """Each tool of compute-sanitizer over a call of each family, side by side; first without any."""
    exact = {"RABBET_CUDA_EXACT": "1", "RABBET_CUDA_LINEINFO": "1"}
    if check.simulated:
        check.script("mini.py", CUSIM_CHECK="all", **exact)
        return Result("passed", "the simulator's checkers in its place")
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        return Result("skipped", "compute-sanitizer is not here")
    env = exact | {"RABBET_CUDA_CACHE": str(check.work / "lines-cache")}
    check.script("mini.py", **env)
    jobs = {}
    for name in ("memcheck", "synccheck", "initcheck", "racecheck"):
        words = [tool, "--tool", name, "--error-exitcode", "9"]
        words += ["--report-api-errors", "no"] if name == "memcheck" else []
        log = check.logs / f"sanitizer-{name}.log"
        jobs[name] = (
            log,
            check.start(
                [*words, sys.executable, str(PACKAGE / "tools/gpu_check/mini.py")], log, **env
            ),
        )
    found = {}
    for name, (log, job) in jobs.items():
        status = check.wait(job, max(0.0, check.left() - len(jobs) * LAST_WORDS))
        found[name] = verdict(status, log.read_text(errors="replace"))
    status = "failed" if any(f.startswith("failed") for f in found.values()) else "passed"
    if not any(f.startswith("passed") for f in found.values()) and status == "passed":
        status = "skipped"
    return Result(status, "; ".join(f"{k} {v}" for k, v in found.items()), {"tools": found})


def verdict(status: int | None, text: str) -> str:
    """What a tool of compute-sanitizer found; passed only if it says so itself."""
    lines = [line.strip("= ") for line in text.splitlines() if line.startswith("=====")]
    summary = next((line for line in reversed(lines) if "SUMMARY" in line), "")
    first = next((line for line in lines if line and "COMPUTE-SANITIZER" not in line), "")
    if status is None:
        return f"failed: out of time; {first}".rstrip("; ")
    if status == 0 and "SUMMARY: 0 " in summary:
        return "passed"
    if not summary and "not supported" in text.lower():
        return f"skipped: {first}"
    return f"failed: exit status {status}; {summary}; {first}"


def stress(check: Check) -> Result:
    found = check.script("stress.py")
    return Result("passed", ", ".join(f"{k} {v}" for k, v in found.items()), found)


def benchmarks(check: Check) -> Result:
    """Rows that were measured count, also where the program was ended."""
    table = check.out / "bench.json"
    table.unlink(missing_ok=True)
    status, text = check.try_command(
        sys.executable, ROOT / "benchmarks" / "cuda.py", table, GPU_CHECK_SECONDS=check.seconds()
    )
    if not table.exists():
        return Result("failed", f"no row: exit status {status}; {last_line(text)[:1000]}")
    rows = json.loads(table.read_text())["rows"]
    beside = sum("ratio" in row for row in rows)
    left = sum("left_out" in row for row in rows)
    failed = [row["name"] for row in rows if row.get("error")]
    note = f"{len(rows) - left} rows, {beside} beside torch"
    note += f"; {left} left out for lack of time" if left else ""
    note += f"; errors: {failed}" if failed else ""
    if status != 0:
        note += "; cut off" if status is None else f"; exit status {status}"
    return Result("failed" if failed or status != 0 else "passed", note)


def gpt2(check: Check) -> Result:
    """Training steps of GPT-2 small: ours and torch's, eager and as a graph; losses must agree."""
    script = PACKAGE / "tools" / "gpu_check" / "gpt2.py"
    commands = {"rabbet": ["-m", "rabbet", "run", script], "torch": [script]}
    runs: dict[str, dict] = {}
    for kind, command in commands.items():
        if kind == "torch" and (check.simulated or not importlib.util.find_spec("torch")):
            runs[kind] = {"skipped": "torch has no CUDA device here"}
            continue
        seconds = check.left() / (2 if kind == "rabbet" else 1)
        status, text = check.try_command(
            sys.executable, *command, seconds=seconds, GPU_CHECK_SECONDS=str(int(seconds * 0.35))
        )
        try:
            runs[kind] = json.loads(last_line(text))
        except ValueError:
            runs[kind] = {"error": f"exit status {status}: {last_line(text)[:500]}"}
    return gpt2_result(runs)


def gpt2_result(runs: dict[str, dict]) -> Result:
    """Of what the programs printed: `eager` and `graph` with losses and ms, or `error`, or `skipped`."""
    measured = {
        f"{kind} {how}": run[how]
        for kind, run in runs.items()
        for how in ("eager", "graph")
        if "losses" in run.get(how, {})
    }
    wrong = [f"{kind}: {run['error']}" for kind, run in runs.items() if "error" in run]
    wrong += [
        f"{kind} {how}: {run[how]['error']}"
        for kind, run in runs.items()
        for how in ("eager", "graph")
        if "error" in run.get(how, {})
    ]
    apart = {}
    if "rabbet eager" in measured:
        ours = measured["rabbet eager"]
        apart = {name: loss_distance(ours, run) for name, run in measured.items()}
        for name, by in apart.items():
            if not by < (1e-3 if name.startswith("rabbet") else 2e-2):
                wrong.append(f"losses of {name} are {by:.2g} apart")
    elif not wrong:
        wrong.append(f"rabbet did not run: {runs['rabbet']}")
    note = ", ".join(f"{name} {run['ms']:.1f} ms" for name, run in measured.items())
    left = [kind for kind, run in runs.items() if "skipped" in run]
    note += f" (not run: {', '.join(left)})" if left else ""
    details = {"runs": runs, "losses_apart": apart}
    return Result("failed" if wrong else "passed", "; ".join([*wrong, note]), details)


def loss_distance(run: dict, other: dict) -> float:
    """The largest relative difference of the steps that both made; NaN counts."""
    pairs = list(zip(run["losses"], other["losses"], strict=False))
    distances = [abs(a - b) / max(abs(a), 1e-6) for a, b in pairs]
    return max(distances) if all(d == d for d in distances) and pairs else float("nan")


STAGES = [
    Stage("machine", 60, machine),
    Stage("wheels", 400, wheels),
    Stage("smoke", 40, smoke),
    Stage("first-calls", 40, first_calls),
    Stage("kit", 240, kit),
    Stage("own-tests", 150, own_tests),
    Stage("sanitizer", 150, sanitizer),
    Stage("stress", 40, stress),
    Stage("benchmarks", 240, benchmarks),
    Stage("gpt2", 200, gpt2),
]
