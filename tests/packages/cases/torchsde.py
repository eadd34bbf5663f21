import torch
import torchsde
from models import array, filled, several


class Path(torch.nn.Module):
    def __init__(self, noise_type, sde_type):
        super().__init__()
        self.noise_type, self.sde_type = noise_type, sde_type
        self.drift, self.spread = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def f(self, t, y):
        return torch.tanh(self.drift(y)) * 0.5

    def g(self, t, y):
        if self.noise_type == "additive":
            return torch.sigmoid(t).expand(len(y), 3, 2) * 0.2
        return torch.sigmoid(self.spread(y)) * 0.3


class Known(torchsde.BaseBrownian):
    """A Brownian motion of fixed numbers: a sum of waves, the same in both frameworks."""

    def __init__(self, size, dimensions):
        self.waves = array(6, size, dimensions, seed=4)
        self._size = (size, dimensions)

    def __call__(self, ta, tb=None, return_U=False, return_A=False):
        k = torch.arange(1.0, 7.0).reshape(-1, 1, 1)
        ta, tb = torch.as_tensor(ta), torch.as_tensor(tb)
        return (self.waves * (torch.sin(k * 3 * tb) - torch.sin(k * 3 * ta)) / k).sum(0)

    def __repr__(self):
        return "Known()"

    @property
    def dtype(self):
        return torch.float64

    @property
    def device(self):
        return torch.device("cpu")

    @property
    def shape(self):
        return self._size

    @property
    def levy_area_approximation(self):
        return "none"


class Solved(torch.nn.Module):
    def __init__(self, method, noise_type="diagonal", sde_type="ito", adjoint=False):
        super().__init__()
        self.sde = Path(noise_type, sde_type)
        self.solve = torchsde.sdeint_adjoint if adjoint else torchsde.sdeint
        self.method, self.size = method, 2 if noise_type == "additive" else 3

    def forward(self, y):
        times = torch.linspace(0.0, 1.0, 4)
        options = {"bm": Known(len(y), self.size), "method": self.method, "dt": 0.05}
        return self.solve(self.sde, y, times, **options)


def solved(*arguments, **options):
    return lambda: (filled(Solved(*arguments, **options)), array(5, 3))


several(
    "torchsde",
    euler=solved("euler"),
    milstein=solved("milstein"),
    additive=solved("euler", "additive"),
    stratonovich_midpoint=solved("midpoint", sde_type="stratonovich"),
    stratonovich_heun=solved("heun", sde_type="stratonovich"),
    stratonovich_milstein=solved("milstein", sde_type="stratonovich"),
    reversible=solved("reversible_heun", sde_type="stratonovich"),
    adjoint=solved("midpoint", sde_type="stratonovich", adjoint=True),
)
