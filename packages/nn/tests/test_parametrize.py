"""Parametrizations, fusion and `skip_init`, beside PyTorch where installed."""

import copy
import pickle

import numpy as np
import pytest
import rabbet
from rabbet import nn
from rabbet.nn.utils import fuse_conv_bn_eval, fuse_linear_bn_eval, parametrize, skip_init
from rabbet.nn.utils.parametrizations import spectral_norm, weight_norm


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).t()


class Doubled(nn.Module):
    def forward(self, x):
        return x * 2

    def right_inverse(self, x):
        return x / 2


def test_parametrized_weight_is_computed_and_trained():
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert [n for n, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    np.testing.assert_array_equal(layer.weight.detach().numpy(), layer.weight.t().detach().numpy())
    layer(rabbet.ones(2, 3)).sum().backward()
    grad = layer.parametrizations.weight.original.grad.numpy()
    np.testing.assert_array_equal(grad[np.tril_indices(3, -1)], 0.0)
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    with parametrize.cached():
        assert layer.weight is layer.weight
    value = layer.weight.detach().numpy().copy()
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and isinstance(layer.weight, nn.Parameter)
    np.testing.assert_array_equal(layer.weight.detach().numpy(), value)


def test_right_inverse_keeps_and_sets_the_value():
    layer = nn.Linear(2, 2)
    before = layer.weight.detach().numpy().copy()
    parametrize.register_parametrization(layer, "weight", Doubled())
    np.testing.assert_allclose(layer.weight.detach().numpy(), before)
    layer.weight = rabbet.ones(2, 2)
    assert layer.parametrizations.weight.original.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_copies_of_parametrized_modules_are_independent():
    layer = weight_norm(nn.Linear(2, 2))
    copied = copy.deepcopy(layer)
    parametrize.remove_parametrizations(copied, "weight")
    assert parametrize.is_parametrized(layer, "weight") and not parametrize.is_parametrized(copied)
    np.testing.assert_array_equal(layer.weight.detach().numpy(), copied.weight.detach().numpy())
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(layer)


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_norms_of_weights_equal_pytorch(name, dim, training):
    torch = pytest.importorskip("torch")
    ours, theirs = (
        getattr(library.nn.utils.parametrizations, name)(
            library.nn.Conv2d(3, 4, 2).double(), dim=dim
        )
        for library in (rabbet, torch)
    )
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(
        {k: torch.from_numpy(v.numpy().copy()) for k, v in ours.state_dict().items()}
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 4))
    results = []
    for library, layer in ((rabbet, ours.train(training)), (torch, theirs.train(training))):
        out = layer(library.tensor(x))
        (out * out).sum().backward()
        results.append([out.detach(), *(p.grad for p in layer.parameters())])
        results[-1] += [v.detach() for v in layer.state_dict().values()]
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-8, 1e-10)


def test_fusion_computes_what_both_layers_do():
    bn = nn.BatchNorm2d(4).double()
    conv, back = nn.Conv2d(3, 4, 2).double(), nn.ConvTranspose2d(3, 4, 2, bias=False).double()
    linear, bn1 = nn.Linear(3, 4).double(), nn.BatchNorm1d(4).double()
    for norm in (bn, bn1):
        norm.running_mean.uniform_()
        norm.running_var.uniform_(0.5, 2.0)
        norm.weight.detach().uniform_()
        norm.eval()
    x = rabbet.rand(2, 3, 5, 5, dtype=rabbet.float64)
    for layer, transpose in ((conv.eval(), False), (back.eval(), True)):
        fused = fuse_conv_bn_eval(layer, bn, transpose)
        expected = bn(layer(x)).detach().numpy()
        np.testing.assert_allclose(fused(x).detach().numpy(), expected, 1e-10, 1e-12)
    rows = rabbet.rand(6, 3, dtype=rabbet.float64)
    fused = fuse_linear_bn_eval(linear.eval(), bn1)
    expected = bn1(linear(rows)).detach().numpy()
    np.testing.assert_allclose(fused(rows).detach().numpy(), expected, 1e-10, 1e-12)


def test_skip_init_allocates():
    layer = skip_init(nn.Linear, 3, 2, bias=False)
    assert layer.weight.shape == (2, 3) and layer.weight.device.type == "cpu"


def test_weight_norm_by_a_hook_equals_pytorch():
    torch = pytest.importorskip("torch")
    with pytest.warns(FutureWarning, match="deprecated"):
        ours = nn.utils.weight_norm(nn.Conv1d(3, 4, 2).double())
        theirs = torch.nn.utils.weight_norm(torch.nn.Conv1d(3, 4, 2).double())
    state = {k: torch.from_numpy(v.numpy().copy()) for k, v in ours.state_dict().items()}
    assert list(state) == list(theirs.state_dict())
    theirs.load_state_dict(state)
    x = np.random.default_rng(0).standard_normal((2, 3, 5))
    results = []
    for library, layer in ((rabbet, ours), (torch, theirs)):
        out = layer(library.tensor(x))
        (out * out).sum().backward()
        results.append([out.detach(), *(p.grad for p in layer.parameters())])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-9, 1e-11)
    value = ours.weight.detach().numpy().copy()
    nn.utils.remove_weight_norm(ours)
    assert sorted(ours.state_dict()) == ["bias", "weight"]
    np.testing.assert_allclose(ours.weight.detach().numpy(), value, 1e-12)
    with pytest.raises(ValueError, match="not found"):
        nn.utils.remove_weight_norm(ours)


@pytest.mark.parametrize("name", ["DataParallel", "DistributedDataParallel"])
def test_parallel_wrappers_pass_through(name, monkeypatch):
    wrapper = getattr(nn.parallel, name)
    layer = nn.Linear(3, 2)
    wrapped = wrapper(layer)
    x = rabbet.rand(4, 3)
    np.testing.assert_array_equal(wrapped(x).detach().numpy(), layer(x).detach().numpy())
    assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]
    with pytest.raises((ValueError, NotImplementedError), match="device_ids"):
        wrapper(layer, device_ids=[0, 1])


def test_distributed_wrapper_refuses_several_processes(monkeypatch):
    with pytest.raises(RuntimeError, match="not needed"):
        nn.parallel.DistributedDataParallel(nn.ReLU())
    wrapped = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    with wrapped.no_sync():
        assert not wrapped.require_backward_grad_sync
    assert wrapped.require_backward_grad_sync
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(NotImplementedError, match="WORLD_SIZE=2"):
        nn.parallel.DistributedDataParallel(nn.Linear(2, 2))


BAD = [
    (lambda: weight_norm(nn.ReLU()), ValueError, "no parameter or buffer"),
    (lambda: spectral_norm(nn.Linear(2, 2), n_power_iterations=0), ValueError, "positive"),
    (lambda: spectral_norm(nn.Linear(2, 2), dim=2), IndexError, "out of range"),
    (
        lambda: parametrize.register_parametrization(nn.Linear(2, 3), "weight", nn.Flatten(0)),
        ValueError,
        "may not change the dtype or the shape",
    ),
    (
        lambda: parametrize.register_parametrization(nn.Linear(2, 3), "w", Doubled()),
        ValueError,
        "does not have a parameter",
    ),
    (lambda: parametrize.remove_parametrizations(nn.ReLU(), "w"), ValueError, "parametrization on"),
    (lambda: fuse_conv_bn_eval(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)), AssertionError, "eval"),
    (lambda: skip_init(nn.ReLU), RuntimeError, "'device' arg"),
    (lambda: skip_init(int), RuntimeError, "Expected a Module"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_input_is_refused(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()
