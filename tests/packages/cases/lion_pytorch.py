import torch
from lion_pytorch import Lion
from models import array, filled, several


def trained(**options):
    def steps(x):
        model = filled(
            torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        )
        optimizer = Lion(model.parameters(), **options)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, [p.detach() for p in model.parameters()]

    return lambda: (steps, array(16, 4))


several(
    "lion_pytorch",
    plain=trained(lr=1e-2),
    decayed=trained(lr=1e-2, weight_decay=0.1),
    decoupled=trained(lr=1e-2, weight_decay=0.1, decoupled_weight_decay=True),
    betas=trained(lr=1e-2, betas=(0.95, 0.98)),
)
