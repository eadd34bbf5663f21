"""Random operators under vmap."""

import pytest
import rabbet
from rabbet import vmap
from rabbet.nn import functional as F

DRAWS = [
    lambda x: rabbet.rand(4), lambda x: rabbet.randn(4), lambda x: rabbet.randperm(50), lambda x: rabbet.randint(0, 1000, (4,)),
    lambda x: rabbet.rand_like(x), lambda x: rabbet.randn_like(x), lambda x: F.dropout(rabbet.ones(64), 0.5),
]  # fmt: skip


@pytest.mark.parametrize("draw", DRAWS)
def test_modes(draw):
    x = rabbet.zeros(3, 8)
    with pytest.raises(
        RuntimeError, match="called random operation while in randomness error mode"
    ):
        vmap(draw)(x)
    same = vmap(draw, randomness="same")(x)
    assert (same == same[0]).all().item() and same.shape[0] == 3
    different = vmap(draw, randomness="different")(x)
    assert different.shape == same.shape and not (different[0] == different[1]).all().item()


def test_batched_tensors():
    x = rabbet.ones(3, 64)
    drop = lambda row: F.dropout(row, 0.5)  # noqa: E731
    same = vmap(drop, randomness="same")(x)
    assert (same == same[0]).all().item()
    different = vmap(drop, randomness="different")(x)
    assert not (different[0] == different[1]).all().item()
    p = rabbet.tensor([[0.0] * 8, [1.0] * 8])
    for mode in ("same", "different"):
        assert vmap(rabbet.bernoulli, randomness=mode)(p).tolist() == p.tolist()


def test_in_place():
    x = rabbet.zeros(3, 8)
    vmap(lambda row: row.uniform_(), randomness="different")(x)
    assert not (x[0] == x[1]).all().item() and (x > 0).any().item()
    vmap(lambda row: row.normal_(), in_dims=0, randomness="same")(x)
    assert (x == x[0]).all().item()
    with pytest.raises(RuntimeError, match=r"uniform.*not batched"):
        vmap(lambda row: rabbet.zeros(2).uniform_() + row[0], randomness="different")(x)
    assert vmap(lambda row: rabbet.zeros(2).uniform_(), randomness="same")(x).shape == (3, 2)


def test_same_is_one_draw():
    rabbet.manual_seed(5)
    once = rabbet.rand(4)
    rabbet.manual_seed(5)
    same = vmap(lambda x: rabbet.rand(4), randomness="same")(rabbet.zeros(3))
    assert same[2].tolist() == once.tolist()


def test_levels_have_modes_of_their_own():
    x = rabbet.zeros(2, 3)
    draw = lambda _: rabbet.rand(4)  # noqa: E731
    inner_same = vmap(vmap(draw, randomness="same"), randomness="different")(x)
    assert inner_same.shape == (2, 3, 4)
    assert (inner_same[:, 0] == inner_same[:, 1]).all().item()
    assert not (inner_same[0] == inner_same[1]).all().item()
    outer_same = vmap(vmap(draw, randomness="different"), randomness="same")(x)
    assert (outer_same[0] == outer_same[1]).all().item()
    assert not (outer_same[:, 0] == outer_same[:, 1]).all().item()
