"""Runs of the conformance kit, as somebody else would make them."""

import json
import os
import subprocess
import sys


def kit(folder, *arguments, **env):
    """Run the kit as somebody else would, in `folder`."""
    paths = os.pathsep.join([str(folder), *[p for p in sys.path if p]])
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "rabbet_testing",
               f"--conformance-json={report}", *arguments]  # fmt: skip
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, **env},
    )
    return done, json.loads(report.read_text()) if report.exists() else None


def failures(data):
    return [r for r in data["results"] if r["outcome"] == "failed"]
