"""Adadelta, ASGD, Rprop, Adafactor, Muon, LBFGS and SparseAdam against formulas in NumPy, and PyTorch where installed."""

import copy
import itertools

import numpy as np
import pytest
import rabbet
from rabbet import optim

F64 = rabbet.float64
STEPS = 50
START = [np.linspace(-1.0, 1.5, 12).reshape(3, 4), np.array([0.3, -2.0, 1.0, 4.0, -0.1])]


def gradient(step, x):
    return np.tanh(x) - 0.5 + np.sin(x * step)


def options(**values):
    return [dict(zip(values, c, strict=True)) for c in itertools.product(*values.values())]


CASES = [
    ("Adadelta", o)
    for o in options(lr=[1.0, 0.3], rho=[0.9, 0.5], weight_decay=[0, 0.1], maximize=[False, True])
]
CASES += [
    ("ASGD", o)
    for o in options(
        lr=[0.01, 0.1], lambd=[1e-4, 0.1], alpha=[0.75, 0.5], t0=[1e6, 4], weight_decay=[0, 0.1]
    )
]
CASES += [("ASGD", {"maximize": True})]
CASES += [
    ("Rprop", o)
    for o in options(
        lr=[0.01, 0.1], etas=[(0.5, 1.2), (0.7, 1.4)], step_sizes=[(1e-6, 50), (0.02, 0.2)]
    )
]
CASES += [("Rprop", {"maximize": True})]
CASES += [
    ("Adafactor", o)
    for o in options(
        lr=[0.01, 0.2], weight_decay=[0, 0.1], eps=[(None, 1e-3), (0.1, 0.5)], d=[1.0, 2.0]
    )
]
CASES += [("Adafactor", {"maximize": True, "beta2_decay": -0.3})]
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(CASES)]


class Formula:
    """The published rules for one tensor."""

    def __init__(self, name, o):
        self.name, self.o, self.t, self.v, self.u = name, o, 0, 0.0, 0.0
        self.eta, self.mu, self.prev, self.size = None, 1.0, 0.0, None

    def __call__(self, x, g):
        self.t += 1
        g = -g if self.o.get("maximize") else g
        return getattr(self, self.name.lower())(x, g, self.o)

    def adadelta(self, x, g, o):
        rho = o.get("rho", 0.9)
        g = g + o.get("weight_decay", 0) * x
        self.v = rho * self.v + (1 - rho) * g**2
        step = np.sqrt(self.u + 1e-6) / np.sqrt(self.v + 1e-6) * g
        self.u = rho * self.u + (1 - rho) * step**2
        return x - o.get("lr", 1.0) * step

    def asgd(self, x, g, o):
        lr, lambd = o.get("lr", 1e-2), o.get("lambd", 1e-4)
        g = g + o.get("weight_decay", 0) * x
        eta = np.float32(lr) if self.eta is None else self.eta
        x = x * (1 - lambd * float(eta)) - float(eta) * g
        self.v = x if self.mu == 1 else self.v + float(self.mu) * (x - self.v)
        self.eta = np.float32(lr / (1 + lambd * lr * self.t) ** o.get("alpha", 0.75))
        self.mu = np.float32(1 / max(1, self.t - o.get("t0", 1e6)))
        return x

    def rprop(self, x, g, o):
        (short, long), bounds = o.get("etas", (0.5, 1.2)), o.get("step_sizes", (1e-6, 50))
        size = np.full_like(x, o.get("lr", 1e-2)) if self.size is None else self.size
        agree = np.sign(g * self.prev)
        self.size = np.clip(size * np.choose((agree + 1).astype(int), [short, 1, long]), *bounds)
        self.prev = np.where(agree < 0, 0, g)
        return x - np.sign(self.prev) * self.size

    def adafactor(self, x, g, o):
        eps1, eps2 = o.get("eps", (None, 1e-3))
        eps1 = np.finfo(np.float64).eps if eps1 is None else eps1
        lr, news = o.get("lr", 1e-2), self.t ** o.get("beta2_decay", -0.8)
        rate = max(eps2, np.sqrt((x**2).mean())) * min(lr, self.t**-0.5)
        x = x * (1 - lr * o.get("weight_decay", 0))
        if g.ndim == 2:
            self.v = self.v + ((g**2).mean(1) - self.v) * news
            self.u = self.u + ((g**2).mean(0) - self.u) * news
            estimate = np.outer(self.v, self.u) / max(self.v.mean(), eps1)
        else:
            self.v = estimate = self.v + (g**2 - self.v) * news
        step = g / np.sqrt(np.maximum(estimate, eps1**2))
        return x - rate * step / max(1, np.sqrt((step**2).mean()) / o.get("d", 1.0))


