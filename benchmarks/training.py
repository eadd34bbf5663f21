"""Whole training steps: time, and peak memory in a process of their own."""

import importlib
import subprocess
import sys

from common import THREADS, finish, side_by_side, torch_or_none


def mlp(t, nn, optim):
    """784-512-512-10, batch 64, Adam."""
    model = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    return model, t.randn(64, 784), t.randint(0, 10, (64,)), optim.Adam(model.parameters())


def cnn(t, nn, optim):
    """Two convolutions with batch norm on 32 x 32 images, batch 32, SGD with momentum."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 64, 10),
    )  # fmt: skip
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return model, t.randn(32, 3, 32, 32), t.randint(0, 10, (32,)), optimizer


def gpt(t, nn, optim, width=256, heads=4, depth=4, batch=8, length=128, **options):
    """4 layers, 256 wide, 4 heads, 256 letters; batch 8 of 128 tokens, AdamW."""
    letters = 256

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x):
            b, n, _ = x.shape
            qkv = self.qkv(self.norm1(x)).view(b, n, 3, heads, width // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(b, n, width))
            return x + self.mlp(self.norm2(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(depth)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

        def forward(self, tokens):
            x = self.letter(tokens) + self.place(t.arange(tokens.shape[1]))
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    model = Gpt()
    tokens, optimizer = (
        t.randint(0, letters, (batch, length)),
        optim.AdamW(model.parameters(), **options),
    )
    return model, tokens, t.randint(0, letters, (batch * length,)), optimizer


def lstm(t, nn, optim):
    """One layer of 256, 256 inputs, batch 32 of 64 steps, Adam."""

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(256, 256, batch_first=True), nn.Linear(256, 10)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    model = Last()
    return model, t.randn(32, 64, 256), t.randint(0, 10, (32,)), optim.Adam(model.parameters())


# What, the model, the least ratio that is wanted.
CASES = {
    "mlp": ("MLP 784-512-512-10 step, batch 64, Adam", mlp, 1.5),
    "cnn": ("CNN with batch norm on 32 x 32 step, batch 32, SGD", cnn, 1.2),
    "gpt": ("GPT 4 x 256, batch 8 x 128 step, AdamW", gpt, 1.3),
    "lstm": ("LSTM 256, batch 32 x 64 step, Adam", lstm, 1.5),
}


def step_of(make, t, nn, optim):
    """One training step as a function."""
    t.manual_seed(0)
    model, x, y, optimizer = make(t, nn, optim)
    loss_of = nn.CrossEntropyLoss()

    def step():
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def library(name: str):
    """The three modules that a model is made of."""
    t = importlib.import_module(name)
    t.set_num_threads(THREADS)
    return t, importlib.import_module(f"{name}.nn"), importlib.import_module(f"{name}.optim")


def print_peak(name: str, case: str) -> None:
    """Most resident memory while training, beyond what the imported library needs, in bytes."""
    modules = library(name)
    (modules[0].ones(64, 64) @ modules[0].ones(64, 64)).sum()
    before = resident("VmRSS")
    step = step_of(CASES[case][1], *modules)
    for _ in range(10):
        step()
    print(resident("VmHWM") - before)


def resident(what: str) -> int:
    """Bytes of resident memory, now (VmRSS) or at most so far (VmHWM)."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(what))
    return int(line.split()[1]) * 1024


def peak(name: str, case: str) -> float:
    """`print_peak` in a fresh process."""
    command = [sys.executable, "-W", "ignore", __file__, "--peak", name, case]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def rows(torch, chosen) -> list[dict]:
    """All measurements."""
    found = []
    for case in chosen:
        what, make, times = CASES[case]
        calls = {"rabbet": step_of(make, *library("rabbet"))}
        if torch:
            calls["torch"] = step_of(make, *library("torch"))
        row = {"what": what, "numpy": None, "torch": None, "times": times}
        row |= side_by_side(calls, repeats=15, slice_seconds=0.1)
        row["memory"] = {name: peak(name, case) for name in calls}
        found.append(row)
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        print_peak(*sys.argv[2:])
    else:
        result = rows(torch_or_none(), sys.argv[1:] or CASES)
        finish("training", "Training steps", result)
        for row in result:
            sizes = ", ".join(f"{k} {v / 1e6:.0f} MB" for k, v in row["memory"].items())
            print(f"peak memory, {row['what']}: {sizes}")
