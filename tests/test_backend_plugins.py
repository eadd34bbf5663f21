"""The example backends: wheels of their own, built and tested against the installed core, away from the monorepo."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rabbet_testing.judges import library as judge

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
WHEELS = {"backend-null": ("null", "null2"), "backend-opencl": ("opencl",)}
TRAIN = """
import sys
import rabbet
from rabbet import optim
from rabbet.nn import functional as F
sys.path.insert(0, sys.argv[1])
import char_gpt, digits

def losses(device, make, x, y, steps):
    rabbet.manual_seed(1)
    model = make().to(device)
    rabbet.manual_seed(2)  # each device counts its own random numbers; now both begin alike
    optimizer, x, y, values = optim.AdamW(model.parameters(), lr=3e-3), x.to(device), y.to(device), []
    for _ in range(steps):
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        values.append(loss.item())
    return values

rabbet.manual_seed(0)
images, labels = rabbet.rand(32, 1, 8, 8), rabbet.randint(0, 10, (32,))
tokens = rabbet.randint(0, 50, (4, 17))
for make, x, y in ((digits.Mlp, images, labels), (digits.Cnn, images, labels),
                   (lambda: char_gpt.CharGpt(50, 32, 4, 2, 16), tokens[:, :-1], tokens[:, 1:])):
    here, there = losses("cpu", make, x, y, 3), losses("opencl", make, x, y, 3)
    assert all(abs(a - b) < 5e-3 * a for a, b in zip(here, there)) and here[-1] < here[0], (here, there)
print("alike")
"""


def run(*command: object, cwd: Path, prefix: Path) -> str:
    paths = [str(prefix), *[p for p in sys.path if p]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """A folder in which pip has put both wheels, and copies of their projects in its `projects`."""
    if not Path("/usr/include/CL/cl.h").exists():
        pytest.skip("OpenCL's headers are not installed: apt install opencl-headers")
    prefix = tmp_path_factory.mktemp("prefix")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-cache-dir", "--no-index"]
    for name in WHEELS:
        project = prefix / "projects" / name
        shutil.copytree(EXAMPLES / name, project)
        run(
            *pip,
            "--no-build-isolation",
            "--no-deps",
            "--target",
            prefix,
            ".",
            cwd=project,
            prefix=prefix,
        )
    return prefix


def need_a_platform(prefix):
    code = """
import rabbet
try:
    rabbet.zeros(1, device="opencl")
except RuntimeError as error:
    print(error)
"""
    why = run(sys.executable, "-c", code, cwd=prefix, prefix=prefix)
    if "no OpenCL platform" in why or "libOpenCL" in why:
        pytest.skip(why)


@pytest.mark.parametrize("device", [d for devices in WHEELS.values() for d in devices])
def test_the_libraries_link_nothing_of_core(prefix, device):
    library = prefix / f"rabbet_backend_{device}/librabbet_backend_{device}.so"
    assert judge.judge(library) == [] and judge.exported(library) == {judge.ENTRY}
    assert not [s for s in judge.symbols(library, "--undefined-only") if re.match("cl[A-Z]", s)]


def test_the_null_backend_passes_level_0_of_the_kit(prefix):
    command = [
        "-m",
        "pytest",
        "--pyargs",
        "rabbet_testing",
        "-p",
        "no:cacheprovider",
        "--device=null",
    ]
    assert re.search(
        r"L0: 1\d passed\n", run(sys.executable, *command, "--level=L0", cwd=prefix, prefix=prefix)
    )


def test_the_null_backend_passes_its_tests_and_stays_small(prefix):
    project = prefix / "projects/backend-null"
    summary = run(sys.executable, "-m", "pytest", "-q", "tests", cwd=project, prefix=prefix)
    assert int(re.search(r"(\d+) passed", summary).group(1)) >= 12 and "skipped" not in summary
    files = [
        *project.glob("*.t*ml"),
        *project.glob("C*"),
        *project.glob("csrc/*"),
        *project.glob("src/*/*.*"),
    ]
    assert sum(len(f.read_text().splitlines()) for f in files if f.is_file()) < 210


def test_the_opencl_backend_passes_its_tests(prefix):
    need_a_platform(prefix)
    project = prefix / "projects/backend-opencl"
    summary = run(sys.executable, "-m", "pytest", "-q", "tests", cwd=project, prefix=prefix)
    assert int(re.search(r"(\d+) passed", summary).group(1)) > 40 and "skipped" not in summary


# What has to pass at least, of the levels that core's own tests do not run for a device.
CONFORMS = {"null": {"L1": 20, "L2": 300, "L3": 40}, "null2": {"L1": 20}, "opencl": {"L1": 40, "L2": 1300, "L3": 1700}}  # fmt: skip


@pytest.mark.parametrize("device", CONFORMS)
def test_the_device_is_conformant(device, prefix):
    if device == "opencl":
        need_a_platform(prefix)
    report = prefix / f"{device}.json"
    levels = ",".join(CONFORMS[device])
    options = ["-q", "-n", "2", "-p", "no:cacheprovider", "--pyargs", "rabbet_testing"]
    options += [f"--device={device}", f"--level={levels}", f"--conformance-json={report}"]
    run(sys.executable, "-m", "pytest", *options, cwd=prefix, prefix=prefix)
    data = json.loads(report.read_text())
    assert data["conformant"]
    for level, least in CONFORMS[device].items():
        assert data["levels"][level]["passed"] >= least, data["levels"]


def test_the_examples_train_on_opencl_as_on_the_cpu(prefix):
    need_a_platform(prefix)
    assert run(sys.executable, "-c", TRAIN, EXAMPLES, cwd=prefix, prefix=prefix) == "alike\n"
