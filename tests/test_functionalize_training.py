"""Whole training steps without writes: a network, its gradients and the optimizer's updates."""

import copy

import pytest
import rabbet
from rabbet_testing import assert_close

nn = pytest.importorskip("rabbet.nn")
optim = pytest.importorskip("rabbet.optim")
func = pytest.importorskip("rabbet.func")
pytest.importorskip("rabbet.func._differential")

MODES = ["mutations", "mutations_and_views"]


def network():
    rabbet.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def batch():
    rabbet.manual_seed(2)
    return rabbet.randn(16, 5), rabbet.randn(16, 2)


@pytest.mark.parametrize("remove", MODES)
def test_sgd_with_momentum_written_in_place(remove):
    net = network()

    def step(params, buffers, momenta, x, y):
        def loss(params):
            out = func.functional_call(net, (params, buffers), (x,))
            return ((out - y) ** 2).mean()

        grads, value = func.grad_and_value(loss)(params)
        with rabbet.no_grad():
            for name, p in params.items():
                momenta[name].mul_(0.9).add_(grads[name])
                p.sub_(momenta[name], alpha=0.1)
        return value

    def state():
        params = {n: p.detach().clone() for n, p in net.named_parameters()}
        buffers = {n: b.clone() for n, b in net.named_buffers()}
        return params, buffers, {n: rabbet.zeros_like(p) for n, p in params.items()}

    plain, functional = state(), state()
    run = func.functionalize(step, remove=remove)
    for _ in range(3):
        assert_close(run(*functional, *batch()), step(*plain, *batch()))
    for ours, theirs in zip(functional, plain, strict=True):
        for name in theirs:
            assert_close(ours[name], theirs[name])


@pytest.mark.parametrize("remove", MODES)
def test_an_optimizer_and_modules_from_outside(remove):
    def train(net, through):
        optimizer = optim.SGD(net.parameters(), 0.1, weight_decay=0.01)
        x, y = batch()

        def forward(x, y):
            return ((net(x) - y) ** 2).mean()

        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            value = through(forward)(x, y)  # the batch norm's statistics are written from inside
            value.backward()
            through(optimizer.step)()
            losses.append(value.item())
        return losses

    net = network()
    other = copy.deepcopy(net)
    expected = train(net, lambda f: f)
    got = train(other, lambda f: func.functionalize(f, remove=remove))
    assert got == pytest.approx(expected, rel=1e-5)
    for ours, theirs in zip(other.state_dict().values(), net.state_dict().values(), strict=True):
        assert_close(ours, theirs)
