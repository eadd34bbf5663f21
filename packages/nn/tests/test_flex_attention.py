"""Flexible attention beside formulas with explicit masks."""

import math

import numpy as np
import pytest
import rabbet
from rabbet.nn import functional as F
from rabbet.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    noop_mask,
    or_masks,
)


def causal(b, h, q, k):
    return q >= k


def inputs(*shapes, dtype=rabbet.float64):
    rabbet.manual_seed(0)
    return [rabbet.randn(*shape, dtype=dtype, requires_grad=True) for shape in shapes]


def test_plain_scores():
    q, k, v = inputs((2, 4, 6, 8), (2, 4, 5, 8), (2, 4, 5, 3))
    want = F.scaled_dot_product_attention(q, k, v)
    assert rabbet.allclose(flex_attention(q, k, v), want)
    want = F.scaled_dot_product_attention(q, k, v, scale=0.3)
    assert rabbet.allclose(flex_attention(q, k, v, scale=0.3), want)


def test_causal_mask_and_gradients():
    q, k, v = inputs((2, 3, 6, 4), (2, 3, 6, 4), (2, 3, 6, 4))
    mask = create_block_mask(causal, None, None, 6, 6, BLOCK_SIZE=4)
    ours = flex_attention(q, k, v, block_mask=mask)
    want = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert rabbet.allclose(ours, want)
    g = rabbet.randn_like(want)
    pairs = zip(
        rabbet.autograd.grad(ours, (q, k, v), g),
        rabbet.autograd.grad(want, (q, k, v), g),
        strict=True,
    )
    assert all(rabbet.allclose(a, b) for a, b in pairs)


def test_score_function_sees_its_place_and_learns():
    q, k, v = inputs((2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4))
    bias = rabbet.randn(3, 9, dtype=rabbet.float64, requires_grad=True)

    def relative(score, b, h, i, j):
        return score + bias[h, i - j + 4] * (b + 1)

    ours = flex_attention(q, k, v, score_mod=relative)
    places = rabbet.arange(5)[:, None] - rabbet.arange(5) + 4
    added = bias[:, places] * rabbet.tensor([1.0, 2.0], dtype=rabbet.float64).view(2, 1, 1, 1)
    want = (q @ k.transpose(-2, -1) / 2 + added).softmax(-1) @ v
    assert rabbet.allclose(ours, want)
    (ours_grad,) = rabbet.autograd.grad(ours.square().sum(), bias)
    (want_grad,) = rabbet.autograd.grad(want.square().sum(), bias)
    assert rabbet.allclose(ours_grad, want_grad)


def test_shared_heads():
    q, k, v = inputs((2, 6, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4))
    ours = flex_attention(q, k, v, enable_gqa=True)
    want = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert rabbet.allclose(ours, want)


def test_rows_without_scores():
    q, k, v = inputs((1, 1, 4, 4), (1, 1, 4, 4), (1, 1, 4, 4))
    mask = create_block_mask(lambda b, h, i, j: i > 1, None, None, 4, 4)
    y, aux = flex_attention(q, k, v, block_mask=mask, return_aux=AuxRequest(lse=True))
    assert y[0, 0, :2].abs().sum().item() == 0
    assert aux.lse[0, 0, :2].tolist() == [-math.inf] * 2
    for grad in rabbet.autograd.grad(y.sum(), (q, k, v)):
        assert grad.isfinite().all().item()


def test_what_is_returned_beside():
    q, k, v = inputs((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4))
    scores = q @ k.transpose(-2, -1) / 2
    y, aux = flex_attention(q, k, v, return_aux=AuxRequest(lse=True, max_scores=True))
    assert rabbet.allclose(aux.lse, scores.logsumexp(-1))
    assert rabbet.allclose(aux.max_scores, scores.amax(-1))
    assert flex_attention(q, k, v, return_aux=AuxRequest())[1] == (None, None)
    with pytest.warns(FutureWarning, match="return_lse is deprecated"):
        same, lse = flex_attention(q, k, v, return_lse=True)
    assert rabbet.equal(same, y) and rabbet.equal(lse, aux.lse)
    with pytest.raises(ValueError, match="both return_lse and return_aux"):
        flex_attention(q, k, v, return_lse=True, return_aux=AuxRequest())


def test_dtype_and_order_of_memory():
    (q,) = inputs((2, 4, 6, 8), dtype=rabbet.float32)
    half = q.detach().bfloat16()
    y, aux = flex_attention(half, half, half, return_aux=AuxRequest(lse=True))
    assert (y.dtype, aux.lse.dtype) == (rabbet.bfloat16, rabbet.float32)
    assert flex_attention(q, q.double(), q.double()).dtype is rabbet.float32
    turned = q.transpose(1, 2).contiguous().transpose(1, 2)
    assert flex_attention(turned, q, q).stride() == (192, 8, 32, 1)
    assert flex_attention(q, q, q).stride() == (192, 48, 8, 1)


