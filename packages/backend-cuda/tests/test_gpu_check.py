"""tools/gpu_check.sh on the simulator: what would run on a machine with a GPU, and how its results are judged."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import types
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "packages/backend-cuda/tools/gpu_check"
# Every run, and what it is for; a stage that is dropped is missed here.
RUNS = {
    1: ["facts", "wheels", "attention", "families", "first-calls", "beside-simulator"],
    2: ["facts", "wheels", "kit", "own-tests"],
    3: ["facts", "wheels", "sanitizers", "stress"],
    4: ["facts", "wheels", "benchmarks", "gpt2", "kernels"],
    5: ["facts", "wheels", "chosen-families", "chosen-tests", "chosen-rows", "chosen-kernels"],
}


def check(tmp_path, *words, **env):
    """Of what is installed: the backend may lie in another folder than core."""
    backend = importlib.util.find_spec("rabbet_backend_cuda")
    site = Path(backend.origin).parents[1]
    command = [sys.executable, FOLDER / "main.py", *words, "--simulate", "--site", site]
    environment = {**os.environ, "OUT": str(tmp_path), **env}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    summary = tmp_path / "summary.json"
    return done, json.loads(summary.read_text())["stages"] if summary.exists() else {}


def only(*names):
    return [word for name in names for word in ("--stage", name)]


# ---- the runs


def test_no_stage_is_dropped_and_each_run_fits_its_limit(module):
    stages, main = module("stages"), module("main")
    assert {number: [s.name for s in run] for number, run in stages.RUNS.items()} == RUNS
    for run in stages.RUNS.values():
        assert sum(stage.seconds for stage in run) + main.PACK_SECONDS <= main.RUN_SECONDS
    assert main.RUN_SECONDS <= 570, "a command is ended after 600 s"
    assert stages.RUNS[1][0].seconds == 5


@pytest.mark.parametrize(
    ("seconds", "most", "left", "later", "limit"),
    [(10, 0, 100, 50, 10), (10, 40, 100, 50, 40), (10, 80, 100, 50, 50), (10, 80, 55, 50, 5)],
)
def test_a_stage_takes_what_is_left_over_but_nothing_of_later_ones(
    module, seconds, most, left, later, limit
):
    assert module("runner").Stage("x", seconds, None, most).limit(left, later) == limit


def test_first_run_compares_attention_before_all_else(tmp_path):
    done, stages = check(tmp_path, "1", *only("facts", "wheels", "attention", "beside-simulator"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(stages) == ["facts", "wheels", "attention", "beside-simulator"]
    assert [s["status"] for s in stages.values()] == ["passed", "skipped", "passed", "passed"]
    found = stages["attention"]
    assert set(found["to float64"]) == {"attention-cudnn", "attention-ours"}
    apart = found["cuDNN to ours"]
    assert {name.rpartition("/")[2] for name in apart} == {"out", "query", "key", "value"}
    assert "compute-sanitizer" in stages["facts"]["facts"]["missing"]
    assert "no time here is a GPU's" in (tmp_path / "table.md").read_text()
    with tarfile.open(tmp_path / "logs.tar.gz") as logs:
        assert {f"{name}.log" for name in stages} <= set(logs.getnames())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logs.tar.gz", "summary.json", "table.md"]


def test_stress_and_gpt2_run(tmp_path):
    done, stages = check(tmp_path / "3", "3", *only("stress"))
    assert done.returncode == 0 and stages["stress"]["status"] == "passed", stages
    done, stages = check(tmp_path / "4", "4", *only("gpt2"))
    assert done.returncode == 0 and stages["gpt2"]["status"] == "passed", stages
    assert "the simulator is no device of torch" in stages["gpt2"]["note"]


def test_last_run_takes_what_is_chosen_by_name(tmp_path):
    words = (
        "--family",
        "losses",
        "--case",
        "mse_loss",
        "--row",
        "softmax bf16",
        "--kernel",
        "sum 30 20",
    )
    done, stages = check(tmp_path, "5", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert stages["chosen-families"]["passed"] == 8, "2 dtypes, 2 sizes, with and without libraries"
    assert stages["chosen-tests"]["status"] == "skipped"
    assert "--test" in stages["chosen-tests"]["note"]
    assert [row["name"] for row in json.loads((tmp_path / "bench.json").read_text())["rows"]] == [
        "softmax bf16 16 x 64"
    ]
    kernels = stages["chosen-kernels"]
    assert kernels["status"] == "skipped" and kernels["not profiled"] == ["sum 30 20"]
    assert "ncu profiles no kernels of the simulator" in kernels["note"]


def test_tests_are_chosen_by_name_and_run_by_several_processes(tmp_path):
    done, stages = check(
        tmp_path, "5", "--test", "relu and float32 or more_queries", *only("chosen-tests")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert stages["chosen-tests"]["passed"] > 0
    with tarfile.open(tmp_path / "logs.tar.gz") as logs:
        assert {"kit-0.log", "kit-1.log", "own-0.log", "own-1.log"} <= set(logs.getnames())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["6"], "invalid choice"),
        ([], "expected RUN or --build-wheels FOLDER"),
        (["1", "--stage", "kit"], "run 1 has no stage kit"),
        (["1", "--row", "sum"], "belong to run 5"),
        (["5", "--wheels", "/nowhere"], "/nowhere is no folder"),
    ],
)
def test_what_does_not_exist_is_refused_in_words(words, said):
    done = subprocess.run(
        [sys.executable, FOLDER / "main.py", *words, "--simulate"], capture_output=True, text=True
    )
    assert done.returncode not in (0, 1, 3) or "Traceback" not in done.stderr
    assert said in done.stderr and done.returncode != 0


def test_an_unknown_family_is_named(tmp_path):
    done, stages = check(tmp_path, "5", "--family", "nonsense", *only("chosen-families"))
    assert done.returncode == 1
    assert "no family nonsense; there are elementwise" in stages["chosen-families"]["note"]


def test_names_of_families_are_all_of_them(run):
    begin = f"import sys; sys.path.insert(0, {str(FOLDER)!r})\n"
    run(
        begin
        + "import families, family_names; assert tuple(families.FAMILIES) == family_names.FAMILIES"
    )


# ---- faults


def test_a_fault_of_one_family_fails_it_and_the_others_go_on(tmp_path):
    """A loop over elements goes one too far, which leaves the device of that process unusable."""
    planted = {
        "CUSIM_REPLACE": "i < (n); i += RB_THREADS",
        "CUSIM_REPLACE_BY": "i <= (n); i += RB_THREADS",
        "RABBET_CUDA_EXACT": "1",
    }
    words = [word for name in ("order", "random") for word in ("--family", name)]
    done, stages = check(tmp_path, "5", *words, *only("facts", "chosen-families"), **planted)
    found = stages["chosen-families"]
    assert done.returncode == 1 and found["status"] == "failed", found
    assert all(
        name.startswith("order") and "DeviceError" in why for name, why in found["failed"].items()
    )
    assert found["passed"] + len(found["failed"]) == 2 * (2 * 4 + 2 * 2 + 3 * 2), (
        "no call was left out"
    )
    assert set(found["processes"]) == {"order", "order-without-libraries"}
    assert "topk" in found["note"] and "bytes behind" in str(found["failed"])


def test_a_row_that_leaves_the_device_unusable_does_not_take_others_along(tmp_path):
    planted = {
        "CUSIM_REPLACE": "for (; i < end; i += width) {",
        "CUSIM_REPLACE_BY": "for (; i < end + 4000; i += width) {",
        "RABBET_CUDA_EXACT": "1",
    }
    words = ("--row", "sum f32 1024", "--row", "add bf16", "--row", "matmul bf16 64 x 512")
    done, stages = check(tmp_path, "5", *words, *only("chosen-rows"), **planted)
    rows = {row["name"]: row for row in json.loads((tmp_path / "bench.json").read_text())["rows"]}
    assert done.returncode == 1 and len(rows) == 3
    assert "DeviceError" in rows["sum f32 1024"]["error"]
    assert all("rabbet_us" in row for name, row in rows.items() if "sum" not in name)
    assert list(stages["chosen-rows"]["failed"]) == ["rows: sum f32 1024"]


def test_stages_without_a_device_fail_and_say_why(tmp_path):
    done, stages = check(tmp_path, "3", CUSIM_DEVICES="0")
    assert done.returncode == 1
    assert [stages[name]["status"] for name in ("sanitizers", "stress")] == ["failed"] * 2, stages
    assert "no CUDA device" in stages["sanitizers"]["note"]


WORKER = """
import os, sys, time
sys.path.insert(0, FOLDER)
import worker
from worker import Skipped, work_through

