"""Trajectories of SGD, Adam and AdamW against a NumPy reference, and against PyTorch where installed."""

import importlib
import itertools
import math

import numpy as np
import pytest
import rabbet
from rabbet import optim
from rabbet.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

STEPS = 9
START = [np.linspace(-1.0, 1.5, 12).reshape(3, 4), np.array([0.3, -2.0, 1.0, 4.0, -0.1])]


def gradient(i, j, x):
    """Gradient of parameter j in step i; the second one has none in step 3."""
    return None if (i, j) == (3, 1) else x**2 - 0.5 + np.sin(x * i)


def options(**values):
    for combination in itertools.product(*values.values()):
        yield dict(zip(values, combination, strict=True))


ADAM = list(
    options(lr=[0.05], amsgrad=[False, True], maximize=[False, True], weight_decay=[0, 0.1])
)
ADAM += [{"lr": 0.1, "betas": (0.5, 0.6), "eps": 0.1}, {}]
SGD = [
    o
    for o in options(
        lr=[0.05],
        momentum=[0, 0.9],
        dampening=[0, 0.1],
        nesterov=[False, True],
        weight_decay=[0, 0.1],
        maximize=[False, True],
    )
    if not o["nesterov"] or (o["momentum"] and not o["dampening"])
]
CASES = [(name, o) for name in ("Adam", "AdamW") for o in ADAM] + [("SGD", o) for o in SGD]


class AdamReference:
    def __init__(
        self,
        decoupled,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=None,
        amsgrad=False,
        maximize=False,
    ):
        default = 0.01 if decoupled else 0
        self.decay = default if weight_decay is None else weight_decay
        self.decoupled, self.lr, self.betas, self.eps = decoupled, lr, betas, eps
        self.amsgrad, self.maximize = amsgrad, maximize
        self.count, self.m, self.v, self.top = 0, 0.0, 0.0, 0.0

    def __call__(self, x, g):
        g = -g if self.maximize else g
        if self.decoupled:
            x = x - self.lr * self.decay * x
        else:
            g = g + self.decay * x
        self.count += 1
        self.m = self.betas[0] * self.m + (1 - self.betas[0]) * g
        self.v = self.betas[1] * self.v + (1 - self.betas[1]) * g * g
        self.top = np.maximum(self.top, self.v)
        v = (self.top if self.amsgrad else self.v) / (1 - self.betas[1] ** self.count)
        return x - self.lr * self.m / (1 - self.betas[0] ** self.count) / (np.sqrt(v) + self.eps)


class SGDReference:
    def __init__(
        self, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, maximize=False
    ):
        self.lr, self.momentum, self.dampening = lr, momentum, dampening
        self.decay, self.nesterov, self.maximize = weight_decay, nesterov, maximize
        self.buffer = None

    def __call__(self, x, g):
        g = (-g if self.maximize else g) + self.decay * x
        if self.momentum:
            fresh = (
                g if self.buffer is None else self.momentum * self.buffer + (1 - self.dampening) * g
            )
            self.buffer = fresh
            g = g + self.momentum * fresh if self.nesterov else fresh
        return x - self.lr * g


def reference(name, o):
    return {
        "SGD": lambda: SGDReference(**o),
        "Adam": lambda: AdamReference(False, **o),
        "AdamW": lambda: AdamReference(True, **o),
    }[name]()


def run(library, make, start=START, steps=STEPS, dtype=None):
    """Parameters after some steps, and the optimizer."""
    params = [library.tensor(x, dtype=dtype or library.float64).requires_grad_() for x in start]
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


@pytest.mark.parametrize("name,o", CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)])
@pytest.mark.parametrize("way", ["fused", "differentiable", "other backend"])
def test_trajectory_equals_the_reference(name, o, way, monkeypatch):
    if way == "other backend":

        def missing(*args):
            raise NotImplementedError

        module = importlib.import_module(
            "rabbet.optim.sgd" if name == "SGD" else "rabbet.optim.adam"
        )
        monkeypatch.setattr(module, "_fused_sgd" if name == "SGD" else "_fused_adam", missing)
    differentiable = way == "differentiable"
    expected = []
    for j, x in enumerate(START):
        update = reference(name, o)
        for i in range(STEPS):
            g = gradient(i, j, x)
            x = x if g is None else update(x, g)
        expected.append(x)
    with rabbet.no_grad():
        params, _ = run(
            rabbet, lambda p: getattr(optim, name)(p, **o, differentiable=differentiable)
        )
    for got, want in zip(values(params), expected, strict=True):
        np.testing.assert_allclose(got, want, 1e-10, 1e-12)


