"""RMSprop, Adagrad, Adamax, NAdam and RAdam against their formulas in NumPy, and against PyTorch where
installed."""

import itertools

import numpy as np
import pytest
import rabbet
from rabbet import optim

STEPS = 9
START = [np.linspace(-1.0, 1.5, 12).reshape(3, 4), np.array([0.3, -2.0, 1.0, 4.0, -0.1])]


def gradient(i, j, x):
    """Gradient of parameter j in step i; the second one has none in step 3."""
    return None if (i, j) == (3, 1) else x**2 - 0.5 + np.sin(x * i)


def options(**values):
    return [dict(zip(values, c, strict=True)) for c in itertools.product(*values.values())]


COMMON = {"lr": [0.05], "maximize": [False, True], "weight_decay": [0, 0.1]}
CASES = [("RMSprop", o) for o in options(momentum=[0, 0.9], centered=[False, True], **COMMON)]
CASES += [
    ("Adagrad", o) for o in options(lr_decay=[0, 0.1], initial_accumulator_value=[0, 0.5], **COMMON)
]
CASES += [("Adamax", o) for o in options(betas=[(0.9, 0.999), (0.5, 0.6)], **COMMON)]
CASES += [("NAdam", o) for o in options(decoupled_weight_decay=[False, True], **COMMON)]
CASES += [("NAdam", {"betas": (0.5, 0.6), "momentum_decay": 0.1, "eps": 0.1})]
CASES += [("RAdam", o) for o in options(decoupled_weight_decay=[False, True], **COMMON)]
CASES += [("RAdam", {"betas": (0.8, 0.9)})]
NAMES = sorted({name for name, _ in CASES})
CASES += [(name, {}) for name in NAMES]
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(CASES)]


class Reference:
    """The published formulas, one tensor."""

    def __init__(self, name, o):
        self.name, self.o, self.t = name, o, 0
        self.m = self.v = self.buffer = 0.0
        self.v += o.get("initial_accumulator_value", 0)
        self.product = 1.0

    def __call__(self, x, g):
        o, self.t = self.o, self.t + 1
        default = {"RMSprop": 0.01, "Adagrad": 0.01, "RAdam": 0.001}.get(self.name, 0.002)
        lr, decay = o.get("lr", default), o.get("weight_decay", 0)
        g = -g if o.get("maximize") else g
        if o.get("decoupled_weight_decay"):
            x = x * (1 - lr * decay)
        else:
            g = g + decay * x
        return x - lr * getattr(self, self.name.lower())(g, self.t)

    def rmsprop(self, g, t):
        self.v = 0.99 * self.v + 0.01 * g * g
        self.m = 0.99 * self.m + 0.01 * g
        spread = self.v - self.m**2 if self.o.get("centered") else self.v
        self.buffer = self.o.get("momentum", 0) * self.buffer + g / (np.sqrt(spread) + 1e-8)
        return self.buffer

    def adagrad(self, g, t):
        self.v = self.v + g * g
        return g / (np.sqrt(self.v) + 1e-10) / (1 + (t - 1) * self.o.get("lr_decay", 0))

    def means(self, g):
        a, b = self.o.get("betas", (0.9, 0.999))
        self.m, self.v = a * self.m + (1 - a) * g, b * self.v + (1 - b) * g * g
        return a, b

    def adamax(self, g, t):
        a, b = self.o.get("betas", (0.9, 0.999))
        self.m = a * self.m + (1 - a) * g
        self.v = np.maximum(b * self.v, np.abs(g) + 1e-8)
        return self.m / (1 - a**t) / self.v

    def nadam(self, g, t):
        a, b = self.means(g)
        psi = self.o.get("momentum_decay", 0.004)
        mu, after = (a * (1 - 0.5 * 0.96 ** (n * psi)) for n in (t, t + 1))
        self.product *= mu
        m = after * self.m / (1 - self.product * after) + (1 - mu) * g / (1 - self.product)
        return m / (np.sqrt(self.v / (1 - b**t)) + self.o.get("eps", 1e-8))

    def radam(self, g, t):
        a, b = self.means(g)
        m, last = self.m / (1 - a**t), 2 / (1 - b) - 1
        rho = last - 2 * t * b**t / (1 - b**t)
        if rho <= 5:
            return m
        r = np.sqrt((rho - 4) * (rho - 2) * last / ((last - 4) * (last - 2) * rho))
        return m * r * np.sqrt(1 - b**t) / (np.sqrt(self.v) + 1e-8)


