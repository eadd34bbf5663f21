"""Built wheels in empty environments, in every useful subset: what is missing is named with its wheel."""

import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
pytestmark = pytest.mark.slow

CORE = """
import rabbet
assert rabbet.zeros(2, 3, device="meta").sum(1).shape == (2,)
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
except ImportError as error:
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
            "testing",
        ],
        ALL + AMP + DISTRIBUTIONS,
    ),
}


def wheel(name: str) -> str:
    found = sorted(DIST.glob(f"rabbet_{name}-*.whl"))
    assert found, f"no wheel of rabbet_{name} in {DIST}: run make wheels"
    return str(found[-1])


@pytest.mark.parametrize("subset", SUBSETS)
def test_a_subset_of_the_wheels_works_alone(subset, tmp_path):
    names, code = SUBSETS[subset]
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env/bin/python"
    install = [str(python), "-m", "pip", "install", "-q", "--no-deps"]
    subprocess.run([*install, "pluggy", *map(wheel, names)], check=True)
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
