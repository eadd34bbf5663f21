import torch
from models import array, filled, several
from torch import nn
from torchdiffeq import odeint, odeint_adjoint, odeint_event


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, t, y):
        return self.net(y) * torch.cos(t)


class Solved(nn.Module):
    def __init__(self, solve, **options):
        super().__init__()
        self.field, self.solve, self.options = Field(), solve, options

    def forward(self, y, t):
        return self.solve(self.field, y, t, **self.options)


def solved(solve, **options):
    return lambda: (filled(Solved(solve, **options)), array(4, 3), torch.linspace(0.0, 2.0, 7))


STEPS = ("euler", "midpoint", "heun2", "heun3", "rk4", "explicit_adams", "implicit_adams")
ADAPTIVE = ("dopri5", "dopri8", "bosh3", "fehlberg2", "adaptive_heun")
several(
    "torchdiffeq",
    **{name: solved(odeint, method=name, options={"step_size": 0.1}) for name in STEPS},
    **{name: solved(odeint, method=name, rtol=1e-6, atol=1e-8) for name in ADAPTIVE},
    adjoint_dopri5=solved(odeint_adjoint, method="dopri5", rtol=1e-6, atol=1e-8),
    adjoint_rk4=solved(odeint_adjoint, method="rk4", options={"step_size": 0.1}),
    adjoint_seminorm=solved(
        odeint_adjoint, rtol=1e-6, atol=1e-8, adjoint_options={"norm": "seminorm"}
    ),
    scipy=lambda: (
        lambda y, t: odeint(
            lambda t, y: -y, y, t, method="scipy_solver", options={"solver": "RK45"}
        ).detach(),
        array(4),
        torch.linspace(0.0, 1.0, 5),
    ),
    event=lambda: (
        lambda y: odeint_event(
            lambda t, y: torch.stack([y[1], -9.8 * torch.ones_like(y[1])]),
            y,
            torch.tensor(0.0),
            event_fn=lambda t, y: y[0],
            atol=1e-8,
            rtol=1e-8,
        ),
        torch.tensor([10.0, 0.0]),
    ),
)