worker.DEVICE_FAILED = int(os.environ.get("STATUS", worker.DEVICE_FAILED))
class DeviceError(RuntimeError): pass

def fail(): raise ValueError("wrong number")
def stick(): raise DeviceError("an illegal address was accessed")
def crash(): os.kill(os.getpid(), 11)
def hang(): time.sleep(60)
def skip(): raise Skipped("no such device")
def work(): return "0.1 apart"
ways = dict(fail=fail, stick=stick, crash=crash, hang=hang, skip=skip, work=work)
sys.exit(work_through({name: ways[name.split()[0]] for name in sys.argv[1:]}))
"""


@pytest.fixture
def supervised(module, tmp_path):
    """Reports of jobs, each given as the names of its items."""
    supervise = module("supervise")
    script = tmp_path / "script.py"
    script.write_text(f"FOLDER = {str(FOLDER)!r}\n{WORKER}")

    def launch(command, log, **env):
        with log.open("a") as to:
            return subprocess.Popen(
                command, stdout=to, stderr=to, env={**os.environ, **env}, start_new_session=True
            )

    def go(*jobs, seconds=30, item_seconds=10, workers=2):
        made = [
            supervise.Job(f"job{k}", [sys.executable, str(script), *items])
            for k, items in enumerate(jobs)
        ]
        return supervise.supervise(made, tmp_path, launch, seconds, item_seconds, workers)

    return go


def test_no_item_is_lost_behind_one_that_fails_crashes_or_leaves_the_device_unusable(
    supervised, module
):
    (report,) = supervised(
        ["work 1", "fail", "work 2", "stick", "work 3", "crash", "skip", "work 4"]
    )
    assert {name: found["outcome"] for name, found in report.outcomes.items()} == {
        "work 1": "passed", "fail": "failed", "work 2": "passed", "stick": "failed", "work 3": "passed",
        "crash": "failed", "skip": "skipped", "work 4": "passed",
    }  # fmt: skip
    assert report.starts == 3, "behind the device's error and the crash"
    assert "illegal address" in report.outcomes["stick"]["note"]
    assert "SIGSEGV" in report.outcomes["crash"]["note"]
    result = module("stages").judged([report])
    assert result.status == "failed" and set(result.details["failed"]) == {
        "job0: fail", "job0: stick", "job0: crash",
    }  # fmt: skip
    assert result.details["skipped"] == {"no such device": 1}


def test_a_tool_around_the_process_may_give_another_exit_status(supervised, monkeypatch):
    """As compute-sanitizer does where it found something."""
    monkeypatch.setenv("STATUS", "9")
    (report,) = supervised(["stick", "work"])
    assert [found["outcome"] for found in report.outcomes.values()] == ["failed", "passed"]
    assert not report.error and report.starts == 2


def test_one_job_does_not_take_others_along(supervised):
    reports = supervised(["stick"], ["crash"], ["work"], workers=3)
    assert [next(iter(r.outcomes.values()))["outcome"] for r in reports] == [
        "failed",
        "failed",
        "passed",
    ]
    assert not any(r.error or r.late for r in reports)


def test_an_item_that_takes_too_long_fails_and_the_next_one_runs(supervised):
    (report,) = supervised(["hang", "work"], item_seconds=1)
    assert report.outcomes["hang"]["note"] == "took more than 1 s"
    assert report.outcomes["work"]["outcome"] == "passed"


def test_a_stage_keeps_its_time_and_names_what_was_cut(supervised, module):
    began = time.monotonic()
    reports = supervised(["work", "hang", "work 2"], ["hang"], ["work"], seconds=4, workers=1)
    assert time.monotonic() - began < 6
    result = module("stages").judged(reports)
    assert result.status == "cut"
    assert result.details["cut"] == [
        "job0: hang", "job0: work 2", "job1: everything", "job2: everything",
    ]  # fmt: skip
    assert "cut: 4 not run" in result.note


def test_a_worker_that_does_not_start_has_failed(supervised, module, tmp_path):
    (tmp_path / "script.py").write_text("raise SystemExit('no package')")
    reports = supervised(["work"])
    assert reports[0].error == "exit status 1; no package" and reports[0].starts == 1
    assert module("stages").judged(reports).status == "failed"


def test_nothing_that_ran_is_no_success(module):
    stages, supervise = module("stages"), module("supervise")
    assert stages.judged([supervise.Report("job", items=[])]).status == "failed"
    skipped = {"x": {"outcome": "skipped", "note": "no device", "seconds": 0.0}}
    report = supervise.Report("job", items=["x"], outcomes=skipped)
    assert stages.judged([report]).status == "skipped"


def test_a_job_that_ends_early_fails_though_what_ran_passed(module):
    stages, supervise = module("stages"), module("supervise")
    passed = {"x": {"outcome": "passed", "note": "", "seconds": 0.0}}
    report = supervise.Report("job", items=["x", "y"], outcomes=passed, error="exit status 1")
    result = stages.judged([report])
    assert result.status == "failed" and "job: exit status 1" in result.note


def test_calls_that_are_too_far_from_float64_fail(run, simulator):
    code = f"""
