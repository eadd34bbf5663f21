"""Plans of cuBLASLt and cuDNN that fail, are many, are captured, or are used by several threads: on stand-ins for both."""

import os
import subprocess
import sys

import pytest

START = """
import ctypes, os, rabbet
ops = rabbet.ops
rabbet.manual_seed(0)
def far(y, z): return (y.cpu().to(rabbet.float32) - z).abs().max().item()
"""
# One call of each library: `call` on the device, and what comes out.
CALLS = {
    "cublaslt": """
a, b = rabbet.randn(8, 16), rabbet.randn(16, 8)
A, B = a.to("cuda"), b.to("cuda")
def call(x=A): return x @ B
def check(y): assert far(y, a @ b) < 1e-5, far(y, a @ b)
""",
    "cudnn": """
x, w = rabbet.randn(2, 4, 6, 6), rabbet.randn(8, 4, 3, 3)
X, W = x.to("cuda"), w.to("cuda")
want = ops.convolution(x, w, None, [1], [1], [1], 1)
def call(x=X): return ops.convolution(x, W, None, [1], [1], [1], 1)
def check(y): assert far(y, want) < 1e-1, far(y, want)
""",
}
# Executions, in the logs of the stand-ins; their algorithms, the preferred one first.
EXECUTE = {"cublaslt": "multiply", "cudnn": "execute"}
ALGORITHMS = {"cublaslt": [0, 1, 2], "cudnn": [1, 0, 2, 3]}
LIBRARY = {"cublaslt": "cuBLASLt", "cudnn": "cuDNN"}
OPERATOR = {"cublaslt": "matmul", "cudnn": "convolution"}
both = pytest.mark.parametrize("library", list(CALLS))


class Ran:
    """What a program printed and warned of, and which algorithms ran or failed."""

    def __init__(self, done, log, library):
        assert done.returncode == 0, done.stdout + done.stderr
        self.out, self.warnings = done.stdout, done.stderr
        lines = log.read_text().splitlines() if log.exists() else []
        words = [line.split() for line in lines]
        self.algorithms = [int(number) for word, number in words if word == EXECUTE[library]]
        self.failed = [int(number) for word, number in words if word == "failed"]
        self.searches = len([line for line in lines if line.startswith(("choose", "plan"))])


@pytest.fixture
def program(with_cudnn, tmp_path):
    """Run code with the stand-ins of both libraries, whose failures are planted by `fail`."""
    logs = iter(range(100))

    def run(library, code, fail="", **env):
        log, name = tmp_path / f"log{next(logs)}", library.upper()
        env = {**with_cudnn, f"CUSIM_{name}_LOG": str(log), f"CUSIM_{name}_FAIL": fail, **env}
        env["RABBET_CUDA_FALLBACK"] = "error"
        command = [sys.executable, "-c", START + CALLS[library] + code]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
        return Ran(done, log, library)

    return run


@both
def test_an_algorithm_that_fails_gives_way_to_the_next(program, library):
    first, second, *_ = ALGORITHMS[library]
    code = "for _ in range(3): check(call())"
    ran = program(library, code, f"{EXECUTE[library]}{first}:14")
    assert ran.algorithms == [second] * 3 and ran.failed == [first]  # it is not tried again
    assert ran.warnings.count("takes its place") == 1 and LIBRARY[library] in ran.warnings
    assert f"{OPERATOR[library]} on 'cuda:0'" in ran.warnings


@both
def test_a_failure_that_passes_is_not_met_again(program, library):
    second = ALGORITHMS[library][1]
    ran = program(library, "for _ in range(3): check(call())", f"{EXECUTE[library]}:14*1")
    assert ran.algorithms == [second] * 3


@both
def test_our_kernel_takes_the_place_of_algorithms_that_all_fail(program, library):
    """With one warning for the operator, also for other sizes."""
    code = "for _ in range(3): check(call())\ncall(A[:4] if 'A' in globals() else X[:1])"
    ran = program(library, code, f"{EXECUTE[library]}:14")
    assert ran.algorithms == [] and ran.failed == ALGORITHMS[library] * 2  # for each of two sizes
    assert ran.warnings.count("takes its place") == 1 and "14" in ran.warnings


