"""The backend on the simulator. Each test is a process of its own: core loads a backend once."""

import pytest

COPIES = {"cast", "copy", "fill", "full", "full_like", "ones", "zeros"}
INTEGERS = {
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "where",
}
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
    if "cuda" not in info["kernels"] or info["has_decomp"] or info["kind"] != "elementwise": continue
    for args in ((x, y), (x,)):
        try: result = rabbet.ops(name)(*args)
        except (TypeError, ValueError, AttributeError, RuntimeError): continue
        if not isinstance(result, rabbet.Tensor): continue
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
    # Copies and fills: the test above. What takes no floating operands: the one below.
    assert int(count) >= 32 and set(left) <= COPIES | INTEGERS, (count, left)


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
    assert run(code, CUSIM_CHECK="fast", **simulator) == "True\n"


DRIVE = """
import ctypes, os
cuda, nvrtc = ctypes.CDLL(os.environ["RABBET_CUDA_DRIVER"]), ctypes.CDLL(os.environ["RABBET_CUDA_NVRTC"])
def compiled(text):
    program, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"t", 0, None, None)
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90")
    assert nvrtc.nvrtcCompileProgram(program, 1, options) == 0
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    image = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, image)
    assert cuda.cuInit(0) == 0
    context, data = ctypes.c_void_p(), ctypes.c_ulonglong()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    assert cuda.cuMemAlloc_v2(ctypes.byref(data), ctypes.c_size_t(400)) == 0
    assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"rb_kernel") == 0
    def launch(n, threads=1):
        size = ctypes.c_int(n)
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(data), ctypes.addressof(size))
        cuda.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, None, arguments, None)
        return cuda.cuCtxSynchronize()
    return launch
"""


def test_an_access_out_of_bounds_is_found_and_sticks(run, simulator):
    """The planted fault of memory: a kernel that reaches beyond what was given out."""
    code = (
        DRIVE
        + """
launch = compiled(b'extern "C" __global__ void rb_kernel(float* x, int n) { for (int i = 0; i < n; ++i) x[i] = 1; }')
for n, want in ((100, 0), (101, 700), (1, 700)):
    got = launch(n)
    assert got == want, (n, got)
print("found")
"""
    )
    assert run(code, **simulator) == "found\n"


def test_integers_and_halves_compute(run, simulator):
    code = """
from rabbet import int8, uint8, int16, int32, int64, float16, bfloat16, float32, bool as boolean
x = rabbet.tensor([0, 1, 2, 3, 5, 7, 100, 120, 3, 60])
y = rabbet.tensor([1, 2, 3, 2, 1, 3, 7, 9, 5, 11])
for dtype in (int8, uint8, int16, int32, int64, float16, bfloat16):
    a, b = x.to(dtype), y.to(dtype)
    signed = [a, a - 50] if dtype != uint8 else [a]
    for a in signed:
        for f in (rabbet.add, rabbet.mul, rabbet.sub, rabbet.remainder, rabbet.fmod, rabbet.maximum, rabbet.minimum,
                  rabbet.div, rabbet.eq, rabbet.lt, rabbet.ge, rabbet.logical_and, rabbet.logical_xor):
            both(f, a, b)
        for mode in ("floor", "trunc"):
            both(lambda a, b: rabbet.div(a, b, rounding_mode=mode), a, b)
        for f in (rabbet.abs, rabbet.sign, rabbet.floor, rabbet.relu, rabbet.isnan, rabbet.square, rabbet.sqrt, rabbet.exp):
            both(f, a.abs() if f in (rabbet.sqrt, rabbet.exp) else a)
        both(lambda a: a.clamp(2, 9), a)
        both(lambda a: a.clamp(max=3), a)
        both(lambda a, b: rabbet.where(a > b, a, b), a, b)
        both(lambda a, b: a.masked_fill(b > 2, 1), a, b)
        both(lambda a: a * 2 + 1, a)
    if not dtype.is_floating_point:
        for f in (rabbet.bitwise_and, rabbet.bitwise_or, rabbet.bitwise_xor):
            both(f, a, b)
        both(rabbet.bitwise_not, a)
        both(lambda a: a << 1, b)
        both(lambda a, b: a >> (b % 8), a, b)
        both(lambda a: a ** 2, b)
m = x > 2
both(lambda m, y: (m & (y > 1)) | ~m, m, y)
z = rabbet.complex(x.float(), y.float())
both(lambda z: rabbet.view_as_real(z * z + z / (z - 200) - z), z)
both(lambda z, x: (z == z) & (x > 1), z, x)
half = rabbet.arange(12.0).half()
both(lambda a, b: rabbet.view_as_real(rabbet.complex(a, b)), half, half + 1)
"""
    run(COMPARE + code, RABBET_CUDA_FALLBACK="error", **simulator)


