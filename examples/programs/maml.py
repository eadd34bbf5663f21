"""Model-agnostic meta-learning (Finn et al. 2017) of sines: gradients go through the inner gradient steps."""

import math
from collections import OrderedDict

import torch
import torch.nn.functional as F
from start import Program
from torch import nn
from torch.func import functional_call


def adapt(model, weights, x, y, rate, steps):
    for _ in range(steps):
        loss = F.mse_loss(functional_call(model, weights, (x,)), y)
        gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        weights = OrderedDict(
            (name, w - rate * g) for (name, w), g in zip(weights.items(), gradients, strict=True)
        )
    return weights


def train(program):
    hidden, tasks, shots = (16, 3, 5) if program.tiny else (40, 25, 10)
    model = nn.Sequential(
        nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
    )
    program.start(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(program.steps):
        total = torch.zeros(())
        for _ in range(tasks):
            amplitude, phase = 0.1 + 4.9 * program.uniform(1), math.pi * program.uniform(1)
            x = 10 * program.uniform(2 * shots, 1) - 5
            y = amplitude * torch.sin(x + phase)
            weights = OrderedDict(model.named_parameters())
            weights = adapt(model, weights, x[:shots], y[:shots], rate=0.01, steps=2)
            total = total + F.mse_loss(functional_call(model, weights, (x[shots:],)), y[shots:])
        loss = total / tasks
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    program = Program(__doc__)
    program.report(train(program))