def test_each_operator_is_warned_of(program):
    code = """
check(call())
ops.convolution_dx(want.to("cuda"), W, [2, 4, 6, 6], [1], [1], [1], 1)
"""
    ran = program("cudnn", code, "execute:5000")
    assert ran.warnings.count("takes its place") == 2
    assert "convolution on" in ran.warnings and "convolution_dx on" in ran.warnings


@both
def test_a_search_that_fails_leaves_the_call_to_our_kernel(program, library):
    where = {"cublaslt": "choose:14", "cudnn": "heuristics:4000"}[library]
    ran = program(library, "for _ in range(2): check(call())", where)
    assert ran.algorithms == [] and ran.warnings.count("of this backend") == 1


def test_results_are_right_where_the_library_fails_between_batches(program):
    """Those that it wrote before are written again, by our kernel."""
    code = """
p, q = rabbet.randn(3, 2, 8, 16).transpose(0, 1), rabbet.randn(2, 1, 16, 8)
assert far(p.to("cuda") @ q.to("cuda"), p @ q) < 1e-5
"""
    assert len(program("cublaslt", code).algorithms) > 1
    ran = program("cublaslt", code, "multiply0:14+1,multiply1:14,multiply2:14")
    assert ran.algorithms == [0]


def test_what_is_added_is_not_lost_where_the_library_fails(program):
    """It was in the result's memory, for the library to add to."""
    code = """
c = rabbet.randn(8, 1)
assert far(ops.addmm(c.to("cuda"), A, B, beta=2.0), ops.addmm(c, a, b, beta=2.0)) < 1e-5
"""
    assert program("cublaslt", code).algorithms == [0]
    assert program("cublaslt", code, "multiply:14").algorithms == []


# What else the libraries compute: each as on the CPU where no algorithm runs.
OTHERS = {
    "bias and activation": "linear_activation(a[:, :8], w, v, activation='relu')",
    "other activation": "linear_activation(a[:, :8], w, v, activation='silu')",
    "integers": "_int_mm(i, i.t())",
    "bias of a convolution": "convolution(x, f, v, [1], [1], [1], 1)",
    "convolution's input": "convolution_dx(y, f, [2, 4, 6, 6], [1], [1], [1], 1)",
    "convolution's weight": "convolution_dw(x, y, [16, 4, 3, 3], [1], [1], [1], 1)",
}
GIVEN = """
def same_as_here(call):
    given = dict(a=rabbet.randn(4, 16), w=rabbet.randn(16, 8), v=rabbet.randn(16), x=rabbet.randn(2, 4, 6, 6),
                 f=rabbet.randn(16, 4, 3, 3), y=rabbet.randn(2, 16, 6, 6), i=rabbet.randint(-9, 9, (32, 32)).to(rabbet.int8))
    there = {name: t.to("cuda") for name, t in given.items()}
    far_off = far(eval("ops." + call, {"ops": ops, **there}), eval("ops." + call, {"ops": ops, **given}))
    assert far_off < 1e-4, far_off
"""


@pytest.mark.parametrize("name", OTHERS)
def test_every_call_of_a_library_can_go_without_it(program, name):
    library = "cudnn" if "convolution" in name else "cublaslt"
    code = f"{GIVEN}\nrabbet.backends.cudnn.allow_tf32 = False\nsame_as_here({OTHERS[name]!r})"
    ran = program(library, code, f"{EXECUTE[library]}:14")
    assert ran.algorithms == [] and ran.failed != []


def test_floats_of_8_bits_can_go_without_it(program):
    code = """
e4m3, one = rabbet.float8_e4m3fn, rabbet.ones((), device="cuda")
x, y = rabbet.randn(16, 32), rabbet.randn(16, 32)
X, Y = (t.to("cuda").to(e4m3) for t in (x, y))
def multiply(): return rabbet._scaled_mm(X, Y.t(), one, one, out_dtype=rabbet.float32)
want = X.cpu().to(rabbet.float32) @ Y.cpu().to(rabbet.float32).t()
assert far(multiply(), want) < 1e-4
"""
    assert program("cublaslt", code).algorithms != []
    ran = program("cublaslt", code, "multiply:14")
    assert ran.algorithms == [] and ran.failed != []


