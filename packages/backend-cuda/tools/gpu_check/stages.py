"""The runs and their stages. Each stage returns what it found; only what ran and held is passed."""

import importlib.util
import json
import shlex
import shutil
import sys
from collections import Counter
from pathlib import Path

import ncu
from facts import program
from family_names import FAMILIES, USE_LIBRARIES, WITHOUT_LIBRARIES
from runner import HERE, PACKAGE, ROOT, Check, Failed, Result, Stage, last_line
from sanitizer import sanitizers
from supervise import Job, Report
from wheels import wheels

# Where float32 is compared with the CPU's: cuDNN rounds operands of convolutions otherwise.
EXACT = {"NVIDIA_TF32_OVERRIDE": "0", "RABBET_CUDA_FALLBACK": "error"}
SHOWN = 3  # failures in a note
SIMULATED_KIT = 800  # on the simulator one test of so many runs
NOTHING = "nothing ran"
LISTED = 500  # names of a kind in the summary


def facts(check: Check) -> Result:
    """What the machine has; what it lacks is named with what needs it."""
    found = check.script("facts.py")
    missing = found["missing"]
    gpu = found["programs"]["nvidia-smi"] or "no GPU"
    note = "the simulator" if check.simulated else gpu
    note += (
        f", driver {found['driver'] or 'missing'}, Python {found['python']}, {found['cores']} cores"
    )
    if missing:
        note += f"; missing: {', '.join(f'{name} (for {what})' for name, what in missing.items())}"
    alone = not found["driver"] or not found["modules"]["numpy"]
    return Result("failed" if alone else "passed", note, {"facts": found})


def judged(reports: list[Report]) -> Result:
    """Of supervised jobs: failed if anything failed, cut if not all ran, passed if all that ran passed."""
    told = {kind: {} for kind in ("passed", "failed", "skipped")}
    for report in reports:
        for name, found in report.outcomes.items():
            told[found["outcome"]][f"{report.name}: {name}"] = found["note"]
    errors = {report.name: report.error for report in reports if report.error}
    cut = [f"{report.name}: {name}" for report in reports for name in report.cut() if report.late]
    cut += [f"{r.name}: everything" for r in reports if r.late and r.items is None]
    failed = told["failed"]
    note = f"{len(told['passed'])} passed, {len(failed)} failed"
    note += f", {len(told['skipped'])} skipped" if told["skipped"] else ""
    for name, why in [*errors.items(), *failed.items()][:SHOWN]:
        note += f"; {name}: {why[:200]}"
    if cut:
        note += f"; cut: {len(cut)} not run, {'; '.join(cut[:SHOWN])}{' ...' if len(cut) > SHOWN else ''}"
    slowest = sorted(
        ((found["seconds"], name) for r in reports for name, found in r.outcomes.items()),
        reverse=True,
    )
    details = {
        "passed": len(told["passed"]),
        "failed": dict(list(failed.items())[:LISTED]),
        "skipped": dict(Counter(told["skipped"].values()).most_common(LISTED)),
        "errors": errors,
        "cut": cut[:LISTED],
        "processes": {report.name: report.starts for report in reports if report.starts > 1},
        "slowest": slowest[:10],
        "notes": {name: note for name, note in told["passed"].items() if note},
    }
    status = "passed" if told["passed"] else "skipped"
    if failed or errors:
        status = "failed"
    elif cut:
        status = "cut"
    elif not told["passed"] and not told["skipped"]:
        status, note = "failed", NOTHING
    return Result(status, note, details)