import sys; sys.path.insert(0, {str(FOLDER)!r})
import attention_backward, family
attention_backward.CLOSE = 1e-6
sys.argv[1:] = ["ours"]
assert attention_backward.main() == 1
family.CLOSE = dict.fromkeys(family.CLOSE, 1e-14)
sys.argv[1:] = ["softmax", "--only", "log_softmax float32"]
assert family.main() == 1
"""
    run(code, **simulator, GPU_CHECK_SMALL="1")


@pytest.mark.parametrize(
    ("apart", "status"), [(0.01, "passed"), (0.1, "failed"), (float("nan"), "failed")]
)
def test_cudnn_and_our_kernels_may_not_be_far_apart(
    module, small_check, monkeypatch, apart, status
):
    stages, supervise = module("stages"), module("supervise")
    fine = {"x": {"outcome": "passed", "note": "out 0.001", "seconds": 0.0}}

    def reports(jobs, seconds):
        for job, value in zip(jobs, (1.0, 1.0 + apart), strict=True):
            np.savez(
                job.command[job.command.index("--save") + 1],
                **{"x/key": np.ones(5), "x/query": np.full(5, value)},
            )
        return [supervise.Report(job.name, items=["x"], outcomes=fine) for job in jobs]

    monkeypatch.setattr(small_check, "supervise", reports)
    result = small_check.run(module("runner").Stage("attention", 10, stages.attention), 10)
    assert result.status == status, result


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        (["passed", "skipped"], 0), (["passed", "failed", "cut"], 1), (["skipped"], 2), (["passed", "cut"], 3), (["cut"], 2),
    ],
)  # fmt: skip
def test_exit_status_tells_failed_and_cut_from_passed(module, statuses, status):
    assert module("main").exit_status(statuses) == status


SHARED = """
import os, pytest, time
@pytest.mark.parametrize("n", range(7))
def test_fine(n): pass
def test_wrong(): assert 1 == 2, "wrong number"
def test_gone(): os._exit(3)
def test_slow(): time.sleep(60)
@pytest.fixture
def broken(): raise RuntimeError("no fixture")
def test_broken(broken): pass
@pytest.mark.skip(reason="not here")
def test_left_out(): pass
"""


def test_tests_are_shared_out_with_a_time_limit_for_each(module, tmp_path):
    supervise = module("supervise")
    (tmp_path / "test_shared.py").write_text(SHARED)

    def launch(command, log, **env):
        env = {
            **os.environ,
            "PYTHONPATH": str(FOLDER),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **env,
        }
        with log.open("a") as to:
            return subprocess.Popen(
                command, stdout=to, stderr=to, env=env, cwd=tmp_path, start_new_session=True
            )

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "share"]
    command += ["-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path / "test_shared.py")]
    jobs = [supervise.Job(f"tests-{k}", command, {"GPU_CHECK_SHARE": f"{k}/2"}) for k in range(2)]
    reports = supervise.supervise(jobs, tmp_path, launch, 60, 4, 2)
    outcomes = {}
    for report in reports:
        assert not report.error and not set(outcomes) & set(report.outcomes)
        outcomes |= {name.partition("::")[2]: found for name, found in report.outcomes.items()}
    assert len(outcomes) == 12
    told = {name: found["outcome"] for name, found in outcomes.items() if "fine" not in name}
    assert told == {
        "test_wrong": "failed", "test_gone": "failed", "test_slow": "failed", "test_broken": "failed",
        "test_left_out": "skipped",
    }  # fmt: skip
    assert "wrong number" in outcomes["test_wrong"]["note"]
    assert "no fixture" in outcomes["test_broken"]["note"]
    assert "exit status 3" in outcomes["test_gone"]["note"]
    assert outcomes["test_slow"]["note"] == "took more than 4 s"
    assert outcomes["test_left_out"]["note"] == "Skipped: not here"


def test_a_command_is_ended_with_its_children_when_its_time_is_over(module, small_check):
    runner = module("runner")
    began = time.monotonic()
    script = f"sleep 61.{os.getpid()} & echo started; wait"
    stage = runner.Stage("slow", 1, lambda check: check.command("sh", "-c", script))
    result = small_check.run(stage, 1)
    assert time.monotonic() - began < 5
    assert result.status == "failed" and "took more than 1 s; started" in result.note
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert f"sleep 61.{os.getpid()}" not in left.splitlines()


def test_nothing_runs_on_when_the_check_is_ended(tmp_path):
    backend = importlib.util.find_spec("rabbet_backend_cuda")
    command = [sys.executable, FOLDER / "main.py", "5", "--family", "convolution", "--simulate"]
    command += ["--site", Path(backend.origin).parents[1], *only("chosen-families")]
    marked = {**os.environ, "OUT": str(tmp_path), "GPU_CHECK_MARK": str(tmp_path)}

    def running():
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if str(tmp_path).encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().split(b"\0"))
            except OSError:
                continue
        return [words for words in found if any(word.endswith(b"family.py") for word in words)]

    with subprocess.Popen(command, env=marked, stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + 60
        while not running() and time.monotonic() < end:
            time.sleep(0.1)
        assert running()
        process.terminate()
    assert not running()


def test_a_process_is_ended_when_sigterm_arrives_during_its_start(module, small_check, monkeypatch):
    runner, started = module("runner"), []

    class Interrupted(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self)
            signal.raise_signal(signal.SIGTERM)

    def leave(*_):
        raise SystemExit

    before = signal.signal(signal.SIGTERM, leave)
    monkeypatch.setattr(runner.subprocess, "Popen", Interrupted)
    try:
        with pytest.raises(SystemExit):
            small_check.run(
                runner.Stage("early", 60, lambda check: check.command("sleep", "60")), 60
            )
        assert signal.getsignal(signal.SIGTERM) is leave
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [process.poll() for process in started] == [-signal.SIGKILL]


def test_stages_go_on_behind_faults_but_not_without_packages(module, small_check, monkeypatch):
    main, runner = module("main"), module("runner")
    monkeypatch.setattr(main, "RUN_SECONDS", 40)

    def broken(check):
        raise RuntimeError("no such file")

    def fine(check):
        return runner.Result("passed", f"{check.limit:.0f} s")

    head = {"run": 1, "simulated": False, "seed": 0}
    stages = [
        runner.Stage("first", 10, broken),
        runner.Stage("second", 10, fine, most=100),
        runner.Stage("third", 10, fine),
        runner.Stage("late", 100, fine),
    ]
    rows = main.run_stages(small_check, [*stages[:3]], dict(head))
    assert [row["status"] for row in rows.values()] == ["failed", "passed", "passed"]
    assert "RuntimeError: no such file" in rows["first"]["note"]
    assert rows["second"]["note"] == "25 s", "what the third one needs is left"
    rows = main.run_stages(small_check, [stages[2], stages[3]], dict(head))
    assert rows["third"]["status"] == "cut" and "no time is left of 40 s" in rows["third"]["note"]
    wheels = runner.Stage("wheels", 10, broken)
    rows = main.run_stages(small_check, [wheels, stages[2]], dict(head))
    assert [row["status"] for row in rows.values()] == ["failed", "skipped"]
    assert "packages are not installed" in rows["third"]["note"]
    summary = json.loads((small_check.out / "summary.json").read_text())
    assert list(summary["stages"]) == ["wheels", "third"]


# ---- results


def test_results_beyond_what_is_brought_back_are_named(module, tmp_path, monkeypatch):
    results = module("results")
    monkeypatch.setattr(results, "MOST_BYTES", 100)
    for k in range(8):
        (tmp_path / f"{k}").write_bytes(b"1" * 100)
    assert results.beyond_limits(tmp_path) == []
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/c/deep").touch()
    (tmp_path / "0").write_bytes(b"1" * 101)
    said = "; ".join(results.beyond_limits(tmp_path))
    assert "9 files" in said and "0 has 101 bytes" in said and "a/b/c/deep lies deeper" in said


def test_a_long_log_keeps_its_beginning_and_its_end(module, tmp_path):
    results = module("results")
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir(), out.mkdir()
    (logs / "long.log").write_text("begin" + "x" * (5 << 20) + "end")
    (logs / "job.events").write_text("{}")
    results.pack(logs, out)
    with tarfile.open(out / "logs.tar.gz") as tar:
        assert tar.getnames() == ["long.log"]
        text = tar.extractfile("long.log").read().decode()
    assert text.startswith("begin") and text.endswith("end") and "bytes left out" in text
    assert len(text) < results.LOG_BYTES + 100


# ---- wheels


@pytest.fixture
def wheels(module, tmp_path, monkeypatch):
    """The module, for a tree with two packages."""
    wheels = module("wheels")
    for name in ("core", "backend-cuda"):
        folder = tmp_path / "packages" / name
        for part in ("src", "include", "tests"):
            (folder / part).mkdir(parents=True)
            (folder / part / "file").write_text(name)
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "rabbet-{name}"\nversion = "0.1.0"\n'
        )
    monkeypatch.setattr(wheels, "ROOT", tmp_path)
    return wheels


def test_hash_of_sources_follows_what_is_compiled_in_and_nothing_else(wheels, tmp_path):
    first = {name: wheels.sources(name) for name in ("core", "backend-cuda")}
    (tmp_path / "packages/backend-cuda/tests/file").write_text("other")
    (tmp_path / "packages/backend-cuda/README.md").write_text("other")
    assert {name: wheels.sources(name) for name in first} == first
    (tmp_path / "packages/core/include/file").write_text("other")
    assert not {wheels.sources(name) for name in first} & set(first.values())
    (tmp_path / "packages/core/include/file").write_text("core")
    (tmp_path / "packages/core/src/file").write_text("other")
    assert wheels.sources("core") != first["core"]
    assert wheels.sources("backend-cuda") == first["backend-cuda"]


def test_wheels_that_fit_are_chosen_and_others_say_why_not(wheels, tmp_path):
    folder = tmp_path / "dist"
    folder.mkdir()
    current = wheels.sources("backend-cuda")
    named = {
        "rabbet_core-0.1.0-py3-none-any.whl": ("core", wheels.sources("core"), []),
        "rabbet_backend_cuda-0.1.0-py3-none-any.whl": ("backend-cuda", "of before", []),
        "rabbet_backend_cuda-0.2.0-py3-none-any.whl": ("backend-cuda", current, []),
        "rabbet_backend_cuda-0.1.0-cp27-cp27m-linux_x86_64.whl": ("backend-cuda", current, [2, 1]),
        "rabbet_backend_cuda-0.1.0-1-py3-none-linux_x86_64.whl": ("backend-cuda", current, [99, 0]),
    }
    record = {k: {"package": p, "sources": s, "libc": c} for k, (p, s, c) in named.items()}
    (folder / "sources.json").write_text(json.dumps(record))
    for name in (*named, "rabbet_nn-0.1.0-py3-none-any.whl", "scipy-1.0-py3-none-any.whl"):
        (folder / name).touch()
    chosen, refused, others = wheels.choose(wheels.unpack(folder, tmp_path / "given"))
    assert {k: w.name for k, w in chosen.items()} == {"core": "rabbet_core-0.1.0-py3-none-any.whl"}
    assert [w.name for w in others] == ["scipy-1.0-py3-none-any.whl"]
    assert refused == {
        "rabbet_backend_cuda-0.1.0-py3-none-any.whl": "built from other sources",
        "rabbet_backend_cuda-0.2.0-py3-none-any.whl": "version 0.2.0",
        "rabbet_backend_cuda-0.1.0-cp27-cp27m-linux_x86_64.whl":
            f"not for Python {sys.version.split()[0]} on {os.uname().machine}",
        "rabbet_backend_cuda-0.1.0-1-py3-none-linux_x86_64.whl": "built on a newer C library",
        "rabbet_nn-0.1.0-py3-none-any.whl": "sources.json does not name it",
    }  # fmt: skip


def test_wheels_that_are_brought_home_are_taken_along_to_the_next_run(
    wheels, tmp_path, monkeypatch
):
    monkeypatch.setattr(wheels, "PIECE", 5000)
    wheel = tmp_path / "rabbet_core-0.1.0-py3-none-any.whl"
    wheel.write_bytes(os.urandom(20000))
    home = tmp_path / "home"
    home.mkdir()
    wheels.bring_home({"core": wheel}, home)
    assert len(list(home.glob("wheels.tar.*"))) > 3
    assert all(piece.stat().st_size <= 5000 for piece in home.iterdir())
    chosen, refused, _ = wheels.choose(wheels.unpack(home, tmp_path / "given"))
    assert chosen["core"].read_bytes() == wheel.read_bytes() and not refused


def test_only_missing_wheels_are_built_and_core_before_what_needs_it(wheels, tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(wheels, "install", lambda check, made: done.append("install"))
    monkeypatch.setattr(
        wheels, "build", lambda check, names, folder: done.append(names) or dict.fromkeys(names)
    )
    stale = tmp_path / "site"
    (stale / "rabbet").mkdir(parents=True)
    have = dict.fromkeys(set(wheels.PACKAGES) - {"core", "nn", "autocast", "backend-cuda"})
    made = wheels.build_missing(types.SimpleNamespace(site=stale), have, tmp_path)
    assert done == [["core", "nn"], "install", ["backend-cuda"], "install", ["autocast"]]
    assert set(made) == {"core", "nn", "autocast", "backend-cuda"}
    assert not stale.exists(), "what an earlier run installed would be imported by the build"


BUILDS = """
import pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("-w") + 1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "new.whl").touch()
"""


def test_a_wheel_of_an_earlier_build_is_not_taken_for_the_new_one(
    wheels, small_check, tmp_path, monkeypatch
):
    """A `pip` that writes an empty wheel stands in for the real one."""
    (tmp_path / "pip.py").write_text(BUILDS)
    small_check.env["PYTHONPATH"] = str(tmp_path)
    small_check.begin("wheels", 30)
    (tmp_path / "made/core").mkdir(parents=True)
    (tmp_path / "made/core/a-wheel-of-before.whl").touch()
    made = wheels.build(small_check, ["core"], tmp_path / "made")
    assert made["core"].name == "new.whl"


def test_libraries_of_the_wheels_are_named(module, monkeypatch, tmp_path):
    """What is installed for the check lies in a folder of its own, where the backend would not find them."""
    for name in (
        "cu13/lib/libnvrtc.so.13",
        "cu13/lib/libcublasLt.so.13",
        "cudnn/lib/libcudnn.so.9",
        "cu13/lib/libcufft.so.12",
        "cu13/lib/libcusolver.so.12",
        "cu13/lib/libcublas.so.13",
    ):
        (tmp_path / "nvidia" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "nvidia" / name).touch()
    facts = module("facts")
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: types.SimpleNamespace(submodule_search_locations=[str(tmp_path / name)]),
    )
    found = {name: Path(path).name for name, path in facts.libraries().items()}
    assert found == {
        "RABBET_CUDA_NVRTC": "libnvrtc.so.13",
        "RABBET_CUDA_CUBLASLT": "libcublasLt.so.13",
        "RABBET_CUDA_CUDNN": "libcudnn.so.9",
        "RABBET_CUDA_CUFFT": "libcufft.so.12",
        "RABBET_CUDA_CUSOLVER": "libcusolver.so.12",
        "RABBET_CUDA_CUBLAS": "libcublas.so.13",
    }


def test_facts_come_in_time_from_programs_that_do_not_answer(tmp_path):
    for name in ("nvidia-smi", "ncu"):
        (tmp_path / name).write_text("#!/bin/sh\nsleep 60\n")
        (tmp_path / name).chmod(0o755)
    began = time.monotonic()
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "RABBET_CUDA_DRIVER": "/nowhere/libcuda.so"}
    done = subprocess.run(
        [sys.executable, FOLDER / "facts.py"], capture_output=True, text=True, env=env, check=True
    )
    assert time.monotonic() - began < 5
    found = json.loads(done.stdout)
    assert found["programs"]["ncu"] == "no answer within 3.5 s"
    assert {"driver", "compute-sanitizer"} <= set(found["missing"])


# ---- losses of GPT-2


def way(*losses):
    return {"losses": list(losses), "ms": 1.0}


@pytest.mark.parametrize(
    ("ours", "torch", "status", "said"),
    [
        ({"eager": way(5.0, 4.0), "graph": way(5.0, 4.0)}, {"eager": way(5.0)}, "passed", "torch eager 1.0 ms"),
        ({"eager": way(5.0, 4.0), "graph": way(5.0, 4.1)}, {"skipped": "no torch"}, "failed", "rabbet graph are"),
        ({"eager": way(5.0, 4.0)}, {"eager": way(5.0, 4.5)}, "failed", "torch eager are"),
        ({"eager": way(5.0), "graph": {"error": "no capture"}}, {"eager": way(5.0)}, "failed", "no capture"),
        ({"error": "exit status 1"}, {"eager": way(5.0)}, "failed", "exit status 1"),
        ({"skipped": "no device"}, {"skipped": "no torch"}, "failed", "did not run"),
        ({"eager": way(float("nan"))}, {"eager": way(5.0)}, "failed", "nan apart"),
    ],
)  # fmt: skip
def test_losses_of_gpt2_are_judged(module, ours, torch, status, said):
    result = module("stages").gpt2_result({"rabbet": ours, "torch": torch})
    assert result.status == status and said in result.note, result.note
