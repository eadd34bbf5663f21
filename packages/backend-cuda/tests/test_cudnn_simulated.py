"""Convolutions by plans of the simulator's cuDNN, executed on the host: the unchanged backend from end to end."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CONV = runpy.run_path(str(HERE / "test_conv.py"))["CONV"]
TRAINING = runpy.run_path(str(HERE / "test_training.py"))

ONE = """
import rabbet
ops = rabbet.ops
rabbet.manual_seed(0)
x, w = rabbet.randn(2, 4, 6, 6), rabbet.randn(8, 4, 3, 3)
X, W = x.to("cuda"), w.to("cuda")
def convolve(x=X, w=W): return ops.convolution(x, w, None, [1], [1], [1], 1)
def far(y, z): return (y.cpu().to(rabbet.float32) - z).abs().max().item()
want = convolve(x, w)
"""


@pytest.fixture
def logged(with_cudnn, tmp_path):
    """Environment variables, and the lines that the stand-in wrote: "plan ENGINE", "read ENGINE", "execute ENGINE"."""
    log = tmp_path / "log"

    def lines():
        return log.read_text().splitlines() if log.exists() else []

    return {**with_cudnn, "CUSIM_CUDNN_LOG": str(log), "RABBET_CUDA_FALLBACK": "error"}, lines


def test_convolutions_and_their_derivatives_agree_with_the_cpu(compared, logged):
    env, lines = logged
    compared(
        CONV
        + """
for case in CASES:
    judge(case, F32)
    if len(case[0]) == 4: judge(case, F32, last)
for dtype in (F16, BF16):
    for case in (CASES[0], CASES[3]): judge(case, dtype)
""",
        **env,
    )
    assert len([line for line in lines() if line.startswith("execute")]) == 3 * (8 + 5 + 4)


def test_a_digits_cnn_trains_as_on_the_cpu(run, logged):
    pytest.importorskip("sklearn")
    env, lines = logged
    code = TRAINING["TRAIN"] + TRAINING["MODELS"]["cnn"] + TRAINING["JUDGE"]
    run(code, **env)
    # Two layers, five steps; the first layer's input has no gradient.
    assert len([line for line in lines() if line.startswith("execute")]) == 5 * (3 + 2)
    assert len([line for line in lines() if line.startswith("plan")]) == 5


def test_float32_is_rounded_to_tf32_unless_that_is_forbidden(run, logged):
    env, lines = logged
    code = """
assert 1e-5 < far(convolve(), want) < 1e-1
rabbet.backends.cudnn.allow_tf32 = False
assert far(convolve(), want) < 1e-5
"""
    run(ONE + code, **env)
    assert lines() == ["plan 1", "execute 1", "plan 2", "execute 2"]
    run(ONE + "assert far(convolve(), want) < 1e-5", **env, NVIDIA_TF32_OVERRIDE="0")


def test_without_variation_engines_that_vary_are_left_out(run, logged):
    env, lines = logged
    code = """
with rabbet.backends.cudnn.flags(deterministic=True): convolve()
rabbet.use_deterministic_algorithms(True); convolve()
rabbet.use_deterministic_algorithms(False); convolve()
"""
    run(ONE + code, **env)
    assert [line for line in lines() if line.startswith("execute")] == [
        "execute 0", "execute 0", "execute 1",
    ]  # fmt: skip


def test_a_failing_search_is_told_once(run, logged):
    env, lines = logged
    code = (
        ONE
        + """
assert far(convolve(), want) < 1e-5
convolve(X[:1]); ops.convolution_dx(want.to("cuda"), W, [2, 4, 6, 6], [1], [1], [1], 1)
"""
    )
    command = [sys.executable, "-c", code]
    env = {**os.environ, **env, "CUSIM_CUDNN_FAIL": "heuristics:1008"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no plan of cuDNN") == 1 and "1008" in done.stderr
    assert lines() == []


@pytest.mark.parametrize(
    "planted,engines",
    [("plan:3002", []), ("heuristics:3000", []), ("create:1001", []), ("plan1:3000", [0]), ("plan1:3000,plan0:4000", [2])],
)  # fmt: skip
def test_what_is_refused_goes_to_the_next_plan_or_to_our_kernel(run, logged, planted, engines):
    env, lines = logged
    run(ONE + "assert far(convolve(), want) < 1e-1", **env, CUSIM_CUDNN_FAIL=planted)
    assert [line for line in lines() if line.startswith("execute")] == [
        f"execute {engine}" for engine in engines
    ]


def test_plans_without_memory_for_a_workspace_are_passed_over(run, logged):
    env, lines = logged
    much = {**env, "CUSIM_CUDNN_WORKSPACE": str(1 << 50)}
    code = ONE + "for _ in range(2): assert far(convolve(), want) < 1e-5"
    run(code, **much)
    assert [line for line in lines() if line.startswith("execute")] == ["execute 3"] * 2
    run(code, **much, CUSIM_CUDNN_FAIL="plan3:3000")  # then it is our kernel
    assert len([line for line in lines() if line.startswith("execute")]) == 2


def test_a_plan_that_lacked_memory_is_not_the_first_again(run, logged):
    """Asking for so much empties the cache of memory, so that it is done once."""
    env, _ = logged
    code = """
for _ in range(2): assert far(convolve(), want) < 1e-5
once = rabbet.accelerator.memory_stats("cuda")["num_alloc_retries"]
for _ in range(3): convolve()
assert once == rabbet.accelerator.memory_stats("cuda")["num_alloc_retries"] > 0
"""
    run(ONE + code, **env, CUSIM_CUDNN_WORKSPACE=str(1 << 50))


def test_work_that_fails_late_names_the_operator(run, logged):
    """Its input is written on another stream, for which nothing waits: the checker refuses the plan's read."""
    env, _ = logged
    code = """
with rabbet.cuda.stream(rabbet.cuda.Stream()): y = X * 2
convolve(y)
try: rabbet.cuda.synchronize()
except RuntimeError as error: print(error)
"""
    said = run(ONE + code, CUSIM_CHECK="all", **env)
    assert "convolution" in said and "cudnnBackendExecute" in said, said