def attention(check: Check) -> Result:
    """Attention's derivative by cuDNN and by our kernels, against float64 and against each other."""
    import numpy as np

    jobs, files = [], {}
    for backend in ("cudnn", "ours"):
        files[backend] = check.work / f"attention-{backend}.npz"
        files[backend].unlink(missing_ok=True)
        command = [sys.executable, str(HERE / "attention_backward.py"), backend]
        command += ["--seed", str(check.seed), "--save", str(files[backend])]
        jobs.append(Job(f"attention-{backend}", command, check.with_libraries()))
    reports = check.supervise(jobs, 60 if check.simulated else 40)
    result = judged(reports)
    result.details["to float64"] = {
        report.name: {name: found["note"] for name, found in report.outcomes.items()}
        for report in reports
    }
    apart = {}
    if all(path.exists() for path in files.values()):
        ours, theirs = np.load(files["ours"]), np.load(files["cudnn"])
        for name in sorted(set(ours.files) & set(theirs.files)):
            a, b = (each[name].astype(np.float64) for each in (ours, theirs))
            apart[name] = float(f"{np.linalg.norm(a - b) / np.linalg.norm(a):.2g}")
    result.details["cuDNN to ours"] = apart
    largest = max(apart.values(), key=lambda far: (far != far, far), default=None)
    result.note += "; cuDNN was not compared with our kernels" if largest is None else ""
    if largest is not None:
        result.note += f"; cuDNN and ours at most {largest:g} apart"
        if not largest <= 4e-2:
            result.status = "failed"
    return result


def family_job(check: Check, name: str, libraries: bool, *words: str) -> Job:
    env = check.with_libraries() if libraries else WITHOUT_LIBRARIES
    command = [sys.executable, str(HERE / "family.py"), name, "--seed", str(check.seed), *words]
    return Job(f"{name}{'' if libraries else '-without-libraries'}", command, {**EXACT, **env})


def families(check: Check) -> Result:
    """Each family and its derivatives against float64, with cuBLASLt and cuDNN, and without them."""
    jobs = [family_job(check, name, True) for name in FAMILIES]
    jobs += [family_job(check, name, False) for name in USE_LIBRARIES]
    return judged(check.supervise(jobs, 120 if check.simulated else 30))


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


def beside_simulator(check: Check) -> Result:
    """Numbers of this device beside the simulator's."""
    if not check.simulated and not shutil.which("g++"):
        return Result("skipped", "the simulator needs g++")
    here, there = check.work / "here.npz", check.work / "simulated.npz"
    check.script("golden.py", here)
    check.script("golden.py", there, **check.simulator())
    found = check.script("golden.py", here, "--beside", there)
    note = f"distances in units in the last place: {found['ulp']}"
    if found["wrong"]:
        return Result("failed", f"not the simulator's: {', '.join(found['wrong'])}; {note}", found)
    return Result("passed", note, found)


