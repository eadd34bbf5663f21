"""Causal masks as tensors of their own, and products of groups."""

import numpy as np
import pytest
import rabbet
from rabbet import nn
from rabbet.nn.attention import bias

F = nn.functional


@pytest.mark.parametrize("queries,keys", [(3, 3), (2, 4), (1, 5)])
def test_causal_masks(queries, keys):
    upper, lower = bias.causal_upper_left(queries, keys), bias.causal_lower_right(queries, keys)
    assert upper.variant is bias.CausalVariant.UPPER_LEFT and lower.seq_len_kv == keys
    full = np.ones((queries, keys), bool)
    np.testing.assert_array_equal(upper._materialize().numpy(), np.tril(full))
    np.testing.assert_array_equal(lower._materialize("cpu").numpy(), np.tril(full, keys - queries))
    q, k, v = (rabbet.randn(2, 2, n, 4, requires_grad=True) for n in (queries, keys, keys))
    got = F.scaled_dot_product_attention(q, k, v, attn_mask=lower)
    want = F.scaled_dot_product_attention(
        q, k, v, attn_mask=rabbet.tensor(np.tril(full, keys - queries))
    )
    assert type(got) is rabbet.Tensor and got.tolist() == want.tolist()
    got.sum().backward()
    if queries == keys:
        causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        np.testing.assert_allclose(got.detach().numpy(), causal.detach().numpy(), rtol=1e-5)


def test_refusals_of_masks():
    with pytest.raises(AssertionError, match="causal_lower_right only supports 2D"):
        bias.causal_lower_right(3)
    with pytest.raises(AssertionError, match="must be a CausalVariant, got int"):
        bias.CausalBias(1, 2, 2)
    with pytest.warns(UserWarning, match="Lower right causal bias"):
        bias.causal_lower_right(3, 2)


@pytest.mark.parametrize("ends", [[2, 6], [0, 4], [3, 3]])
def test_grouped_products(ends):
    a, b = rabbet.randn(6, 8, requires_grad=True), rabbet.randn(2, 8, 4, requires_grad=True)
    offs = rabbet.tensor(ends, dtype=rabbet.int32)
    spans = list(zip([0, *ends], ends))
    x, y = a.detach().numpy(), b.detach().numpy()
    rows = F.grouped_mm(a, b, offs=offs)
    want = np.zeros((6, 4), "f")
    for (s, e), m in zip(spans, y):
        want[s:e] = x[s:e] @ m
    np.testing.assert_allclose(rows.detach().numpy(), want, rtol=1e-5, atol=1e-6)
    rows.sum().backward()
    assert (a.grad[ends[-1] :] == 0).all() and b.grad.shape == b.shape
    columns = F.grouped_mm(b.mT, a.mT, offs=offs)
    np.testing.assert_allclose(columns.detach().numpy(), want.T, rtol=1e-5, atol=1e-6)
    inner = F.grouped_mm(a.mT, a, offs=offs)
    np.testing.assert_allclose(
        inner.detach().numpy(),
        np.stack([x[s:e].T @ x[s:e] for s, e in spans]),
        rtol=1e-4,
        atol=1e-5,
    )
    batch = F.grouped_mm(b, b.mT)
    np.testing.assert_allclose(batch.detach().numpy(), y @ y.swapaxes(1, 2), rtol=1e-5, atol=1e-5)


INT = rabbet.int32
BAD = [
    (((2, 3), (3, 2)), {}, "Have to provide offsets"),
    (((2, 2, 3), (2, 3, 2)), {"offs": rabbet.tensor([1, 2], dtype=INT)}, "no offset if both"),
    (((2, 3), (2, 3, 2)), {"offs": rabbet.tensor([1, 2])}, "have to be int32, got"),
    (((2, 3), (2, 3, 2)), {"offs": rabbet.tensor([1, 3], dtype=INT)}, r"at most 2, got \[1, 3\]"),
    (((2, 3), (2, 3, 2)), {"offs": rabbet.tensor([2, 1], dtype=INT)}, "rise to"),
    (((2, 3), (2, 3, 2)), {"offs": rabbet.tensor([[1, 2]], dtype=INT)}, "has to be 1D"),
    (((2, 3), (3, 3, 2)), {"offs": rabbet.tensor([1, 2], dtype=INT)}, "sizes have to match"),
    (((2, 2, 3), (3, 3, 2)), {}, "sizes have to match"),
    (((2, 2, 3), (2, 4, 2)), {}, "contraction dimension"),
    (((2, 2, 3), (2, 3, 2)), {"bias": rabbet.zeros(2)}, "Bias not supported"),
    (((2, 2, 3), (2, 3, 2)), {"out_dtype": rabbet.float64}, "must match `mat_a` dtype"),
    (((3,), (2, 3, 2)), {}, "has to be 2 or 3d"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_refusals_of_grouped_products(case):
    shapes, options, message = BAD[case]
    with pytest.raises(RuntimeError, match=message):
        F.grouped_mm(*(rabbet.zeros(s) for s in shapes), **options)
    with pytest.raises(RuntimeError, match="Expected mat_a to be Float32"):
        F.grouped_mm(*(rabbet.zeros(s, dtype=rabbet.float64) for s in shapes), **options)