@pytest.mark.parametrize("name, o", CASES, ids=IDS)
def test_trajectory_equals_the_formula(name, o):
    params = [rabbet.tensor(x, requires_grad=True) for x in START]
    optimizer = getattr(optim, name)(params, **o)
    want, rules = [x.copy() for x in START], [Formula(name, o) for _ in START]
    for step in range(STEPS):
        for i, param in enumerate(params):
            param.grad = rabbet.tensor(gradient(step, want[i]))
            want[i] = rules[i](want[i], gradient(step, want[i]))
        optimizer.step()
        for param, x in zip(params, want, strict=True):
            assert np.allclose(param.detach().numpy(), x, rtol=1e-9, atol=1e-12), step
    if name == "ASGD":
        assert np.allclose(optimizer.state[params[0]]["ax"].numpy(), rules[0].v)


@pytest.mark.parametrize("name, o", [*CASES[::3], ("Muon", {}), ("Muon", {"nesterov": False})])
def test_trajectory_and_state_equal_pytorch(name, o):
    torch = pytest.importorskip("torch")
    starts = START[:1] if name == "Muon" else START
    ours = [rabbet.tensor(x, requires_grad=True) for x in starts]
    theirs = [torch.tensor(x, requires_grad=True) for x in starts]
    mine, other = getattr(optim, name)(ours, **o), getattr(torch.optim, name)(theirs, **o)
    for step in range(STEPS):
        for a, b in zip(ours, theirs, strict=True):
            g = gradient(step, b.detach().numpy())
            a.grad, b.grad = rabbet.tensor(g), torch.tensor(g)
        mine.step()
        other.step()
    loose = 0.05 if name == "Muon" else 1e-9  # it computes in bfloat16
    for a, b in zip(ours, theirs, strict=True):
        assert np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=loose, atol=loose)
    ours, theirs = mine.state_dict(), other.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert {k: set(v) for k, v in ours["state"].items()} == {
        k: set(v) for k, v in theirs["state"].items()
    }


@pytest.mark.parametrize("name", ["Adadelta", "ASGD", "Rprop", "Adafactor", "Muon"])
def test_state_dict_round_trip_goes_on_the_same_way(name):
    def run(optimizer, params, steps):
        for step in steps:
            for param in params:
                param.grad = rabbet.tensor(gradient(step, param.detach().numpy()))
            optimizer.step()

    starts = START[:1] if name == "Muon" else START
    first = [rabbet.tensor(x, requires_grad=True) for x in starts]
    one = getattr(optim, name)(first)
    run(one, first, range(5))
    second = [p.detach().clone().requires_grad_() for p in first]
    two = getattr(optim, name)(second, lr=0.3)
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    run(one, first, range(5, 9))
    run(two, second, range(5, 9))
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())


@pytest.mark.parametrize("name", ["Adadelta", "ASGD", "Rprop"])
def test_differentiable_steps_are_recorded(name):
    lr = rabbet.tensor(0.1, dtype=F64)
    start = rabbet.tensor([1.0, -2.0], dtype=F64, requires_grad=True)
    param = start * 1
    param.retain_grad()
    optimizer = getattr(optim, name)([param], lr=lr.item(), differentiable=True)
    param.grad = start * 3
    optimizer.step()
    param.sum().backward()
    assert start.grad is not None and start.grad.isfinite().all()


def test_complex_parameters_step_as_pairs_of_reals():
    z = rabbet.tensor([1 + 2j, -0.5 + 0.1j], dtype=rabbet.complex128, requires_grad=True)
    x = rabbet.tensor([[1, -0.5], [2, 0.1]], dtype=F64, requires_grad=True)
    for name in ("Adadelta", "ASGD", "Rprop"):
        pair = [getattr(optim, name)([p], lr=0.1) for p in (z, x)]
        for _ in range(4):
            z.grad, x.grad = z.detach() * (1 + 1j), None
            both = z.grad.numpy()
            x.grad = rabbet.tensor(np.stack([both.real, both.imag]))
            for optimizer in pair:
                optimizer.step()
        assert np.allclose(z.detach().numpy(), x.detach().numpy()[0] + 1j * x.detach().numpy()[1])


@pytest.mark.parametrize("shape", [(8, 8), (12, 5), (5, 12)])
def test_muon_makes_steps_orthogonal(shape):
    rabbet.manual_seed(0)
    param = rabbet.zeros(shape, requires_grad=True)
    param.grad = rabbet.randn(shape)
    optim.Muon([param], lr=1.0, weight_decay=0.0).step()
    sizes = np.linalg.svd(param.detach().numpy(), compute_uv=False)
    ratio = max(1, shape[0] / shape[1]) ** 0.5
    assert (sizes > 0.5 * ratio).all() and (sizes < 1.4 * ratio).all()


def rosenbrock(x):
    return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