def pytest_jobs(check: Check, name: str, *words: str | Path, **env: str) -> list[Job]:
    """A job for each worker; plugins of the machine, and what they warn of, are left out."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default"]
    command += ["-p", "rabbet_testing_pytest", "-p", "share", *map(str, words)]
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **EXACT, **env}
    return [
        Job(f"{name}-{k}", command, {**env, "GPU_CHECK_SHARE": f"{k}/{check.workers}"})
        for k in range(check.workers)
    ]


def needs(*modules: str) -> Result | None:
    """Skipped for want of a module: other stages go on without it."""
    lacking = [name for name in modules if not importlib.util.find_spec(name)]
    return Result("skipped", f"not installed here: {', '.join(lacking)}") if lacking else None


def kit_jobs(check: Check, *words: str) -> list[Job]:
    what = ("--pyargs", "rabbet_testing", "--device=cuda", "--level=L0,L1,L2")
    every = "" if words or not check.simulated else str(SIMULATED_KIT)
    return pytest_jobs(check, "kit", *what, *words, GPU_CHECK_EVERY=every, **check.with_libraries())


def kit(check: Check) -> Result:
    sys.path.append(str(check.site))  # wheels that were brought along
    lacking = needs("pytest", "scipy")
    if lacking:
        return lacking
    result = judged(check.supervise(kit_jobs(check), 120 if check.simulated else 30))
    result.note += f"; one test of {SIMULATED_KIT}" if check.simulated else ""
    return result


def own_jobs(check: Check, *words: str) -> list[Job]:
    tests = PACKAGE / "tests"
    if check.simulated:
        return pytest_jobs(check, "own", tests / "test_attention.py", *(words or ("-k", "softmax")))
    # As on the simulator our kernels run; the kit runs cuDNN's.
    env = {"RABBET_CUDA_TEST_DEVICE": "real", "RABBET_CUDA_CUDNN": ""}
    return pytest_jobs(check, "own", tests, *words, **env)


def own_tests(check: Check) -> Result:
    """The tests of the backend against this device."""
    return needs("pytest") or judged(check.supervise(own_jobs(check), 120))


def stress(check: Check) -> Result:
    found = check.script("stress.py")
    return Result("passed", ", ".join(f"{k} {v}" for k, v in found.items()), found)


def rows_of(check: Check, *parts: str) -> Result:
    """Rows of benchmarks/cuda.py; those that were measured count, also where others failed."""
    table = check.out / "bench.json"
    table.unlink(missing_ok=True)
    command = [sys.executable, str(ROOT / "benchmarks" / "cuda.py"), str(table), *parts]
    result = judged(
        check.supervise(
            [Job("rows", command, check.with_libraries())], 120 if check.simulated else 45
        )
    )
    rows = json.loads(table.read_text())["rows"] if table.exists() else []
    beside = sum("ratio" in row for row in rows)
    result.note += f"; {beside} beside torch's"
    if not beside:
        result.note += f": {why_no_torch(check)}"
    return result


def why_no_torch(check: Check) -> str:
    if check.simulated:
        return "the simulator is no device of torch"
    return (
        "torch has no CUDA device here"
        if importlib.util.find_spec("torch")
        else "torch is not installed"
    )


def benchmarks(check: Check) -> Result:
    return rows_of(check)


def kernels(check: Check, chosen: list[str] | None = None) -> Result:
    """Single kernels under ncu; where there is none their times."""
    wanted = tried = chosen or ncu.KERNELS
    tool = None if check.simulated else program("ncu")
    reason = "ncu is not here" if not tool else ""
    if check.simulated:
        reason = "ncu profiles no kernels of the simulator"
        tried = wanted[:4]
    found: dict[str, dict] = {}
    failed, cut = [], []
    for text in tried:
        if check.left() < 5:
            cut.append(text)
            continue
        words = [sys.executable, str(HERE / "one.py"), *shlex.split(text)]
        if tool and not reason:
            words = [tool, *ncu.OPTIONS, *words, "--profile"]
        limit = min(45.0, check.left())
        status, said = check.try_command(*words, seconds=limit, **check.with_libraries())
        if status is None and limit < 45:
            cut.append(text)
        elif tool and not reason:
            try:
                rows = ncu.kernels(said)
                if status != 0:
                    raise ValueError("the program under ncu failed")
                found[text] = {"kernels": rows}
            except ncu.NotAllowed as error:
                reason = f"ncu reads no counters here: {error}"
            except ValueError as error:
                failed.append(f"{text}: {error}; exit status {status}; {last_line(said)[:200]}")
        elif status == 0:
            found[text] = json.loads(last_line(said))
        else:
            failed.append(f"{text}: exit status {status}; {last_line(said)[:200]}")
    note = f"{len(found)} of {len(wanted)} operators"
    note += (
        f" timed, not profiled: {reason}; not profiled: {'; '.join(wanted)}"
        if reason
        else " profiled"
    )
    note += f"; failed: {'; '.join(failed)}" if failed else ""
    note += f"; cut: {'; '.join(cut)}" if cut else ""
    details = {
        "operators": found,
        "failed": failed,
        "cut": cut,
        "not profiled": wanted if reason else [],
    }
    status = "failed" if failed else "cut" if cut else "skipped" if reason else "passed"
    return Result(status, note, details)


def chosen_of(check: Check, name: str) -> list[str]:
    return check.chosen.get(name) or []


def chosen_families(check: Check) -> Result:
    """Families by name, and cases by parts of their names, with the libraries and without."""
    names, cases = chosen_of(check, "family"), chosen_of(check, "case")
    if not names and not cases:
        return Result("skipped", "none was chosen by --family or --case")
    unknown = set(names) - set(FAMILIES)
    if unknown:
        raise Failed(f"no family {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
    words = ["--only", *cases] if cases else []
    jobs = [
        family_job(check, n, with_, *words) for n in names or FAMILIES for with_ in (True, False)
    ]
    result = judged(check.supervise(jobs, 120 if check.simulated else 30))
    if result.note == NOTHING:
        result.note = f"no call of {', '.join(names or FAMILIES)} has a part of {cases} in its name"
    return result


def chosen_tests(check: Check) -> Result:
    """Tests of the kit and of the package, by pytest's expressions for -k."""
    expressions = chosen_of(check, "test")
    if not expressions:
        return Result("skipped", "none was chosen by --test")
    words = ("-k", " or ".join(f"({each})" for each in expressions))
    jobs = [*kit_jobs(check, *words), *own_jobs(check, *words)]
    return needs("pytest") or judged(check.supervise(jobs, 120))


