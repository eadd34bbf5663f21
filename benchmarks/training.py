"""Whole training steps."""

import rabbet
from common import best, finish, torch_or_none
from rabbet import nn, optim


def mlp(t, nn, optim):
    """784-512-512-10, batch 64, Adam."""
    model = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    return model, t.randn(64, 784), optim.Adam(model.parameters())


def cnn(t, nn, optim):
    """Two convolutions with batch norm on 32 x 32 images, batch 32, SGD with momentum."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 64, 10),
    )  # fmt: skip
    return model, t.randn(32, 3, 32, 32), optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def step_of(make, t, nn, optim):
    """One training step as a function."""
    t.manual_seed(0)
    model, x, optimizer = make(t, nn, optim)
    y, loss_of = t.randint(0, 10, (x.shape[0],)), nn.CrossEntropyLoss()

    def step():
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def rows(torch) -> list[dict]:
    """All measurements."""
    found = []
    for what, make in (("MLP 784-512-512-10 step, Adam", mlp), ("CNN 32 x 32 step, SGD", cnn)):
        row = {
            "what": what,
            "numpy": None,
            "rabbet": best(step_of(make, rabbet, nn, optim)),
            "torch": None,
        }
        if torch:
            row["torch"] = best(step_of(make, torch, torch.nn, torch.optim))
        found.append(row)
    return found


if __name__ == "__main__":
    finish("training", "Training steps", rows(torch_or_none()))