@pytest.mark.parametrize("line_search", ["strong_wolfe", None])
def test_lbfgs_finds_the_minimum(line_search):
    quadratic = line_search is None
    x = rabbet.tensor([-1.2, 1.0], dtype=F64, requires_grad=True)
    scale = rabbet.tensor([1.0, 30.0], dtype=F64)
    optimizer = optim.LBFGS([x], max_iter=60, line_search_fn=line_search, history_size=6)
    calls = []

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = (scale * (x - 1) ** 2).sum() if quadratic else rosenbrock(x)
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert first.item() == pytest.approx(4.84 + 0 if quadratic else 24.2)
    assert np.allclose(x.detach().numpy(), [1, 1], atol=1e-5)
    state = optimizer.state[x]
    assert state["func_evals"] == len(calls) <= 75 and state["n_iter"] <= 60
    assert len(state["old_dirs"]) == len(state["old_stps"]) == len(state["ro"]) <= 6


def test_lbfgs_equals_pytorch():
    torch = pytest.importorskip("torch")
    rng = np.random.RandomState(0)
    a, y, w = rng.randn(6, 4), rng.randn(6, 3), rng.randn(4, 3)
    traces = []
    for lib in (rabbet, torch):
        x = lib.tensor(w, requires_grad=True)
        options = {"lr": 0.5, "max_iter": 5, "history_size": 2, "line_search_fn": "strong_wolfe"}
        optimizer = (optim if lib is rabbet else torch.optim).LBFGS([x], **options)
        losses = []

        def closure(lib=lib, x=x, optimizer=optimizer, losses=losses):
            optimizer.zero_grad()
            loss = ((lib.tensor(a) @ x - lib.tensor(y)).tanh() ** 2).sum() + (x**4).sum() * 0.01
            loss.backward()
            losses.append(loss.item())
            return loss

        for _ in range(5):
            optimizer.step(closure)
        traces.append(losses)
    assert np.allclose(*traces, rtol=1e-7)


X = START[0]
BAD = [
    (lambda p: optim.Adadelta(p, rho=1.5), ValueError, "Invalid rho value: 1.5"),
    (lambda p: optim.Adadelta(p, lr=-1), ValueError, "Invalid learning rate: -1"),
    (lambda p: optim.Adadelta(p, eps=-1), ValueError, "Invalid epsilon value: -1"),
    (lambda p: optim.ASGD(p, weight_decay=-0.1), ValueError, "Invalid weight_decay value: -0.1"),
    (lambda p: optim.Rprop(p, etas=(1.1, 1.2)), ValueError, "Invalid eta values: 1.1, 1.2"),
    (lambda p: optim.Rprop(p, lr=float("nan")), ValueError, "Invalid learning rate: nan"),
    (lambda p: optim.Adafactor(p, lr=-0.1), ValueError, "Learning rate should be >= 0 but is: -0.1"),
    (lambda p: optim.Adafactor(p, beta2_decay=0.8), ValueError, "beta2_decay should be <= 0 but is: 0.8"),
    (lambda p: optim.Adafactor(p, eps=(-1, 1)), ValueError, "epsilon1 should be >= 0 but is: -1"),
    (lambda p: optim.Adafactor(p, eps=(None, -1)), ValueError, "epsilon2 should be >= 0 but is: -1"),
    (lambda p: optim.Adafactor(p, d=0.5), ValueError, "Clipping threshold d should be >= 1 but is: 0.5"),
    (lambda p: optim.Muon(p, momentum=-1), ValueError, "momentum should be >= 0 but is: -1"),
    (lambda p: optim.Muon(p, adjust_lr_fn="mine"), ValueError, "Adjust learning rate function mine is not supported"),
    (lambda p: optim.Muon([p[0][0].detach()]), ValueError, "Muon only supports 2D parameters"),
    (lambda p: optim.LBFGS([{"params": p}, {"params": [p[0].detach()]}]), ValueError, "per-parameter options"),
    (lambda p: optim.SparseAdam(p, lr=0.0), ValueError, "Invalid learning rate: 0.0"),
    (lambda p: optim.SparseAdam(p, betas=(1.0, 0.9)), ValueError, "Invalid beta parameter at index 0: 1.0"),
    (lambda p: optim.Muon(p, ns_steps=100).step(), ValueError, "Number of steps must be less than 100"),
    (lambda p: optim.SparseAdam(p).step(), RuntimeError, "does not support dense gradients"),
    (lambda p: optim.LBFGS(p, line_search_fn="armijo").step(lambda: (p[0] ** 2).sum()), RuntimeError, "only 'strong_wolfe' is supported"),
    (lambda p: optim.LBFGS(p).step(), TypeError, "LBFGS.step: expected a closure"),
    (lambda p: optim.Adafactor([]), ValueError, "empty parameter list"),
]  # fmt: skip


@pytest.mark.parametrize("make, error, message", BAD, ids=[m for _, _, m in BAD])
def test_bad_options_are_refused(make, error, message):
    param = rabbet.tensor(X, requires_grad=True)
    param.grad = rabbet.ones_like(param)
    with pytest.raises(error, match=message.replace("(", r"\(")):
        make([param])