def chosen_rows(check: Check) -> Result:
    parts = chosen_of(check, "row")
    return rows_of(check, *parts) if parts else Result("skipped", "none was chosen by --row")


def chosen_kernels(check: Check) -> Result:
    chosen = chosen_of(check, "kernel")
    return kernels(check, chosen) if chosen else Result("skipped", "none was chosen by --kernel")


def gpt2(check: Check) -> Result:
    """Training steps of GPT-2 small: ours and torch's, eager and as a graph; losses must agree."""
    script = HERE / "gpt2.py"
    commands = {"rabbet": ["-m", "rabbet", "run", script], "torch": [script]}
    runs: dict[str, dict] = {}
    for kind, command in commands.items():
        if kind == "torch" and (check.simulated or not importlib.util.find_spec("torch")):
            runs[kind] = {"skipped": why_no_torch(check)}
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
    left = [f"{kind}: {run['skipped']}" for kind, run in runs.items() if "skipped" in run]
    note += f" (not run: {'; '.join(left)})" if left else ""
    details = {"runs": runs, "losses_apart": apart}
    return Result("failed" if wrong else "passed", "; ".join([*wrong, note]), details)


def loss_distance(run: dict, other: dict) -> float:
    """The largest relative difference of the steps that both made; NaN counts."""
    pairs = list(zip(run["losses"], other["losses"], strict=False))
    distances = [abs(a - b) / max(abs(a), 1e-6) for a, b in pairs]
    return max(distances) if all(d == d for d in distances) and pairs else float("nan")


FIRST = [Stage("facts", 5, facts), Stage("wheels", 240, wheels)]
# Seconds add up to a run of at most main.RUN_SECONDS; what wheels that are there leave over goes to stages with `most`.
RUNS = {
    1: [
        *FIRST,
        Stage("attention", 60, attention),
        Stage("families", 150, families, most=300),
        Stage("first-calls", 50, first_calls),
        Stage("beside-simulator", 50, beside_simulator),
    ],
    2: [*FIRST, Stage("kit", 190, kit, most=380), Stage("own-tests", 125, own_tests, most=250)],
    3: [
        *FIRST,
        Stage("sanitizers", 260, sanitizers, most=500),
        Stage("stress", 50, stress),
    ],
    4: [
        *FIRST,
        Stage("benchmarks", 140, benchmarks, most=250),
        Stage("gpt2", 90, gpt2, most=150),
        Stage("kernels", 85, kernels, most=200),
    ],
    5: [
        *FIRST,
        Stage("chosen-families", 60, chosen_families, most=150),
        Stage("chosen-tests", 100, chosen_tests, most=300),
        Stage("chosen-rows", 90, chosen_rows, most=200),
        Stage("chosen-kernels", 65, chosen_kernels, most=200),
    ],
}
