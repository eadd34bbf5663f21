"""Gradients taken with create_graph=True require grad where PyTorch's do, and carry one on."""

import pytest
import rabbet
from rabbet import autograd, nn
from rabbet.nn import functional as F
from rabbet_testing import cases as cases_of
from rabbet_testing import differentiable_ops, differentiable_part

RECORDS = rabbet._C.record_names()
SHAPES = {1: (1, 2, 8), 2: (1, 2, 8, 8), 3: (1, 2, 6, 6, 6)}

# Functions of one tensor of shape (2, 4), and whether torch 2.13's gradient of their sum requires grad.
ELEMENTWISE = {
    "relu": True, "relu6": True, "leaky_relu": True, "hardtanh": True, "elu": True, "selu": True, "celu": True,
    "softplus": True, "hardshrink": True, "softshrink": True, "hardswish": True, "hardsigmoid": True,
    "tanhshrink": True, "softsign": True, "mish": True, "silu": True, "gelu": True, "logsigmoid": True,
}  # fmt: skip
OTHERS = {
    "threshold": (lambda x: F.threshold(x, 0.1, 0.2), True),
    "prelu": (lambda x: F.prelu(x, rabbet.tensor([0.2])), True),
    "nll_loss": (lambda x: F.nll_loss(x, rabbet.tensor([0, 1])), True),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), False),
    "maximum": (lambda x: rabbet.maximum(x, rabbet.zeros(2, 4)), False),
    "amax": (lambda x: x.amax(1), False),
    "sum": (lambda x: x.sum(), False),
    "mul": (lambda x: x * 2, False),
    "gather": (lambda x: x.gather(1, rabbet.tensor([[0], [1]])), False),
    "linear": (lambda x: F.linear(x, rabbet.ones(3, 4)), False),
    "l1_loss": (lambda x: F.l1_loss(x, rabbet.zeros(2, 4)), True),
}
# Of shape SHAPES[rank].
SPATIAL = {
    "max_pool": (lambda x, d: getattr(F, f"max_pool{d}d")(x, 2), True),
    "avg_pool": (lambda x, d: getattr(F, f"avg_pool{d}d")(x, 2), True),
    "adaptive_max_pool": (lambda x, d: getattr(F, f"adaptive_max_pool{d}d")(x, 3), True),
    "adaptive_avg_pool": (lambda x, d: getattr(F, f"adaptive_avg_pool{d}d")(x, 3), True),
    "pad_reflect": (lambda x, d: F.pad(x, (1, 1) * d, "reflect"), True),
    "pad_replicate": (lambda x, d: F.pad(x, (1, 1) * d, "replicate"), True),
    "pad_circular": (lambda x, d: F.pad(x, (1, 1) * d, "circular"), False),
    "pad_constant": (lambda x, d: F.pad(x, (1, 1) * d), False),
    "conv": (lambda x, d: getattr(F, f"conv{d}d")(x, rabbet.ones(3, 2, *(3,) * d)), True),
    "batch_norm": (lambda x, d: F.batch_norm(x, rabbet.zeros(2), rabbet.ones(2)), True),
}


def cases():
    found = [(getattr(F, name), (2, 4), requires) for name, requires in ELEMENTWISE.items()]
    names = list(ELEMENTWISE)
    for name, (f, requires) in OTHERS.items():
        found.append((f, (2, 4), requires))
        names.append(name)
    for name, (f, requires) in SPATIAL.items():
        for rank, shape in SHAPES.items():
            found.append((lambda x, f=f, rank=rank: f(x, rank), shape, requires))
            names.append(f"{name}{rank}d")
    return [pytest.param(*case, id=name) for case, name in zip(found, names, strict=True)]


@pytest.mark.parametrize(("f", "shape", "requires"), cases())
def test_a_gradient_requires_grad_as_in_torch(f, shape, requires):
    x = (rabbet.rand(shape) - 0.5).requires_grad_()
    (g,) = autograd.grad(f(x).sum(), x, create_graph=True)
    assert g.requires_grad == requires
    (plain,) = autograd.grad(f(x).sum(), x)
    assert not plain.requires_grad
    assert (g == plain).all()


