"""Models train on the device as on the CPU: with the same seed the same losses, step by step."""

import pytest
import rabbet
from rabbet import nn, optim
from rabbet.nn import functional as F


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, stride=2), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Dropout(0.2),
            nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


class Gpt(nn.Module):
    def __init__(self, letters=32, width=32, heads=4) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(16, width)
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)
        )
        self.head, self.heads = nn.Linear(width, letters), heads

    def forward(self, tokens):
        x = self.letter(tokens) + self.place(rabbet.arange(tokens.shape[1], device=tokens.device))
        b, n, width = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, n, width))
        return self.head(x + self.mlp(x)).flatten(0, 1)


def losses(make, x, y, optimizer, device, steps=4):
    rabbet.manual_seed(3)
    model = make()
    model.to(device)
    rabbet.manual_seed(4)  # each device counts its own random numbers; now both begin alike
    x, y = x.to(device), y.to(device)
    step = optimizer(model.parameters())
    values = []
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
        step.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step.step()
        values.append(loss.item())
    return values, [p.detach().cpu() for p in model.parameters()]


def compare(make, x, y, optimizer):
    here, parameters = losses(make, x, y, optimizer, "cpu")
    there, moved = losses(make, x, y, optimizer, "opencl")
    assert there == pytest.approx(here, rel=2e-3) and here[-1] < here[0]
    for p, q in zip(parameters, moved, strict=True):
        assert (p - q).abs().max().item() < 5e-3


def test_a_convolutional_network():
    rabbet.manual_seed(0)
    compare(
        Classifier, rabbet.randn(16, 1, 16, 16), rabbet.randint(0, 10, (16,)),
        lambda p: optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    )  # fmt: skip


def test_a_small_gpt():
    rabbet.manual_seed(0)
    tokens = rabbet.randint(0, 32, (4, 17))
    compare(Gpt, tokens[:, :-1], tokens[:, 1:].flatten(), lambda p: optim.AdamW(p, lr=1e-3))


def test_gradients_of_gradients():
    x = rabbet.tensor([0.5, -1.0, 2.0], device="opencl", requires_grad=True)
    (g,) = rabbet.autograd.grad((x**3 * x.exp()).sum(), x, create_graph=True)
    (h,) = rabbet.autograd.grad(g.sum(), x)
    y = x.detach().cpu()
    expected = y.exp() * (y**3 + 6 * y**2 + 6 * y)
    assert h.cpu().tolist() == pytest.approx(expected.tolist(), rel=1e-4)


def test_parameters_travel_through_a_file(tmp_path):
    model = Classifier().to("opencl")
    rabbet.save(model.state_dict(), tmp_path / "model.safetensors")
    fresh = Classifier().to("opencl")
    fresh.load_state_dict(rabbet.load(tmp_path / "model.safetensors"))
    x = rabbet.randn(2, 1, 16, 16, device="opencl")
    assert rabbet.equal(model.eval()(x), fresh.eval()(x))
