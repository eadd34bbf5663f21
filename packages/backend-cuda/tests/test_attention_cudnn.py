"""Attention by graphs of the simulator's cuDNN, executed on the host: against the CPU's kernels, and beside those of ours."""

import runpy
from pathlib import Path

import pytest

ATTENTION = runpy.run_path(str(Path(__file__).parent / "test_attention.py"))["ATTENTION"]
# Only cuDNN's kernel and the decomposition: the first call of each size has a plan.
ONLY = """
for ours in ("flash", "mem_efficient"): getattr(rabbet.backends.cuda, f"enable_{ours}_sdp")(False)
"""
HALF = (
    ATTENTION
    + """
def judge_half(*shapes, dtype=F16, **how):
    \"\"\"As judge, but without a gradient of the logarithms, which cuDNN has no graph for.\"\"\"
    causal, scale, grouped = how.get("causal", False), how.get("scale"), how.get("grouped", False)
    q, k, v = (t if isinstance(t, rabbet.Tensor) else rabbet.randn(t).to(dtype) for t in shapes)
    both(lambda q, k, v: ops.attention(q, k, v, None, causal, scale, grouped), q, k, v, close=close[dtype])
    out, lse = ops.attention(q, k, v, None, causal, scale, grouped)
    g = rabbet.randn(out.shape).to(dtype)
    def backward(g, q, k, v, out, lse): return ops.attention_backward(g, None, q, k, v, None, out, lse, causal, scale, grouped)
    both(backward, g, q, k, v, out, lse, close=close[dtype] * 4)
"""
)


@pytest.fixture
def logged(with_cudnn, tmp_path):
    """Environment variables, and how often the stand-in executed plans of attention, or wrote another line."""
    log = tmp_path / "log"
    env = {**with_cudnn, "CUSIM_CUDNN_LOG": str(log), "RABBET_CUDA_FALLBACK": "error"}

    def count(line="execute 5"):
        return log.read_text().splitlines().count(line) if log.exists() else 0

    return env, count


def test_attention_and_its_derivative_agree_with_the_cpu(compared, logged):
    env, executed = logged
    compared(
        HALF
        + ONLY
        + """
judge_half((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 16))
judge_half((2, 3, 9, 8), (2, 3, 9, 8), (2, 3, 9, 16), causal=True, dtype=BF16)
judge_half((1, 2, 9, 8), (1, 2, 4, 8), (1, 2, 4, 8), causal=True, scale=-0.7)
judge_half((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 16), grouped=True)
judge_half((3, 5, 8), (3, 7, 8), (3, 7, 16))
judge_half((5, 8), (7, 8), (7, 16), causal=True)
turned = [rabbet.randn(2, n, 3, 8).to(F16).transpose(1, 2) for n in (5, 7, 7)]
judge_half(*turned)
""",
        **env,
        CUSIM_CHECK="all",
    )
    assert executed() == 14


def test_what_cudnn_does_not_know_goes_without_it(compared, logged):
    """Masks, broadcast heads, sizes that are no multiples of 8, gradients of the logarithms, float32."""
    env, executed = logged
    compared(
        ATTENTION
        + ONLY
        + """
judge((2, 3, 5, 6), (2, 3, 7, 6), (2, 3, 7, 6), dtype=F16)
judge((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8))
judge((2, 3, 5, 8), (1, 3, 7, 8), (2, 3, 7, 8), dtype=F16)
judge((2, 3, 0, 8), (2, 3, 7, 8), (2, 3, 7, 8), dtype=F16)
judge((1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8), rabbet.rand(5, 7) > 0.4, dtype=F16)
""",
        **env,
    )
    assert executed() == 0


def test_each_takes_the_logarithms_of_the_other(compared, logged):
    """Outputs of cuDNN go into our derivative, and the other way around."""
    env, executed = logged
    compared(
        HALF
        + """
q, k, v = (rabbet.randn(1, 2, n, 8).to(F16) for n in (5, 7, 7))
g = rabbet.randn(1, 2, 5, 8).to(F16)
Q, K, V, G = (t.to("cuda") for t in (q, k, v, g))
def enable(cudnn):
    for name in ("flash", "mem_efficient", "cudnn"):
        getattr(rabbet.backends.cuda, f"enable_{name}_sdp")((name == "cudnn") == cudnn)
want = ops.attention_backward(g, None, q, k, v, None, *ops.attention(q, k, v), False, None, False)
for first in (True, False):
    enable(first); out, lse = ops.attention(Q, K, V)
    enable(not first); got = ops.attention_backward(G, None, Q, K, V, None, out, lse, False, None, False)
    for here, there in zip(want, got): same(here, there, close[F16] * 4)
""",
        **env,
    )
    assert executed() == 2


