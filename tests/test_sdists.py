"""Source distributions: each package's holds what it needs and nothing else, and installs where only they are."""

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# In the order in which they are installed: a package is built against those before it.
PACKAGES = [
    "core", "backend-cpu", "backend-cuda", "autograd", "autocast", "vmap", "nn", "optim", "distributions", "profiler",
    "compile", "graph", "testing", "rabbet",
]  # fmt: skip
BUILD_TOOLS = ("cmake", "ninja", "packaging", "pathspec", "pluggy", "pybind11", "scikit-build-core")
PROGRAM = """
import rabbet
from rabbet import nn, optim
model = nn.Linear(4, 2)
optimizer = optim.SGD(model.parameters(), lr=0.1)
with rabbet.autocast("cpu"):
    loss = rabbet.vmap(model)(rabbet.ones(3, 4)).float().square().sum()
loss.backward()
optimizer.step()
assert rabbet.distributions.Normal(0.0, 1.0).log_prob(rabbet.zeros(())).item() < 0
with rabbet.profiler.profile() as prof:
    model(rabbet.ones(4))
assert prof.key_averages()
import importlib.metadata as metadata
for name in WHEELS:
    assert metadata.version(name), name
"""


def build_sdist(package: str, folder: Path) -> Path:
    code = "import sys, scikit_build_core.build as b; print(b.build_sdist(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=ROOT / "packages" / package,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


def test_every_package_is_in_the_list():
    assert sorted(PACKAGES) == sorted(p.parent.name for p in ROOT.glob("packages/*/pyproject.toml"))


@pytest.mark.parametrize("licence", sorted(ROOT.glob("*/*/LICENSE")), ids=lambda p: p.parent.name)
def test_a_package_has_the_licence_of_the_repository(licence):
    assert not licence.is_symlink() and licence.read_text() == (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize("package", PACKAGES)
def test_an_sdist_holds_the_sources_and_no_links(package, tmp_path):
    with tarfile.open(build_sdist(package, tmp_path)) as archive:
        members = archive.getmembers()
    assert all(m.isfile() for m in members), [m.name for m in members if not m.isfile()]
    held = {Path(*Path(m.name).parts[1:]).as_posix() for m in members}
    assert {"LICENSE", "README.md", "PKG-INFO", "pyproject.toml"} <= held
    folder = ROOT / "packages" / package
    sources = {
        file.relative_to(folder).as_posix()
        for part in ("src", "csrc", "include", "ops", "cmake", "kernels")
        for file in (folder / part).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert sources <= held
    assert not {f for f in held if f.startswith(("build/", "dist/")) or f.endswith((".so", ".pyc"))}


def link_build_tools(env: Path) -> None:
    """Make the tools that build packages importable in an environment, and nothing else of this one."""
    tools = env / "tools"
    tools.mkdir()
    for name in BUILD_TOOLS:
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}:
            if not (tools / top).exists():
                (tools / top).symlink_to(Path(str(found.locate_file(top))))
    (site,) = env.glob("lib/python*/site-packages")
    (site / "tools.pth").write_text(f"{tools}\n")


@pytest.mark.slow
def test_the_packages_install_from_their_sdists(tmp_path):
    """Without optimisation and for one level of instructions, which is enough to see that nothing is missing."""
    env = tmp_path / "env"
    venv.create(env, with_pip=True)
    link_build_tools(env)
    python = str(env / "bin/python")
    path = os.pathsep.join([str(env / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    options = ["-C", "cmake.build-type=Debug", "-C", "cmake.define.CMAKE_CXX_FLAGS_DEBUG=-O1"]
    for package in PACKAGES:
        sdist = build_sdist(package, tmp_path)
        native = (ROOT / "packages" / package / "CMakeLists.txt").exists()
        level = ["-C", "cmake.define.RABBET_CPU_ONLY_LEVEL=v2"] if package == "backend-cpu" else []
        command = [
            python, "-m", "pip", "install", "--no-index", "--no-build-isolation", "--no-deps",
            *(options if native else []), *level, str(sdist),
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    wheels = [
        tomllib.loads((ROOT / "packages" / p / "pyproject.toml").read_text())["project"]["name"]
        for p in PACKAGES
    ]
    code = PROGRAM.replace("WHEELS", repr(wheels))
    done = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
