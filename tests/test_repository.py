"""The rules of the repository that no tool checks."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = sorted(p.parent for p in ROOT.glob("packages/*/pyproject.toml"))
OWN = re.compile(r"rabbet(-[a-z-]+)?$")
DESIGNED = {  # what a package may depend on, of ours (the design's table of packages)
    "rabbet-core": set(),
    "rabbet-backend-cpu": {"rabbet-core"},
    "rabbet-backend-cuda": {"rabbet-core"},
    "rabbet-autograd": {"rabbet-core"},
    "rabbet-autocast": {"rabbet-core"},
    "rabbet-vmap": {"rabbet-core", "rabbet-autograd"},
    "rabbet-nn": {"rabbet-core", "rabbet-autograd"},
    "rabbet-optim": {"rabbet-core", "rabbet-autograd"},
    "rabbet-distributions": {"rabbet-core", "rabbet-autograd"},
    "rabbet-profiler": {"rabbet-core", "rabbet-autograd"},
    "rabbet-compile": {"rabbet-core"},
    "rabbet-graph": {"rabbet-core"},
    "rabbet-testing": {"rabbet-core"},
}

# Files of packages that name CUDA though they are not its backend: PyTorch's public names and two protocols do.
NAME_CUDA = {
    "torch.cuda and what belongs to it": (
        "core/src/rabbet/cuda/*", "core/src/rabbet/cuda/amp/*", "core/src/rabbet/_graphed_callables.py",
        "core/src/rabbet/backends/*",
        "nn/src/rabbet/nn/attention/__init__.py",
        "core/src/rabbet/version.py", "core/src/rabbet/compiler.py", "core/src/rabbet/__init__.py*",
        "core/src/rabbet/multiprocessing/__init__.py", "core/src/rabbet/multiprocessing/reductions.py",
        "core/src/rabbet/_absent/*", "core/src/rabbet/_as_torch/*", "core/src/rabbet/_settings.py",
        "core/include/rabbet/settings.h", "core/src/rabbet/utils/collect_env.py",
        "core/src/rabbet/utils/cpp_extension/*.py",
    ),
    "is_cuda, Tensor.cuda(), Module.cuda(), UntypedStorage.cuda()": (
        "core/src/rabbet/_sharing.py",
        "core/src/rabbet/_C.pyi", "core/csrc/python/tensor_attributes.cpp", "core/csrc/python/tensor_methods.cpp",
        "core/src/rabbet/storage.py", "core/src/rabbet/_legacy.py", "nn/src/rabbet/nn/parameter.py",
        "nn/src/rabbet/nn/modules/module.py",
    ),
    "a device that PyTorch takes where none is given": (
        "autocast/src/rabbet/amp/*", "autograd/src/rabbet/autograd/graph.py", "autograd/src/rabbet/utils/checkpoint.py",
        "core/src/rabbet/random.py", "core/csrc/python/value_types.cpp",
    ),
    "the wheel to install, and storages of files": (
        "core/src/rabbet/_plugins.py", "core/src/rabbet/_files/torch_names.py", "rabbet/pyproject.toml",
    ),
    "activities of profilers, and former names of times on devices": (
        "profiler/src/rabbet/profiler/*.py", "profiler/src/rabbet/autograd/*.py",
        "core/src/rabbet/utils/benchmark/utils/fuzzer.py",
    ),
    "DLPack and __cuda_array_interface__": (
        "core/csrc/python/dlpack.cpp", "core/csrc/python/data.cpp", "core/src/rabbet/_array_interface.py",
        "core/src/rabbet/_functions.py", "core/src/rabbet/_tensor.py",
    ),
    "comments, examples and messages": (
        "core/csrc/python/memory.cpp", "core/csrc/python/value_types.h", "core/csrc/core/formula/emit.h",
        "core/include/rabbet/emit.h", "core/include/rabbet/philox.h", "core/src/rabbet/accelerator.py",
        "optim/src/rabbet/optim/_capture.py", "optim/src/rabbet/optim/optimizer.py",
    ),
}  # fmt: skip


def project(package: Path) -> dict:
    return tomllib.loads((package / "pyproject.toml").read_text())


def requirements(package: Path) -> dict[str, str]:
    """Name to version range, extras included."""
    table = project(package)["project"]
    extras = table.get("optional-dependencies", {}).values()
    found = {}
    for line in [*table.get("dependencies", []), *(r for extra in extras for r in extra)]:
        name, versions = re.match(r"([\w-]+)(?:\[[\w,]+\])?(.*)", line).groups()
        found[name] = versions
    return found


def tracked(*patterns: str) -> list[Path]:
    skip = {"build", "dist", "site", ".venv"}
    return [f for p in patterns for f in ROOT.glob(p) if not skip & set(f.relative_to(ROOT).parts)]


def test_there_are_packages():
    assert len(PACKAGES) >= 8


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_a_wheel_names_ranges_of_the_others(package):
    for name, versions in requirements(package).items():
        if OWN.match(name):
            assert re.fullmatch(r">=\d+\.\d+,<\d+(\.\d+)?", versions), f"{name}{versions}"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_a_wheel_depends_on_what_the_design_allows(package):
    name = project(package)["project"]["name"]
    own = {n for n in requirements(package) if OWN.match(n)}
    assert name == "rabbet" or own <= DESIGNED[name]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_a_package_builds_with_scikit_build_and_says_what_it_is(package):
    table = project(package)
    assert table["build-system"]["build-backend"] == "scikit_build_core.build"
    assert table["project"]["requires-python"] == ">=3.11" and table["project"]["description"]
    assert (package / "README.md").read_text().strip()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_python_sources_are_typed_and_only_core_owns_the_namespace(package):
    modules = list(package.glob("src/**/*.py"))
    if modules:
        assert list(package.glob("src/**/py.typed")), f"{package.name} ships no py.typed"
    if package.name != "core":
        assert package / "src/rabbet/__init__.py" not in modules


def test_versions_in_manifests_agree_with_the_wheels_they_are_in():
    for manifest in tracked("packages/*/src/**/rabbet_plugin.toml"):
        said = tomllib.loads(manifest.read_text())
        assert said["abi"][0] == 0, manifest
        assert said["kind"] in ("backend", "transform", "ops"), manifest
        assert "version" not in said, f"{manifest}: the wheel's metadata holds the version"


def test_sources_stay_short_enough_to_read():
    for source in tracked("packages/*/*src/**/*.py", "packages/*/csrc/**/*.cpp",
                          "packages/*/csrc/**/*.h", "tests/*.py", "tools/*.py",
                          "examples/*.py", "benchmarks/*.py"):  # fmt: skip
        lines = len(source.read_text().splitlines())
        assert lines <= 900, f"{source.relative_to(ROOT)} has {lines} lines: split it by concept"


def test_every_target_that_documents_name_is_in_the_makefile():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    for page in tracked("*.md", "docs/**/*.md", "examples/*.md", "packages/*/README.md"):
        used = re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text(), flags=re.M)
        assert set(used) <= targets, f"{page.relative_to(ROOT)}: {set(used) - targets}"


def test_ci_uses_the_one_door():
    script = ROOT / ".ci/run"
    assert script.stat().st_mode & 0o100 and "make test" in script.read_text()


def test_all_packages_stand_in_the_lock_file():
    locked = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    members = {p["name"] for p in locked if "editable" in p.get("source", {})}
    assert members == {project(p)["project"]["name"] for p in PACKAGES}


def test_the_makefile_builds_every_package():
    line = re.search(r"^PACKAGES := (.*)$", (ROOT / "Makefile").read_text(), flags=re.M)
    assert sorted(line[1].split()) == [p.name for p in PACKAGES]


def test_only_public_names_and_protocols_know_of_cuda_outside_its_package():
    allowed = {
        f for patterns in NAME_CUDA.values() for p in patterns for f in ROOT.glob(f"packages/{p}")
    }
    sources = tracked("packages/*/csrc/**/*.*", "packages/*/include/**/*.h", "packages/*/ops/*.rec",
                      "packages/*/src/**/*.py*", "packages/*/pyproject.toml", "packages/*/CMakeLists.txt")  # fmt: skip
    naming = {
        f
        for f in sources
        if "backend-cuda" not in f.parts and f.suffix != ".pyc" and "cuda" in f.read_text().lower()
    }
    assert naming - allowed == set()
    unused = [p for patterns in NAME_CUDA.values() for p in patterns
              if not naming & set(ROOT.glob(f"packages/{p}"))]  # fmt: skip
    assert unused == []
