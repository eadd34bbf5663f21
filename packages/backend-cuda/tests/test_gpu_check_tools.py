"""What compute-sanitizer and ncu say, as tools/gpu_check.sh understands it."""

import os
import types
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "tools/gpu_check"

BANNER = "========= COMPUTE-SANITIZER\n"
READ = "========= Invalid __global__ write of size 4 bytes\n=========     at rb_kernel+0x80 in exp.cu:33\n"
RACES = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
CLEAN = BANNER + "========= ERROR SUMMARY: 0 errors\n"
ONE = BANNER + READ + "========= ERROR SUMMARY: 1 error\n"


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (0, CLEAN, ["passed"]),
        (0, BANNER + RACES, ["passed"]),
        (9, ONE, ["failed", "1 error", "write of size 4"]),
        (0, ONE + CLEAN, ["failed", "1 error"]),
        (1, BANNER + "Traceback\n========= ERROR SUMMARY: 0 errors\n", ["failed", "exit status 1"]),
        (0, "no words of the tool\n", ["failed"]),
        (1, BANNER + "========= Error: Device not supported. Please refer to the release notes\n", ["skipped", "Device"]),
        (None, BANNER + READ, ["failed", "out of time", "write of size 4"]),
    ],
)  # fmt: skip
def test_what_compute_sanitizer_says_is_understood(module, status, text, words):
    verdict = module("sanitizer").verdict(status, text)
    assert verdict.startswith(words[0]) and all(word in verdict for word in words), verdict


@pytest.mark.parametrize(
    ("how", "text", "said"),
    [
        ({"status": 0}, CLEAN, "passed"),
        ({"status": 0, "late": True, "items": None}, BANNER, "cut: not run"),
        ({"status": None, "late": True}, BANNER + READ, "failed"),
        ({"status": 0, "late": True, "items": None}, "", "cut: not run"),
        ({"status": 0, "outcomes": {"x": {"outcome": "failed", "note": "an illegal address"}}}, CLEAN, "failed: x: an illegal"),
        ({"status": 1, "error": "exit status 1"}, CLEAN, "failed"),
    ],
)  # fmt: skip
def test_a_tool_passes_only_where_all_calls_ran_and_it_says_so(module, tmp_path, how, text, said):
    sanitizer, report = module("sanitizer"), module("supervise").Report
    (tmp_path / "log").write_text(text)
    passed = {"outcome": "passed", "note": ""}
    made = report(**{"name": "job", "items": ["x"], "outcomes": {"x": passed}, **how})
    assert sanitizer.judged_tool(made, tmp_path / "log", True).startswith(said)


def test_every_family_is_under_every_tool(module):
    sanitizer = module("sanitizer")
    names = module("family_names")
    given = types.SimpleNamespace(
        simulated=False, work=Path("/work"), with_libraries=dict, logs=Path("/logs")
    )
    jobs = sanitizer.jobs(given, "compute-sanitizer")
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        assert {f"{tool}: {family}" for family in names.FAMILIES} <= set(jobs)
        assert jobs[f"{tool}: norms"].command[:3] == ["compute-sanitizer", "--tool", tool]
    assert jobs["memcheck: attention"].env["RABBET_CUDA_CUDNN"] == ""
    assert "RABBET_CUDA_CUDNN" not in jobs["memcheck: attention with libraries"].env


SANITIZER = """#!/bin/sh
tool=$2
shift 4
[ "$1" = --report-api-errors ] && shift 2
echo "========= COMPUTE-SANITIZER"
"$@"
status=$?
case "$tool $*" in
  racecheck*losses*) echo "========= Error: Race reported between Write access at loss.cu:3"
    echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"; exit 9 ;;
  *) echo "========= ERROR SUMMARY: 0 errors"; exit $status ;;
esac
"""
NCU = """#!/bin/sh
echo '==PROF== Connected to process 7'
echo '"ID","Kernel Name","gpu__time_duration.sum"'
echo '"","","us"'
echo '"0","rb_kernel","12.5"'
"""


