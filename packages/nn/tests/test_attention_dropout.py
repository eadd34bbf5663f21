"""Attention with dropout: against NumPy with the weights that a seed keeps, derivatives, vmap, memory, bad input."""

import re
import subprocess
import sys

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet import nn, ops, vmap
from rabbet_testing import assert_close
from rabbet_testing.judges.references.random import kept_weights

RNG = np.random.default_rng(0)
MOST = 2**63 - 1


def normal(*shape):
    return RNG.standard_normal(shape)


def next_seed(seed):
    """What attention draws after `manual_seed(seed)`."""
    rabbet.manual_seed(seed)
    drawn = ops.random(rabbet.empty([], dtype=rabbet.int64), 0, MOST)
    rabbet.manual_seed(seed)
    return drawn


def expected(q, k, v, p, seed, causal=False, mask=None):
    """Results, and gradients of q, k and v for a gradient of ones, by NumPy in float64."""
    batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (q, k, v))
    scale = q.shape[-1] ** -0.5
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if mask is not None:
        scores = scores + np.where(mask, 0, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    factor = kept_weights(scores.shape, np.asarray(seed), p) / (1 - p)
    g = np.ones((*batch, q.shape[-2], v.shape[-1]))
    dv = np.swapaxes(weights * factor, -1, -2) @ g
    dw = g @ np.swapaxes(v, -1, -2) * factor
    ds = weights * (dw - (dw * weights).sum(-1, keepdims=True)) * scale
    return (weights * factor) @ v, ds @ k, np.swapaxes(ds, -1, -2) @ q, dv


CASES = {
    "small": ((2, 5, 3), (2, 7, 3), 4, {}),
    "heads": ((2, 3, 35, 8), (2, 3, 50, 8), 8, {}),
    "several tiles": ((1, 2, 300, 20), (1, 2, 530, 20), 33, {}),
    "causal": ((2, 2, 290, 16), (2, 2, 290, 16), 16, {"causal": True}),
    "masked": ((2, 1, 30, 8), (2, 3, 40, 8), 7, {"mask": RNG.random((30, 40)) > 0.3}),
    "added mask": ((2, 30, 8), (2, 40, 8), 7, {"mask": normal(40)}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("dtype", "error"), [("float64", 1e-11), ("float32", 2e-5), ("float16", 2e-2), ("bfloat16", 1e-1)]
)  # fmt: skip
def test_results_and_gradients_are_those_of_the_weights_that_the_seed_keeps(case, dtype, error):
    q, k, size, options = CASES[case]
    dtype = getattr(rabbet, dtype)
    given = [rabbet.tensor(normal(*s)).to(dtype) for s in (q, k, (*k[:-1], size))]
    arrays = [x.double().numpy() for x in given]
    seed = next_seed(11)
    mask = options.get("mask")
    wanted = expected(*arrays, 0.3, seed.numpy(), **options)
    for x in given:
        x.requires_grad_()
    out = F.scaled_dot_product_attention(
        *given,
        attn_mask=None if mask is None else rabbet.tensor(mask, dtype=None if mask.dtype == bool else dtype),
        dropout_p=0.3,
        is_causal=options.get("causal", False),
    )  # fmt: skip
    out.backward(rabbet.ones_like(out))
    for found, want in zip((out.detach(), *(x.grad for x in given)), wanted, strict=True):
        want = want.sum(tuple(range(want.ndim - found.ndim)))
        for d in range(want.ndim):
            if found.shape[d] != want.shape[d]:
                want = want.sum(d, keepdims=True)
        size = max(1, np.abs(want).max())
        np.testing.assert_allclose(found.double().numpy(), want, atol=error * size)


def test_seeds_of_heads_count_their_matrices():
    weights = rabbet.ones(2, 3, 20, 40, dtype=rabbet.float64)
    for seed in (5, [1, 2, 3], [[1], [2]], [[[[1]]], [[[2]]]]):
        seed = np.asarray(seed)
        if seed.ndim > 2:
            with pytest.raises(RuntimeError, match="does not broadcast"):
                ops.attention_dropout(weights, rabbet.tensor(seed), 0.4)
            continue
        found = ops.attention_dropout(weights, rabbet.tensor(seed), 0.4)
        np.testing.assert_allclose(
            found.numpy(), kept_weights((2, 3, 20, 40), seed, 0.4) / 0.6, rtol=1e-15
        )
        q, k, v = (rabbet.tensor(normal(2, 3, n, 4)) for n in (20, 40, 40))
        alone = ops.attention(q, k, v, None, False, None, False, 0.4, rabbet.tensor(seed))[0]
        by_steps = ops.attention_dropout(ops.softmax(q @ k.mT * 0.5, -1), rabbet.tensor(seed), 0.4)
        assert_close(alone, by_steps @ v)


def test_as_many_weights_are_kept_as_the_probability_says():
    for p in (0.1, 0.5, 0.9):
        kept = ops.attention_dropout(rabbet.ones(4, 500, 500), rabbet.tensor(3), p) > 0
        n = kept.numel()
        assert abs(float(kept.double().mean()) - (1 - p)) < 5 * (p * (1 - p) / n) ** 0.5
        kept = kept.numpy().astype(float)
        for shifted in (
            kept[:, 1:] * kept[:, :-1],
            kept[:, :, 8:] * kept[:, :, :-8],
            kept[1:] * kept[:-1],
        ):
            assert abs(shifted.mean() - (1 - p) ** 2) < 0.004  # neighbours know nothing of each other  # fmt: skip


def test_logsumexp_is_that_of_all_weights_and_everything_is_dropped_at_1():
    q, k, v = (rabbet.randn(2, 9, 4, requires_grad=True) for _ in range(3))
    seed = rabbet.tensor(1)
    whole, dropped = (
        ops.attention(q, k, v, None, False, None, False, p, seed)[1] for p in (0.0, 0.6)
    )
    assert rabbet.equal(whole, dropped)
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=1.0)
    out.sum().backward()
    assert all(float(x.abs().max()) == 0 for x in (out, q.grad, k.grad, v.grad))


def test_a_seed_gives_the_same_weights_and_each_call_others():
    q = rabbet.randn(1, 2, 40, 8)
    draw = lambda: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)  # noqa: E731
    rabbet.manual_seed(4)
    first, second = draw(), draw()
    rabbet.manual_seed(4)
    assert rabbet.equal(draw(), first) and not rabbet.equal(first, second)
    before = rabbet.get_num_threads()
    try:
        for n in (1, 3):
            rabbet.set_num_threads(n)
            rabbet.manual_seed(4)
            assert rabbet.equal(draw(), first)
    finally:
        rabbet.set_num_threads(before)


