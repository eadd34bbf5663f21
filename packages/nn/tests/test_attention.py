"""Scaled-dot-product attention: against loops in NumPy, PyTorch where it is there, and bad input."""

import subprocess
import sys

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet import nn
from rabbet_testing import assert_close


def reference(q, k, v, mask=None, is_causal=False, scale=None, enable_gqa=False):
    """By definition, query by query, in float64; a query that sees no key gives 0."""
    if enable_gqa:
        groups = q.shape[-3] // k.shape[-3]
        k, v = np.repeat(k, groups, -3), np.repeat(v, groups, -3)
    batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (np.broadcast_to(x, batch + x.shape[-2:]) for x in (q, k, v))
    length, keys = q.shape[-2], k.shape[-2]
    scores = np.einsum("...ld,...sd->...ls", q, k) * (
        q.shape[-1] ** -0.5 if scale is None else scale
    )
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if is_causal:
        scores = np.where(np.arange(keys) <= np.arange(length)[:, None], scores, -np.inf)
    out = np.zeros((*batch, length, v.shape[-1]))
    for at in np.ndindex(*batch, length):
        row = scores[at]
        if np.isneginf(row).all():
            continue
        weights = np.exp(row - row.max())
        out[at] = weights @ v[at[:-1]] / weights.sum()
    return out


RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape)


DEAD = RNG.random((2, 1, 30, 40)) > 0.4
DEAD[1, 0, 3] = False
ADDED = normal(30, 40)
ADDED[4] = -np.inf
CASES = {
    "plain": ((2, 3, 5, 8), (2, 3, 5, 8), 8, {}),
    "one tile, causal": ((2, 2, 128, 64), (2, 2, 128, 64), 64, {"is_causal": True}),
    "several tiles": ((1, 2, 300, 20), (1, 2, 700, 20), 33, {"scale": 0.3}),
    "several tiles, causal": ((1, 2, 530, 20), (1, 2, 530, 20), 7, {"is_causal": True}),
    "more queries, causal": ((1, 1, 600, 4), (1, 1, 300, 4), 5, {"is_causal": True}),
    "grouped": ((2, 8, 30, 20), (2, 2, 40, 20), 7, {"enable_gqa": True}),
    "bool mask": ((2, 3, 30, 20), (2, 3, 40, 20), 7, {"mask": DEAD}),
    "padding mask": ((2, 3, 30, 20), (2, 3, 40, 20), 7, {"mask": RNG.random((2, 1, 1, 40)) > 0.4}),
    "added mask": ((2, 3, 30, 20), (2, 3, 40, 20), 7, {"mask": ADDED}),
    "mask of one column": ((3, 30, 20), (3, 40, 20), 7, {"mask": normal(30, 1)}),
    "broadcast batch": ((4, 1, 6, 5), (3, 9, 5), 5, {}),
    "matrices": ((6, 5), (9, 5), 3, {}),
    "one query": ((2, 2, 1, 64), (2, 2, 333, 64), 64, {}),
}


def arguments(case):
    q, k, size, options = CASES[case]
    return [normal(*q), normal(*k), normal(*k[:-1], size)], dict(options)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "error"), [(rabbet.float64, 1e-12), (rabbet.float32, 3e-6)])
def test_forward_matches_the_definition(case, dtype, error):
    arrays, options = arguments(case)
    expected = reference(*arrays, **options)
    mask = options.pop("mask", None)
    given = [rabbet.tensor(a, dtype=dtype) for a in arrays]
    if mask is not None:
        options["attn_mask"] = rabbet.tensor(mask, dtype=None if mask.dtype == bool else dtype)
    found = F.scaled_dot_product_attention(*given, **options)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.numpy(), expected, atol=error, rtol=error)


@pytest.mark.parametrize("case", CASES)
def test_gradients_match_pytorch(case):
    torch = pytest.importorskip("torch")
    arrays, options = arguments(case)
    mask = options.pop("mask", None)
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    mine = [rabbet.tensor(a, requires_grad=True) for a in arrays]
    masks = (None, None) if mask is None else (torch.tensor(mask), rabbet.tensor(mask))
    expected = torch.nn.functional.scaled_dot_product_attention(
        *theirs, attn_mask=masks[0], **options
    )
    found = F.scaled_dot_product_attention(*mine, attn_mask=masks[1], **options)
    weight = normal(*expected.shape)
    (expected * torch.tensor(weight)).sum().backward()
    (found * rabbet.tensor(weight)).sum().backward()
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), atol=1e-12)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), atol=1e-12)


def test_gradient_of_a_mask_is_that_of_the_scores():
    q, k, v = (rabbet.tensor(normal(2, 4, 3)) for _ in range(3))
    mask = rabbet.tensor(normal(4, 4), requires_grad=True)
    assert rabbet.autograd.gradcheck(
        lambda m: F.scaled_dot_product_attention(q, k, v, m, is_causal=True), [mask]
    )


