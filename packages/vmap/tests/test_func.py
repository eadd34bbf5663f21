"""Modules as functions of their parameters, and ensembles."""

import pytest
import rabbet
from rabbet import nn, vmap
from rabbet.func import (
    debug_unwrap,
    functional_call,
    grad,
    jvp,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from rabbet_testing.compare import assert_close


def model():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 2))


def state(m):
    return {n: p.detach() for n, p in m.named_parameters()}


def test_a_call_with_other_parameters_leaves_the_module_as_it_was():
    m, other, x = model(), model(), rabbet.randn(5, 3)
    before = {n: id(p) for n, p in m.named_parameters()}
    assert_close(functional_call(m, state(other), x), other(x))
    assert_close(functional_call(m, {}, (x,)), m(x))
    with pytest.raises(RuntimeError, match="in_features differs: input has 7, weight 3"):
        functional_call(m, state(other), (rabbet.randn(5, 7),))
    assert before == {n: id(p) for n, p in m.named_parameters()}


def test_several_dicts_buffers_and_keywords():
    bn = nn.BatchNorm1d(2).eval()
    buffers = {"running_mean": rabbet.tensor([1.0, 2.0]), "running_var": rabbet.tensor([4.0, 9.0])}
    x = rabbet.randn(5, 2)
    got = functional_call(bn, ({"weight": rabbet.ones(2)}, buffers), (), {"input": x})
    assert_close(
        got, (x - buffers["running_mean"]) / (buffers["running_var"] + 1e-5).sqrt(), 1e-4, 1e-5
    )
    assert bn.running_mean.tolist() == [0, 0]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x))


def test_tied_weights():
    m, w, x = Tied(), rabbet.eye(2) * 2, rabbet.ones(2)
    assert functional_call(m, {"a.weight": w}, x).tolist() == [4, 4]
    assert functional_call(m, {"a.weight": w}, x, strict=True).tolist() == [4, 4]
    alone = functional_call(m, {"a.weight": w}, x, tie_weights=False)
    assert_close(alone, m.b(x * 2))
    with pytest.raises(ValueError, match=r"which are tied[.] Consider using tie_weights=False"):
        functional_call(m, {"a.weight": w, "b.weight": w + 1}, x)


def test_bad_parameters():
    m, x = model(), rabbet.randn(3)
    with pytest.raises(
        RuntimeError, match=r"Error.* for Sequential:\n\tUnexpected key\(s\): 'none'"
    ):
        functional_call(m, {**state(m), "none": x}, x, strict=True)
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): '0.bias', '2.bias'"):
        functional_call(m, {"0.weight": m[0].weight}, x, strict=True)
    with pytest.raises(AttributeError, match="Linear has no module 'in', which"):
        functional_call(m, {"0.in.w": x}, x)
    with pytest.raises(ValueError, match="appeared in multiple dictionaries"):
        functional_call(m, (state(m), state(m)), x)
    with pytest.raises(TypeError, match=r"expected a Tensor for '0.weight', got float"):
        functional_call(m, {"0.weight": 1.0}, x)
    with pytest.raises(ValueError, match="expected a dict of tensors"):
        functional_call(m, 3, x)
    with pytest.raises(TypeError, match="expected a Module, got int"):
        functional_call(3, {}, x)


def test_an_ensemble():
    rabbet.manual_seed(0)  # LayerNorm of nearly equal numbers magnifies rounding
    models, x = [model() for _ in range(4)], rabbet.randn(5, 3)
    params, buffers = stack_module_state(models)
    assert (
        params["0.weight"].shape == (4, 4, 3) and params["0.weight"].requires_grad and not buffers
    )
    run = lambda p, b, x: functional_call(models[0], (p, b), x)  # noqa: E731
    with rabbet.no_grad():
        got = vmap(run, (0, 0, None), strict=True)(params, buffers, x)
        assert_close(got, rabbet.stack([m(x) for m in models]), 1e-5, 1e-6)
        each = rabbet.randn(4, 5, 3)
        got = vmap(run, strict=True)(params, buffers, each)
        assert_close(
            got, rabbet.stack([m(e) for m, e in zip(models, each, strict=True)]), 1e-5, 1e-6
        )


def test_bad_ensembles():
    with pytest.raises(RuntimeError, match="at least one model"):
        stack_module_state([])
    with pytest.raises(RuntimeError, match="one mode"):
        stack_module_state([model(), model().eval()])
    with pytest.raises(RuntimeError, match=r"one class, got .'Linear', 'ReLU'"):
        stack_module_state([nn.Linear(2, 2), nn.ReLU()])
    with pytest.raises(RuntimeError, match="'weight' to have one shape"):
        stack_module_state([nn.Linear(2, 2), nn.Linear(2, 3)])
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(RuntimeError, match="requires gradients in some models only"):
        stack_module_state([nn.Linear(2, 2), frozen])


def test_a_name_that_the_module_has_not_is_an_attribute_for_the_call():
    class Reads(nn.Module):
        def forward(self, x):
            return x * self.extra

    m, x = nn.Sequential(Reads()), rabbet.ones(2)
    assert functional_call(m, {"0.extra": x * 3}, x).tolist() == [3, 3]
    assert not hasattr(m[0], "extra")


def test_batch_norm_without_running_statistics():
    m = nn.Sequential(
        nn.BatchNorm1d(2), nn.Sequential(nn.InstanceNorm1d(2, track_running_stats=True))
    )
    assert replace_all_batch_norm_modules_(m) is m
    assert m[0].running_mean is None and m[0].running_var is None and not m[0].track_running_stats
    assert m[0].num_batches_tracked is None and m[1][0].running_mean is not None
    x = rabbet.randn(3, 4, 2)
    alone = [m[0].eval()(x[i]) for i in range(3)]
    assert_close(vmap(m[0])(x), rabbet.stack(alone), 1e-5, 1e-6)


def test_what_a_tensor_inside_a_transform_stands_for():
    shapes = []

    def look(x):
        shapes.append([tuple(debug_unwrap(x, recurse=r).shape) for r in (True, False)])
        return x * 2

    x = rabbet.ones(2, 3)
    vmap(vmap(look))(x)
    assert shapes == [[(2, 3), (3,)]]
    assert debug_unwrap(x) is x
    jvp(look, (x,), (x,))
    grad(lambda x: look(x).sum())(x)
    assert shapes[1:] == [[(2, 3), (2, 3)]] * 2
    with pytest.raises(TypeError, match="debug_unwrap: expected a Tensor, got int"):
        debug_unwrap(3)