def test_tables_of_blocks():
    mask = create_block_mask(
        lambda b, h, q, k: (q >= k) & (h + b < 2), 2, 3, 10, 7, BLOCK_SIZE=(4, 2)
    )
    want = {
        "kv_num_blocks": [2, 2, 4],
        "kv_indices": [[0, 1, 2, 3], [2, 3, 0, 1], [0, 1, 2, 3]],
        "full_kv_num_blocks": [0, 2, 0],
        "full_kv_indices": [[0, 1, 2, 3]] * 3,
        "q_num_blocks": [2, 2, 2, 2],
        "q_indices": [[0, 2, 1], [0, 2, 1], [1, 2, 0], [1, 2, 0]],
        "full_q_num_blocks": [1, 1, 0, 0],
        "full_q_indices": [[1, 0, 2], [1, 0, 2], [0, 1, 2], [0, 1, 2]],
    }
    for name, values in want.items():
        table = getattr(mask, name)
        assert table.dtype is rabbet.int32 and table[0, 0].tolist() == values, name
    assert mask.shape == (2, 3, 10, 7) and mask.numel() == 420
    assert mask.sparsity() == pytest.approx(42.857142857)
    assert mask.to_dense()[0, 0].tolist() == [[1, 1, 0, 0], [1] * 4, [1] * 4]
    assert mask.to_dense()[0, 2].sum().item() == 0
    assert mask[0].shape == (1, 3, 10, 7) and mask[-1, 1].shape == (1, 1, 10, 7)
    assert mask._adjust(3, 3).shape == (2, 3, 3, 3)
    assert mask._adjust(3, 3).to_dense()[0, 0].tolist() == [[1, 1]]
    assert len(mask.as_tuple()) == 17 and len(mask.as_tuple(flatten=False)) == 15
    assert mask.to("cpu").shape == mask.shape
    joined = create_block_mask(causal, 1, 1, 10, 7, BLOCK_SIZE=4, separate_full_blocks=False)
    assert joined.full_kv_num_blocks is None
    assert joined.kv_num_blocks.tolist() == [[[1, 2, 2]]]


def test_mask_as_text():
    mask = create_block_mask(causal, 1, 1, 256, 256)
    assert str(mask) == "BlockMask(shape=(1, 1, 256, 256), sparsity=25.00%, \n(0, 0)\n██  \n████\n)"
    large = create_block_mask(causal, 1, 1, 32, 32, BLOCK_SIZE=4)
    picture = "(0, 0)\n░░      \n██░░    \n████░░  \n██████░░\n"
    assert large.to_string(grid_size=4) == picture
    several = create_block_mask(causal, 2, 3, 4, 4)
    assert "To print out more" in str(several) and "(1, 0)" in str(several)
    assert "mask_mod=causal" in repr(mask)


def test_masks_from_rows():
    counts = rabbet.tensor([[[1, 2]]], dtype=rabbet.int32)
    columns = rabbet.tensor([[[[0, 1], [0, 1]]]], dtype=rabbet.int32)
    mask = BlockMask.from_kv_blocks(counts, columns, BLOCK_SIZE=4)
    assert mask.shape == (1, 1, 8, 8) and mask.q_num_blocks.tolist() == [[[2, 1]]]
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        BlockMask.from_kv_blocks(counts.flatten(), counts.flatten())
    with pytest.raises(AssertionError, match="both provided or omitted"):
        BlockMask.from_kv_blocks(counts, columns, counts)


def test_functions_joined_and_masks_as_tensors():
    window = and_masks(causal, lambda b, h, q, k: q - k < 2)
    ours = create_mask(window, None, None, 4, 4)
    np.testing.assert_array_equal(ours[0, 0].numpy(), np.tri(4) - np.tri(4, k=-2) > 0)
    either = create_mask(or_masks(causal, lambda b, h, q, k: k == 3), 2, 3, 4, 4)
    assert either.shape == (2, 3, 4, 4) and either[1, 2, :, 3].all().item()
    assert create_mask(noop_mask, 1, 1, 2, 3).all().item()
    scores = create_mask(lambda s, b, h, q, k: s + q - k, 1, 1, 2, 3)
    assert scores[0, 0].tolist() == [[0, -1, -2], [1, 0, -1]]


def test_refusals():
    q, k, small = inputs((2, 4, 6, 8), (2, 3, 6, 8), (2, 4, 6, 4))
    mask = create_block_mask(causal, None, None, 8, 8)
    fit = create_block_mask(causal, None, None, 6, 6)
    short = create_block_mask(causal, None, None, 4, 4)
    for error, message, call in (
        (NotImplementedError, "must be 4D", lambda: flex_attention(q[0], q, q)),
        (ValueError, "same number of heads", lambda: flex_attention(q, k, k)),
        (ValueError, "multiple of kv heads", lambda: flex_attention(q, k, k, enable_gqa=True)),
        (ValueError, "same embedding", lambda: flex_attention(q, small, q)),
        (ValueError, "same batch size", lambda: flex_attention(q, q[:1], q[:1])),
        (RuntimeError, "same batches, heads", lambda: flex_attention(q, q, q[:, :, :3])),
        (ValueError, "larger length", lambda: flex_attention(q, q, q, block_mask=mask)),
        (ValueError, "smaller length", lambda: flex_attention(q, q, q, block_mask=short)),
        (TypeError, "to be a BlockMask", lambda: flex_attention(q, q, q, block_mask=3)),
        (TypeError, "score_mod to be callable", lambda: flex_attention(q, q, q, 3)),
        (TypeError, "mod_fn to be callable", lambda: create_mask(3, 1, 1, 2, 2)),
        (AssertionError, "4 or 5 pos", lambda: create_mask(lambda a, b: a, 1, 1, 2, 2)),
        (RuntimeError, "callable mask_mods", lambda: and_masks(causal, 3)),
        (RuntimeError, "callable mask_mods", lambda: or_masks(3)),
        (ValueError, "BLOCK_SIZE", lambda: create_block_mask(causal, 1, 1, 2, 2, BLOCK_SIZE=0)),
        (IndexError, "out of range", lambda: mask[1]),
        (RuntimeError, "a slice has no mask_mod", lambda: flex_attention(q, q, q, None, fit[0])),
        (
            NotImplementedError,
            "compute_dq_write_order",
            lambda: create_block_mask(causal, 1, 1, 2, 2, compute_dq_write_order=True),
        ),
    ):
        with pytest.raises(error, match=message):
            call()
