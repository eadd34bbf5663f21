"""RABBET_CUDA_EXACT=1: each tensor is an allocation of its own, so that one element too far is an error."""

import runpy
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DRIVE = f"import sys; sys.path.insert(0, {str(HERE)!r})\nfrom drive import *\nimport rabbet\n"
ALL = {"CUSIM_CHECK": "all", "RABBET_CUDA_FALLBACK": "error"}
VARIABLES = ("RABBET_CUDA_EXACT", "PYTORCH_NO_CUDA_MEMORY_CACHING")

# Elements `first` to `last` of a tensor of 5 are written.
WRITE = """
start()
f = kernel('extern "C" __global__ void rb_kernel(float* x, int at) { x[at] = 1; }')
def write(at):
    x = rabbet.zeros(5, device="cuda")
    return run(f, [c_ulonglong(x.data_ptr()), at]), words(700)
"""


@pytest.mark.parametrize("variable", VARIABLES)
def test_one_element_behind_a_tensor_is_reported(run, simulator, variable):
    code = """
status, said = write(4); assert status == 0, said
assert rabbet.cuda.memory_reserved() == 0, "nothing is kept"
status, said = write(5); assert status == 700 and "0 bytes behind the 20 bytes" in said, (status, said)
"""
    run(DRIVE + WRITE + code, **{variable: "1"}, **ALL, **simulator)


def test_segments_hide_it(run, simulator):
    """Why there is the variable."""
    run(DRIVE + WRITE + "status, said = write(5); assert status == 0, said\n", **ALL, **simulator)


def test_memory_that_was_given_back_is_not_read(run, simulator):
    code = """
x = rabbet.zeros(5, device="cuda")
where = c_ulonglong(x.data_ptr())
del x
y = rabbet.zeros(5, device="cuda")
assert run(f, [where, 0]) == 700 and "was freed" in words(700), words(700)
"""
    run(DRIVE + WRITE + code, RABBET_CUDA_EXACT="1", **ALL, **simulator)


def test_graphs_keep_their_memory(run, simulator):
    code = """
import rabbet
x, graph, side = rabbet.ones(5, device="cuda"), rabbet.cuda.CUDAGraph(), rabbet.cuda.Stream()
outside = rabbet.ones(3, device="cuda")
side.wait_stream(rabbet.cuda.current_stream())
with rabbet.cuda.stream(side): (x * 2 + 1).sum()
rabbet.cuda.synchronize()
with rabbet.cuda.graph(graph):
    del outside
    y = (x * 2 + 1).sum()
for step in range(3):
    x.fill_(float(step)); graph.replay(); assert y.item() == 5 * (2 * step + 1)
del graph, y
rabbet.cuda.empty_cache()
print(rabbet.cuda.memory_reserved())
"""
    assert run(code, RABBET_CUDA_EXACT="1", **ALL, **simulator) == "20\n"


GPU_CHECK = HERE.parent / "tools" / "gpu_check"
FAMILIES = runpy.run_path(str(GPU_CHECK / "family_names.py"))["FAMILIES"]


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_of_a_family_stay_within_their_tensors(run, simulator, family):
    """What gpu_check gives to compute-sanitizer, under the simulator's checkers."""
    start = f"import sys; sys.path.insert(0, {str(GPU_CHECK)!r}); sys.argv[1:] = [{family!r}, '--plain']\n"
    code = start + "import family; assert family.main() == 0"
    run(code, RABBET_CUDA_EXACT="1", CUSIM_ORDER="random:3", **ALL, **simulator)


