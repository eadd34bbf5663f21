"""The example backends: wheels of their own, built and tested against the installed core, away from the monorepo."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kit_runs import kit
from rabbet_testing.judges import library as judge
from test_backends import PAIRS

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


def test_several_backends_in_one_process(prefix):
    """The CPU's, one under two names, and OpenCL's where there is a platform."""
    code = "import rabbet\nprint(rabbet.zeros(1, device='opencl').device)"
    paths = os.pathsep.join([str(prefix), *[p for p in sys.path if p]])
    found = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths})
    devices = ["cpu", "null", "null2", *(["opencl"] if found.returncode == 0 else [])]
    pairs = PAIRS.format(devices=devices)
    assert run(sys.executable, "-c", pairs, cwd=prefix, prefix=prefix) == "all pairs\n"


def test_the_doctor_tells_wheels_of_one_project_apart(prefix):
    code = "import rabbet\nx = rabbet.ones(100).to('null2')\nfrom rabbet._doctor import main\nmain(['--json'])"
    data = json.loads(run(sys.executable, "-c", code, cwd=prefix, prefix=prefix))
    plugins = {p["name"]: p for p in data["plugins"]}
    one = {"tensors": 1, "storages": 1, "bytes": 400}
    none = {"tensors": 0, "storages": 0, "bytes": 0}
    assert plugins["null"]["live"]["devices"] == {"null": none}
    assert plugins["null2"]["live"]["devices"] == {"null2": one}
    for name in ("null", "null2", "opencl"):  # what the library says is what pip says
        native = plugins[name]["provider"].split()
        assert native in ([], [plugins[name]["wheel"], plugins[name]["version"]])
        assert plugins[name]["version"] == "0.1.0"


@pytest.mark.parametrize("name", [d for devices in WHEELS.values() for d in devices])
def test_loading_them_patches_nothing(prefix, name):
    if name == "opencl":
        need_a_platform(prefix)
    command = (sys.executable, "-m", "rabbet_testing.monkeypatching", name)
    assert run(*command, cwd=prefix, prefix=prefix) == ""


def test_a_formula_computes_numbers_where_its_tensors_are(prefix):
    need_a_platform(prefix)
    code = """
import rabbet
f, x = rabbet.ops("gelu_vjp"), rabbet.tensor([0.5, -1.0])
for approximate in ("none", "tanh"):
    for args in ((x, 1.25), (1.25, x)):
        there = [a.to("opencl") if isinstance(a, rabbet.Tensor) else a for a in args]
        want, got = f(*args, approximate=approximate), f(*there, approximate=approximate)
        assert got.device.type == "opencl" and rabbet.allclose(got.cpu(), want, rtol=1e-5), (args, got, want)
g = x.to("opencl").requires_grad_()
f(g, 1.25).sum().backward()
assert g.grad.device.type == "opencl" and rabbet.allclose(g.grad.cpu(), f(rabbet.ones(2), 1.25), rtol=1e-5)
assert rabbet.zeros(1).device.type == "cpu"
print("alike")
"""
    assert run(sys.executable, "-c", code, cwd=prefix, prefix=prefix) == "alike\n"


@pytest.mark.parametrize("device", [d for devices in WHEELS.values() for d in devices])
def test_the_libraries_link_nothing_of_core(prefix, device):
    library = prefix / f"rabbet_backend_{device}/librabbet_backend_{device}.so"
    assert judge.judge(library) == [] and judge.exported(library) == {judge.ENTRY}
    assert not [s for s in judge.symbols(library, "--undefined-only") if re.match("cl[A-Z]", s)]


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
    assert sum(len(f.read_text().splitlines()) for f in files if f.is_file()) < 200


def test_the_opencl_backend_passes_its_tests(prefix):
    need_a_platform(prefix)
    project = prefix / "projects/backend-opencl"
    summary = run(sys.executable, "-m", "pytest", "-q", "tests", cwd=project, prefix=prefix)
    assert int(re.search(r"(\d+) passed", summary).group(1)) > 60 and "skipped" not in summary


# What has to pass at least, of the levels that core's own tests do not run for a device.
CONFORMS = {
    "null": {"L0": 10, "L1": 20, "L2": 300, "L3": 40},
    "null2": {"L0": 10, "L1": 20},
    "opencl": {"L0": 10, "L1": 40, "L2": 1300, "L3": 1700},
}


@pytest.mark.parametrize("device", CONFORMS)
def test_the_device_is_conformant(device, prefix):
    if device == "opencl":
        need_a_platform(prefix)
    levels = ",".join(CONFORMS[device])
    done, data = kit(prefix, "-n", "2", f"--device={device}", f"--level={levels}")
    assert done.returncode == 0 and data["conformant"], done.stdout[-6000:] + done.stderr[-3000:]
    for level, least in CONFORMS[device].items():
        assert data["levels"][level]["passed"] >= least, data["levels"]


def test_the_examples_train_on_opencl_as_on_the_cpu(prefix):
    need_a_platform(prefix)
    assert run(sys.executable, "-c", TRAIN, EXAMPLES, cwd=prefix, prefix=prefix) == "alike\n"
