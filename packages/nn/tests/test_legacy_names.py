"""Older names of PyTorch: hooks at the last operation, spectral norm by a hook, convolutions' gradients, containers."""

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet import nn
from rabbet.nn.modules import module as hooks


def test_cross_map_lrn_divides_by_size():
    x = rabbet.arange(12.0).view(1, 12, 1, 1)
    squares = np.arange(12.0) ** 2
    for size, reach in ((3, 1), (4, 1), (5, 2), (1, 0)):
        sums = [squares[max(0, c - reach) : c + reach + 1].sum() for c in range(12)]
        want = np.arange(12.0) / (2 + 0.5 / size * np.array(sums)) ** 0.6
        ours = nn.CrossMapLRN2d(size, alpha=0.5, beta=0.6, k=2)(x).flatten().numpy()
        np.testing.assert_allclose(ours, want, rtol=1e-5)
    assert repr(nn.CrossMapLRN2d(3)) == "CrossMapLRN2d(3, alpha=0.0001, beta=0.75, k=1)"
    with pytest.raises(ValueError, match="Expected input to be 4D, got 3D instead"):
        nn.CrossMapLRN2d(3)(rabbet.ones(1, 2, 3))


def test_container_warns_and_holds_modules():
    with pytest.warns(FutureWarning, match="nn.Container"):
        box = nn.Container(a=nn.Linear(1, 2))
    assert [name for name, _ in box.named_parameters()] == ["a.weight", "a.bias"]
    with pytest.raises(TypeError), pytest.warns(FutureWarning):
        nn.Container(a=3)


def test_factory_kwargs():
    assert nn.factory_kwargs(None) == {}
    given = {"device": "cpu", "factory_kwargs": {"dtype": rabbet.float64}}
    assert nn.factory_kwargs(given) == {"device": "cpu", "dtype": rabbet.float64}
    with pytest.raises(TypeError, match=r"unexpected kwargs \{'x'\}"):
        nn.factory_kwargs({"x": 1})
    with pytest.raises(TypeError, match="device specified twice"):
        nn.factory_kwargs({"device": "cpu", "factory_kwargs": {"device": "cpu"}})


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_of_convolutions(rank):
    rabbet.manual_seed(rank)
    x = rabbet.randn(2, 4, *[7, 6, 5][:rank], dtype=rabbet.float64, requires_grad=True)
    w = rabbet.randn(6, 2, *[3, 2, 2][:rank], dtype=rabbet.float64, requires_grad=True)
    options = {"stride": 2, "padding": 1, "dilation": [1, 2, 1][:rank], "groups": 2}
    y = getattr(F, f"conv{rank}d")(x, w, **options)
    g = rabbet.randn_like(y)
    gx, gw = rabbet.autograd.grad(y, (x, w), g)
    ours = getattr(nn.grad, f"conv{rank}d_input")(x.shape, w, g, **options)
    assert rabbet.allclose(ours, gx)
    ours = getattr(nn.grad, f"conv{rank}d_weight")(x, w.shape, g, **options)
    assert rabbet.allclose(ours, gw)
    with pytest.raises(RuntimeError, match=rf"conv{rank}d_input: expected input_size of"):
        getattr(nn.grad, f"conv{rank}d_input")((1, 2), w, g)


def test_conv_tbc():
    rabbet.manual_seed(0)
    x, w, b = rabbet.randn(5, 2, 3), rabbet.randn(3, 3, 4), rabbet.randn(4)
    padded = np.pad(x.numpy(), ((1, 1), (0, 0), (0, 0)))
    want = sum(padded[k : k + 5] @ w.numpy()[k] for k in range(3)) + b.numpy()
    result = F.conv_tbc(x, w, b, 1)
    np.testing.assert_allclose(result.numpy(), want, rtol=1e-5, atol=1e-5)
    assert result.is_contiguous()
    with pytest.raises(RuntimeError, match="Input must have 3 dims"):
        F.conv_tbc(x[0], w, b)
    with pytest.raises(RuntimeError, match="Bias size must equal dim 2"):
        F.conv_tbc(x, w, b[:2])
    with pytest.raises(RuntimeError, match="input channels"):
        F.conv_tbc(x, w[:, :2], b)
    with pytest.raises(RuntimeError, match="Weight tensor must have 3 dims"):
        F.conv_tbc(x, w[0], b)


def test_weights_in_a_memory_format():
    net = nn.Sequential(nn.Conv2d(3, 4, 2), nn.ConvTranspose2d(3, 4, 2), nn.Conv3d(2, 2, 2))
    before = net[0].weight.detach().clone()
    assert nn.utils.convert_conv2d_weight_memory_format(net, rabbet.channels_last) is net
    assert [m.weight.stride() for m in net] == [(12, 1, 6, 3), (16, 1, 8, 4), (16, 8, 4, 2, 1)]
    assert rabbet.equal(net[0].weight, before)
    nn.utils.convert_conv3d_weight_memory_format(net, rabbet.channels_last_3d)
    assert net[2].weight.stride() == (16, 1, 8, 4, 2)


