"""Type checkers know rabbet: programs as users write them pass mypy's strict mode, and mistakes are reported."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="of the tools of make check")
PROGRAMS = Path(__file__).resolve().parent / "typed"
GOOD = sorted(p.stem for p in PROGRAMS.glob("*.py") if p.stem != "wrong")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The errors of mypy by file and line, each with its code."""
    cache = tmp_path_factory.mktemp("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary",
               f"--cache-dir={cache}", "--enable-error-code=ignore-without-code"]  # fmt: skip
    files = sorted(map(str, PROGRAMS.glob("*.py")))
    done = subprocess.run([*command, *files], capture_output=True, text=True, cwd=cache)
    assert done.returncode == 1, done.stdout + done.stderr
    errors: dict[str, dict[int, str]] = {}
    for line in done.stdout.splitlines():
        if match := re.match(r"(.*?)\.py:(\d+): error: .*\[([\w-]+)\]$", line):
            errors.setdefault(Path(match[1]).name, {})[int(match[2])] = match[3]
    return errors


@pytest.mark.parametrize("name", GOOD)
def test_a_program_passes_the_type_checker(name, found):
    assert found.get(name, {}) == {}


@pytest.mark.parametrize("name", GOOD)
def test_a_program_that_passes_also_runs(name, tmp_path):
    code = (PROGRAMS / f"{name}.py").read_text()
    if name == "namespaces":  # three of its lines are about what refuses
        refusing = r"^rabbet\.(linalg|fft|sparse)\..*\n"
        code, count = re.subn(refusing, "", code, flags=re.M)
        assert count == 3
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_mistakes_are_reported_where_they_are(found):
    lines = (PROGRAMS / "wrong.py").read_text().splitlines()
    marked = {
        number: match[1]
        for number, line in enumerate(lines, 1)
        if (match := re.search(r"# error: ([\w-]+)$", line))
    }
    assert found["wrong"] == marked and len(marked) > 15