# Faults in the texts of kernels: what is replaced, by what, what is called, and words of the report.
X = "x = rabbet.ones(5, 67, device='cuda'); "
LOSS = (
    X + "rabbet.nn.functional.cross_entropy(x, rabbet.ones(5, dtype=rabbet.int64, device='cuda'))"
)
HALVES = "x = rabbet.ones(64, 128, device='cuda', dtype=rabbet.bfloat16); x @ x.t()"
ATTENTION = (
    "q = rabbet.ones(1, 1, 64, 16, device='cuda', dtype=rabbet.bfloat16); "
    "rabbet.nn.functional.scaled_dot_product_attention(q, q, q)"
)
RECURRENT = (
    "x, h, w = (rabbet.ones(n, 40, device='cuda').requires_grad_() for n in (6, 2, 40)); "
    "rabbet.ops.recurrent_layer('tanh', x, h, None, w, None)[0].sum().backward()"
)
CONVOLUTION = (
    "x, w = (rabbet.ones(n, 8, s, s, device='cuda', dtype=rabbet.bfloat16) for n, s in ((1, 5), (9, 3))); "
    "rabbet.nn.functional.conv2d(x, w, padding=1)"
)
FAULTS = {
    "a loop over elements goes one too far": (
        "i < (n); i += RB_THREADS", "i <= (n); i += RB_THREADS", "rabbet.eye(5, device='cuda')", "bytes behind the 100 bytes"),
    "a loop along lines goes one too far": (
        "rest + lane; i < n; i += width", "rest + lane; i <= n; i += width", LOSS, "bytes behind the 1340 bytes"),
    "an index of the size is taken": (
        "(UInt64)at < (UInt64)reach.size", "(UInt64)at <= (UInt64)reach.size",
        X + "x.index_select(0, rabbet.tensor([5]).cuda())", "bytes behind the 1340 bytes"),
    "a tile's last row is not looked at": (
        "r < kept.n ? inner.n : 0", "r <= kept.n ? inner.n : 0", X + "x.softmax(1)", "race"),
    "parts of a block are read before they are there": (
        "parts[RB_WARP] = v;\n  __syncthreads();", "parts[RB_WARP] = v;",
        LOSS, "never written"),
    "places that meet are added to without atomic operations": (
        "{ atomicAdd(p, v); }", "{ *p += v; }",
        X + "x.index_add_(0, rabbet.tensor([1, 1]).cuda(), x[:2].clone())", "race"),
    "a product's tiles are not waited for": (
        "wait_for_steps<STAGES - 2>();", "wait_for_steps<STAGES>();", HALVES, "of shared memory"),
    "a product's tiles are overwritten while others read them": (
        "wait_for_steps<STAGES - 2>();\n    __syncthreads();", "wait_for_steps<STAGES - 2>();", HALVES, "of shared memory"),
    "a position behind the last one is read": (
        "column.moved[2]) < (UInt32)c.limit[2]", "column.moved[2]) <= (UInt32)c.limit[2]", CONVOLUTION,
        "bytes behind the 400 bytes"),
    "what a convolution gathered is not kept": ("keep((stage + 1) % STAGES, step + 1);", ";", CONVOLUTION, "of shared memory"),
    "a convolution's tiles are overwritten while others read them": (
        "wait_for_steps<STAGES - 2>();\n    __syncthreads();", "wait_for_steps<STAGES - 2>();", CONVOLUTION, "of shared memory"),
    "keys are not waited for": (
        "wait_for_steps<STAGES - 2>();\n    __syncthreads();", "wait_for_steps<STAGES - 1>();\n    __syncthreads();",
        ATTENTION, "of shared memory"),
    "states of the step before are not waited for": (
        ".at[me.q] = h;\n    __syncthreads();", ".at[me.q] = h;", RECURRENT, "of shared memory"),
    "states are overwritten while others read them": (
        "states[(s + 1) & 1][me.unit]", "states[s & 1][me.unit]", RECURRENT, "of shared memory"),
    "gradients of a step are not waited for": (
        "= theirs[k];\n    __syncthreads();", "= theirs[k];", RECURRENT, "of shared memory"),
    "a block's sequences are not those of the batch": (
        "|| sequence >= p.batch", "|| sequence > p.batch", RECURRENT, "bytes behind the"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_a_kernel_is_found(run, simulator, name):
    right, wrong, call, said = FAULTS[name]
    code = f"""
import os, rabbet
def call():
    {call}
    rabbet.cuda.synchronize()
if "CUSIM_REPLACE" in os.environ or "index of" not in {name!r}: call()
"""
    env = {"RABBET_CUDA_EXACT": "1", **ALL, **simulator, "RABBET_CUDA_CUBLASLT": ""}
    run(code, **env)
    with pytest.raises(AssertionError, match=f"DeviceError.*{said}"):
        run(code, CUSIM_REPLACE=right, CUSIM_REPLACE_BY=wrong, **env)