@pytest.mark.parametrize(("f", "shape", "requires"), cases())
def test_a_gradient_is_linear_in_what_comes_in(f, shape, requires):
    x = (rabbet.rand(shape) - 0.5).requires_grad_()
    y = f(x)
    weights = rabbet.rand(y.shape).requires_grad_()
    (g,) = autograd.grad(y, x, weights, create_graph=True)
    assert g.requires_grad
    direction = rabbet.rand(shape)
    (back,) = autograd.grad(g, weights, direction)
    assert rabbet.allclose((back * weights).sum(), (g * direction).sum(), rtol=1e-4)


FLAT = ["leaky_relu", "relu6", "hardtanh", "hardshrink", "softshrink", "hardsigmoid"]


@pytest.mark.parametrize("name", FLAT)
def test_backward_of_a_flat_gradient_is_zero(name):
    x = rabbet.tensor([-5.0, -0.3, 0.2, 7.0], requires_grad=True)
    (g,) = autograd.grad(getattr(F, name)(x).sum(), x, create_graph=True)
    assert "BackwardBackward" in repr(g.grad_fn)
    g.sum().backward()
    assert x.grad.tolist() == [0.0] * 4


def test_a_penalty_on_the_gradient_trains():
    rabbet.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.LeakyReLU(), nn.MaxPool2d(2), nn.Flatten()
    ).double()
    x = rabbet.rand(2, 1, 6, 6, dtype=rabbet.float64).requires_grad_()
    (g,) = autograd.grad(model(x).sum(), x, create_graph=True)
    (g * g).sum().backward()
    step = 1e-6  # too short to cross a kink
    weight = model[0].weight
    for place in [(0, 0, 0, 0), (1, 0, 2, 1)]:
        values = []
        for sign in (1, -1):
            with rabbet.no_grad():
                weight[place] += sign * step
            (g,) = autograd.grad(model(x).sum(), x)
            values.append((g * g).sum().item())
            with rabbet.no_grad():
                weight[place] -= sign * step
        numeric = (values[0] - values[1]) / (2 * step)
        assert weight.grad[place].item() == pytest.approx(numeric, rel=1e-4, abs=1e-4)


def test_a_third_derivative_and_nested_transforms():
    f = rabbet.func.grad(rabbet.func.grad(lambda x: F.leaky_relu(x) * x * x))
    assert f(rabbet.tensor(2.0)).item() == pytest.approx(12.0)
    g = rabbet.vmap(rabbet.func.grad(rabbet.func.grad(F.relu6)))
    assert g(rabbet.tensor([-1.0, 2.0])).tolist() == [0.0, 0.0]


def test_flat_arguments_stand_in_the_record():
    flat = [
        f"{name}.{p['name']}"
        for name in RECORDS
        for p in rabbet._C.op_info(name)["params"]
        if p["flat"]
    ]
    assert {"leaky_relu.input", "max_pool_with_indices.input", "convolution.weight"} <= set(flat)
    with pytest.raises(rabbet.PluginError, match="flat"):
        rabbet.library.register_records(
            "flat_typo(Tensor x) -> Tensor\n  kind composite\n  flat y\n  decomp x\n"
        )


@pytest.mark.parametrize("op", [n for n in differentiable_ops() if n != "as_strided_copy"])
def test_every_records_gradient_is_recorded_where_the_incoming_one_is(op):
    """As it is linear in it: also where all that the derivative reads is no tensor."""
    for case in cases_of(op, rabbet.float64, requires_grad=True):
        call, inputs = differentiable_part(case)
        if not inputs:
            continue
        outs = [y for y in call(*inputs) if y.requires_grad and y.numel()]
        for y in outs:
            weights = rabbet.ones_like(y).requires_grad_()
            plain = autograd.grad(y, inputs, weights, allow_unused=True, retain_graph=True)
            found = autograd.grad(
                y, inputs, weights, allow_unused=True, retain_graph=True, create_graph=True
            )
            for g, expected in zip(found, plain, strict=True):
                if g is not None:  # one that is 0 everywhere depends on nothing
                    assert g.requires_grad or not g.any(), str(case)
                    assert rabbet.allclose(g, expected, equal_nan=True), str(case)
