"""tools/gpu_check.sh on the simulator: what would run on a machine with a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import rabbet

ROOT = Path(__file__).resolve().parents[3]


def check(tmp_path, *words):
    site = Path(rabbet.__file__).parents[1]
    command = [sys.executable, ROOT / "packages/backend-cuda/tools/gpu_check/main.py", "--simulate"]
    command += ["--site", site, *words]
    environment = {k: v for k, v in os.environ.items() if k != "STAGES"} | {"OUT": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done, json.loads((tmp_path / "summary.json").read_text())["stages"]


def test_stages_run_on_the_simulator(tmp_path):
    done, stages = check(tmp_path, "0", "2", "6", "7", "9")
    assert done.returncode == 0, done.stdout + done.stderr
    status = {name.split()[1]: stage["status"] for name, stage in stages.items()}
    passed = dict.fromkeys(("machine", "smoke", "stress", "gpt2"), "passed")
    assert status == {**passed, "sanitizer": "skipped"}, stages
    assert "no time here is a GPU's" in (tmp_path / "table.md").read_text()