@pytest.mark.parametrize("name,o", CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)])
def test_trajectory_and_state_equal_pytorch(name, o):
    torch = pytest.importorskip("torch")
    mine, optimizer = run(rabbet, lambda p: getattr(optim, name)(p, **o))
    theirs, other = run(torch, lambda p: getattr(torch.optim, name)(p, **o, foreach=False))
    for got, want in zip(values(mine), values(theirs), strict=True):
        np.testing.assert_allclose(got, want, 1e-10, 1e-12)
    state, expected = optimizer.state_dict(), other.state_dict()
    for group in expected["param_groups"]:
        group["foreach"] = None
    assert state["param_groups"] == expected["param_groups"]
    assert repr(optimizer) == repr(other).replace("foreach: False", "foreach: None")
    assert state["state"].keys() == expected["state"].keys()
    for key, entry in expected["state"].items():
        assert {k for k, v in state["state"][key].items()} == {
            k for k, v in entry.items() if v is not None
        }
        for k, v in entry.items():
            if v is not None:
                np.testing.assert_allclose(state["state"][key][k].numpy(), v.numpy(), 1e-10, 1e-12)
    # PyTorch goes on from our state.
    packed = {
        k: {n: torch.from_numpy(v.numpy().copy()) for n, v in s.items()}
        for k, s in state["state"].items()
    }
    other.load_state_dict({"state": packed, "param_groups": expected["param_groups"]})
    advance(rabbet, optimizer, mine, range(4, 8))
    advance(torch, other, theirs, range(4, 8))
    for got, want in zip(values(mine), values(theirs), strict=True):
        np.testing.assert_allclose(got, want, 1e-9, 1e-11)


