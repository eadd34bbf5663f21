"""Built wheels in empty environments: the README's lines, and every useful subset, which names what is missing."""

import os
import re
import shlex
import subprocess
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
pytestmark = pytest.mark.slow

CORE = """
import rabbet
assert rabbet.zeros(2, 3, device="meta").sum(1).shape == (2,)
assert not {"nn", "optim", "no_grad", "autocast", "conv2d"} & set(dir(rabbet)) and "save" in dir(rabbet)
try:
    rabbet.zeros(2)
except RuntimeError as error:
    assert "pip install rabbet-backend-cpu" in str(error), error
else:
    raise SystemExit("zeros(2) worked without a backend")
try:
    rabbet.nn
except ImportError as error:
    assert "pip install rabbet-nn" in str(error), error
"""
CPU = """
import rabbet
x = rabbet.arange(6).reshape(2, 3).float()
assert (x @ x.t()).tolist() == [[5, 14], [14, 50]] and x.sum().item() == 15
try:
    x.backward()
except AttributeError as error:
    assert "pip install rabbet-autograd" in str(error), error
else:
    raise SystemExit("backward worked without autograd")
"""
AUTOGRAD = """
import importlib
import rabbet
x = rabbet.tensor([1.0, 2.0], requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2, 4]
try:
    rabbet.optim
except ImportError as error:
    assert "pip install rabbet-optim" in str(error), error
try:
    rabbet.distributions
except ImportError as error:
    assert "pip install rabbet-distributions" in str(error), error
else:
    raise SystemExit("distributions are there without their wheel")
try:
    rabbet.graph
except ImportError as error:
    assert "pip install rabbet-graph" in str(error), error
else:
    raise SystemExit("graphs are there without their wheel")
for missing in ("rabbet.profiler", "rabbet.autograd.profiler"):
    try:
        importlib.import_module(missing)
    except ImportError as error:
        assert "pip install rabbet-profiler" in str(error), error
    else:
        raise SystemExit("the profiler is there without its wheel")
"""
AMP = """
import rabbet
x = rabbet.randn(4, 4)
with rabbet.autocast("cpu"):
    assert (x @ x).dtype == rabbet.bfloat16 and rabbet.is_autocast_enabled("cpu")
"""
NO_AMP = """
try:
    rabbet.autocast
except AttributeError as error:
    assert "pip install rabbet-autocast" in str(error), error
else:
    raise SystemExit("autocast is there without its wheel")
"""
ALL = """
import rabbet
from rabbet import nn, optim
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = optim.Adam(model.parameters(), lr=0.05)
x = rabbet.randn(64, 4)
y = x.sum(1, True)
for _ in range(200):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
assert loss.item() < 0.1, loss
"""
VMAP = """
import rabbet
x = rabbet.arange(6).reshape(3, 2).float()
assert rabbet.vmap(lambda row: row @ row)(x).tolist() == [1, 13, 41]
from rabbet.func import functional_call
"""
DISTRIBUTIONS = """
rate = rabbet.tensor(2.0, requires_grad=True)
q = rabbet.distributions.Gamma(rabbet.tensor(3.0), rate)
rabbet.distributions.kl_divergence(q, rabbet.distributions.Gamma(1.0, 1.0)).backward()
assert abs(rate.grad.item() + 0.25) < 1e-6 and (q.sample((9,)) > 0).all()
"""
PROFILER = """
with rabbet.profiler.profile() as prof, rabbet.autograd.profiler.record_function("sum"):
    rabbet.ones(3).sum()
assert {"sum", "aten::sum", "aten::ones"} <= {e.key for e in prof.key_averages()}
"""
GRAPH = """
graph = rabbet.graph.capture(lambda x: x.sin().sum(0), rabbet.ones(2, 3))
graph.check()
assert rabbet.equal(graph.run(rabbet.zeros(2, 3)), rabbet.zeros(3))
"""
SUBSETS = {
    "core": (["core"], CORE),
    "core+cpu": (["core", "backend_cpu"], CPU),
    "core+cpu+autograd": (["core", "backend_cpu", "autograd"], AUTOGRAD + NO_AMP),
    "core+cpu+autocast": (["core", "backend_cpu", "autocast"], AMP),
    "core+cpu+vmap": (["core", "backend_cpu", "vmap"], VMAP),
    "all": (
        [
            "core",
            "backend_cpu",
            "autograd",
            "autocast",
            "vmap",
            "nn",
            "optim",
            "distributions",
            "profiler",
            "compile",
            "graph",
            "testing",
        ],
        ALL + AMP + DISTRIBUTIONS + PROFILER + GRAPH,
    ),
}


