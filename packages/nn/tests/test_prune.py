"""Pruning: masks over parameters."""

import numpy as np
import pytest
import rabbet
from rabbet import nn
from rabbet.nn.utils import prune


def layer_of(values):
    layer = nn.Linear(len(values[0]), len(values), bias=False)
    layer.weight = nn.Parameter(rabbet.tensor(values))
    return layer


VALUES = [[1.0, -2.0, 3.0], [-4.0, 0.5, 6.0]]


def test_l1_prunes_the_smallest_and_keeps_what_it_needs():
    layer = prune.l1_unstructured(layer_of(VALUES), "weight", amount=2)
    assert layer.weight.tolist() == [[0.0, -2.0, 3.0], [-4.0, 0.0, 6.0]]
    assert list(layer.state_dict()) == ["weight_orig", "weight_mask"]
    assert layer.weight_orig.tolist() == VALUES
    assert prune.is_pruned(nn.Sequential(layer))
    x = rabbet.ones(1, 3)
    assert layer(x).tolist() == [[1.0, 2.0]]
    layer(x).sum().backward()
    assert layer.weight_orig.grad.tolist() == [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]


def test_a_second_pruning_chooses_from_what_is_left():
    layer = prune.l1_unstructured(layer_of(VALUES), "weight", amount=0.5)
    prune.l1_unstructured(layer, "weight", amount=1)
    assert layer.weight.tolist() == [[0.0, 0.0, 0.0], [-4.0, 0.0, 6.0]]
    (hook,) = layer._forward_pre_hooks.values()
    assert isinstance(hook, prune.PruningContainer) and len(hook) == 2
    prune.ln_structured(layer, "weight", amount=1, n=2, dim=1)
    assert len(next(iter(layer._forward_pre_hooks.values()))) == 3
    # Column 1 was empty already: the least of the others goes.
    assert layer.weight.tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 6.0]]


def test_remove_makes_the_pruned_values_permanent():
    layer = prune.custom_from_mask(
        layer_of(VALUES), "weight", rabbet.tensor([[1, 0, 1], [0, 1, 1]])
    )
    kept = layer.weight_orig
    prune.remove(layer, "weight")
    assert layer.weight is kept and isinstance(layer.weight, nn.Parameter)
    assert layer.weight.tolist() == [[1.0, 0.0, 3.0], [0.0, 0.5, 6.0]]
    assert list(layer.state_dict()) == ["weight"] and not prune.is_pruned(layer)
    with pytest.raises(ValueError, match="has to be pruned"):
        prune.remove(layer, "weight")


@pytest.mark.parametrize("n", [1, 2, float("inf"), -float("inf")])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_ln_structured_prunes_the_slices_of_least_norm(n, dim):
    values = np.random.default_rng(3).standard_normal((5, 6))
    layer = prune.ln_structured(layer_of(values.tolist()), "weight", amount=0.4, n=n, dim=dim)
    norms = np.linalg.norm(values if dim == 0 else values.T, ord=n, axis=1)
    gone = np.argsort(norms)[: round(0.4 * len(norms))]
    wanted = values.astype(np.float32)
    np.moveaxis(wanted, dim, 0)[gone] = 0
    assert np.array_equal(layer.weight.detach().numpy(), wanted)


@pytest.mark.parametrize("amount", [0, 3, 0.5, 1.0])
def test_random_pruning_takes_as_many_as_asked(amount):
    entries = prune.random_unstructured(nn.Linear(6, 4), "weight", amount=amount)
    count = round(amount * 24) if isinstance(amount, float) else amount
    assert (entries.weight_mask == 0).sum().item() == count
    slices = prune.random_structured(nn.Linear(6, 4), "weight", amount=amount, dim=1)
    count = round(amount * 6) if isinstance(amount, float) else amount
    assert (slices.weight_mask.sum(0) == 0).sum().item() == count
    assert (slices.weight_mask.sum(0) == 4).sum().item() == 6 - count


