"""Programs that import torch.distributions run on rabbet's."""

import subprocess
import sys

PROGRAM = """
import torch
import torch.distributions as D
from torch.distributions import Categorical, Normal, constraints, kl_divergence, transform_to
from torch.distributions.kl import register_kl
from torch.distributions.multivariate_normal import MultivariateNormal
from torch.distributions.transforms import SigmoidTransform
from torch.distributions.utils import broadcast_all, lazy_property, probs_to_logits

assert torch.distributions.Normal is Normal is D.normal.Normal
assert torch.distributions.constraints is constraints and D.studentT.StudentT is D.StudentT
assert isinstance(Normal(0.0, 1.0), D.Distribution)
loc = torch.zeros(3, requires_grad=True)
scale = transform_to(Normal.arg_constraints["scale"])(torch.zeros(3))
posterior = Normal(loc, scale)
loss = kl_divergence(posterior, Normal(1.0, 1.0)).sum() - posterior.rsample().sum()
loss.backward()
assert loc.grad.tolist() == [-2.0, -2.0, -2.0], loc.grad
print(Normal(loc.detach(), scale))
print(Categorical(torch.tensor([0.5, 0.5])).sample((2,)).dtype is torch.int64)
for missing in (lambda: D.Sormal, lambda: constraints.negative_definite):
    try:
        missing()
    except AttributeError as error:
        print(error)
try:
    Normal(0.0, -1.0)
except ValueError as error:
    print(str(error).splitlines()[0])
"""


def test_a_program_runs(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "rabbet", "run", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Normal(loc: torch.Size([3]), scale: torch.Size([3]))",
        "True",
        "torch.distributions.Sormal is not in rabbet yet",
        "torch.distributions.constraints.negative_definite is not in rabbet yet",
        "Expected parameter scale (Tensor of shape ()) of distribution Normal(loc: 0.0, scale: -1.0) "
        "to satisfy the constraint GreaterThan(lower_bound=0.0), but found invalid values:",
    ]