@pytest.mark.parametrize("dtype", [rabbet.bfloat16, rabbet.float16])
def test_half_precision_is_computed_in_float32(dtype):
    q, k, v = (rabbet.tensor(normal(2, 2, 70, 16)).to(dtype) for _ in range(3))
    expected = reference(*(x.double().numpy() for x in (q, k, v)), is_causal=True)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    found = F.scaled_dot_product_attention(*inputs, is_causal=True)
    eps = float(rabbet.finfo(dtype).eps)
    np.testing.assert_allclose(found.detach().double().numpy(), expected, atol=2 * eps, rtol=eps)
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    weight = rabbet.tensor(normal(2, 2, 70, 16)).to(dtype)
    (found * weight).sum().backward()
    (F.scaled_dot_product_attention(*doubles, is_causal=True) * weight.double()).sum().backward()
    for a, b in zip(inputs, doubles, strict=True):
        assert a.grad.dtype == dtype
        np.testing.assert_allclose(
            a.grad.double().numpy(), b.grad.numpy(), atol=8 * eps, rtol=4 * eps
        )


def test_results_are_the_same_bits_for_any_number_of_threads():
    arrays = [normal(2, 3, 600, 24).astype(np.float32) for _ in range(4)]
    before, found = rabbet.get_num_threads(), []
    try:
        for n in (1, 2, 4):
            rabbet.set_num_threads(n)
            q, k, v = (rabbet.tensor(a, requires_grad=True) for a in arrays[:3])
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            out.backward(rabbet.tensor(arrays[3]))
            found.append([out.detach().numpy(), q.grad.numpy(), k.grad.numpy(), v.grad.numpy()])
    finally:
        rabbet.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_results_lie_in_memory_as_the_query_does():
    q, k, v = (rabbet.randn(2, 10, 3, 4, 8)[:, :, i].transpose(1, 2) for i in range(3))
    out = F.scaled_dot_product_attention(q, k, v)
    assert out.shape == (2, 4, 10, 8)
    assert out.transpose(1, 2).is_contiguous()


def test_dropout_leaves_weights_out():
    rabbet.manual_seed(0)
    q, k, v = rabbet.zeros(1, 50, 4), rabbet.zeros(1, 400, 4), rabbet.ones(1, 400, 4)
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert 0.9 < float(out.mean()) < 1.1 and float(out.std()) > 0.01
    assert float(F.scaled_dot_product_attention(q, k, v, dropout_p=1.0).abs().max()) == 0


def test_empty_inputs():
    q, none = rabbet.ones(2, 3, 4), rabbet.ones(2, 0, 4)
    assert F.scaled_dot_product_attention(q, none, none).tolist() == rabbet.zeros(2, 3, 4).tolist()
    assert F.scaled_dot_product_attention(none, q, q).shape == (2, 0, 4)


def test_nan_reaches_the_queries_that_see_it_only():
    k = rabbet.tensor(normal(4, 3))
    k[2, 0] = float("nan")
    q, v = rabbet.ones(4, 3).double(), rabbet.ones(4, 3).double()
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert rabbet.isnan(out).any(-1).tolist() == [False, False, True, True]


def test_nan_stays_under_a_mask():
    """As in PyTorch, where a mask of truth values is added as minus infinity; by the decomposition, too."""
    k = rabbet.tensor(normal(4, 3))
    k[2, 0] = float("nan")
    q, v = rabbet.ones(4, 3).double(), rabbet.ones(4, 3).double()
    mask = rabbet.ones(4, 4) == 1
    mask[:, 2] = False
    args = (q, k, v, mask, False, None, False)
    for out in (
        rabbet.ops.attention(*args)[0],
        rabbet._C.decomposed(rabbet.ops.attention, args, {})[0],
    ):
        assert rabbet.isnan(out).all()


@pytest.mark.parametrize("dtype", [rabbet.float16, rabbet.bfloat16])
@pytest.mark.parametrize("grouped", [False, True])
def test_16_bit_gradients_by_the_decomposition_agree_with_the_kernel(dtype, grouped):
    """A backend without the kernel runs the decomposition, which mixes float32 sums with 16-bit tensors."""
    heads = (4, 2, 2) if grouped else (2, 2, 2)
    q, k, v = (rabbet.tensor(normal(h, 5, 6)).to(dtype) for h in heads)
    out, sums = rabbet.ops.attention(q, k, v, None, True, None, grouped)
    grad = rabbet.tensor(normal(*out.shape)).to(dtype)
    args = (grad, None, q, k, v, None, out, sums, True, None, grouped)
    found = rabbet._C.decomposed(rabbet.ops.attention_backward, args, {})
    for ours, kernels in zip(found, rabbet.ops.attention_backward(*args), strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours.float().numpy(), kernels.float().numpy(), 0.05, 0.05)


