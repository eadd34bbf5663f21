"""Networks train under autocast as they do in float32: losses within one per cent on the same data."""

import pytest
import rabbet
from rabbet import amp, optim
from rabbet.nn import functional as F


def cnn(t):
    """Ten classes of 8 x 8 images."""
    nn = t.nn
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.GELU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def gpt(t, width=32, heads=2, letters=12, length=16):
    """Two blocks of causal attention over 12 letters."""
    nn = t.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

        def forward(self, x):
            b, n, c = x.shape
            parts = self.qkv(self.norm1(x)).view(b, n, 3, heads, c // heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(b, n, c))
            return x + self.mlp(self.norm2(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(Block(), Block())
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

        def forward(self, tokens):
            x = self.letter(tokens) + self.place(t.arange(tokens.shape[1]))
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    return Gpt()


def lstm(t):
    """The class of a sequence from the last state of an LSTM."""
    nn = t.nn

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(6, 16, batch_first=True), nn.Linear(16, 10)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    return Last()


def images():
    y = rabbet.arange(64) % 10
    return F.one_hot(y, 10).float().repeat(1, 7)[:, :64].reshape(64, 1, 8, 8), y


def letters():
    start = rabbet.arange(16).reshape(16, 1)
    tokens = (start + rabbet.arange(17) * (1 + start % 3)) % 12
    return tokens[:, :-1], tokens[:, 1:].flatten()


def sequences():
    y = rabbet.arange(32) % 10
    return rabbet.sin(y.reshape(32, 1, 1) * rabbet.linspace(0, 3, 60).reshape(10, 6)), y


TASKS = {"cnn": (cnn, images, 12), "gpt": (gpt, letters, 12), "lstm": (lstm, sequences, 40)}


def losses(task, dtype=None, scaler=None, **options) -> list[float]:
    """Of each step; all runs of a task begin with the same weights and data."""
    make, data, steps = TASKS[task]
    rabbet.manual_seed(0)
    model, (x, y) = make(rabbet), data()
    optimizer = optim.AdamW(model.parameters(), lr=5e-3)
    scaler = scaler or amp.GradScaler("cpu", enabled=False)
    found = []
    for _ in range(steps):
        with rabbet.autocast("cpu", dtype, enabled=dtype is not None, **options):
            loss = F.cross_entropy(model(x), y)
        assert loss.dtype == rabbet.float32
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        found.append(loss.item())
    assert all(p.grad.dtype == p.dtype == rabbet.float32 for p in model.parameters())
    return found


@pytest.mark.parametrize("task", TASKS)
def test_bfloat16_trains_as_float32(task):
    single, low = losses(task), losses(task, rabbet.bfloat16)
    assert single[-1] < 0.8 * single[0]  # there is something to learn
    assert single != low
    for a, b in zip(single, low, strict=True):
        assert b == pytest.approx(a, rel=0.01)


@pytest.mark.parametrize("task", TASKS)
def test_float16_with_a_scaler_trains_as_float32(task):
    scaler = amp.GradScaler("cpu", init_scale=2.0**10)
    single, low = losses(task), losses(task, rabbet.float16, scaler)
    assert scaler.get_scale() == 2.0**10  # no step was skipped
    for a, b in zip(single, low, strict=True):
        assert b == pytest.approx(a, rel=0.01)


@pytest.mark.parametrize("task", TASKS)
def test_the_cache_changes_nothing(task):
    assert losses(task, rabbet.bfloat16) == losses(task, rabbet.bfloat16, cache_enabled=False)


def test_too_large_a_scale_skips_steps_until_it_fits():
    scaler = amp.GradScaler("cpu", init_scale=2.0**24, backoff_factor=2.0**-4)
    found = losses("gpt", rabbet.float16, scaler)
    assert found[0] == found[1] and found[-1] < 0.8 * found[0]
    assert scaler.get_scale() < 2.0**24


@pytest.mark.parametrize("task", ["cnn", "gpt"])
def test_torch_takes_the_same_steps(task):
    """The first loss of the same weights under torch's autocast, which has the same dtypes at large."""
    torch = pytest.importorskip("torch")
    make, data, _ = TASKS[task]
    rabbet.manual_seed(0)
    model, (x, y) = make(rabbet), data()
    with rabbet.autocast("cpu"):
        ours = F.cross_entropy(model(x), y).item()
    theirs = make(torch)
    state = {name: torch.tensor(value.tolist()) for name, value in model.state_dict().items()}
    state |= {name: torch.tensor(0) for name in state if name.endswith("num_batches_tracked")}
    theirs.load_state_dict(state)
    with torch.autocast("cpu", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(
            theirs(torch.tensor(x.tolist())), torch.tensor(y.tolist())
        )
    assert ours == pytest.approx(loss.item(), rel=0.01)