def run(library, make, steps=STEPS, dtype=None):
    params = [library.tensor(x, dtype=dtype or library.float64).requires_grad_() for x in START]
    optimizer = make(params)
    advance(library, optimizer, params, range(steps))
    return params, optimizer


def advance(library, optimizer, params, steps):
    for i in steps:
        for j, p in enumerate(params):
            g = gradient(i, j, p.detach().double().numpy())
            p.grad = None if g is None else library.tensor(g, dtype=p.dtype)
        optimizer.step()


def values(params):
    return [p.detach().numpy() for p in params]


@pytest.mark.parametrize("name,o", CASES, ids=IDS)
@pytest.mark.parametrize("way", ["fused", "differentiable", "other backend"])
def test_trajectory_equals_the_formula(name, o, way, monkeypatch):
    if way == "other backend":

        def missing(*args):
            raise NotImplementedError

        monkeypatch.setattr(getattr(optim, name), "_fused", staticmethod(missing))
    expected = []
    for j, x in enumerate(START):
        update = Reference(name, o)
        for i in range(STEPS):
            g = gradient(i, j, x)
            x = x if g is None else update(x, g)
        expected.append(x)
    with rabbet.no_grad():
        differentiable = way == "differentiable"
        params, _ = run(
            rabbet, lambda p: getattr(optim, name)(p, **o, differentiable=differentiable)
        )
    for got, want in zip(values(params), expected, strict=True):
        np.testing.assert_allclose(got, want, 1e-9, 1e-12)