MEMORY = """
import resource
import rabbet
import rabbet.nn.functional as F

def run(length):
    q, k, v = (rabbet.randn(1, length, 8).requires_grad_() for _ in range(3))
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()

run(64)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(4096)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts KB on Linux")
def test_the_scores_are_never_stored():
    grown = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True
    )
    assert int(grown.stdout) < 16 * 1024  # KB; the scores alone would take 64 MB


def test_multihead_attention_without_weights_matches_the_one_with_them():
    layer = nn.MultiheadAttention(12, 3, batch_first=True, dtype=rabbet.float64)
    x = rabbet.tensor(normal(2, 5, 12))
    padding = rabbet.tensor([[False] * 5, [False, False, True, False, True]])
    plain, weights = layer(x, x, x, key_padding_mask=padding)
    fast, none = layer(x, x, x, key_padding_mask=padding, need_weights=False)
    assert none is None and weights.shape == (2, 5, 5)
    np.testing.assert_allclose(fast.detach().numpy(), plain.detach().numpy(), atol=1e-13)


X = rabbet.zeros(2, 4, 6, 8)
BAD = [
    ([X[0, 0, 0], X, X], {}, ValueError, "'query' must have at least 2 dimensions"),
    ([X, X[..., :5], X], {}, ValueError, "query and key must have the same last size"),
    ([X, X, X[:, :, :5]], {}, ValueError, "the same number of positions"),
    ([X, X.double(), X], {}, TypeError, "one dtype, got float32, float64 and float32"),
    ([X, X[:, :3], X[:, :3]], {}, ValueError, "do not broadcast"),
    ([X, X[:, :3], X[:, :3]], {"enable_gqa": True}, ValueError, "enable_gqa needs as many heads"),
    ([X[0, 0], X, X], {"enable_gqa": True}, ValueError, "at least 3 dimensions with enable_gqa"),
    ([X, X, X, rabbet.zeros(6, 5)], {}, ValueError, "'attn_mask' of shape"),
    ([X, X, X, rabbet.zeros(6, 6).long()], {}, TypeError, "'attn_mask' must be bool or floating"),
    ([X.long()] * 3, {}, TypeError, "expected float dtypes"),
]


@pytest.mark.parametrize(("args", "options", "error", "message"), BAD)
def test_bad_input_is_named(args, options, error, message):
    with pytest.raises(error, match=f"scaled_dot_product_attention.*{message}|{message}"):
        F.scaled_dot_product_attention(*args, **options)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_is_that_of_its_modules(activation):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation=activation)
    x = rabbet.randn(3, 5, 8)
    want = layer.linear2(getattr(nn.functional, activation)(layer.linear1(x)))
    seen = []
    for recorded in (True, False):
        with rabbet.set_grad_enabled(recorded):
            assert_close(layer._feed_forward(x), want.detach())
    handle = layer.linear1.register_forward_hook(lambda m, args, out: seen.append(out.shape))
    assert_close(layer._feed_forward(x), want)
    assert seen == [(3, 5, 16)]
    handle.remove()


def test_sums_of_another_dtype_are_converted():
    q, k, v, g = (rabbet.randn(2, 33, 8, dtype=rabbet.bfloat16) for _ in range(4))
    out, sums = rabbet.ops.attention(q, k, v)
    low = sums.bfloat16()

    def gradients(g_sums, sums):
        return rabbet.ops.attention_backward(
            g, g_sums, q, k, v, None, out, sums, False, None, False
        )

    for got, want in zip(gradients(low, low), gradients(low.float(), low.float()), strict=True):
        assert rabbet.equal(got, want)


def test_sdpa_kernel_sets_the_switches_for_a_block():
    from rabbet.backends import cuda
    from rabbet.nn.attention import SDPBackend, sdpa_kernel

    def on():
        names = ("flash", "mem_efficient", "math", "cudnn")
        return {n for n in names if getattr(cuda, f"{n}_sdp_enabled")()}

    everything = {"flash", "mem_efficient", "math", "cudnn"}
    assert on() == everything
    with sdpa_kernel(SDPBackend.MATH):
        assert on() == {"math"}
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
            assert on() == {"cudnn", "mem_efficient"}
        assert on() == {"math"}
    with pytest.raises(KeyError), sdpa_kernel([SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert on() == {"flash"}
        raise KeyError
    assert on() == everything
    with sdpa_kernel([]):
        assert on() == set()
    assert sdpa_kernel(SDPBackend.MATH)(on)() == {"math"}
    q = rabbet.rand(1, 2, 3, 4)
    expected = F.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert rabbet.equal(F.scaled_dot_product_attention(q, q, q), expected)


@pytest.mark.parametrize("bad", ["math", 3, None, ()])
def test_sdpa_kernel_refuses_what_is_no_backend(bad):
    from rabbet.nn.attention import sdpa_kernel

    with pytest.raises(AssertionError, match="Backend must be an instance"), sdpa_kernel(bad):
        pass
