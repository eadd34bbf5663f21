"""Calls of the simulated driver and compiler by ctypes, for tests that run in processes of their own."""

import ctypes
import os
from ctypes import byref, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

import numpy as np

cuda = ctypes.CDLL(os.environ["RABBET_CUDA_DRIVER"])
nvrtc = ctypes.CDLL(os.environ["RABBET_CUDA_NVRTC"])


def ok(status: int) -> None:
    assert status == 0, (status, words(status))


def words(status: int) -> str:
    """What the driver says about an error."""
    text = ctypes.c_char_p()
    cuda.cuGetErrorString(status, byref(text))
    return (text.value or b"").decode()


def start(device: int = 0) -> c_void_p:
    """Make a device current."""
    context = c_void_p()
    ok(cuda.cuInit(0))
    ok(cuda.cuDevicePrimaryCtxRetain(byref(context), device))
    ok(cuda.cuCtxSetCurrent(context))
    return context


def kernel(text: str, name: str = "rb_kernel", loaded: bool = True) -> c_void_p:
    """The kernel `name` of a text. Unless it is loaded, its first launch does that."""
    program, module, function, size = c_void_p(), c_void_p(), c_void_p(), c_size_t()
    ok(nvrtc.nvrtcCreateProgram(byref(program), text.encode(), b"test.cu", 0, None, None))
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90")
    if nvrtc.nvrtcCompileProgram(program, 1, options):
        nvrtc.nvrtcGetProgramLogSize(program, byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise AssertionError(log.value.decode())
    nvrtc.nvrtcGetCUBINSize(program, byref(size))
    image = ctypes.create_string_buffer(size.value)
    ok(nvrtc.nvrtcGetCUBIN(program, image))
    ok(cuda.cuModuleLoadData(byref(module), image))
    ok(cuda.cuModuleGetFunction(byref(function), module, name.encode()))
    if loaded:
        ok(cuda.cuFuncLoad(function))
    return function


def allocate(nbytes: int) -> c_ulonglong:
    data = c_ulonglong()
    ok(cuda.cuMemAlloc_v2(byref(data), c_size_t(nbytes)))
    return data


def pinned(nbytes: int) -> c_void_p:
    data = c_void_p()
    ok(cuda.cuMemHostAlloc(byref(data), c_size_t(nbytes), 0))
    return data


def stream(flags: int = 1) -> c_void_p:
    made = c_void_p()
    ok(cuda.cuStreamCreate(byref(made), flags))
    return made


def event(flags: int = 2) -> c_void_p:
    made = c_void_p()
    ok(cuda.cuEventCreate(byref(made), flags))
    return made


def launch(function, arguments, grid=1, block=1, on=None, shared=0) -> int:
    """Enqueue a kernel; ints are passed as c_int."""
    values = [c_int(a) if isinstance(a, int) else a for a in arguments]
    pointers = (c_void_p * len(values))(*(ctypes.addressof(a) for a in values))
    x, y, z = (grid, 1, 1) if isinstance(grid, int) else grid
    bx, by, bz = (block, 1, 1) if isinstance(block, int) else block
    return cuda.cuLaunchKernel(function, x, y, z, bx, by, bz, c_uint(shared), on, pointers, None)


def run(function, arguments, **how) -> int:
    """Launch, and wait: the first error of the two."""
    return launch(function, arguments, **how) or cuda.cuCtxSynchronize()


def given(values, dtype=np.float32) -> c_ulonglong:
    """Device memory that holds `values`."""
    values = np.ascontiguousarray(values, dtype)
    data = allocate(max(values.nbytes, 1))
    ok(cuda.cuMemcpyHtoD_v2(data, c_void_p(values.ctypes.data), c_size_t(values.nbytes)))
    return data


def read(data, count: int, dtype=np.float32) -> np.ndarray:
    values = np.empty(count, dtype)
    ok(cuda.cuMemcpyDtoH_v2(c_void_p(values.ctypes.data), data, c_size_t(values.nbytes)))
    return values