def test_every_float16_is_converted_as_on_the_cpu(run, simulator):
    code = """
import numpy as np
bits = np.arange(65536, dtype=np.uint16)
for dtype in (rabbet.float16, rabbet.bfloat16):
    here = rabbet.tensor(bits).view(dtype)
    there = here.to("cuda").float().cpu()
    assert rabbet.equal(there.nan_to_num(9.5e30), here.float().nan_to_num(9.5e30))
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    wide = rabbet.tensor(np.concatenate([wide, rng.standard_normal(50_000, np.float32) * np.float32(1e-6)]))
    here, there = wide.to(dtype), wide.to("cuda").to(dtype).cpu()
    assert rabbet.equal(here.nan_to_num(7.0), there.nan_to_num(7.0))
"""
    run("import rabbet\n" + code, **simulator)


# An operator that has kernels for the CPU only, whatever the backend learns.
CPU_ONLY = """
import warnings, rabbet
from rabbet import library
library.define("test::order(Tensor input, int dim) -> (Tensor values, Tensor places)")
@library.impl("test::order", "cpu")
def order(input, dim): return rabbet.sort(input, dim)
order = rabbet.ops("test::order")
"""
FALLBACK = (
    CPU_ONLY
    + """
x = rabbet.arange(12.0).reshape(3, 4).flip(0).to("cuda")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    values, places = order(x.t(), 0)
    again = order(x, 0)
"""
)


def test_calls_without_a_kernel_run_on_the_cpu_with_one_warning(run, simulator):
    code = """
here = order(x.cpu().t(), 0)
assert values.device == x.device and values.tolist() == here[0].tolist() and places.tolist() == here[1].tolist()
said = [str(w.message) for w in seen]
assert len(said) == 1 and "no kernel for 'cuda' takes this call" in said[0] and "order" in said[0], said
print(rabbet.cuda.memory_allocated() > 0)
"""
    assert run(FALLBACK + code, **simulator).endswith("True\n")


def test_the_way_over_the_cpu_can_be_refused(run, simulator):
    code = (
        CPU_ONLY
        + """
x = rabbet.ones(3, device="cuda")
warnings.simplefilter("error")
"""
    )
    tried = """
try: order(x, 0)
except Exception as error: print(type(error).__name__, error)
print((x + 1).tolist())
"""
    text = run(code + tried, RABBET_CUDA_FALLBACK="error", **simulator)
    assert "RABBET_CUDA_FALLBACK=error" in text and text.endswith("[2.0, 2.0, 2.0]\n"), text
    text = run(code + tried, **simulator)
    assert text.startswith("UserWarning") and text.endswith("[2.0, 2.0, 2.0]\n"), text


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
"""
    lines = run(code, **simulator).splitlines()
    wanted = ["'input' is on cuda and 'other' is on cpu", "there is no device cuda:5"]
    assert len(lines) == len(wanted)
    for line, want in zip(lines, wanted, strict=True):
        assert want in line, line


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
    env = {**simulator, "RABBET_CUDA_DRIVER": simulator["RABBET_CUDA_DRIVER"], **changes}
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


def test_movement(run, simulator):
    code = """
x = rabbet.arange(24).reshape(2, 3, 4)
for dtype in (rabbet.int64, rabbet.float32, rabbet.bool, rabbet.float16):
    y = x.to(dtype)
    for dims in ((0,), (1, 2), (-1, 0), ()):
        both(lambda y: y.flip(dims), y)
    for dim in (0, 1, -1):
        both(lambda y: rabbet.cat([y, y[:, :, :], rabbet.ones_like(y)], dim), y)
    both(lambda y: rabbet.slice_scatter(y, y[:, 1:3] * 0 if y.dtype != rabbet.bool else ~y[:, 1:3], 1, 1, 3), y)
    both(lambda y: rabbet.nn.functional.pad(y, [1, 2, -1, 0, 0, 3], value=1), y)
    both(lambda y: y.tril() if y.dtype != rabbet.bool else y, y)
for args in ((5,), (2, 9, 3), (0.5, 3.0, 0.25), (9, 2, -2)):
    assert rabbet.arange(*args, device="cuda").tolist() == rabbet.arange(*args).tolist(), args
"""
    run("import rabbet.nn\n" + COMPARE + code, RABBET_CUDA_FALLBACK="error", **simulator)


def test_a_barrier_that_not_all_threads_reach_is_found(run, simulator):
    """The planted fault of barriers."""
    code = (
        DRIVE
        + """
launch = compiled(b'extern "C" __global__ void rb_kernel(float* x, int n) '
                  b'{ if ((int)threadIdx.x < n) __syncthreads(); x[threadIdx.x] = 1; }')
assert launch(4, 4) == 0
assert launch(3, 4) == 719
print("found")
"""
    )
    assert run(code, **simulator) == "found\n"