def test_benchmark_keeps_the_fastest_plan(run, logged):
    env, lines = logged
    code = """
rabbet.backends.cudnn.benchmark = True
for _ in range(3): assert far(convolve(), want) < 1e-1
rabbet.backends.cudnn.benchmark = False
assert far(convolve(), want) < 1e-1
"""
    run(ONE + code, CUSIM_CUDNN_FAST="2", **env)
    assert sorted(line for line in lines() if line.startswith("plan")) == [
        "plan 0", "plan 1", "plan 2", "plan 3",
    ]  # fmt: skip
    assert lines()[-4:] == ["execute 2"] * 4
    assert all(lines().count(f"execute {engine}") == 4 for engine in (0, 1, 3))


def test_benchmark_tries_as_many_plans_as_its_limit(run, logged):
    env, lines = logged
    code = """
with rabbet.backends.cudnn.flags(benchmark=True, benchmark_limit=2): assert far(convolve(), want) < 1e-1
"""
    run(ONE + code, CUSIM_CUDNN_FAST="2", **env)
    assert [line for line in lines() if line.startswith("plan")] == ["plan 1", "plan 0"]


def test_benchmark_passes_over_plans_that_do_not_run(run, logged):
    env, lines = logged
    code = """
rabbet.backends.cudnn.benchmark = True
assert far(convolve(), want) < 1e-5
"""
    run(ONE + code, CUSIM_CUDNN_WORKSPACE=str(1 << 50), **env)
    assert {line for line in lines() if line.startswith("execute")} == {"execute 3"}


def test_plans_are_kept_on_disk(run, logged, tmp_path):
    env, lines = logged
    env = {**env, "RABBET_CUDA_CACHE": str(tmp_path / "cache")}
    code = ONE + "assert far(convolve(), want) < 1e-1"
    run(code, **env)
    run(code, **env)
    assert lines() == ["plan 1", "execute 1", "read 1", "execute 1"]
    [plan] = (tmp_path / "cache").glob("*.plan")
    plan.write_bytes(plan.read_bytes()[:-9])
    run(code, **env)
    assert lines()[4:] == ["plan 1", "execute 1"]


def test_what_was_timed_is_not_timed_again(run, logged, tmp_path):
    env, lines = logged
    env = {**env, "RABBET_CUDA_CACHE": str(tmp_path / "cache"), "CUSIM_CUDNN_FAST": "0"}
    code = ONE + "rabbet.backends.cudnn.benchmark = True\nassert far(convolve(), want) < 1e-1"
    run(code, **env)
    first = len(lines())
    run(code, **env)
    assert lines()[first:] == ["read 0", "execute 0"]


def test_plans_of_a_file_that_cudnn_refuses_are_made_anew(run, logged, tmp_path):
    env, lines = logged
    env = {**env, "RABBET_CUDA_CACHE": str(tmp_path / "cache")}
    code = ONE + "assert far(convolve(), want) < 1e-1"
    run(code, **env)
    run(code, **env, CUSIM_CUDNN_FAIL="plan1:3007")
    assert lines()[2:] == ["plan 0", "execute 0"]


def test_a_plan_on_disk_that_fails_is_replaced(run, logged, tmp_path):
    env, lines = logged
    env = {**env, "RABBET_CUDA_CACHE": str(tmp_path / "cache")}
    code = ONE + "assert far(convolve(), want) < 1e-1"
    run(code, **env)
    run(code, **env, CUSIM_CUDNN_FAIL="execute1:5000")
    run(code, **env)
    assert lines()[2:4] == ["read 1", "failed 1"]
    assert lines()[-4:] == ["plan 0", "execute 0", "read 0", "execute 0"]


def test_a_graph_replays_what_it_captured(run, logged):
    env, _ = logged
    code = """
step = rabbet.cuda.graph(lambda x: convolve(x) * 2)
for i in range(3):
    given = rabbet.randn(2, 4, 6, 6)
    assert far(step(given.to("cuda")), convolve(given, w) * 2) < 1e-1, i
"""
    run(ONE + code, **env)


def test_calls_leave_no_descriptors(run, logged):
    env, _ = logged
    code = """
import ctypes, os
count = ctypes.CDLL(os.environ["RABBET_CUDA_CUDNN"]).cusim_dnn_descriptors
count.restype = ctypes.c_long
convolve(); before = count()
for _ in range(5): convolve()
assert count() == before == 1, (before, count())
"""
    run(ONE + code, **env)


def test_the_version_is_told_where_there_is_one(run, with_cudnn):
    code = "import rabbet\nc = rabbet.backends.cudnn\nprint(c.version(), c.is_available())"
    assert run(code, **with_cudnn).split() == ["91900", "True"]
    assert run(code, **{**with_cudnn, "RABBET_CUDA_CUDNN": ""}).split() == ["None", "False"]


def test_the_kit_judges_convolutions_by_cudnn(logged):
    """Without TF32, which is less exact than the kit allows float32 to be."""
    env, lines = logged
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--pyargs",
        "rabbet_testing",
    ]
    command += ["--device=cuda", "--level=L2", "-k", "convolution and (float32 or float16)"]
    env = {**os.environ, **env, "NVIDIA_TF32_OVERRIDE": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "9 passed" in done.stdout and "execute 2" in lines() and "execute 1" in lines()