def test_global_pruning_takes_the_parameters_as_one_vector():
    a, b = layer_of(VALUES), layer_of([[0.1, 0.2, 9.0]])
    pairs = [(a, "weight"), (b, "weight")]
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=3)
    assert a.weight.tolist() == [[1.0, -2.0, 3.0], [-4.0, 0.0, 6.0]]
    assert b.weight.tolist() == [[0.0, 0.0, 9.0]]
    prune.global_unstructured(
        pairs,
        prune.L1Unstructured,
        importance_scores={(b, "weight"): rabbet.tensor([[1.0, 1.0, 0.0]])},
        amount=1,
    )
    assert b.weight.tolist() == [[0.0, 0.0, 0.0]]


def test_scores_replace_the_values():
    scores = rabbet.tensor([[9.0, 1.0, 9.0], [9.0, 9.0, 2.0]])
    layer = prune.l1_unstructured(layer_of(VALUES), "weight", 2, importance_scores=scores)
    assert layer.weight.tolist() == [[1.0, 0.0, 3.0], [-4.0, 0.5, 0.0]]


def test_identity_and_an_own_method():
    class EverySecond(prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t, default_mask):
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    layer = prune.identity(layer_of(VALUES), "weight")
    assert layer.weight.tolist() == VALUES
    EverySecond.apply(layer, "weight")
    assert layer.weight.tolist() == [[0.0, -2.0, 0.0], [-4.0, 0.0, 6.0]]
    assert EverySecond().prune(rabbet.ones(3)).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "amount,error,match",
    [
        ("x", TypeError, "Invalid type for amount"),
        (-1, ValueError, "amount=-1 should either"),
        (1.5, ValueError, "amount=1.5 should either"),
        (7, ValueError, "amount=7 should be smaller"),
    ],
)
def test_bad_amounts_leave_the_module_as_it_was(amount, error, match):
    layer = layer_of(VALUES)
    with pytest.raises(error, match=match):
        prune.l1_unstructured(layer, "weight", amount=amount)
    assert list(layer.state_dict()) == ["weight"] and not prune.is_pruned(layer)


def test_bad_prunings_are_refused():
    layer = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="multidimensional"):
        prune.random_structured(layer, "bias", amount=1, dim=0)
    with pytest.raises(IndexError, match="Invalid index 2"):
        prune.random_structured(layer, "weight", amount=1, dim=2)
    with pytest.raises(AssertionError, match=r"expected \(2, 3\), got \(3, 2\)"):
        prune.l1_unstructured(layer, "weight", 1, importance_scores=rabbet.ones(3, 2))
    with pytest.raises(AssertionError, match="custom_from_mask: expected a mask of shape"):
        prune.custom_from_mask(layer, "weight", rabbet.ones(2))
    with pytest.raises(TypeError, match="unstructured"):
        prune.global_unstructured([(layer, "weight")], prune.LnStructured, amount=1, n=2)
    with pytest.raises(TypeError, match="not an Iterable"):
        prune.global_unstructured(3, prune.L1Unstructured, amount=1)
    with pytest.raises(TypeError, match="not a BasePruningMethod"):
        prune.PruningContainer().add_pruning_method(3)


@pytest.mark.parametrize(
    "call",
    [
        lambda p, m: p.l1_unstructured(m, "weight", 0.3),
        lambda p, m: p.ln_structured(m, "weight", 2, n=1, dim=1),
        lambda p, m: p.ln_structured(m, "weight", 0.5, n=2, dim=0)
        and p.l1_unstructured(m, "weight", 3),
        lambda p, m: p.l1_unstructured(m, "weight", 9)
        and p.ln_structured(m, "weight", 1, n=2, dim=-1),
        lambda p, m: p.global_unstructured(
            [(m, "weight"), (m, "bias")], p.L1Unstructured, amount=0.4
        ),
    ],
)
def test_masks_are_torchs(call):
    torch = pytest.importorskip("torch")
    from torch.nn.utils import prune as torch_prune

    ours, theirs = nn.Linear(6, 5), torch.nn.Linear(6, 5)
    state = ours.state_dict()
    theirs.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in state.items()})
    call(prune, ours)
    call(torch_prune, theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, value in ours.state_dict().items():
        assert np.array_equal(value.numpy(), theirs.state_dict()[name].numpy()), name