def wheel(name: str) -> str:
    found = sorted(DIST.glob(f"rabbet_{name}-*.whl"))
    assert found, f"no wheel of rabbet_{name} in {DIST}: run make wheels"
    return str(found[-1])


@pytest.mark.parametrize("subset", SUBSETS)
def test_a_subset_of_the_wheels_works_alone(subset, tmp_path, third_parties):
    names, code = SUBSETS[subset]
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env/bin/python"
    install = [str(python), "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    others = ["--find-links", str(third_parties), "pluggy"]
    subprocess.run([*install, *others, *map(wheel, names)], check=True)
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


# ---- the README's lines, as they are written, where no index knows our wheels

README = ROOT / "README.md"
INSTALL = re.findall(r"^    (pip install .*?)\s*(?:#.*)?$", README.read_text(), flags=re.M)
CHECKS = re.findall(
    r"^    (rabbet (?!run).*|python -c .*)$",
    README.read_text().split("## Install")[1].split("\n## ")[0],
    flags=re.M,
)
FIRST_PROGRAM = re.search(r"^```python\n(.*?)^```", README.read_text(), flags=re.S | re.M)[1]
MATMUL = "import rabbet\nassert (rabbet.ones(2, 3) @ rabbet.ones(3)).tolist() == [3, 3]"


def repacked(name: str, folder: Path) -> None:
    """A wheel of a pure Python distribution that is installed here, out of its files."""
    found = distribution(name)
    with zipfile.ZipFile(folder / f"{name}-{found.version}-py3-none-any.whl", "w") as wheel:
        for file in found.files or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                wheel.write(str(file.locate()), file.as_posix())


def empty_wheel(name: str, version: str, folder: Path) -> None:
    """A wheel of that name without contents, in place of NVIDIA's libraries, which have gigabytes."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(file, text)


@pytest.fixture(scope="module")
def third_parties(tmp_path_factory):
    """A folder with the wheels of others that ours need."""
    folder = tmp_path_factory.mktemp("third_parties")
    needed = ("iniconfig", "numpy", "packaging", "pluggy", "pygments", "pytest", "scipy")
    for name in needed:
        repacked(name, folder) if name == "pluggy" else empty_wheel(
            name, distribution(name).version, folder
        )
    for name, version in [
        ("nvidia-cuda-nvrtc", "13.0.1"), ("nvidia-cublas", "13.0.1"), ("nvidia-cudnn-cu13", "9.12"),
        ("nvidia-cuda-nvrtc-cu12", "12.9"), ("nvidia-cublas-cu12", "12.9"), ("nvidia-cudnn-cu12", "9.12"),
        ("scipy-openblas64", "0.3.34"),
    ]:  # fmt: skip
        empty_wheel(name, version, folder)
    return folder


def shell(line: str, env: Path, third_parties: Path) -> subprocess.CompletedProcess[str]:
    """Run a line from the repository's root, as a user with that environment would."""
    variables = {
        "PATH": os.pathsep.join([str(env / "bin"), os.environ["PATH"]]),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(third_parties),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    return subprocess.run(
        line, shell=True, cwd=ROOT, env={**kept, **variables}, capture_output=True, text=True
    )


def installed(env: Path) -> set[str]:
    """Our wheels that an environment has."""
    found = env.glob("lib/python*/site-packages/rabbet*.dist-info")
    return {path.name.split("-")[0].replace("_", "-") for path in found}


def test_the_readme_has_the_lines_that_are_tested():
    assert len(INSTALL) == 4 and all("--find-links dist" in line for line in INSTALL)
    assert [line.split()[0] for line in CHECKS] == ["rabbet", "python"]


@pytest.mark.parametrize("line", INSTALL)
def test_an_install_line_of_the_readme_works(line, tmp_path, third_parties):
    env = tmp_path / "env"
    venv.create(env, with_pip=True)
    done = shell(line, env, third_parties)
    assert done.returncode == 0, done.stderr
    assert "rabbet-backend-cpu" in installed(env)
    python = env / "bin/python"
    asked = shlex.split(line)[-1]
    if asked.startswith("rabbet-"):
        assert installed(env) == {"rabbet-core", "rabbet-backend-cpu"}
        program = MATMUL
    else:
        program = FIRST_PROGRAM
        assert ("rabbet-backend-cuda" in installed(env)) == ("cuda" in asked)
        assert ("rabbet-testing" in installed(env)) == ("all" in asked)
        for check in CHECKS:
            done = shell(check, env, third_parties)
            assert done.returncode == 0, done.stderr
    done = subprocess.run(
        [str(python), "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
