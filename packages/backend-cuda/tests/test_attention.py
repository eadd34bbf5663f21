"""Attention on the simulator, against the CPU's kernels and the textbook's formula by NumPy."""

from pathlib import Path

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


def test_nan_stays_under_a_mask_as_in_pytorch(compared):
    compared(
        ATTENTION
        + """
k = rabbet.randn(2, 7, 3)
k[0, 2], k[1, 3] = float("nan"), float("inf")
truth = rabbet.ones(5, 7) == 1
truth[:, 2:4] = False
truth[:3, 4] = False
judge(rabbet.rand(2, 5, 3), k, (2, 7, 3), truth)
judge(rabbet.rand(2, 5, 3).to(F16), k.to(F16), (2, 7, 3), truth, dtype=F16)
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


def test_halves_on_tensor_cores(run, simulator, tmp_path):
    """Odd lengths, head sizes, causal, strides that need a copy, blocks of 4 and of 8 warps."""
    code = (
        ATTENTION
        + """
import os
judge((2, 2, 9, 24), (2, 1, 37, 24), (2, 1, 37, 16), causal=True, dtype=BF16)
judge((70, 64), (130, 64), (130, 40), dtype=BF16)
judge((2, 1, 8), (2, 1, 8), (2, 1, 8), dtype=F16)
judge((1, 2, 70, 40), (1, 2, 67, 40), (1, 2, 67, 33), causal=True, dtype=F16)
judge((1, 4, 3, 8), (1, 2, 45, 8), (1, 2, 45, 16), grouped=True, causal=True, dtype=F16)
judge((130, 64), (70, 64), (70, 64), causal=True, dtype=F16)
judge((33, 80), (129, 80), (129, 80), scale=-0.1, dtype=F16)
judge((3, 128), (70, 128), (70, 121), dtype=F16)
judge((70, 113), (40, 113), (40, 128), dtype=F16, causal=True)
judge((2, 8, 1, 40), (2, 2, 5, 40), (2, 2, 5, 40), grouped=True, dtype=F16)
judge((128, 2, 100), (128, 5, 100), (128, 5, 100), dtype=F16)
judge((4, 32, 20, 16), (32, 37, 16), (4, 1, 37, 24), dtype=F16)
x = rabbet.randn(2, 9, 3, 3, 24).to(F16)  # (batch, length, what, head, size)
judge(*(x[:, :, i].transpose(1, 2) for i in range(3)), dtype=F16, causal=True)
judge(*(x[:, :, i].transpose(1, 2).transpose(2, 3)[:, :, ::2].mT for i in range(3)), dtype=F16)
judge(*(x[1, ::2, i, 0].expand(3, 5, 24) for i in range(3)), dtype=F16)
truth = rabbet.rand(2, 21, 70) > 0.6
truth[0, 1] = False
truth[1, :, 3:69] = False
judge((2, 21, 40), (2, 70, 40), (2, 70, 40), truth, dtype=F16)
judge((2, 2, 21, 16), (2, 2, 70, 16), (2, 2, 70, 16), truth[:, None], dtype=F16, causal=True)
judge((2, 21, 40), (2, 70, 40), (2, 70, 40), rabbet.randn(70).to(BF16), causal=True, dtype=BF16)
judge((2, 21, 16), (2, 70, 16), (2, 70, 16), rabbet.randn(21, 1).to(F64), dtype=F16)
least = rabbet.where(truth, 0.0, -3.4028234663852886e38)  # some models' masks: finite
judge((2, 21, 16), (2, 70, 16), (2, 70, 16), least, dtype=F16)
nan = rabbet.randn(2, 9, 16).to(F16).cuda()
hurt = nan.clone(); hurt[0, 2] = float("nan")
out, lse = rabbet.ops.attention(hurt, nan, nan)
assert out[0, 2].isnan().all().item() and lse[0, 2].isnan().item() and not out[0, 3].isnan().any().item()
macros = {line.split("(")[0] for name in os.listdir(KEPT) for line in open(f"{KEPT}/{name}") if line.startswith("RB_A")}
assert macros == {"RB_ATTENTION_ROWS\\n"} | {"RB_ATTENTION_MMA" + s for s in ("", "_KEYS", "_QUERIES")}, macros
"""
    )
    begin = (Path(__file__).parent / "compared.py").read_text() + f"KEPT = {str(tmp_path)!r}\n"
    run(
        begin + code,
        **simulator,
        RABBET_CUDA_FALLBACK="error",
        CUSIM_CHECK="all",
        RABBET_CUDA_EXACT="1",
        RABBET_CUDA_KEEP_SOURCES=str(tmp_path),
    )


def test_few_queries_of_many_keys_are_split_along_keys(run, simulator, tmp_path):
    code = (
        ATTENTION
        + """
import os
def forward(q, k, v, mask=None, causal=False, grouped=False, dtype=F32):
    q, k, v = (rabbet.randn(s).to(dtype) for s in (q, k, v))
    given = (q, k, v) if mask is None else (q, k, v, mask)
    both(lambda q, k, v, mask=None: ops.attention(q, k, v, mask, causal, None, grouped), *given, close=close[dtype])
for dtype in (F16, F32, F64):
    forward((2, 1, 24), (2, 700, 24), (2, 700, 8), dtype=dtype)
    forward((1, 8, 1, 16), (1, 2, 1030, 16), (1, 2, 1030, 16), grouped=True, dtype=dtype)
    forward((600, 16), (600, 16), (600, 20), causal=True, dtype=dtype)
    seen = rabbet.rand(2, 3, 1000) > 0.5
    seen[0, 0], seen[0, 1, :500], seen[1, 1, 200:] = False, False, False
    forward((2, 3, 8), (2, 1000, 8), (2, 1000, 16), seen, dtype=dtype)
    forward((2, 4, 1, 8), (2, 2, 1000, 8), (2, 2, 1000, 16), rabbet.randn(2, 4, 1, 1000), grouped=True, dtype=dtype)
q = rabbet.randn(3, 16).cuda(); q[1] = float("nan")
out, lse = ops.attention(q, rabbet.randn(900, 16).cuda(), rabbet.randn(900, 16).cuda())
assert out.isnan().any(-1).cpu().tolist() == lse.isnan().cpu().tolist() == [False, True, False]
assert sum("RB_ATTENTION_COMBINE" in open(f"{KEPT}/{name}").read().splitlines()[-1] for name in os.listdir(KEPT)) == 3
"""
    )
    begin = (Path(__file__).parent / "compared.py").read_text() + f"KEPT = {str(tmp_path)!r}\n"
    run(
        begin + code,
        **simulator,
        RABBET_CUDA_FALLBACK="error",
        CUSIM_CHECK="all",
        RABBET_CUDA_KEEP_SOURCES=str(tmp_path),
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
