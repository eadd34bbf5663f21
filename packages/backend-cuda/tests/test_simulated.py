"""The backend on the simulator. Each test is a process of its own: core loads a backend once."""

import os

import pytest

COPIES = {"cast", "copy", "fill", "full", "full_like", "ones", "zeros"}
COMPARE = """
import rabbet
def both(f, *given, **close):
    here = f(*given)
    there = f(*(x.to("cuda") for x in given))
    assert there.device.type == "cuda" and there.dtype == here.dtype and there.shape == here.shape
    assert rabbet.allclose(there.cpu().double(), here.double(), rtol=1e-5, atol=1e-6, equal_nan=True, **close), (
        there.tolist(), here.tolist())
"""


def test_copies_casts_and_fills(run, simulator):
    code = """
x = rabbet.arange(24.0).reshape(2, 3, 4) - 11.5
for dtype in (rabbet.bool, rabbet.int32, rabbet.int64, rabbet.float32, rabbet.float64):
    y = x.to(dtype)
    both(lambda y: y.clone(), y)
    both(lambda y: y.transpose(0, 2)[1:, ::2].clone(), y)
    for to in (rabbet.bool, rabbet.int32, rabbet.int64, rabbet.float32, rabbet.float64):
        both(lambda y: y.to(to), y)
    assert rabbet.full((2, 2), 3, dtype=dtype, device="cuda").tolist() == rabbet.full((2, 2), 3, dtype=dtype).tolist()
    assert rabbet.zeros(0, 3, dtype=dtype, device="cuda").cpu().shape == (0, 3)
big = 2**53 + 1
assert rabbet.full((1,), big, dtype=rabbet.int64, device="cuda").item() == big
"""
    run(COMPARE + code, **simulator)


def test_every_primitive_of_core_computes(run, simulator):
    """The kernels that are registered decide what is tried: none is left out."""
    code = """
from rabbet import _C
x = rabbet.tensor([0.5, -0.25, 0.75, 1.0, -2.5, 0.0, 3.5, float("nan"), float("inf"), -float("inf")])
y = rabbet.tensor([1.5, 0.5, -2.0, 1.0, 2.0, 4.0, 0.25, 1.0, 2.0, 3.0])
rabbet.zeros(1, device="cuda")
tried, left = [], []
for name in _C.record_names():
    info = _C.op_info(name)
    if "cuda" not in info["kernels"] or info["has_decomp"]: continue
    for args in ((x, y), (x,)):
        try: rabbet.ops(name)(*args)
        except (TypeError, ValueError, AttributeError): continue
        for dtype in (rabbet.float32, rabbet.float64):
            both(rabbet.ops(name), *(a.to(dtype) for a in args))
        tried.append(name)
        break
    else: left.append(name)
both(lambda x, y: x[None] + y[:, None] * 2, x, y)
both(lambda x, y: rabbet.add(x, y, alpha=3), x, y)
both(lambda x, y: rabbet.div(x, y, rounding_mode="floor"), x, y)
both(lambda x, y: rabbet.div(x, y, rounding_mode="trunc"), x, y)
both(lambda x: 2 - x, x)
print(len(tried), *sorted(left))
"""
    count, *left = run(COMPARE + code, **simulator).split()
    # Copies and fills: the test above.
    assert int(count) >= 29 and set(left) <= COPIES, (count, left)


def test_formulas_and_their_derivatives_come_from_the_records(run, simulator):
    code = """
x = rabbet.tensor([[0.5, -0.25, 0.75], [1.0, -2.5, 0.125]])
F = rabbet.nn.functional
for f in (rabbet.sigmoid, F.silu, F.softplus, F.elu, F.mish, rabbet.tanh):
    both(f, x)
    both(f, x.t())
    grads = []
    for device in ("cpu", "cuda"):
        leaf = x.clone().to(device).requires_grad_()
        y = f(leaf)
        y.backward(rabbet.ones(2, 3, device=device))
        grads.append(leaf.grad.cpu())
    assert rabbet.allclose(*grads, rtol=1e-5, atol=1e-6), (f, grads)
"""
    run("import rabbet.nn\n" + COMPARE + code, **simulator)


def test_streams_run_late_and_events_order_them(run, simulator):
    code = """
import rabbet
one, two = rabbet.cuda.Stream(), rabbet.cuda.Stream()
x = rabbet.zeros(1000, device="cuda")
rabbet.cuda.synchronize()
with rabbet.cuda.stream(one):
    y = x + 1
    assert not one.query()
    event = one.record_event()
    assert not event.query()
two.wait_event(event)
with rabbet.cuda.stream(two):
    z = y * 2
two.synchronize()
assert event.query() and z.tolist() == [2.0] * 1000
print("passed")
"""
    assert run(code, **simulator) == "passed\n"


def test_a_forgotten_wait_reads_nan(run, simulator):
    """The planted fault of the streams: nothing orders the second stream behind the first."""
    code = """
import rabbet
one, two = rabbet.cuda.Stream(), rabbet.cuda.Stream()
x = rabbet.zeros(1 << 20, device="cuda")
rabbet.cuda.synchronize()
with rabbet.cuda.stream(one):
    y = x + 1
with rabbet.cuda.stream(two):
    z = y * 2
    print(z[:1].isnan().item())
"""
    assert run(code, **simulator) == "True\n"


