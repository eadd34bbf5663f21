"""tools/gpu_check.sh on the simulator: what would run on a machine with a GPU, and how its results are judged."""

import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "packages/backend-cuda/tools/gpu_check"


def check(tmp_path, *words, **env):
    """Of what is installed: the backend may lie in another folder than core."""
    backend = importlib.util.find_spec("rabbet_backend_cuda")
    site = Path(backend.origin).parents[1]
    command = [sys.executable, FOLDER / "main.py", "--simulate", "--site", site, *words]
    environment = {k: v for k, v in os.environ.items() if k != "STAGES"}
    environment |= {"OUT": str(tmp_path), **env}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done, json.loads((tmp_path / "summary.json").read_text())["stages"]


def test_stages_run_on_the_simulator(tmp_path):
    done, stages = check(tmp_path, "0", "1", "2", "6", "7", "9")
    assert done.returncode == 0, done.stdout + done.stderr
    status = {name.split()[1]: stage["status"] for name, stage in stages.items()}
    passed = dict.fromkeys(("machine", "smoke", "sanitizer", "stress", "gpt2"), "passed")
    assert status == {**passed, "wheels": "skipped"}, stages
    assert "no time here is a GPU's" in (tmp_path / "table.md").read_text()
    with tarfile.open(tmp_path / "logs.tar.gz") as logs:
        assert {f"{name}.log" for name in status} <= set(logs.getnames())
    assert len(list(tmp_path.iterdir())) == 3, "few files come back from a lent machine"


def test_a_stage_that_fails_says_why_and_the_others_go_on(tmp_path):
    done, stages = check(
        tmp_path, "2", "6", "9", RABBET_CUDA_FALLBACK="nonsense", CUSIM_DEVICES="0"
    )
    assert done.returncode == 1
    assert [stage["status"] for stage in stages.values()] == ["failed"] * 3, stages
    assert "no CUDA device" in stages["2 smoke"]["note"]


@pytest.fixture
def stages(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("gpu_check_stages", FOLDER / "stages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_libraries_of_the_wheels_are_named(monkeypatch, tmp_path):
    """What is installed for the check lies in a folder of its own, where the backend would not find them."""
    for name in (
        "cu13/lib/libnvrtc.so.13",
        "cu13/lib/libcublasLt.so.13",
        "cudnn/lib/libcudnn.so.9",
    ):
        (tmp_path / "nvidia" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "nvidia" / name).touch()
    monkeypatch.syspath_prepend(str(FOLDER))
    from runner import libraries

    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: types.SimpleNamespace(submodule_search_locations=[str(tmp_path / name)]),
    )
    found = {name: Path(path).name for name, path in libraries().items()}
    assert found == {
        "RABBET_CUDA_NVRTC": "libnvrtc.so.13",
        "RABBET_CUDA_CUBLASLT": "libcublasLt.so.13",
        "RABBET_CUDA_CUDNN": "libcudnn.so.9",
    }


BANNER = "========= COMPUTE-SANITIZER\n"
READ = "========= Invalid __global__ write of size 4 bytes\n=========     at rb_kernel+0x80 in exp.cu:33\n"
RACES = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (0, BANNER + '{"passed": true}\n========= ERROR SUMMARY: 0 errors\n', ["passed"]),
        (0, BANNER + RACES, ["passed"]),
        (9, BANNER + READ + "========= ERROR SUMMARY: 1 error\n", ["failed", "1 error", "write of size 4"]),
        (1, BANNER + "Traceback\n========= ERROR SUMMARY: 0 errors\n", ["failed", "exit status 1"]),
        (0, "no words of the tool\n", ["failed"]),
        (1, BANNER + "========= Error: Device not supported. Please refer to the release notes\n", ["skipped", "Device"]),
        (None, BANNER + READ, ["failed", "out of time", "write of size 4"]),
    ],
)  # fmt: skip
def test_what_compute_sanitizer_says_is_understood(stages, status, text, words):
    verdict = stages.verdict(status, text)
    assert verdict.startswith(words[0]) and all(word in verdict for word in words), verdict


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
def test_losses_of_gpt2_are_judged(stages, ours, torch, status, said):
    result = stages.gpt2_result({"rabbet": ours, "torch": torch})
    assert result.status == status and said in result.note, result.note
