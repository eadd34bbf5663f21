"""SimCLR (Chen et al. 2020) with a LARS optimizer (You et al. 2017) of its own."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from start import Program
from torch.optim.optimizer import Optimizer


class LARS(Optimizer):
    """Momentum whose rate is scaled for each layer by the ratio of the norms of weights and gradients."""

    def __init__(self, params, lr, momentum=0.9, weight_decay=1e-6, trust=0.001):
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(
            params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        )

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                d_p = p.grad
                if p.ndim > 1:
                    d_p = d_p.add(p, alpha=group["weight_decay"])
                    p_norm, g_norm = torch.norm(p), torch.norm(d_p)
                    one = torch.ones_like(p_norm)
                    ratio = torch.where(
                        p_norm > 0.0,
                        torch.where(g_norm > 0, group["trust"] * p_norm / g_norm, one),
                        one,
                    )
                    d_p = d_p.mul(ratio)
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                buf = state["momentum_buffer"]
                buf.mul_(group["momentum"]).add_(d_p)
                p.add_(buf, alpha=-group["lr"])
        return loss


def nt_xent(a, b, temperature=0.5):
    z = F.normalize(torch.cat([a, b]), dim=1)
    scores = z @ z.T / temperature
    scores = scores.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))
    partner = torch.arange(len(z)).roll(len(a))
    return F.cross_entropy(scores, partner)


def train(program):
    width, size, batch = (4, 8, 6) if program.tiny else (64, 32, 64)
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(2 * width),
        nn.ReLU(), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(),
        nn.Linear(2 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width, bias=False),
    )  # fmt: skip
    program.start(model)
    optimizer = LARS(model.parameters(), lr=1.0)
    for _ in range(program.steps):
        x = program.normal(batch, 3, size, size)
        left = x + 0.3 * program.normal(*x.shape)
        right = x.flip(-1) + 0.3 * program.normal(*x.shape)
        loss = nt_xent(model(left), model(right))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