def test_an_access_out_of_bounds_is_found_and_sticks(run, simulator):
    """The planted fault of memory: a view that reaches beyond its storage, made behind core's checks."""
    code = """
import ctypes, os
cuda, nvrtc = ctypes.CDLL(os.environ["RABBET_CUDA_DRIVER"]), ctypes.CDLL(os.environ["RABBET_CUDA_NVRTC"])
text = b'extern "C" __global__ void rb_loop(float* x, int n) { for (int i = 0; i < n; ++i) x[i] = 1; }'
program, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"t", 0, None, None)
options = (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90")
assert nvrtc.nvrtcCompileProgram(program, 1, options) == 0
image = ctypes.create_string_buffer(4096)
nvrtc.nvrtcGetCUBIN(program, image)
assert cuda.cuInit(0) == 0
context, data = ctypes.c_void_p(), ctypes.c_ulonglong()
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
assert cuda.cuMemAlloc_v2(ctypes.byref(data), ctypes.c_size_t(400)) == 0
assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"rb_loop") == 0
for n, want in ((100, 0), (101, 700), (1, 700)):
    size = ctypes.c_int(n)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(data), ctypes.addressof(size))
    cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
    got = cuda.cuCtxSynchronize()
    assert got == want, (n, got)
print("found")
"""
    assert run(code, **simulator) == "found\n"


def test_bad_calls_say_what_is_wrong(run, simulator):
    code = """
import rabbet
x = rabbet.ones(3, device="cuda")
def said(f):
    try: f()
    except Exception as error: print(str(error).replace(chr(10), " "))
    else: print("nothing")
said(lambda: x + rabbet.ones(3))
said(lambda: rabbet.zeros(1, device="cuda:5"))
said(lambda: x.sum())
said(lambda: rabbet.ones(2, dtype=rabbet.int32, device="cuda") + 1)
said(lambda: rabbet.ones(2, dtype=rabbet.float16).to("cuda").float())
said(lambda: x.round(decimals=2))
"""
    lines = run(code, **simulator).splitlines()
    wanted = [
        "'input' is on cuda and 'other' is on cpu",
        "there is no device cuda:5",
        "sum: no kernel for 'cuda'",
    ]
    wanted += [
        "add on 'cuda' supports float32, float64; got int32",
        "cast",
        "must have its default",
    ]
    assert len(lines) == len(wanted)
    for line, want in zip(lines, wanted, strict=True):
        assert want in line, line


def test_memory_that_runs_out_is_reported_and_the_program_goes_on(run, simulator):
    code = """
import rabbet
try: rabbet.ones(1 << 26, device="cuda")
except RuntimeError as error: print(error)
print(rabbet.ones(2, device="cuda").tolist())
"""
    text = run(code, CUSIM_MEMORY=str(64 << 20), **simulator)
    assert "cannot allocate" in text and text.endswith("[1.0, 1.0]\n"), text


def test_a_kernel_that_does_not_compile_shows_the_compilers_words(run, simulator, tmp_path):
    (tmp_path / "cusim.h").write_text("#error planted\n")
    code = """
import rabbet
try: rabbet.ones(2, device="cuda").exp()
except RuntimeError as error: print(error)
"""
    text = run(code, **{**simulator, "CUSIM_FOLDER": str(tmp_path)})
    assert "does not compile for sm_90" in text and "planted" in text, text


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"RABBET_CUDA_DRIVER": "/nowhere/libcuda.so"}, "RABBET_CUDA_DRIVER"),
        ({"RABBET_CUDA_DRIVER": "NVRTC"}, "too old: it has no symbol cuInit"),
        ({"CUSIM_VERSION": "11080"}, "supports CUDA 11.8, CUDA 12.0 or newer is needed"),
        ({"CUSIM_DEVICES": "0"}, "CUDA_VISIBLE_DEVICES"),
        ({"RABBET_CUDA_NVRTC": "/nowhere/libnvrtc.so"}, "RABBET_CUDA_NVRTC"),
    ],
)
def test_what_is_missing_is_said_and_the_cpu_goes_on(run, simulator, changes, said):
    env = {**simulator, **changes}
    if env["RABBET_CUDA_DRIVER"] == "NVRTC":
        env["RABBET_CUDA_DRIVER"] = simulator["RABBET_CUDA_NVRTC"]
    code = """
import rabbet
try: rabbet.ones(2, device="cuda")
except RuntimeError as error: print(error)
print((rabbet.ones(2) + 1).tolist())
"""
    text = run(code, **env)
    assert said in text and text.endswith("[2.0, 2.0]\n"), text


def test_import_opens_no_driver(run):
    """A file that is no library would be an error if it were opened."""
    code = "import rabbet; print(rabbet.cuda.is_initialized(), (rabbet.ones(2) + 1).tolist())"
    assert run(code, RABBET_CUDA_DRIVER="/nowhere") == "False [2.0, 2.0]\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_is_told_what_to_do(run, simulator):
    code = """
import os, rabbet
x = rabbet.ones(3, device="cuda"); x.tolist()
child = os.fork()
if child == 0:
    try: x + 1
    except RuntimeError as error:
        del x
        os._exit(7 if "start processes by 'spawn'" in str(error) else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (x + 1).tolist())
"""
    assert run(code, **simulator) == "7 [2.0, 2.0, 2.0]\n"
