"""Checks in processes of their own: what a library takes down is a finding, not the end of the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

SECONDS = 300
# The environment variable with the modules, commas between them, that register what is judged.
MODULES = "RABBET_TESTING_MODULES"


def run_module(
    module: str, *arguments: str, **environment: str
) -> tuple[list[str], dict[str, Any]]:
    """Run `python -m module arguments`: its findings, and what else its last line holds.

    A crash, an exit code, a stall or words on stderr are findings too; they name the step that came before.
    """
    paths = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-m", f"rabbet_testing.{module}", *arguments]
    try:
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": paths, **environment}, capture_output=True, text=True,
            timeout=SECONDS, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired as stalled:
        text = stalled.stdout.decode(errors="replace") if stalled.stdout else ""
        return [f"does not end within {SECONDS} s: {_last_step(text)}"], {}
    lines = done.stdout.splitlines()
    said = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    findings = list(said.get("findings", []))
    words = done.stderr.strip()
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        where = "at exit, after all checks" if said else _last_step(done.stdout)
        findings.append(f"the process died of {name}: {where}. {words[-400:]}".rstrip(". "))
    elif done.returncode or not said:
        findings.append(f"exit code {done.returncode}: {_last_step(done.stdout)}: {words[-1200:]}")
    elif words:
        findings.append(f"words on stderr: {words[-400:]}")
    return findings, said


def _last_step(text: str) -> str:
    steps = [line.removeprefix("step: ") for line in text.splitlines() if line.startswith("step: ")]
    return f"in the step '{steps[-1]}'" if steps else "before the first step"