def test_higher_derivatives_and_forward_mode():
    given = [
        rabbet.tensor(normal(*s), requires_grad=True) for s in ((2, 4, 3), (2, 5, 3), (2, 5, 2))
    ]
    mask = rabbet.tensor(normal(4, 5), requires_grad=True)

    def f(q, k, v, mask):
        out, sums = ops.attention(
            q, k, v, mask, False, None, False, 0.4, rabbet.tensor([[3], [8]])[:, 0]
        )
        return out, sums

    assert rabbet.autograd.gradcheck(f, [*given, mask], check_forward_ad=True)
    assert rabbet.autograd.gradgradcheck(f, [*given, mask])


def test_vmap_draws_as_its_mode_says():
    q, k, v = (rabbet.tensor(normal(3, 2, n, 4)) for n in (20, 37, 37))
    f = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)  # noqa: E731
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(f)(q, k, v)
    rabbet.manual_seed(5)
    same = vmap(f, randomness="same")(q, k, v)
    for i in range(3):
        rabbet.manual_seed(5)
        assert_close(same[i], f(q[i], k[i], v[i]))
    drawn = vmap(lambda i: f(q[0], k[0], v[0]) + i, randomness="different")(rabbet.zeros(3))
    assert not rabbet.allclose(drawn[0], drawn[1]) and not rabbet.allclose(drawn[1], drawn[2])
    rabbet.manual_seed(5)
    single = [x[:, :, None] for x in (q, k, v)]
    nested = vmap(vmap(f, randomness="same"), randomness="same")(*single)
    rabbet.manual_seed(5)
    assert_close(nested[1, 0], f(*(x[1, 0] for x in single)))
    seeds = rabbet.tensor([4, 4, 9])
    apart = vmap(lambda q, s: ops.attention(q, k[0], v[0], None, False, None, False, 0.5, s)[0])(
        q, seeds
    )
    for i in range(3):
        assert_close(
            apart[i], ops.attention(q[i], k[0], v[0], None, False, None, False, 0.5, seeds[i])[0]
        )


BAD = {
    "dropout_p above 1": (lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=1.5), "dropout probability has to be between 0 and 1, but got 1.5"),
    "dropout_p below 0": (lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=-0.1), "between 0 and 1, but got -0.1"),
    "dropout_p of NaN": (lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=float("nan")), "between 0 and 1"),
    "no seed": (lambda q: ops.attention(q, q, q, None, False, None, False, 0.5), "'seed' is needed"),
    "a seed of int32": (lambda q: ops.attention(q, q, q, None, False, None, False, 0.5, rabbet.tensor(1, dtype=rabbet.int32)), "expected 'seed' of int64"),
    "too many seeds": (lambda q: ops.attention(q, q, q, None, False, None, False, 0.5, rabbet.tensor([1, 2, 3])), "does not broadcast"),
    "dropout of a row": (lambda q: ops.attention_dropout(q[0, 0], rabbet.tensor(1), 0.5), "at least 2 dimensions"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(case):
    call, message = BAD[case]
    with pytest.raises(RuntimeError, match=re.escape(message)):
        call(rabbet.zeros(2, 4, 3))


def test_weights_are_never_in_memory():
    """Of 6144 queries and keys they would be 151 MB; forward and backward take less."""
    code = """
import resource, rabbet
import rabbet.nn.functional as F
rabbet.set_num_threads(2)
q, k, v = (rabbet.randn(1, 1, 6144, 16, requires_grad=True) for _ in range(3))
F.scaled_dot_product_attention(q[:, :, :64], k[:, :, :64], v[:, :, :64], dropout_p=0.1).sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
F.scaled_dot_product_attention(q, k, v, dropout_p=0.1).sum().backward()
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 75_000, grown
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_transformer_layers_drop_inside_of_attention(monkeypatch):
    from rabbet.nn.functional import multi_head

    asked = []
    attention = multi_head.scaled_dot_product_attention

    def watched(q, k, v, mask=None, dropout_p=0.0, *rest, **more):
        asked.append(dropout_p)
        return attention(q, k, v, mask, dropout_p, *rest, **more)

    monkeypatch.setattr(multi_head, "scaled_dot_product_attention", watched)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.25, batch_first=True)
    x = rabbet.randn(2, 5, 8)
    layer(x).sum().backward()
    layer.eval()(x)
    assert asked in ([0.25, 0.0], [0.25])  # in evaluation there may be a faster way
    heads = nn.MultiheadAttention(8, 2, dropout=0.25)
    heads(x, x, x, need_weights=False)
    assert asked[-1] == 0.25
