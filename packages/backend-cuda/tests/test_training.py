"""Small networks train on the simulated device as they do on the CPU, without a copy to it."""

import pytest

TRAIN = """
import numpy as np, rabbet
from rabbet import nn, optim
from sklearn.datasets import load_digits
rabbet.backends.cudnn.allow_tf32 = False
digits = load_digits()
images = np.asarray(digits.images, np.float32) / 16
def losses(device, steps, size):
    rabbet.manual_seed(0)
    model = make().to(device)
    step = make_optimizer(model.parameters())
    found = []
    for i in range(steps):
        here = slice(i * size, (i + 1) * size)
        x = rabbet.tensor(images[here]).reshape(-1, 1, 8, 8).to(device)
        t = rabbet.tensor(np.asarray(digits.target[here], np.int64)).to(device)
        loss = nn.functional.cross_entropy(model(x), t)
        step.zero_grad(); loss.backward(); step.step()
        found.append(loss.item())
    return found
"""
JUDGE = """
here, there = losses("cpu", 5, 24), losses("cuda", 5, 24)
assert np.allclose(here, there, rtol=2e-3, atol=2e-3), (here, there)
assert here[-1] < here[0], here
"""
MODELS = {
    "mlp": "make = lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 10))\n"
    "make_optimizer = lambda p: optim.Adam(p, lr=1e-2)\n",
    "cnn": "make = lambda: nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),"
    " nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 10))\n"
    "make_optimizer = lambda p: optim.SGD(p, lr=0.1, momentum=0.9)\n",
}


@pytest.mark.parametrize("model", list(MODELS))
def test_digits_train_as_on_the_cpu(run, simulator, model):
    pytest.importorskip("sklearn")
    run(TRAIN + MODELS[model] + JUDGE, RABBET_CUDA_FALLBACK="error", **simulator)
