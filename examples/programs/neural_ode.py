"""A neural ordinary differential equation (Chen et al. 2018): Runge-Kutta steps, gradients by the adjoint equation."""

import torch
from start import Program
from torch import nn
from torch.nn.utils import parameters_to_vector


def runge_kutta(f, y, t0, t1, steps):
    h = (t1 - t0) / steps
    for i in range(steps):
        t = t0 + i * h
        k1 = f(t, y)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + h / 2, y + h / 2 * k2)
        k4 = f(t + h, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


class Adjoint(torch.autograd.Function):
    """Solves forwards without a graph, and the adjoint equation backwards in time."""

    @staticmethod
    def forward(ctx, func, y0, steps, *parameters):
        ctx.func, ctx.steps = func, steps
        with torch.no_grad():
            y1 = runge_kutta(func, y0, 0.0, 1.0, steps)
        ctx.save_for_backward(y1, *parameters)
        return y1

    @staticmethod
    def backward(ctx, grad):
        y1, *parameters = ctx.saved_tensors
        size = y1.numel()

        def slopes(t, state):
            with torch.enable_grad():
                y = state[:size].view_as(y1).detach().requires_grad_(True)
                out = ctx.func(t, y)
                a = state[size : 2 * size].view_as(y1)
                grads = torch.autograd.grad(out, [y, *parameters], -a, allow_unused=True)
            grads = [
                torch.zeros_like(p) if g is None else g
                for g, p in zip(grads, [y, *parameters], strict=True)
            ]
            return torch.cat([out.detach().flatten(), *[g.flatten() for g in grads]])

        total = sum(p.numel() for p in parameters)
        state = torch.cat([y1.flatten(), grad.flatten(), y1.new_zeros(total)])
        state = runge_kutta(slopes, state, 1.0, 0.0, ctx.steps)
        grad_y, grad_p = state[size : 2 * size].view_as(y1), state[2 * size :]
        pieces = grad_p.split([p.numel() for p in parameters])
        return (
            None,
            grad_y,
            None,
            *[g.view_as(p) for g, p in zip(pieces, parameters, strict=True)],
        )


class Dynamics(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(width + 1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Softplus(),
            nn.Linear(hidden, width),
        )  # fmt: skip

    def forward(self, t, y):
        return self.net(torch.cat([y, torch.full_like(y[..., :1], t)], dim=-1))


def train(program):
    width, hidden, batch = (2, 16, 8) if program.tiny else (16, 128, 256)
    func = program.start(Dynamics(width, hidden))
    optimizer = torch.optim.Adam(func.parameters(), lr=1e-2)
    assert parameters_to_vector(func.parameters()).ndim == 1
    for _ in range(program.steps):
        y0 = program.normal(batch, width)
        target = torch.stack([y0[:, 1], -y0[:, 0], *y0[:, 2:].unbind(1)], dim=1)
        y1 = Adjoint.apply(func, y0, 4, *func.parameters())
        loss = (y1 - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
