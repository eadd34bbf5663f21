"""Training steps in regions: losses, parameters and states of optimizers equal those of eager steps, bit for bit."""

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F
import rabbet_compile
from rabbet import nn, optim


@pytest.fixture(autouse=True, params=[0, 1 << 12])
def small_results_too(request):
    rabbet_compile.configure(least_bytes=request.param, tile=256)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.down(F.gelu(self.up(self.second(x)))))


class Language(nn.Module):
    def __init__(self, words=50, width=32, length=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        h = self.words(x) + self.places(rabbet.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def perceptron():
    return nn.Sequential(
        nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.SiLU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.BatchNorm1d(64),
        nn.ReLU(), nn.Linear(64, 5), nn.Softplus(),
    )  # fmt: skip


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: optim.Adam(p, 0.01, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, 0.01),
    "AdamW each": lambda p: optim.AdamW(p, 0.01, foreach=False),
    "RMSprop": lambda p: optim.RMSprop(p, 0.01, momentum=0.5, centered=True),
    "Adagrad": lambda p: optim.Adagrad(p, 0.01),
    "NAdam": lambda p: optim.NAdam(p, 0.01),
}


def train(make, data, loss, optimizer, wrap):
    rabbet.manual_seed(1)
    model = make()
    opt = OPTIMIZERS[optimizer](model.parameters())
    schedule = optim.lr_scheduler.StepLR(opt, 2, 0.5)
    losses = []

    def step(x, y):
        opt.zero_grad()
        made = loss(model(x), y)
        made.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        return made

    step = wrap(step)
    for x, y in data:
        losses.append(step(x, y).item())
        schedule.step()
    return losses, [t.detach().numpy() for t in model.state_dict().values()]


def same(a, b):
    assert a[0] == b[0] and len(a[1]) == len(b[1])
    for p, q in zip(a[1], b[1], strict=True):
        assert p.dtype == q.dtype and p.tobytes() == q.tobytes()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_perceptron_learns_the_same(optimizer):
    rabbet.manual_seed(0)
    data = [(rabbet.randn(32, 20), rabbet.randn(32, 5)) for _ in range(4)]
    args = (perceptron, data, F.mse_loss, optimizer)
    same(train(*args, lambda f: f), train(*args, rabbet.compile))
    assert rabbet_compile.totals()["recorded"] > 20


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_a_language_model_learns_the_same(optimizer):
    rabbet.manual_seed(0)
    data = [(rabbet.randint(0, 50, (4, 16)), rabbet.randint(0, 50, (4, 16))) for _ in range(3)]

    def loss(made, y):
        return F.cross_entropy(made.flatten(0, 1), y.flatten())

    args = (Language, data, loss, optimizer)
    same(train(*args, lambda f: f), train(*args, rabbet.compile))
    assert rabbet_compile.totals()["recorded"] > 20


@pytest.mark.parametrize("dtype", [rabbet.bfloat16, rabbet.float16])
def test_mixed_precision_learns_the_same(dtype):
    rabbet.manual_seed(0)
    data = [(rabbet.randn(32, 20), rabbet.randn(32, 5)) for _ in range(3)]

    def loss(made, y):
        return F.mse_loss(made.float(), y)

    def make():
        model = perceptron()
        forward = model.forward

        def mixed(x):
            with rabbet.autocast("cpu", dtype=dtype):
                return forward(x)

        model.forward = mixed
        return model

    args = (make, data, loss, "SGD")
    same(train(*args, lambda f: f), train(*args, rabbet.compile))


def test_derivatives_of_derivatives_and_transforms():
    def f(x, w):
        def energy(a):
            return (F.gelu(a @ w) * a.sigmoid()).sum()

        x = x.clone().requires_grad_()
        (g,) = rabbet.autograd.grad(energy(x) ** 2, x, create_graph=True)
        (h,) = rabbet.autograd.grad((g * g).sum(), x)
        each = rabbet.vmap(rabbet.func.grad(energy))(x.detach())
        tangent = rabbet.func.jvp(energy, (x.detach(),), (x.detach(),))[1]
        return (
            g,
            h,
            each,
            tangent,
            rabbet.func.hessian(lambda a: (a.sin() * a).sum())(x.detach()[0]),
        )

    rabbet.manual_seed(0)
    x, w = rabbet.randn(40, 30), rabbet.randn(30, 30)
    for a, b in zip(f(x, w), rabbet.compile(f)(x, w), strict=True):
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())
