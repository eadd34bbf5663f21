"""The example of transforms from outside: a wheel of its own, built and tested against the installed core."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent / "examples/transform-plugin"
PACKAGES = ("profile", "nan")


def run(*command: object, cwd: Path, prefix: Path | None = None) -> str:
    paths = [*([str(prefix)] if prefix else []), *[p for p in sys.path if p]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def undefined_symbols(library: Path) -> set[str]:
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", str(library)], check=True, capture_output=True, text=True
    )
    return {line.split()[-1] for line in listed.stdout.splitlines()}


def test_the_wheel_builds_alone_and_does_what_it_says(tmp_path):
    project, prefix = tmp_path / "project", tmp_path / "prefix"  # away from the monorepo
    shutil.copytree(PROJECT, project)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-cache-dir", "--no-index"]
    run(*pip, "--no-build-isolation", "--no-deps", "--target", prefix, ".", cwd=project)
    for name in PACKAGES:
        symbols = undefined_symbols(prefix / f"rabbet_{name}/librabbet_{name}.so")
        assert symbols and not [s for s in symbols if re.match(r"_?Py|rabbet_|.*6rabbet", s)]

    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
    summary = run(*pytest_command, "tests", cwd=project, prefix=prefix).splitlines()[-1]
    assert int(re.match(r"(\d+) passed", summary).group(1)) >= 47

    for name in PACKAGES:
        judge = [sys.executable, "-m", "rabbet_testing.monkeypatching", name]
        assert run(*judge, cwd=tmp_path, prefix=prefix) == ""
    layers = run(sys.executable, "-m", "rabbet", "doctor", "--layers", cwd=tmp_path, prefix=prefix)
    assert re.search(
        r"profile +\[rabbet-instruments 0.1.0\] .*\n.*nan declares to run after", layers
    )

    for name in PACKAGES:
        judge = ["-n", "2", "--pyargs", "rabbet_testing", f"--layer={name}"]
        verdict = run(*pytest_command, *judge, cwd=tmp_path, prefix=prefix)
        assert f"layer {name}: conformant" in verdict


@pytest.mark.parametrize("name", PACKAGES)
def test_each_transform_is_small_and_uses_public_headers_alone(name):
    sources = [PROJECT / f"csrc/{name}.cpp", PROJECT / f"src/rabbet_{name}/__init__.py"]
    assert sum(len(source.read_text().splitlines()) for source in sources) < 180
    text = "".join(path.read_text() for path in PROJECT.glob("csrc/*"))
    assert set(re.findall(r'#include "([^"]+)"', text)) == {"listener.hpp", "rabbet/plugin.hpp"}
