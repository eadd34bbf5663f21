"""new-plugin: what it writes builds, passes its own tests and is seen by doctor; what it refuses, and how."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = {"rabbet/plugin.hpp", "rabbet/composite.h", "rabbet/trace.h", "kernels.hpp"}
WITHOUT_PAGE = """\
python -m rabbet new-plugin --kind KIND rabbet-my-KIND --into away/from-here
cd away/from-here
pip install --no-build-isolation --no-deps .    # needs scikit-build-core, cmake, ninja
pytest
python -m rabbet doctor
"""


def shell(script: str, cwd: Path, prefix: Path, **variables: str) -> str:
    """Run lines of a shell; pip installs into `prefix`, without looking elsewhere."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(prefix), *[p for p in sys.path if p]]),
        "PIP_TARGET": str(prefix),
        "PIP_NO_INDEX": "1",
        "PIP_NO_CACHE_DIR": "1",
        "CXXFLAGS": "-Werror",
        **variables,
    }
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, flags=re.S | re.M)


def page_of(kind: str) -> str:
    page = ROOT / f"docs/tutorial/{kind}.md"
    return page.read_text() if page.exists() else ""


@pytest.mark.parametrize("kind", ["backend", "composite", "ops", "transform"])
def test_what_is_written_builds_passes_its_tests_and_is_active(kind, tmp_path):
    page = page_of(kind)
    (commands,) = blocks(page, "sh") or [WITHOUT_PAGE.replace("KIND", kind)]
    said = shell(commands, tmp_path, tmp_path / "prefix")
    project = tmp_path / re.search(r"^cd (.*)$", commands, flags=re.M)[1]

    printed = re.findall(r"^  (.*)\n", said, flags=re.M)[:4]
    assert printed == commands.splitlines()[1:]
    assert int(re.search(r"= (\d+) passed in", said)[1]) >= 8  # and none is skipped
    listed = "transform" if kind == "composite" else kind
    (name,) = re.findall(rf"^  (my\w+) +[\w-]+ 0\.1\.0  {listed}  ACTIVE$", said, flags=re.M)
    sources = "".join(path.read_text() for path in project.glob("csrc/*"))
    assert set(re.findall(r'#include "([^"]+)"', sources)) <= PUBLIC

    option = {"backend": "--device", "transform": "--layer", "ops": "--ops"}[listed]
    judge = f"pytest -q -n 2 -p no:cacheprovider --pyargs rabbet_testing {option}={name}"
    assert ": conformant" in shell(judge, tmp_path, tmp_path / "prefix")
    smallest = (ROOT / "examples/backend-null/csrc/plugin.cpp").read_text()
    for excerpt in blocks(page, "cpp"):
        assert excerpt in sources or excerpt in smallest
    for example in [*blocks(page, "py"), *blocks((project / "README.md").read_text(), "python")]:
        (tmp_path / "example.py").write_text(example)
        shell("python -W error example.py", tmp_path, tmp_path / "prefix")


@pytest.mark.parametrize("kind", ["backend", "composite", "ops", "transform"])
def test_what_is_written_is_in_style(kind, tmp_path):
    for tool in ("ruff", "clang_format", "mypy"):
        pytest.importorskip(tool)
    (tmp_path / ".clang-format").write_text((ROOT / ".clang-format").read_text())
    shell(
        f"python -m rabbet new-plugin --kind {kind} my-plugin && cd my-plugin\n"
        f"ruff format --config {ROOT}/pyproject.toml --diff .\n"
        f"ruff check --config {ROOT}/pyproject.toml .\n"
        "clang-format --dry-run --Werror csrc/*\n"
        "mypy --strict --cache-dir ../mypy src\n",
        tmp_path,
        tmp_path / "prefix",
        MYPYPATH=str(ROOT / "packages/core/src"),
    )


def refused(tmp_path: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rabbet", "new-plugin", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stdout == ""
    return done.stderr


@pytest.mark.parametrize(
    "kind,name,message",
    [
        ("ops", "Fancy", "NAME must be lower-case letters, digits .* got 'Fancy'"),
        ("ops", "2fast", "NAME must be lower-case letters, digits .* got '2fast'"),
        ("ops", "a--b", "NAME must be lower-case letters, digits .* got 'a--b'"),
        ("ops", "a/b", "NAME must be lower-case letters, digits .* got 'a/b'"),
        ("ops", "", "NAME must be lower-case letters, digits .* got ''"),
        ("ops", "class", "'class' is a keyword of Python"),
        ("ops", "json", "'json' is a module of Python's standard library"),
        ("ops", "pytest", "a package 'pytest' is installed already, at .*pytest"),
        ("ops", "rabbet_nn", "'rabbet_nn' is one of Rabbet's own wheels"),
        ("ops", "install", "'install' is a target that every build has"),
        ("backend", "rabbet-cpu", "rabbet-backend-cpu provides 'cpu' already"),
        ("backend", "backend-meta", "rabbet-core provides 'meta' already"),
        ("transform", "functionalize", "rabbet-vmap provides 'functionalize' already"),
        (
            "toy",
            "fancy",
            "argument --kind: invalid choice: 'toy'.*backend.*composite.*ops.*transform",
        ),
    ],
)
def test_a_bad_name_or_kind_is_refused(kind, name, message, tmp_path):
    assert re.search(message, refused(tmp_path, "--kind", kind, name))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments,message",
    [
        ([], "the following arguments are required: NAME, --kind"),
        (["fancy"], "the following arguments are required: --kind"),
        (["--kind", "ops", "one", "two"], "unrecognized arguments: two"),
        (["--kind", "ops", "fancy", "--into"], "argument --into: expected one argument"),
    ],
)
def test_incomplete_arguments_are_refused(arguments, message, tmp_path):
    assert message in refused(tmp_path, *arguments)


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "fancy").mkdir()
    (tmp_path / "fancy/notes").write_text("mine")
    message = "the folder fancy is not empty: choose another by --into FOLDER"
    assert message in refused(tmp_path, "--kind", "ops", "fancy")
    message = "fancy/notes is not a folder"
    assert message in refused(tmp_path, "--kind", "ops", "fancy", "--into", "fancy/notes")
    assert [p.name for p in (tmp_path / "fancy").iterdir()] == ["notes"]


def test_the_generator_costs_nothing_where_it_is_not_used(tmp_path):
    code = "import rabbet, sys; print([m for m in sys.modules if '_new_plugin' in m or m == 'argparse'])"
    assert shell(f'python -c "{code}"', tmp_path, tmp_path) == "[]\n"
