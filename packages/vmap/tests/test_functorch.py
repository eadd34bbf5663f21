"""The package `functorch` of programs in which torch is rabbet."""

import warnings

import pytest
import rabbet
from rabbet import nn
from rabbet._as_torch import functorch

pytestmark = pytest.mark.filterwarnings("ignore:We've integrated functorch")


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def test_a_module_is_a_function_of_its_parameters():
    model, x = nn.Linear(3, 4), rabbet.randn(2, 3)
    function, params = functorch.make_functional(model)
    assert rabbet.equal(function(params, x), model(x))
    assert all(
        p.is_leaf and p.requires_grad and p is not q
        for p, q in zip(params, model.parameters(), strict=True)
    )
    (weight, bias) = functorch.grad(lambda p: function(p, x).sum())(params)
    assert rabbet.allclose(weight, x.sum(0).expand(4, 3)) and bias.tolist() == [2.0] * 4
    _, untracked = functorch.make_functional(model, disable_autograd_tracking=True)
    assert not any(p.requires_grad for p in untracked)


def test_a_module_is_a_function_of_its_parameters_and_buffers():
    model, x = network().eval(), rabbet.randn(2, 3)
    function, params, buffers = functorch.make_functional_with_buffers(model)
    assert len(params) == 4 and len(buffers) == 3
    assert rabbet.equal(function(params, buffers, x), model(x))


def test_models_are_combined_for_vmap():
    models, x = [network().eval() for _ in range(3)], rabbet.randn(2, 3)
    function, params, buffers = functorch.combine_state_for_ensemble(models)
    found = functorch.vmap(function, (0, 0, None))(params, buffers, x)
    assert rabbet.allclose(found, rabbet.stack([model(x) for model in models]), atol=1e-6)


def test_what_is_no_function_is_refused():
    with pytest.raises(RuntimeError, match="`model` has buffers"):
        functorch.make_functional(network())
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    with pytest.raises(RuntimeError, match="parameter tying"):
        functorch.make_functional(tied)


def test_functions_warn_that_func_has_them():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        functorch.vmap(rabbet.sin)
    assert seen[0].category is FutureWarning and "vmap" in str(seen[0].message)
    assert seen[0].filename == __file__