@pytest.mark.parametrize("name,o", CASES, ids=IDS)
def test_trajectory_and_state_equal_pytorch(name, o):
    torch = pytest.importorskip("torch")
    mine, optimizer = run(rabbet, lambda p: getattr(optim, name)(p, **o))
    theirs, other = run(torch, lambda p: getattr(torch.optim, name)(p, **o, foreach=False))
    near = 1e-6 if name == "NAdam" else 1e-9  # PyTorch keeps its mu_product in float32
    for got, want in zip(values(mine), values(theirs), strict=True):
        np.testing.assert_allclose(got, want, near, 1e-9)
    state, expected = optimizer.state_dict(), other.state_dict()
    for group in expected["param_groups"]:
        group["foreach"] = None
    assert state["param_groups"] == expected["param_groups"]
    for key, entry in expected["state"].items():
        assert state["state"][key].keys() == entry.keys()
        for k, v in entry.items():
            got = state["state"][key][k]
            assert got.shape == tuple(v.shape)
            np.testing.assert_allclose(got.numpy(), v.numpy(), near, 1e-9)
    packed = {
        k: {n: torch.from_numpy(np.array(v.numpy())) for n, v in s.items()}
        for k, s in state["state"].items()
    }
    other.load_state_dict({"state": packed, "param_groups": expected["param_groups"]})
    advance(torch, other, theirs, range(4, 8))
    advance(rabbet, optimizer, mine, range(4, 8))
    for got, want in zip(values(mine), values(theirs), strict=True):
        np.testing.assert_allclose(got, want, 1e-6, 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_round_trip_goes_on_the_same_way(name):
    params, first = run(rabbet, lambda p: getattr(optim, name)(p, lr=0.05), steps=4)
    copies = [p.detach().clone().requires_grad_() for p in params]
    second = getattr(optim, name)(copies, lr=9.0)
    second.load_state_dict(first.state_dict())
    advance(rabbet, first, params, range(4, 8))
    advance(rabbet, second, copies, range(4, 8))
    for a, b in zip(values(params), values(copies), strict=True):
        np.testing.assert_allclose(a, b, 1e-6)


@pytest.mark.parametrize("name", ["RMSprop", "Adamax", "NAdam", "RAdam"])
def test_complex_parameters_step_as_pairs_of_reals(name):
    z = rabbet.tensor([1.0 + 2.0j, -0.5 + 0.1j]).requires_grad_()
    pair = rabbet.tensor([[1.0, 2.0], [-0.5, 0.1]]).requires_grad_()
    a, b = getattr(optim, name)([z], lr=0.1), getattr(optim, name)([pair], lr=0.1)
    for i in range(4):
        g = np.array([[0.3, 0.2 * i], [-1.0, 2.0]], np.float32)
        z.grad, pair.grad = rabbet.tensor(g[:, 0] + 1j * g[:, 1]), rabbet.tensor(g)
        a.step(), b.step()
    got = z.detach().numpy()
    np.testing.assert_allclose(np.stack([got.real, got.imag], 1), pair.detach().numpy(), 1e-5)


@pytest.mark.parametrize("name", ["Adam", "AdamW", *NAMES])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_parameters_may_have_float32_state(name, dtype):
    """With float32 state a step differs from the float32 one only by the rounding of the parameter."""
    dtype = getattr(rabbet, dtype)
    rng = np.random.default_rng(0)
    start = rabbet.tensor(rng.normal(size=(3, 700))).to(dtype)
    low = start.clone().requires_grad_()
    exact = start.float().requires_grad_()
    a, b = getattr(optim, name)([low], lr=0.01), getattr(optim, name)([exact], lr=0.01)
    for i in range(3):
        grad = rabbet.tensor(rng.normal(size=(3, 700))).to(dtype)
        low.grad, exact.grad = grad, grad.float()
        if i:
            for key, value in a.state[low].items():
                if isinstance(value, rabbet.Tensor):
                    a.state[low][key] = b.state[exact][key].clone()
        with rabbet.no_grad():
            exact.copy_(low.float())
        a.step(), b.step()
        if i:
            assert rabbet.equal(low.detach(), exact.detach().to(dtype))
            for key, value in a.state[low].items():
                if isinstance(value, rabbet.Tensor):
                    assert value.dtype == rabbet.float32
                    assert rabbet.equal(value, b.state[exact][key])


@pytest.mark.parametrize("name", NAMES)
def test_strided_parameters_step_as_dense_ones(name):
    base = rabbet.tensor(np.random.default_rng(1).normal(size=(6, 8)))
    strided = base.clone()[::2, 1::2].detach().requires_grad_()
    dense = strided.detach().clone().requires_grad_()
    grad = rabbet.tensor(np.random.default_rng(2).normal(size=(4, 3))).t()
    for p in (strided, dense):
        optimizer = getattr(optim, name)([p])
        for _ in range(3):
            p.grad = grad
            optimizer.step()
    assert rabbet.equal(strided.detach(), dense.detach())


BAD = [
    (lambda p: optim.RMSprop(p, lr=-1), "Invalid learning rate"),
    (lambda p: optim.RMSprop(p, alpha=-1), "Invalid alpha value"),
    (lambda p: optim.RMSprop(p, momentum=-1), "Invalid momentum value"),
    (lambda p: optim.Adagrad(p, lr_decay=-1), "Invalid lr_decay value"),
    (lambda p: optim.Adagrad(p, initial_accumulator_value=-1), "Invalid initial_accumulator_value"),
    (lambda p: optim.Adamax(p, betas=(1.0, 0.9)), "Invalid beta parameter at index 0"),
    (lambda p: optim.NAdam(p, eps=-1), "Invalid epsilon value"),
    (lambda p: optim.NAdam(p, momentum_decay=-1), "Invalid momentum_decay value"),
    (lambda p: optim.RAdam(p, weight_decay=-1), "Invalid weight_decay value"),
    (lambda p: optim.RAdam(p, betas=(0.9, 1.0)), "Invalid beta parameter at index 1"),
]


@pytest.mark.parametrize("make,message", BAD, ids=[m for _, m in BAD])
def test_bad_options_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make([rabbet.ones(2).requires_grad_()])


def lists(*shapes, dtype=rabbet.float32):
    return [rabbet.ones(s, dtype=dtype) for s in shapes]


TAIL = {
    "fused_rmsprop": (2, [[], []], [0.1, 0.9, 1e-8, 0.0, 0.0, False]),
    "fused_adagrad": (2, [], [0.1, 1e-8, 0.0, False]),
    "fused_adamax": (3, [], [0.1, 0.9, 0.99, 1e-8, 0.0, False, 0.1]),
    "fused_nadam": (3, [], [0.1, 0.9, 0.99, 1e-8, 0.0, False, False, 0.1, 0.1, 0.1]),
    "fused_radam": (3, [], [0.1, 0.9, 0.99, 1e-8, 0.0, False, False, 0.1, 0.1]),
}


@pytest.mark.parametrize("name", TAIL)
def test_lists_that_do_not_fit_are_refused_before_any_write(name):
    states, empty, numbers = TAIL[name]
    op = rabbet.ops(name)
    params, given = lists((2, 3), (4,)), [lists((2, 3), (4,)) for _ in range(states)]
    with pytest.raises(ValueError, match=f"{name}: `params` has 2 tensors, `grads` has 1"):
        op(params, given[0][:1], *given[1:], *empty, *numbers)
    with pytest.raises(ValueError, match=f"{name}: `params` has 2 tensors, .* has 0"):
        op(params, *given[:-1], [], *empty, *numbers)
    with pytest.raises(ValueError, match=r"\[1\] differs from the parameter in shape or dtype"):
        op(params, *given[:-1], lists((2, 3), (5,)), *empty, *numbers)
    with pytest.raises(ValueError, match=r"\[0\] differs from the parameter in shape or dtype"):
        op(params, lists((2, 3), (4,), dtype=rabbet.float64), *given[1:], *empty, *numbers)
    whole = [lists((2,), dtype=rabbet.int64) for _ in range(1 + states)]
    with pytest.raises(TypeError, match=f"{name}: expected float dtypes, got int64"):
        op(*whole, *empty, *numbers)
    assert all(p.tolist() == rabbet.ones(p.shape).tolist() for p in params)


def test_operators_on_lists_say_what_they_take():
    with pytest.raises(NotImplementedError, match="foreach_norm: the order of the norm must be"):
        rabbet.ops("foreach_norm")(lists((2,)), 3.0)
    for name, numbers in (("foreach_norm", [2.0]), ("foreach_clamp", [0.0, 1.0])):
        with pytest.raises(TypeError, match=f"{name}: expected float dtypes, got int32"):
            rabbet.ops(name)(lists((2,), dtype=rabbet.int32), *numbers)


@pytest.mark.parametrize("order", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_norms_of_lists_show_what_is_not_finite(order, bad):
    x = np.ones(50000)
    x[40001] = bad
    norms = rabbet.ops("foreach_norm")([rabbet.tensor(x), rabbet.ones(3)], order)
    assert norms.dtype == rabbet.float64 and norms.shape == (2,)
    np.testing.assert_equal(norms[0].item(), bad)
    np.testing.assert_allclose(norms[1].item(), np.linalg.norm(np.ones(3), order))


# ---- several devices


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adamax", "NAdam", "RAdam", "Adadelta"])  # fmt: skip
def test_one_optimizer_steps_parameters_of_several_devices(name):
    options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}

    def run(*others):
        params = [rabbet.tensor(x, requires_grad=True) for x in START]
        elsewhere = [rabbet.ones(n, device="meta", requires_grad=True) for n in others]
        mixed = [
            p for pair in itertools.zip_longest(params, elsewhere) for p in pair if p is not None
        ]
        optimizer = getattr(optim, name)(mixed, lr=0.05, **options)
        for step in range(3):
            for j, param in enumerate(params):
                g = gradient(step, j, param.detach().numpy())
                param.grad = None if g is None else rabbet.tensor(g)
            for param in elsewhere:
                param.grad = rabbet.ones_like(param)
            optimizer.step()
        assert all(
            v.device.type == "meta"
            for p in elsewhere
            for v in optimizer.state[p].values()
            if isinstance(v, rabbet.Tensor)
        )
        return params

    for alone, beside in zip(run(), run(2, 5), strict=True):
        assert np.array_equal(alone.detach().numpy(), beside.detach().numpy())


def test_lists_that_mix_devices_at_one_place_are_refused():
    a, m = rabbet.ones(2), rabbet.ones(2, device="meta")
    with pytest.raises(rabbet.DeviceError, match="on one device, but"):
        rabbet.ops.fused_sgd([a, m], [m, a], [], 0.1, 0.0, 0.0, 0.0, False, False, False)
    assert a.tolist() == [1, 1]