@pytest.mark.parametrize(
    "name,o",
    [
        ("SGD", {"lr": 0.05, "momentum": 0.9}),
        ("Adam", {"lr": 0.05, "amsgrad": True}),
        ("AdamW", {}),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_lower_precision_stays_close(name, o, dtype):
    params, _ = run(
        rabbet, lambda p: getattr(optim, name)(p, **o), steps=3, dtype=getattr(rabbet, dtype)
    )
    exact, _ = run(rabbet, lambda p: getattr(optim, name)(p, **o), steps=3)
    tolerance = {"float32": 1e-5, "float16": 0.02, "bfloat16": 0.1}[dtype]
    for p, q in zip(params, exact, strict=True):
        np.testing.assert_allclose(
            p.detach().float().numpy(), q.detach().numpy(), tolerance, tolerance
        )


@pytest.mark.parametrize(
    "name,o",
    [
        ("SGD", {"lr": 0.1, "momentum": 0.5}),
        ("Adam", {"lr": 0.1, "amsgrad": True}),
        ("AdamW", {"lr": 0.1}),
    ],
)
def test_complex_parameters_step_as_pairs_of_reals(name, o):
    z = rabbet.tensor([1.0 + 2.0j, -0.5 + 0.1j]).requires_grad_()
    pair = rabbet.tensor([[1.0, -0.5], [2.0, 0.1]]).requires_grad_()
    a, b = getattr(optim, name)([z], **o), getattr(optim, name)([pair], **o)
    for i in range(4):
        g = np.array([[0.3, -1.0], [0.2 * i, 2.0]], np.float32)
        z.grad, pair.grad = rabbet.tensor(g[0] + 1j * g[1]), rabbet.tensor(g)
        a.step(), b.step()
    got = z.detach().numpy()
    np.testing.assert_allclose([got.real, got.imag], pair.detach().numpy(), 1e-5)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_state_dict_round_trip_goes_on_the_same_way(name):
    o = {"lr": 0.05, "momentum": 0.9} if name == "SGD" else {"lr": 0.05, "amsgrad": True}
    params, first = run(rabbet, lambda p: getattr(optim, name)(p, **o), steps=4)
    copies = [p.detach().clone().requires_grad_() for p in params]
    second = getattr(optim, name)(copies, lr=9.0)
    state = first.state_dict()
    second.load_state_dict(state)
    assert second.param_groups[0]["lr"] == 0.05 and second.param_groups[0]["params"][0] is copies[0]
    advance(rabbet, first, params, range(4, 8))
    advance(rabbet, second, copies, range(4, 8))
    for a, b in zip(values(params), values(copies), strict=True):
        np.testing.assert_array_equal(a, b)


def test_loaded_state_is_cast_and_copied():
    _, optimizer = run(rabbet, lambda p: optim.Adam(p), steps=2)
    params = [rabbet.tensor(x, dtype=rabbet.float32).requires_grad_() for x in START]
    other = optim.Adam(params)
    state = optimizer.state_dict()
    assert (
        state["state"][0]["step"].dtype == rabbet.float32 and state["state"][0]["step"].item() == 2
    )
    other.load_state_dict(state)
    entry = other.state[params[0]]
    assert entry["exp_avg"].dtype == rabbet.float32 and entry["step"] == 2
    same = optim.Adam(
        [p.detach().clone().requires_grad_() for p in optimizer.param_groups[0]["params"]]
    )
    same.load_state_dict(state)
    own = same.state[same.param_groups[0]["params"][0]]["exp_avg"]
    own.fill_(7)
    assert not (state["state"][0]["exp_avg"] == 7).any()


def test_groups_have_their_own_options():
    a, b = (rabbet.ones(2).requires_grad_() for _ in range(2))
    optimizer = optim.SGD([{"params": a, "lr": 1.0}, {"params": [b]}], lr=0.5)
    a.grad = b.grad = rabbet.ones(2)
    optimizer.step()
    assert a.tolist() == [0.0, 0.0] and b.tolist() == [0.5, 0.5]
    c = rabbet.ones(1).requires_grad_()
    optimizer.add_param_group({"params": [c], "momentum": 0.9})
    assert len(optimizer.param_groups) == 3 and optimizer.param_groups[2]["lr"] == 0.5
    optimizer.zero_grad()
    assert a.grad is None and b.grad is None


def test_named_parameters_keep_their_names():
    layer = rabbet.nn.Linear(2, 1)
    optimizer = optim.Adam(layer.named_parameters())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    state = optimizer.state_dict()
    assert state["param_groups"][0]["param_names"] == ["weight", "bias"]
    optimizer.load_state_dict(state)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_closure_and_tensor_rate(name):
    p = rabbet.tensor([3.0, -2.0]).requires_grad_()
    optimizer = getattr(optim, name)([p], lr=rabbet.tensor(0.1))

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with rabbet.no_grad():
        losses = [optimizer.step(closure).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[0] == 13.0


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_an_optimizer_finds_the_minimum(name):
    target = rabbet.tensor([1.0, -2.0, 0.5])
    p = rabbet.zeros(3).requires_grad_()
    o = {"weight_decay": 0.0} if name == "AdamW" else {}
    optimizer = getattr(optim, name)([p], lr=0.1, **o)
    for _ in range(500):
        optimizer.zero_grad()
        ((p - target) ** 2).sum().backward()
        optimizer.step()
    np.testing.assert_allclose(p.detach().numpy(), target.numpy(), atol=1e-3)


def test_a_differentiable_step_has_a_gradient():
    lr = rabbet.tensor(0.1, dtype=rabbet.float64, requires_grad=True)
    start = rabbet.tensor([2.0], dtype=rabbet.float64)
    p = start.clone().requires_grad_() * 1
    optimizer = optim.SGD([p], lr=lr, differentiable=True)
    p.grad = rabbet.tensor([3.0], dtype=rabbet.float64)
    optimizer.step()
    p.sum().backward()
    assert lr.grad.item() == -3.0


def test_zero_grad_may_keep_the_tensor():
    p = rabbet.ones(2).requires_grad_()
    optimizer = optim.SGD([p])
    p.grad = rabbet.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0, 0.0]


def test_hooks_of_steps_and_state_dicts():
    p = rabbet.ones(1).requires_grad_()
    optimizer, calls = optim.SGD([p]), []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append("before"))
    handle = optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append("after"))
    optimizer.register_state_dict_pre_hook(lambda o: calls.append("state"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "note": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, state: calls.append(state["note"]))
    optimizer.register_load_state_dict_post_hook(lambda o: calls.append("loaded"))
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["before", "after", "state", 1, "loaded"]
    handle.remove()
    optimizer.step()
    assert calls[-1] == "before"
    with pytest.raises(TypeError, match="callable"):
        optimizer.register_step_pre_hook(3)


def test_copies_keep_state():
    import copy
    import pickle

    _, optimizer = run(rabbet, lambda p: optim.Adam(p), steps=2)
    optimizer.zero_grad()
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        p = other.param_groups[0]["params"][0]
        assert other.state[p]["step"] == 2 and p is not optimizer.param_groups[0]["params"][0]
        p.grad = rabbet.ones(3, 4, dtype=rabbet.float64)
        other.step()
        assert other.state[p]["step"] == 3


def test_a_subclass_defines_only_step():
    class Sign(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def step(self, closure=None):
            with rabbet.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        p.sub_(rabbet.sign(p.grad) * group["lr"])

    p = rabbet.tensor([1.0, -1.0]).requires_grad_()
    optimizer, calls = Sign([p], 0.25), []
    optimizer.register_step_post_hook(lambda *a: calls.append(1))
    (p * p).sum().backward()
    optimizer.step()
    assert p.tolist() == [0.75, -0.75] and calls == [1]
    with pytest.raises(NotImplementedError, match="step"):
        optim.Optimizer([p], {}).step()


def leaf():
    return rabbet.ones(2).requires_grad_()


def loaded(state):
    optim.SGD([leaf()]).load_state_dict(state)


P = leaf()
BAD = [
    (lambda: optim.SGD([leaf()], lr=-1), ValueError, "Invalid learning rate: -1"),
    (lambda: optim.SGD([leaf()], lr=math.nan), ValueError, "Invalid learning rate: nan"),
    (lambda: optim.SGD([leaf()], lr=rabbet.ones(2)), ValueError, "1-element"),
    (lambda: optim.SGD([leaf()], momentum=-0.5), ValueError, "Invalid momentum value: -0.5"),
    (lambda: optim.SGD([leaf()], weight_decay=-1), ValueError, "Invalid weight_decay value: -1"),
    (lambda: optim.SGD([leaf()], nesterov=True), ValueError, "Nesterov momentum requires"),
    (
        lambda: optim.SGD([leaf()], fused=True, foreach=True),
        RuntimeError,
        "cannot be `True` together",
    ),
    (
        lambda: optim.SGD([leaf()], fused=True, differentiable=True),
        RuntimeError,
        "does not support",
    ),
    (lambda: optim.Adam([leaf()], lr=-2.0), ValueError, "Invalid learning rate: -2.0"),
    (lambda: optim.Adam([leaf()], eps=-1), ValueError, "Invalid epsilon value: -1"),
    (
        lambda: optim.Adam([leaf()], betas=(1.0, 0.9)),
        ValueError,
        "Invalid beta parameter at index 0: 1.0",
    ),
    (
        lambda: optim.AdamW([leaf()], betas=(0.9, -1)),
        ValueError,
        "Invalid beta parameter at index 1: -1",
    ),
    (lambda: optim.AdamW([leaf()], weight_decay=-1), ValueError, "Invalid weight_decay value: -1"),
    (lambda: optim.SGD([]), ValueError, "empty parameter list"),
    (lambda: optim.SGD(leaf()), TypeError, "iterable of Tensors or dicts"),
    (lambda: optim.SGD([3.0]), TypeError, "can only optimize Tensors"),
    (lambda: optim.SGD([leaf() * 2]), ValueError, "non-leaf"),
    (lambda: optim.SGD([P, P]), UserWarning, "parameter group with duplicate parameters"),
    (
        lambda: optim.SGD([{"params": [P]}, {"params": [P]}]),
        ValueError,
        "more than one parameter group",
    ),
    (lambda: optim.SGD([{"params": {leaf()}}]), TypeError, "ordered collections"),
    (lambda: optim.SGD([{"params": [leaf()]}, 3]), TypeError, "must be a dict"),
    (lambda: optim.SGD([("a", leaf()), leaf()]), ValueError, "with/without names"),
    (
        lambda: optim.SGD([{"params": [leaf()]}, {"params": [("a", leaf())]}]),
        ValueError,
        "cannot add param group with names to the optimizer",
    ),
    (
        lambda: optim.SGD([{"params": [leaf()], "param_names": ["a"]}, {"params": [leaf()]}]),
        ValueError,
        "cannot add param group without names to the optimizer",
    ),
    (
        lambda: optim.SparseAdam([leaf(), leaf().to(rabbet.complex64).detach()]),
        ValueError,
        "Complex params at indices [[0, 1]]",
    ),
    (
        lambda: optim.AdamW([leaf()], lr=rabbet.tensor(0.1), foreach=True),
        ValueError,
        "lr as a Tensor is not supported for capturable=False and foreach=True",
    ),
    (
        lambda: optim.Adam([leaf()], betas=(0.9, rabbet.tensor(0.99))),
        ValueError,
        "betas must be either both floats or both Tensors",
    ),
    (
        lambda: optim.Adam([leaf()], betas=(rabbet.tensor(0.9),) * 2, foreach=True),
        ValueError,
        "betas[0] as a Tensor is not supported for capturable=False and foreach=True",
    ),
    (lambda: loaded({}), ValueError, "expected keys 'state' and 'param_groups'"),
    (
        lambda: loaded({"state": {}, "param_groups": []}),
        ValueError,
        "different number of parameter groups",
    ),
    (
        lambda: loaded({"state": {}, "param_groups": [{"params": [0, 1]}]}),
        ValueError,
        "doesn't match the size",
    ),
]


@pytest.mark.parametrize("i", range(len(BAD)))
def test_bad_use_is_refused_clearly(i):
    act, error, text = BAD[i]
    with pytest.raises(error) as caught:
        act()
    assert text in str(caught.value)


def test_a_gradient_of_another_shape_is_refused_before_any_write():
    p = rabbet.ones(3).requires_grad_()
    optimizer = optim.Adam([p])
    with pytest.raises((RuntimeError, ValueError)):
        p.grad = rabbet.ones(4)
        optimizer.step()
    assert p.tolist() == [1.0, 1.0, 1.0]


def test_global_hooks_run_around_the_steps_of_every_optimizer():
    order = []
    w = rabbet.ones(1, requires_grad=True)
    w.grad = rabbet.ones(1)
    sgd, adam = optim.SGD([w], lr=0.1), optim.Adam([w], lr=0.1)
    sgd.register_step_pre_hook(lambda *a: order.append("own pre"))
    sgd.register_step_post_hook(lambda *a: order.append("own post"))
    before = register_optimizer_step_pre_hook(lambda o, a, k: order.append(type(o).__name__))
    after = register_optimizer_step_post_hook(lambda o, a, k: order.append("post"))
    sgd.step(), adam.step()
    before.remove(), after.remove()
    adam.step()
    assert order == ["SGD", "own pre", "own post", "post", "Adam", "post"]
    with pytest.raises(TypeError, match="register_optimizer_step_pre_hook: expected a callable"):
        register_optimizer_step_pre_hook(3)


@pytest.mark.parametrize("optimizer", [optim.Adam, optim.AdamW, optim.SGD, optim.Adagrad])
def test_fused_steps_refuse_complex_parameters(optimizer):
    param = rabbet.ones(2, dtype=rabbet.complex64, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"fused=True.*floating point.*got rabbet.complex64"):
        optimizer([param], lr=0.1, fused=True)


def test_plain_descent_has_no_state():
    for dtype in (rabbet.float32, rabbet.complex64):
        param = rabbet.ones(2, dtype=dtype, requires_grad=True)
        param.grad = rabbet.ones(2, dtype=dtype)
        optimizer = optim.SGD([param], lr=0.5)
        optimizer.step()
        assert optimizer.state_dict()["state"] == {} and param.tolist() == [0.5, 0.5]


def test_the_state_of_lbfgs_is_pytorchs():
    param = rabbet.tensor([1.0, -2.0, 3.0], requires_grad=True)
    optimizer = optim.LBFGS([param], history_size=5)

    def closure():
        optimizer.zero_grad()
        loss = (param**4).sum() + (param * rabbet.tensor([1.0, 2.0, 3.0])).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    state = optimizer.state_dict()["state"][0]
    assert set(state) == {
        "func_evals", "n_iter", "al", "d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss",
    }  # fmt: skip
    assert len(state["al"]) == 5


def test_lbfgs_keeps_its_state_in_the_order_of_pytorchs_files():
    x = rabbet.nn.Parameter(rabbet.tensor([1.0, -2.0, 3.0]))
    optimizer = optim.LBFGS([x], max_iter=4)

    def closure():
        optimizer.zero_grad()
        loss = (x**4).sum()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
        (state,) = optimizer.state_dict()["state"].values()
        assert list(state) == [
            "func_evals", "n_iter", "al", "d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss",
        ]  # fmt: skip
