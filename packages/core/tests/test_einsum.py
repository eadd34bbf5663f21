"""`einsum` as PyTorch computes it: dtypes and strides of results."""

import itertools

import numpy as np
import pytest
import rabbet

SIZES = {"b": 2, "c": 3, "i": 4, "j": 5, "k": 6, "l": 7}
PRODUCTS = ["ij,jkl->kil", "ijl,jk->ikl", "bij,bjk->bik", "bcij,bcjk->bick", "i,j,k->kij", "bi,bj->bij"]  # fmt: skip


def operands(equation, of):
    parts = equation.split("->")[0].split(",")
    return [of([SIZES[x] for x in part]) for part in parts]


def orders(equation):
    inputs, out = equation.split("->")
    return [f"{inputs}->{''.join(order)}" for order in itertools.permutations(out)]


@pytest.mark.parametrize("equation", [e for product in PRODUCTS for e in orders(product)])
def test_strides_are_pytorchs(equation):
    torch = pytest.importorskip("torch")
    ours = operands(equation, lambda shape: rabbet.rand(*shape, dtype=rabbet.float64))
    theirs = [torch.tensor(t.numpy()) for t in ours]
    result, expected = rabbet.einsum(equation, *ours), torch.einsum(equation, *theirs)
    assert result.stride() == expected.stride()
    np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-12)


# What PyTorch 2.13 gives.
STRIDES = {
    "ij,jk->ki": (4, 1), "bij,bjk->bki": (24, 4, 1), "i,j->ji": (4, 1), "bi,bj->jbi": (4, 20, 1),
    "ij,jkl->kil": (7, 42, 1), "ij,jkl->kli": (28, 4, 1), "ijl,jk->lik": (24, 6, 1), "ijl,jk->kil": (28, 7, 1),
    "ij,jk,kl->li": (1, 7), "ij,kj,l->lki": (24, 4, 1), "bij,bj->bji": (20, 1, 5),
}  # fmt: skip


@pytest.mark.parametrize("equation", STRIDES)
def test_products_lie_in_memory_as_pytorchs(equation):
    found = rabbet.einsum(equation, *operands(equation, lambda shape: rabbet.rand(*shape)))
    assert found.stride() == STRIDES[equation]


@pytest.mark.parametrize("equation", ["i,j->ij", "i,j->ji", "i,i->i", "i,j->"])
def test_products_that_sum_over_nothing_promote_their_operands(equation):
    a, b = rabbet.arange(4), rabbet.arange(4, dtype=rabbet.float64) + 0.5
    result = rabbet.einsum(equation, a, b)
    assert result.dtype is rabbet.float64
    np.testing.assert_allclose(result.numpy(), np.einsum(equation, a.numpy(), b.numpy()))
    chosen = rabbet.einsum("i,j->ij", a > 1, a > 2)
    assert chosen.dtype is rabbet.bool and chosen.sum().item() == 2
    with pytest.raises(RuntimeError, match="same dtype"):
        rabbet.einsum("i,i->", a, b)