# What has been seen often enough, so that a plan is worth it.
OFTEN = """
q, k, v = (rabbet.randn(1, 2, n, 8).to(F16).to("cuda") for n in (16, 7, 7))
g = rabbet.randn(1, 2, 16, 8).to(F16).to("cuda")
def often(calls=64):
    for _ in range(calls):
        out, lse = ops.attention(q, k, v)
        ops.attention_backward(g, None, q, k, v, None, out, lse, False, None, False)
often()
"""


@pytest.mark.parametrize("planted", ["plan:3001", "heuristics:3000", "execute:5000"])
def test_a_graph_that_is_refused_or_fails_is_ours(compared, logged, planted):
    env, executed = logged
    compared(
        HALF + OFTEN + "judge_half((1, 2, 16, 8), (1, 2, 7, 8), (1, 2, 7, 8))\n",
        **env,
        CUSIM_CUDNN_FAIL=planted,
    )
    assert executed() == 0


def test_decoding_builds_no_plan(compared, logged):
    """Keys become more with every step; one query is also too few where it recurs."""
    env, executed = logged
    compared(
        HALF
        + """
for step in range(12):
    k = rabbet.randn(1, 2, 20 + step, 8).to(F16)
    q = rabbet.randn(1, 4, 1, 8).to(F16)
    K, Q = k.to("cuda"), q.to("cuda")
    for layer in range(70): out, lse = ops.attention(Q, K, K, None, False, None, True)
    same(ops.attention(q, k, k, None, False, None, True)[0], out, close[F16])
""",
        **env,
    )
    assert executed("plan 5") == executed() == 0


def test_prompts_of_many_lengths_build_no_plan(run, logged):
    env, executed = logged
    code = """
import rabbet
for length in range(20, 32):
    q = rabbet.ones(1, 2, length, 8, dtype=rabbet.float16, device="cuda")
    for layer in range(32): rabbet.ops.attention(q, q, q, None, True)
"""
    run(code, **env)
    assert executed("plan 5") == executed() == 0


def test_training_builds_each_plan_once(compared, logged):
    """By ours at first, then by one plan for each direction, with the same results."""
    env, executed = logged
    compared(
        HALF
        + OFTEN
        + """
assert OPENED() == 0
often(6)
assert OPENED() == 2
for _ in range(2): judge_half(q.cpu(), k.cpu(), v.cpu())
""".replace(
            "OPENED()",
            'open(os.environ["CUSIM_CUDNN_LOG"], "a+").seek(0) or open(os.environ["CUSIM_CUDNN_LOG"]).read().count("plan 5")',
        ).replace("assert open", "import os\nassert open"),
        **env,
    )
    assert executed("plan 5") == 2 and executed() == 2 * (6 + 2)


def test_a_plan_on_disk_changes_no_results(run, logged, tmp_path):
    """As many calls are ours in a process that finds one as in the one that wrote it."""
    env, executed = logged
    env = {**env, "RABBET_CUDA_CACHE": str(tmp_path / "cache")}
    code = """
import rabbet
q = rabbet.ones(1, 2, 16, 8, dtype=rabbet.float16, device="cuda")
for _ in range(66): rabbet.ops.attention(q, q, q)
"""
    run(code, **env)
    assert (executed("plan 5"), executed("read 5"), executed()) == (1, 0, 2)
    run(code, **env)
    assert (executed("plan 5"), executed("read 5"), executed()) == (1, 1, 4)


# The query's gradient is added up in memory that versions before 9.6.0 want to be zero, and in
# their own order.
@pytest.mark.parametrize("version", ["90000", "90501", "90600", "91900"])
def test_the_query_s_gradient_is_right_in_every_version(compared, logged, version):
    env, executed = logged
    compared(
        HALF
        + ONLY
        + "for _ in range(2): judge_half((1, 2, 16, 8), (1, 2, 128, 8), (1, 2, 128, 8))\n",
        **env,
        CUSIM_CHECK="all",
        CUSIM_CUDNN_VERSION=version,
    )
    assert executed() == 4


# Calls that NVIDIA's front end keeps from a version or a device: capability, version, and how many of
# the forward and backward passes cuDNN then executes.
KEPT_BACK = [
    ("90", "91000", "both(16, 128)", 0),  # known bugs
    ("90", "91001", "both(16, 128)", 0),
    ("90", "91002", "both(16, 128)", 2),
    ("90", "91500", "both(16, 100)", 1),  # reads beyond the keys
    ("90", "91501", "both(16, 100)", 2),
    ("90", "91900", "both(1, 1)", 1),
    ("90", "91900", "both(1, 128, causal=True)", 1),
    ("90", "91900", "both(16, 128, gaps=True)", 1),  # between the logarithms of sums
    ("90", "92600", "both(16, 128, gaps=True)", 2),
    ("100", "91900", "both(16, 128)", 2),
    ("100", "91900", "fixed(); both(16, 128)", 1),  # needs an engine that is chosen by its number
    ("90", "91900", "fixed(); both(16, 128)", 2),
]