# Operands of a batch, its matrices `step` elements apart.
STEPPED = """
def stepped(step, rows, columns, batch=(3,), device="cuda"):
    steps = (*(step * 3**d for d in reversed(range(len(batch)))), columns, 1)
    memory = rabbet.randn(step * 3 ** len(batch)).to(device)
    return memory.as_strided((*batch, rows, columns), steps)
def judge(a, b, added=None, out=None):
    here = [None if t is None else t.cpu() for t in (added, a, b)]
    if added is None: there = rabbet.matmul(a, b, out=out)
    else: there = rabbet.baddbmm(added, a, b, out=out)
    rabbet.cuda.synchronize()
    want = here[1] @ here[2] if added is None else rabbet.baddbmm(*here)
    assert far(there, want) < 1e-5, far(there, want)
"""
# Of 8 x 16 and 16 x 8 elements: 132 keep 16 bytes, 129 do not, and the library is to know it.
BATCHES = {
    "first": "judge(stepped({}, 8, 16), stepped(128, 16, 8))",
    "second": "judge(stepped(128, 8, 16), stepped({}, 16, 8))",
    "added": "judge(stepped(128, 8, 16), stepped(128, 16, 8), stepped({}, 8, 8))",
    "result": "judge(stepped(128, 8, 16), stepped(128, 16, 8), stepped(128, 8, 8), stepped({}, 8, 8))",
    "outer first": "judge(stepped({}, 8, 16, (3, 3)).transpose(0, 1), stepped(128, 16, 8, (3, 1)))",
    "outer second": "judge(stepped(128, 8, 16, (3, 1)), stepped({}, 16, 8, (3, 3)).transpose(0, 1))",
}


@pytest.mark.parametrize("name", BATCHES)
def test_the_library_is_told_how_later_batches_are_aligned(program, name):
    """A batch's first matrix may be aligned better than those after it."""
    for step, algorithm in ((132, 0), (129, 1)):
        ran = program("cublaslt", STEPPED + BATCHES[name].format(step))
        assert set(ran.algorithms) == {algorithm}, (step, ran.algorithms)


@both
def test_a_failure_in_a_capture_is_passed_over(program, library):
    """The graph has the algorithm that was captured after it."""
    first, second, *_ = ALGORITHMS[library]
    code = """
stream, graph = rabbet.Stream("cuda"), rabbet.accelerator.Graph()
with stream, graph: y = call()
for _ in range(2):
    y.zero_(); graph.replay(); rabbet.cuda.synchronize(); check(y)
"""
    ran = program(library, code, f"{EXECUTE[library]}{first}:14")
    assert ran.algorithms == [second] and ran.warnings.count("takes its place") == 1
    ran = program(library, code, f"{EXECUTE[library]}:14")
    assert ran.algorithms == [] and ran.warnings.count("takes its place") == 1


@both
def test_a_failure_that_ends_a_capture_names_the_operator(program, library):
    code = """
stream, graph = rabbet.Stream("cuda"), rabbet.accelerator.Graph()
try:
    with stream, graph: call()
except RuntimeError as error: print(error)
for name in [*os.environ]:
    if name.endswith("_FAIL"): del os.environ[name]
check(call())
"""
    said = program(library, code, "spoil:14").out
    assert (
        f"{OPERATOR[library]} on 'cuda:0'" in said and "invalidated the capture in progress" in said
    )


