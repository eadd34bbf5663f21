"""Attention on the simulator, against the CPU's kernels and the textbook's formula by NumPy."""

ATTENTION = """
ops = rabbet.ops
rabbet.manual_seed(0)
close = {F16: 4e-3, BF16: 3e-2, F32: 2e-5, F64: 1e-12}
def judge(q, k, v, mask=None, causal=False, scale=None, grouped=False, dtype=F32):
    q, k, v = (t if isinstance(t, rabbet.Tensor) else rabbet.randn(t).to(dtype) for t in (q, k, v))
    given = (q, k, v) if mask is None else (q, k, v, mask)
    def forward(q, k, v, mask=None): return ops.attention(q, k, v, mask, causal, scale, grouped)
    both(forward, *given, close=close[dtype])
    out, lse = forward(*given)
    g, gl = rabbet.randn(out.shape).to(out.dtype), rabbet.randn(lse.shape).to(lse.dtype)
    def backward(g, gl, q, k, v, out, lse, mask=None):
        return ops.attention_backward(g, gl, q, k, v, mask, out, lse, causal, scale, grouped)
    both(backward, g, gl, q, k, v, out, lse, *given[3:], close=close[dtype] * 4)
"""


def test_attention_and_its_derivative_agree_with_the_cpu(compared):
    compared(
        ATTENTION
        + """
judge((2, 4, 2), (2, 5, 2), (2, 5, 3))
judge((3, 2), (2, 5, 2), (4, 1, 5, 3), scale=-0.7)
judge((2, 2, 70, 5), (2, 2, 67, 5), (2, 2, 67, 4), causal=True)
judge((1, 4, 3, 40), (1, 2, 6, 40), (1, 2, 6, 70), grouped=True, causal=True)
judge((2, 3, 6), (2, 0, 6), (2, 0, 3))
judge((2, 0, 6), (2, 4, 6), (2, 4, 3))
judge((2, 3, 0), (2, 4, 0), (2, 4, 3))
judge(rabbet.randn(2, 3, 4).mT, rabbet.randn(3, 2, 3).transpose(0, 1), rabbet.randn(2, 6, 5)[:, ::2])
"""
    )


def test_masks_of_numbers_and_truth_values(compared):
    compared(
        ATTENTION
        + """
truth = rabbet.rand(2, 5, 7) > 0.4
truth[0, 1] = False  # no key is seen: 0, and -inf
judge((2, 5, 3), (2, 7, 3), (2, 7, 3), truth)
judge((2, 2, 5, 3), (2, 2, 7, 3), (2, 2, 7, 3), truth[:, None])
judge((2, 5, 3), (2, 7, 3), (2, 7, 3), rabbet.randn(7), causal=True)
judge((2, 5, 3), (2, 7, 3), (2, 7, 3), rabbet.randn(5, 1).to(F64))
wide = rabbet.randn(2, 5, 7)
judge((2, 5, 3), (2, 7, 3), (2, 7, 3), wide.masked_fill(wide > 0, -float("inf")))
"""
    )


def test_dtypes_and_wide_heads(compared):
    compared(
        ATTENTION
        + """
for dtype in (F64, F16, BF16):
    judge((2, 4, 9), (2, 5, 9), (2, 5, 3), dtype=dtype)
judge((3, 256), (5, 256), (5, 300))
judge((1, 3, 33), (1, 40, 33), (1, 40, 140), dtype=F64, causal=True)
"""
    )


def test_results_are_softmax_of_scores_times_values(compared):
    compared(
        """
q, k, v = (numbers.standard_normal(s) for s in ((2, 9, 4), (2, 130, 4), (2, 130, 3)))
s = q @ k.swapaxes(-1, -2) / 2
w = np.exp(s - s.max(-1, keepdims=True))
want = w @ v / w.sum(-1, keepdims=True)
F = rabbet.nn.functional
for dtype, close in ((F32, 1e-5), (F64, 1e-12)):
    on = [rabbet.tensor(t, dtype=dtype, device="cuda") for t in (q, k, v)]
    same(rabbet.tensor(want).to(dtype), F.scaled_dot_product_attention(*on), close)
    lse = rabbet.ops.attention(*on)[1]
    same(rabbet.tensor(np.log(np.exp(s).sum(-1))).to(lse.dtype), lse, close)
nan = on[0].clone(); nan[0, 2] = float("nan")
out, lse = rabbet.ops.attention(nan, *on[1:])
assert out[0, 2].isnan().all().item() and lse[0, 2].isnan().item() and not out[0, 3].isnan().any().item()
"""
    )
