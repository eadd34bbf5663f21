import torch
from models import array, filled, several, trained
from schedulefree import AdamWScheduleFree, RAdamScheduleFree, SGDScheduleFree


def training(kind):
    """An optimizer of the package in its mode of training."""

    def make(parameters, **options):
        optimizer = kind(parameters, **options)
        optimizer.train()
        return optimizer

    return make


def averaged(x):
    model = filled(torch.nn.Linear(4, 1))
    optimizer = AdamWScheduleFree(model.parameters(), lr=0.1)
    found = []
    for _ in range(3):
        optimizer.train()
        for _ in range(4):
            optimizer.zero_grad()
            model(x.detach()).square().mean().backward()
            optimizer.step()
        optimizer.eval()
        found.append([p.detach().clone() for p in model.parameters()])
    return found


several(
    "schedulefree",
    adamw=trained(training(AdamWScheduleFree), lr=0.02, warmup_steps=5),
    adamw_plain=trained(training(AdamWScheduleFree), lr=0.02, foreach=False, weight_decay=0.1),
    radam=trained(training(RAdamScheduleFree), lr=0.02),
    sgd=trained(training(SGDScheduleFree), lr=0.1, momentum=0.9),
    averages=lambda: (averaged, array(8, 4)),
)