@both
def test_a_device_that_does_not_recover_is_an_error(program, library):
    """What fails there did nothing wrong, and nothing else can run."""
    code = """
x = rabbet.ones(64, device="cuda")
x.tolist()
(segment,) = [s for s in rabbet.accelerator.memory_snapshot() if s["address"] <= x.data_ptr() < s["address"] + s["total_size"]]
call(); rabbet.cuda.synchronize()
driver = ctypes.CDLL(os.environ["RABBET_CUDA_DRIVER"])
assert driver.cuMemFree_v2(ctypes.c_uint64(segment["address"])) == 0
y = x.exp()
assert driver.cuCtxSynchronize() == 700
try: call()
except RuntimeError as error: print(error)
"""
    ran = program(library, code, f"{EXECUTE[library]}:14+1", RABBET_CUDA_EXPANDABLE="0")
    assert "exp" in ran.out and OPERATOR[library] in ran.out, ran.out
    assert "takes its place" not in ran.warnings


def test_a_bounded_number_of_products_is_kept(program):
    """An algorithm of a product has a description and four layouts."""
    code = """
count = ctypes.CDLL(os.environ["RABBET_CUDA_CUBLASLT"]).cusim_lt_objects
count.restype = ctypes.c_long
most = 0
for i in range(10_000):
    x = rabbet.empty(2, 2 + i, device="cuda")
    x @ x.t()
    if i % 64 == 0: rabbet.cuda.synchronize(); most = max(most, count())
    if i % 1000 == 0: check(call())
assert most <= 5 * 4096, most
"""
    ran = program("cublaslt", code)
    assert ran.searches == 10_001  # what is used now and then is kept


def test_a_bounded_number_of_convolutions_is_kept(program):
    code = """
count = ctypes.CDLL(os.environ["RABBET_CUDA_CUDNN"]).cusim_dnn_descriptors
count.restype = ctypes.c_long
w, most = rabbet.empty(1, 1, 1, 1, device="cuda"), 0
for i in range(3000):
    ops.convolution(rabbet.empty(1, 1, 1, 1 + i, device="cuda"), w, None, [1], [0], [1], 1)
    if i % 64 == 0: rabbet.cuda.synchronize(); most = max(most, count())
    if i % 500 == 0: check(call())
assert most <= 1024, most
"""
    assert program("cudnn", code).searches == 3001


def test_a_plan_lives_as_long_as_a_graph_that_has_it(program):
    """Its kernels are the plan's, which other plans would drive out."""
    code = """
count = ctypes.CDLL(os.environ["RABBET_CUDA_CUDNN"]).cusim_dnn_descriptors
count.restype = ctypes.c_long
stream, graph = rabbet.Stream("cuda"), rabbet.accelerator.Graph()
with stream, graph: y = call()
w = rabbet.empty(1, 1, 1, 1, device="cuda")
for i in range(1100): ops.convolution(rabbet.empty(1, 1, 1, 1 + i, device="cuda"), w, None, [1], [0], [1], 1)
rabbet.cuda.synchronize()
assert count() == 1024 + 1, count()
graph.replay(); rabbet.cuda.synchronize(); check(y)
del graph
assert count() == 1024, count()
"""
    program("cudnn", code)


MEET = """
import threading
threads = [threading.Thread(target=big, args=(f"cuda:{i}",)) for i in range(2)]
for t in threads: t.start()
for t in threads: t.join()
"""
# Calls so large that Python's lock is left to other threads.
BIG = {
    "cublaslt": """
given = {d: (rabbet.ones(2, 1 << 18, device=d), rabbet.ones(1 << 18, 2, device=d)) for d in ("cuda:0", "cuda:1")}
def big(d): a, b = given[d]; a @ b
""",
    "cudnn": """
given = {d: (rabbet.ones(1, 1, 512, 1024, device=d), rabbet.ones(1, 1, 1, 1, device=d)) for d in ("cuda:0", "cuda:1")}
def big(d): x, w = given[d]; ops.convolution(x, w, None, [1], [0], [1], 1)
""",
}


@both
def test_two_devices_do_not_wait_for_each_other(program, library):
    """Each library's call waits for one on the other device, and fails if none comes."""
    ran = program(library, BIG[library] + MEET, CUSIM_MEET="2", CUSIM_DEVICES="2")
    assert ran.warnings == "" and len(ran.algorithms) == 2