@pytest.fixture
def tools_check(module, small_check, simulator, tmp_path, monkeypatch):
    """As on a machine with a GPU, but for the simulator as its driver; programs by name stand in for NVIDIA's."""

    def with_tools(**programs):
        for name, text in programs.items():
            path = tmp_path / name.replace("_", "-")
            path.write_text(text)
            path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        small_check.env |= {**simulator, "PATH": os.environ["PATH"]}
        return small_check

    return with_tools


def test_every_family_runs_under_the_tools_and_findings_of_one_are_its_own(
    module, tools_check, monkeypatch
):
    sanitizer, runner = module("sanitizer"), module("runner")
    monkeypatch.setattr(sanitizer, "FAMILIES", ("losses", "random"))
    monkeypatch.setattr(sanitizer, "USE_LIBRARIES", ("random",))
    check = tools_check(compute_sanitizer=SANITIZER)
    result = check.run(runner.Stage("sanitizers", 120, sanitizer.sanitizers), 120)
    verdicts = result.details["verdicts"]
    assert result.status == "failed" and len(verdicts) == 9
    wrong = {name: verdict for name, verdict in verdicts.items() if verdict != "passed"}
    assert list(wrong) == ["racecheck: losses"]
    assert "1 hazard" in wrong["racecheck: losses"] and "loss.cu:3" in wrong["racecheck: losses"]


def test_a_tool_that_the_machine_refuses_is_named_with_what_did_not_run(module, tools_check):
    sanitizer, runner = module("sanitizer"), module("runner")
    refuses = "#!/bin/sh\necho '========= COMPUTE-SANITIZER'\necho '========= Error: Device not supported'\nexit 1\n"
    check = tools_check(compute_sanitizer=refuses)
    result = check.run(runner.Stage("sanitizers", 120, sanitizer.sanitizers), 120)
    assert result.status == "skipped"
    assert "Device not supported; not run: memcheck, racecheck" in result.note


def test_kernels_are_profiled_where_ncu_may_read_counters(module, tools_check):
    stages, runner = module("stages"), module("runner")

    def chosen(check):
        return stages.kernels(check, ["sum 20 30"])

    check = tools_check(ncu=NCU)
    result = check.run(runner.Stage("kernels", 60, chosen), 60)
    found = result.details["operators"]
    assert result.status == "passed", result
    assert found == {"sum 20 30": {"kernels": [{"kernel": "rb_kernel", "time": "12.5 us"}]}}
    failing = tools_check(ncu=NCU + "exit 3\n").run(runner.Stage("kernels", 60, chosen), 60)
    assert failing.status == "failed" and "exit status 3" in failing.note
    check = tools_check(
        ncu="#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - no permission'\nexit 1\n"
    )
    result = check.run(runner.Stage("kernels", 60, chosen), 60)
    assert result.status == "skipped" and result.details["not profiled"] == ["sum 20 30"]
    assert "ncu reads no counters here" in result.note and "ERR_NVGPUCTRPERM" in result.note


METRICS = '"ID","Kernel Name","gpu__time_duration.sum","launch__registers_per_thread"\n"","","us","register/thread"\n'


def test_a_table_of_ncu_is_read(module):
    ncu = module("ncu")
    text = f'==PROF== Connected\n{{"profiled": "add"}}\n{METRICS}"0","rb_kernel","12.5","32"\n'
    assert ncu.kernels(text) == [
        {"kernel": "rb_kernel", "time": "12.5 us", "registers": "32 register/thread"}
    ]
    with pytest.raises(ncu.NotAllowed, match="ERR_NVGPUCTRPERM"):
        ncu.kernels("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
    for nothing in (METRICS, "==PROF== Connected\n"):
        with pytest.raises(ValueError, match="ncu"):
            ncu.kernels(nothing)
    with pytest.raises(ValueError, match="error code"):
        ncu.kernels(f"==ERROR== The application returned an error code (1).\n{text}")


def test_kernels_that_are_profiled_are_operators_of_one_py(run):
    code = f"""
import sys; sys.path.insert(0, {str(FOLDER)!r}); sys.argv = ["one.py", "--list"]
import ncu, one
for text in ncu.KERNELS: assert text.split()[0] in one.OPERATORS, text
"""
    run(code)