def test_stateless_call_warns():
    layer = nn.Linear(2, 1)
    ones = {"weight": rabbet.ones(1, 2), "bias": rabbet.zeros(1)}
    with pytest.warns(FutureWarning, match="functional_call"):
        y = nn.utils.stateless.functional_call(layer, ones, rabbet.tensor([[2.0, 3.0]]))
    assert y.item() == 5
    with pytest.raises(RuntimeError), pytest.warns(FutureWarning):
        nn.utils.stateless.functional_call(layer, {"no": ones["bias"]}, strict=True)


def test_spectral_norm_by_a_hook():
    rabbet.manual_seed(0)
    layer = nn.utils.spectral_norm(nn.Linear(5, 4).double(), n_power_iterations=60)
    state = layer.state_dict()
    assert list(state) == ["bias", "weight_orig", "weight_u", "weight_v"]
    assert state._metadata[""]["spectral_norm"] == {"weight.version": 1}
    x = rabbet.randn(3, 5, dtype=rabbet.float64)
    layer(x).sum().backward()
    top = np.linalg.svd(layer.weight_orig.detach().numpy(), compute_uv=False)[0]
    np.testing.assert_allclose(
        layer.weight.detach().numpy(), layer.weight_orig.detach().numpy() / top, rtol=1e-6
    )
    assert layer.weight_orig.grad is not None
    layer.eval()
    u = layer.weight_u.clone()
    y = layer(x)
    assert rabbet.equal(u, layer.weight_u)
    other = nn.utils.spectral_norm(nn.Linear(5, 4).double()).eval()
    other.load_state_dict(layer.state_dict())
    assert rabbet.allclose(other(x), y)
    assert nn.utils.remove_spectral_norm(layer) is layer
    assert list(layer.state_dict()) == ["bias", "weight"]
    assert not layer._forward_pre_hooks and not layer._state_dict_hooks
    assert rabbet.allclose(layer(x), y)


def test_spectral_norm_takes_the_outputs_dimension():
    layer = nn.utils.spectral_norm(nn.ConvTranspose2d(2, 6, 3))
    assert layer.weight_u.shape == (6,)
    assert nn.utils.spectral_norm(nn.Conv2d(2, 6, 3)).weight_u.shape == (6,)


def test_spectral_norm_refuses():
    with pytest.raises(ValueError, match="n_power_iterations to be positive"):
        nn.utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)
    with pytest.raises(RuntimeError, match="two spectral_norm hooks"):
        nn.utils.spectral_norm(nn.utils.spectral_norm(nn.Linear(2, 2)))
    with pytest.raises(KeyError, match="q"):
        nn.utils.spectral_norm(nn.Linear(2, 2), "q")
    with pytest.raises(ValueError, match="is None"):
        nn.utils.spectral_norm(nn.Linear(2, 2, bias=False), "bias")
    with pytest.raises(ValueError, match="spectral_norm of 'weight' not found"):
        nn.utils.remove_spectral_norm(nn.Linear(2, 2))


def test_backward_hook_sees_the_last_operation():
    seen = []

    def note(module, grad_input, grad_output):
        seen.append((module, [g is not None for g in grad_input], grad_output[0].shape))

    layer = nn.Linear(3, 2)
    handle = layer.register_backward_hook(note)
    with pytest.warns(FutureWarning, match="multiple autograd Nodes"):
        y = layer(rabbet.randn(4, 3, requires_grad=True))
    y.sum().backward()
    assert seen == [(layer, [True, True, True], (4, 2))]
    handle.remove()
    layer(rabbet.randn(4, 3)).sum().backward()
    assert len(seen) == 1
    with pytest.raises(RuntimeError, match="on a single Module"):
        layer.register_full_backward_hook(note)
    full = nn.Linear(3, 2)
    full.register_full_backward_hook(note)
    with pytest.raises(RuntimeError, match="on a single Module"):
        full.register_backward_hook(note)


def test_global_backward_hook_replaces_gradients():
    was = hooks._global_is_full_backward_hook[0]
    hooks._global_is_full_backward_hook[0] = None
    try:
        handle = hooks.register_module_backward_hook(lambda m, gi, go: (gi[0] * 2,))
        with pytest.raises(RuntimeError, match="as a global Module hook"):
            hooks.register_module_full_backward_hook(print)
        x = rabbet.tensor([1.0, -1.0], requires_grad=True)
        with pytest.warns(FutureWarning):
            nn.ReLU()(x).sum().backward()
        assert x.grad.tolist() == [2.0, 0.0]
        handle.remove()
    finally:
        hooks._global_is_full_backward_hook[0] = was


def test_a_block_in_which_a_module_has_other_parameters():
    from rabbet.nn.utils.stateless import _reparametrize_module

    layer = rabbet.nn.Linear(2, 1, bias=False)
    own, x = layer.weight, rabbet.ones(1, 2)
    with _reparametrize_module(layer, {"weight": rabbet.full((1, 2), 3.0)}):
        assert layer(x).item() == 6.0
    assert layer.weight is own
    with (
        pytest.raises(RuntimeError, match="Unexpected key"),
        _reparametrize_module(layer, {"other": x}, strict=True),
    ):
        pass
    assert layer.weight is own and not hasattr(layer, "other")
