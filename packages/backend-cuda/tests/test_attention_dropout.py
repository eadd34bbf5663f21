"""Dropout inside attention on the simulator: the CPU's numbers, from seeds and from generators, also in graphs."""

DROPOUT = """
ops = rabbet.ops
F = rabbet.nn.functional
rabbet.manual_seed(0)
close = {F16: 4e-3, BF16: 3e-2, F32: 2e-5, F64: 1e-12}
def judge(q, k, v, mask=None, causal=False, scale=None, grouped=False, dtype=F32, p=0.4, seed=7):
    q, k, v = (rabbet.randn(t).to(dtype) for t in (q, k, v))
    seed = rabbet.tensor(seed)
    given = (q, k, v, seed) if mask is None else (q, k, v, seed, mask)
    def forward(q, k, v, seed, mask=None):
        return ops.attention(q, k, v, mask, causal, scale, grouped, p, seed)
    both(forward, *given, close=close[dtype])
    out, lse = forward(*given)
    g, gl = rabbet.randn(out.shape).to(out.dtype), rabbet.randn(lse.shape).to(lse.dtype)
    def backward(g, gl, q, k, v, out, lse, seed, mask=None):
        return ops.attention_backward(g, gl, q, k, v, mask, out, lse, causal, scale, grouped, p, seed)
    both(backward, g, gl, q, k, v, out, lse, *given[3:], close=close[dtype] * 8)
"""


def test_the_weights_that_a_seed_keeps_are_the_cpus(compared):
    compared(
        DROPOUT
        + """
for dtype in (F64, F32, F16):
    judge((2, 4, 2), (2, 5, 2), (2, 5, 3), dtype=dtype)
    judge((2, 2, 70, 5), (2, 2, 67, 5), (2, 2, 67, 4), causal=True, dtype=dtype, seed=[[3], [-4]])
    judge((1, 4, 3, 40), (1, 2, 6, 40), (1, 2, 6, 70), grouped=True, causal=True, dtype=dtype)
    judge((3, 2), (2, 5, 2), (4, 1, 5, 3), scale=-0.7, dtype=dtype, seed=[1, 2**62])
    judge((2, 1, 8), (2, 700, 8), (2, 700, 8), dtype=dtype)  # in parts
    judge((2, 8, 1, 8), (2, 2, 70, 8), (2, 2, 70, 8), dtype=dtype, grouped=True, p=0.9)
    judge((2, 5, 3), (2, 7, 3), (2, 7, 3), rabbet.rand(2, 5, 7) > 0.4, dtype=dtype)
    judge((2, 5, 3), (2, 7, 3), (2, 7, 3), p=1.0, dtype=dtype)
judge((2, 3, 0), (2, 4, 0), (2, 4, 3))
judge((40, 100), (37, 100), (37, 128), dtype=BF16)
judge((2, 0, 6), (2, 4, 6), (2, 4, 3))
"""
    )


def test_dropout_of_weights_in_memory(compared):
    compared(
        DROPOUT
        + """
x, seeds = rabbet.randn(2, 3, 37, 18), rabbet.tensor([[3], [9]])
for dtype in (F64, F32, F16, BF16):
    both(lambda x, s: ops.attention_dropout(x, s, 0.3), x.to(dtype), seeds)
both(lambda x, s: ops.attention_dropout(x.mT[:, :, ::2], s, 0.3), x, rabbet.tensor([1, 2, 3]))
both(lambda x, s: ops.attention_dropout(x, s, 0.0), x, seeds)
both(lambda x, s: ops.attention_dropout(x, s, 1.0), x, seeds)
"""
    )


def test_generators_graphs_and_checkpoints_know_of_it(compared):
    """A seed of the generator gives the CPU's weights; each replay of a graph drops others, as eager calls do."""
    compared(
        DROPOUT
        + """
from rabbet import accelerator
x = rabbet.randn(1, 2, 21, 8)
def step(x):
    x = x.detach().requires_grad_()
    out = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    out.sum().backward()
    return out.detach(), x.grad
seeded(lambda device: step(x.to(device))[0], 2e-5)
seeded(lambda device: step(x.to(device))[1], 2e-5)
there = x.cuda()
rabbet.manual_seed(3)
eager = [step(there) for _ in range(3)]
assert not rabbet.equal(eager[0][0], eager[1][0])
rabbet.manual_seed(3)
graph, stream = accelerator.Graph(), rabbet.Stream("cuda")
stream.wait_stream(accelerator.current_stream("cuda"))
with stream:
    with graph: made = step(there)
    for expected in eager:
        graph.replay()
        for a, b in zip(expected, made, strict=True): same(a.cpu(), b)
"""
    )