@pytest.mark.parametrize("capability,version,call,runs", KEPT_BACK)
def test_what_a_version_does_wrong_goes_without_it(
    compared, logged, capability, version, call, runs
):
    env, executed = logged
    code = """
def fixed(): rabbet.use_deterministic_algorithms(True)
def both(length, keys, causal=False, gaps=False):
    q, k = (rabbet.randn(1, 2, n, 8).to(F16).to("cuda") for n in (length, keys))
    out, lse = ops.attention(q, k, k, None, causal)
    if gaps: lse = rabbet.stack([lse, lse], -1)[..., 0]
    ops.attention_backward(out, None, q, k, k, None, out, lse, causal, None, False)
"""
    compared(
        HALF + ONLY + code + call,
        **env,
        CUSIM_CAPABILITY=capability,
        CUSIM_CUDNN_VERSION=version,
    )
    assert executed() == runs


def test_timing_leaves_right_gradients(compared, logged):
    """The query's gradient is added up: every execution begins at zero."""
    env, executed = logged
    compared(
        HALF
        + ONLY
        + "rabbet.backends.cudnn.benchmark = True\njudge_half((1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8))\n",
        **env,
    )
    assert executed() == 2 * (2 * 4 + 1)  # the engine comes from both heuristics


def test_deterministic_gradients_are_not_added_up(compared, logged):
    env, executed = logged
    compared(
        HALF
        + ONLY
        + "rabbet.use_deterministic_algorithms(True)\njudge_half((1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8))\n",
        **env,
    )
    assert executed() == 2


def test_a_graph_replays_attention(run, logged):
    env, executed = logged
    code = """
import rabbet, rabbet.nn
attend = rabbet.nn.functional.scaled_dot_product_attention
rabbet.manual_seed(0)
step = rabbet.cuda.graph(lambda q: attend(q, q, q, is_causal=True) * 2)
for i in range(3):
    q = rabbet.randn(1, 2, 16, 8).to(rabbet.float16)
    far = (step(q.to("cuda")).cpu() - attend(q, q, q, is_causal=True) * 2).abs().max().item()
    assert far < 1e-2, far
"""
    run(code, **env)
    # A capture is worth a plan at once, as it is replayed; what warms up is not.
    assert executed() == executed("plan 5") == 1


def test_the_kernel_that_is_asked_for_runs(compared, logged):
    """cuDNN executes what it may and is asked to; without it and ours attention goes step by step, or is refused."""
    env, executed = logged
    compared(
        HALF
        + """
from rabbet.nn.attention import SDPBackend, sdpa_kernel
MATH, FLASH, EFFICIENT, CUDNN = (getattr(SDPBackend, n) for n in
    ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"))
attend = rabbet.nn.functional.scaled_dot_product_attention
q = rabbet.randn(1, 2, 5, 8).to(F16)
there, wide = q.to("cuda"), q.to("cuda", F32)
want = attend(q, q, q)
def refused(message, x, backends):
    with sdpa_kernel(backends):
        try: attend(x, x, x)
        except RuntimeError as error: assert message in str(error), error
        else: raise AssertionError("not refused")
with sdpa_kernel(CUDNN): same(want, attend(there, there, there), close[F16])                     # 1
with sdpa_kernel([FLASH, CUDNN]): same(want, attend(there, there, there), close[F16])
with sdpa_kernel([CUDNN, FLASH], set_priority=True): same(want, attend(there, there, there), close[F16])
with sdpa_kernel([CUDNN, MATH]): same(want, attend(there, there, there), close[F16])             # 2
for backends in ([MATH], [FLASH], [EFFICIENT, MATH]):
    with sdpa_kernel(backends): same(want, attend(there, there, there), close[F16])
with sdpa_kernel([MATH, FLASH, CUDNN], set_priority=True): same(want, attend(there, there, there), close[F16])
with sdpa_kernel([CUDNN, MATH]): same(want.to(F32), attend(wide, wide, wide), close[F16])
refused("No viable backend for scaled_dot_product_attention was found.", there, [])
refused("No available kernel. Aborting execution.", wide, CUDNN)
rabbet.manual_seed(1)
dropped = attend(there, there, there, dropout_p=0.5)
rabbet.manual_seed(1)
with sdpa_kernel(MATH): same(dropped.cpu(), attend(there, there, there, dropout_p=0.5), close[F16])
x = there.clone().requires_grad_()
with sdpa_kernel(MATH): attend(x, x, x).sum().backward()
y = q.clone().requires_grad_()
attend(y, y, y).sum().backward()
same(y.grad, x.grad, close[F16] * 4)
""",
        **env,
    )
    assert executed() == 2
