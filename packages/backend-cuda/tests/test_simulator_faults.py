"""Planted faults, one for each kind that the simulator looks for: each is reported, and its correct twin is not."""

from pathlib import Path

import pytest

HERE = str(Path(__file__).resolve().parent)
DRIVE = f"import sys; sys.path.insert(0, {HERE!r})\nfrom drive import *\n"

# What a kernel of a float array x of 64 numbers, a copy y that nobody has written, and n does wrong; the text where the
# two differ: (wrong, right). Then the driver's error, words of the report, and how it is launched.
KERNELS = {
    "out of bounds": ("x[threadIdx.x + {}] = 1;", ("1", "0"), 700, "0 bytes behind the 256 bytes", {"block": 64}),
    "before the beginning": ("x[(int)threadIdx.x - {}] = 1;", ("1", "0"), 700, "write of 4 bytes", {"block": 64}),
    "memory of the host": ("*(x + {} * (1ll << 45)) = 1;", ("1", "0"), 700, "write of 4 bytes", {}),
    "misaligned vector": ("float4 v = *(const float4*)(x + {}); y[0] = v.x + v.w;", ("1", "4"), 716, "read of 16 bytes", {}),
    "misaligned number": ("y[0] = *(const float*)((const char*)x + {});", ("2", "4"), 716, "read of 4 bytes", {}),
    "never written": ("x[0] = {}[3];", ("y", "x"), 719, "was never written", {}),
    "shared memory never written": (
        "__shared__ float s[64]; if (threadIdx.x < {}) s[threadIdx.x] = 1; __syncthreads(); x[threadIdx.x] = s[threadIdx.x];",
        ("63", "64"), 719, "shared memory at", {"block": 64}),
    "no barrier before neighbours are read": (
        "__shared__ float s[64]; s[threadIdx.x] = 0; __syncthreads(); s[threadIdx.x] = 1; {} x[threadIdx.x] = s[63 - threadIdx.x];",
        ("", "__syncthreads();"), 719, "no barrier between", {"block": 64}),
    "no barrier before shared memory is written again": (
        "__shared__ float s[64]; for (int i = 0; i < 2; ++i) {{ s[threadIdx.x] = i; __syncthreads(); "
        "x[threadIdx.x] += s[63 - threadIdx.x]; {} }}",
        ("", "__syncthreads();"), 719, "of shared memory", {"block": 64}),
    "no synchronization of lanes": (
        "__shared__ float s[32]; s[threadIdx.x] = 0; __syncthreads(); s[threadIdx.x] = 1; {} x[threadIdx.x] = s[31 - threadIdx.x];",
        ("", "__syncwarp();"), 719, "race", {"block": 32}),
    "a warp's synchronization for a block": (
        "__shared__ float s[64]; s[threadIdx.x] = 0; __syncthreads(); s[threadIdx.x] = 1; {} x[threadIdx.x] = s[63 - threadIdx.x];",
        ("__syncwarp();", "__syncthreads();"), 719, "race", {"block": 64}),
    "threads of a block write the same": ("x[{}] = threadIdx.x;", ("0", "threadIdx.x"), 719, "a write of global memory", {"block": 64}),
    "a sum without atomic operations": (
        "{};", ("x[0] += 1", "atomicAdd(x, 1.0f)"), 719, "nothing orders the two blocks", {"grid": 8}),
    "another block's result without a fence": (
        "__shared__ bool last; y[blockIdx.x] = 1; {} if (threadIdx.x == 0) last = atomicAdd((unsigned*)x, 1u) == n - 1; "
        "__syncthreads(); if (last) for (int i = 0; i < n; ++i) x[1 + i] = y[i];",
        ("", "__threadfence();"), 719, "nothing orders the two blocks", {"grid": 8}),
    "a barrier that some do not reach": ("if (threadIdx.x < {}) __syncthreads();", ("63", "64"), 719, "63 of 64 wait", {"block": 64}),
    "different barriers": (
        "if (threadIdx.x < {})\n__syncthreads();\nelse\n__syncthreads();", ("32", "64"), 719, "different barriers", {"block": 64}),
    "a lane that has ended": (
        "if (threadIdx.x >= {}) return; x[threadIdx.x] = __shfl_down_sync(~0u, x[threadIdx.x], 1);",
        ("20", "32"), 719, "ended", {"block": 32}),
    "lanes that the block does not have": ("x[threadIdx.x] = __shfl_xor_sync({}, 1.0f, 1);", ("~0u", "0xffu"), 719, "does not have", {"block": 8}),
    "a lane outside the mask": (
        "if (threadIdx.x < 16) x[threadIdx.x] = __shfl_sync(0xffffu, x[threadIdx.x], {});", ("16", "15"), 719, "does not take part", {"block": 32}),
    "lanes that differ in what they do": (
        "if (threadIdx.x < {}) __syncwarp(); else __ballot_sync(~0u, 1);", ("16", "32"), 719, "different things", {"block": 32}),
    "dynamic shared memory beyond its size": (
        "CUSIM_DYNAMIC_SHARED(float, s); s[threadIdx.x] = 1; x[threadIdx.x] = s[threadIdx.x];",
        (64, 256), 700, "write of 4 bytes", {"block": 64}),
    "a copy ahead that nobody waits for": (
        "__shared__ __align__(16) float s[4]; cusim_copy_ahead(s, x, 16); cusim_end_of_step(); cusim_wait_for_steps({}); if (s[0] != 0) __trap();",
        ("1", "0"), 719, "__trap", {}),
    "a copy ahead without a barrier before others read it": (
        "__shared__ __align__(16) float s[4]; if (threadIdx.x == 0) cusim_copy_ahead(s, x, 16); cusim_end_of_step(); cusim_wait_for_steps(0); "
        "{} x[4 + threadIdx.x] = s[0];",
        ("", "__syncthreads();"), 719, "of shared memory at", {"block": 32}),
    "a copy ahead over what others may still read": (
        "__shared__ __align__(16) float s[4]; s[threadIdx.x % 4] = 0; __syncthreads(); x[4 + threadIdx.x] = s[0]; {} "
        "if (threadIdx.x == 0) cusim_copy_ahead(s, x, 16); cusim_end_of_step(); cusim_wait_for_steps(0);",
        ("", "__syncthreads();"), 719, "of shared memory", {"block": 4}),
    "a copy ahead from an address that is not aligned": (
        "__shared__ __align__(16) float s[4]; cusim_copy_ahead(s, x + {}, 16);", ("1", "4"), 716, "copy ahead", {}),
    "a row of matrices that is not aligned": (
        "__shared__ __align__(16) float s[8]; for (int i = 0; i < 8; ++i) s[i] = 0; cusim_matrix_row(s + {});",
        ("2", "4"), 716, "read of 16 bytes", {}),
    "trap": ("if (n == {}) __trap();", ("8", "9"), 719, "__trap", {}),
    "a negative float as an unsigned integer": (
        "y[0] = (unsigned char)({}(x[0] - 1.5f));", ("", "(long long)"), 719, "unsigned integer that cannot hold it", {}),
    "a float that is too large for an unsigned integer": (
        "y[0] = (unsigned long long)(x[0] + {});", ("2e19", "1e19"), 719, "unsigned integer that cannot hold it", {}),
}  # fmt: skip


@pytest.mark.parametrize("order", ["forward", "random:5"])
def test_kernels_faults_are_reported_and_their_twins_are_not(run, simulator, order, tmp_path):
    """Each on a device of its own: the error of one stays, and the others live."""
    code = """
for device, (name, (text, variants, status, said, how)) in enumerate(KERNELS.items()):
    start(device)
    for variant, want in ((variants[1], 0), (variants[0], status)):
        if isinstance(variant, int): body, how = text, {**how, "shared": variant}
        else: body = text.format(variant)
        f = kernel('extern "C" __global__ void rb_kernel(float* x, float* y, int n) {' + body + '}')
        x, y = given(np.zeros(64)), allocate(256)
        got = run(f, [x, y, 8], **how)
        assert got == want, (name, variant, got, words(got))
        if want: assert said in words(want) and "rb_kernel" in words(want), (name, words(want))
        assert cuda.cuCtxSynchronize() == want
    assert cuda.cuMemAlloc_v2(byref(c_ulonglong()), c_size_t(4)) == status, "the error stays"
print(len(KERNELS))
"""
    report = tmp_path / "report"
    code = DRIVE + f"KERNELS = {KERNELS!r}\n" + code
    env = {
        "CUSIM_CHECK": "all",
        "CUSIM_DEVICES": str(len(KERNELS)),
        "CUSIM_ORDER": order,
        "CUSIM_REPORT": str(report),
    }
    assert run(code, **env, **simulator) == f"{len(KERNELS)}\n"
    assert len(report.read_text().splitlines()) == len(KERNELS)


def test_pinned_memory_is_written_before_a_fence_of_the_system(run, simulator):
    """And only then a flag, for which the host looks; other fences are for devices."""
    code = """
CASES = [("__threadfence_system(); atomicExch(&told[1], 1);", 0), ("__threadfence(); atomicExch(&told[1], 1);", 719),
         ("__threadfence_system(); *(volatile int*)(told + 1) = 1;", 0), ("*(volatile int*)(told + 1) = 1;", 719)]
for device, (text, status) in enumerate(CASES):
    start(device)
    told = pinned(8)
    ctypes.memset(told, 0, 8)
    f = kernel('extern "C" __global__ void rb_kernel(int* told) { if (atomicCAS(&told[1], 0, 2)) return; told[0] = 7; ' + text + '}')
    assert run(f, [told]) == status, text
    if status: assert "__threadfence_system" in words(status), words(status)
    else: assert list((c_int * 2).from_address(told.value)) == [7, 1]
"""
    for check in ("fast", "all"):
        run(DRIVE + code, CUSIM_CHECK=check, CUSIM_DEVICES="4", **simulator)


@pytest.mark.parametrize("bits", [64, 128])
def test_threads_take_turns_at_volatile_accesses(run, simulator, bits):
    """In a random order: an element that is written by two stores may be left with a half of each of two threads."""
    code = f"""
body = '''extern "C" __global__ void rb_kernel(long long* x, int whole) {{
  const __int128 all = (__int128)threadIdx.x << 64 | threadIdx.x;
  if (whole) *(volatile __int128*)x = all;
  else {{ ((volatile long long*)x)[0] = threadIdx.x; ((volatile long long*)x)[1] = threadIdx.x; }}
}}'''
start(); f, x, torn = kernel(body), allocate(16), 0
for _ in range(10):
    ok(run(f, [x, {int(bits == 128)}], block=64))
    halves = read(x, 2, np.int64)
    torn += halves[0] != halves[1]
print(torn > 0)
"""
    assert run(DRIVE + code, CUSIM_ORDER="random:3", **simulator) == f"{bits == 64}\n"


def test_the_first_and_the_last_blocks_of_a_launch(run, simulator):
    code = """
start(); x = given(np.zeros(100))
f = kernel('extern "C" __global__ void rb_kernel(float* x) { x[blockIdx.x] = 1; }')
ok(run(f, [x], grid=100)); ok(run(f, [x], grid=3))
assert read(x, 100).nonzero()[0].tolist() == [0, 1, 2, 98, 99]
"""
    run(DRIVE + code, CUSIM_BLOCKS="2", **simulator)


def test_waits_are_counted(run, simulator):
    code = """
start(); x, h, one, two, e = given(np.zeros(8)), pinned(32), stream(), stream(), event()
streams, host = c_ulonglong(), c_ulonglong()
def counted(*calls):
    cuda.cusim_wait_counts(byref(streams), byref(host)); before = streams.value, host.value
    for call in calls: call()
    cuda.cusim_wait_counts(byref(streams), byref(host)); return streams.value - before[0], host.value - before[1]
plain = c_void_p(np.zeros(8, np.float32).ctypes.data)
assert counted(lambda: cuda.cuEventRecord(e, one), lambda: cuda.cuEventQuery(e), lambda: cuda.cuStreamQuery(one)) == (0, 0)
assert counted(lambda: cuda.cuStreamWaitEvent(two, e, 0)) == (1, 0)
assert counted(lambda: cuda.cuEventSynchronize(e), lambda: cuda.cuStreamSynchronize(two), cuda.cuCtxSynchronize) == (0, 3)
assert counted(lambda: cuda.cuMemcpyHtoDAsync_v2(x, h, c_size_t(32), one), lambda: cuda.cuMemcpyDtoHAsync_v2(h, x, c_size_t(32), one)) == (0, 0)
assert counted(lambda: cuda.cuMemcpyHtoDAsync_v2(x, plain, c_size_t(32), one)) == (0, 1)
"""
    run(DRIVE + code, **simulator)


STREAMS = """
write = 'extern "C" __global__ void rb_kernel(float* x, float* y, int n) { for (int i = 0; i < n; ++i) x[i] = 1; }'
move = 'extern "C" __global__ void rb_kernel(float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = x[i]; }'
def both(body, said, status=719):
    both.device += 1
    for right in (True, False):
        start(both.device)
        got = body(right) or cuda.cuCtxSynchronize()
        assert got == (0 if right else status), (said, right, got, words(got))
        if not right: assert said in words(status), words(status)
both.device = -1
def wait(one, two, right):
    if not right: return
    e = event(); ok(cuda.cuEventRecord(e, one)); ok(cuda.cuStreamWaitEvent(two, e, 0))
"""


@pytest.mark.parametrize("schedule", ["lazy", "eager", "random:1"])
def test_streams_without_order_are_reported(run, simulator, schedule):
    """Even where the numbers come out right, as those of eager streams do."""
    code = """
def kernels(right):
    x, y, one, two = given(np.zeros(8)), allocate(32), stream(), stream()
    ok(launch(kernel(write), [x, y, 8], on=one)); wait(one, two, right)
    return launch(kernel(move), [x, y, 8], on=two)
both(kernels, "no event")
def copy_then_kernel(right):
    x, y, one, two, h = given(np.zeros(8)), allocate(32), stream(), stream(), pinned(32)
    ctypes.memset(h, 0, 32)
    ok(cuda.cuMemcpyHtoDAsync_v2(x, h, c_size_t(32), one)); wait(one, two, right)
    return launch(kernel(move), [x, y, 8], on=two)
both(copy_then_kernel, "a copy to the device")
def written_while_read(right):
    x, y, one, two = given(np.zeros(8)), allocate(32), stream(), stream()
    ok(launch(kernel(move), [x, y, 8], on=one)); wait(one, two, right)
    return cuda.cuMemsetD32Async(x, 5, c_size_t(8), two)
both(written_while_read, "a fill")
def event_of_too_early(right):
    x, y, one, two, e = given(np.zeros(8)), allocate(32), stream(), stream(), event()
    if not right: ok(cuda.cuEventRecord(e, one))
    ok(launch(kernel(write), [x, y, 8], on=one))
    if right: ok(cuda.cuEventRecord(e, one))
    ok(cuda.cuStreamWaitEvent(two, e, 0))
    return launch(kernel(move), [x, y, 8], on=two)
both(event_of_too_early, "no event")
def copy_out(right):
    x, y, one, two, h = given(np.zeros(8)), allocate(32), stream(), stream(), pinned(32)
    ok(launch(kernel(write), [x, y, 8], on=one)); wait(one, two, right)
    return cuda.cuMemcpyDtoHAsync_v2(h, x, c_size_t(32), two)
both(copy_out, "a copy to the host")
def branches_of_a_graph(right):
    x, y, one, two, graph, run_it = given(np.zeros(8)), allocate(32), stream(), stream(), c_void_p(), c_void_p()
    f, g = kernel(write), kernel(move)
    ok(cuda.cuStreamBeginCapture_v2(one, 0)); wait(one, two, True)
    ok(launch(f, [x, y, 8], on=one)); wait(one, two, right)
    ok(launch(g, [x, y, 8], on=two)); wait(two, one, True)
    ok(cuda.cuStreamEndCapture(one, byref(graph))); ok(cuda.cuGraphInstantiateWithFlags(byref(run_it), graph, ctypes.c_ulonglong(0)))
    return cuda.cuGraphLaunch(run_it, one) or cuda.cuGraphLaunch(run_it, one)
both(branches_of_a_graph, "of a graph")
def null_stream(right):
    x, y, one = given(np.zeros(8)), allocate(32), stream(0 if right else 1)
    ok(launch(kernel(write), [x, y, 8], on=one))
    return launch(kernel(move), [x, y, 8])
both(null_stream, "no event")
"""
    env = {"CUSIM_CHECK": "all", "CUSIM_DEVICES": "7", "CUSIM_SCHEDULE": schedule}
    run(DRIVE + STREAMS + code, **env, **simulator)


@pytest.mark.parametrize("right", [True, False])
def test_memory_reused_without_record_stream_is_reported(run, simulator, right):
    """Core's allocator gives a block to its stream again, although another stream still reads it."""
    code = f"""
import rabbet
side = rabbet.cuda.Stream()
x = rabbet.ones(1000, device="cuda")
side.wait_stream(rabbet.cuda.current_stream())
with rabbet.cuda.stream(side):
    y = x + 1
    if {right}: x.record_stream(side)
del x
z = rabbet.zeros(1000, device="cuda")
try: rabbet.cuda.synchronize()
except RuntimeError as error: print("record_stream" in str(error))
else: print("clean", z.sum().item())
"""
    assert run(code, CUSIM_CHECK="all", **simulator) == ("clean 0.0\n" if right else "True\n")


def test_memory_faults_of_the_driver_are_reported(run, simulator):
    code = """
f = 'extern "C" __global__ void rb_kernel(float* x, float* y, int n) { x[0] = 1; }'
contexts = [start(d) for d in range(7)]
def at(device): start(device)
at(0); x = given(np.zeros(8)); g = kernel(f); ok(run(g, [x, x, 1])); ok(cuda.cuMemFree_v2(x))
assert run(g, [x, x, 1]) == 700 and "was freed" in words(700), words(700)
at(1); x = given(np.zeros(8))
at(2); g = kernel(f); ok(cuda.cuCtxEnablePeerAccess(contexts[1], 0)); ok(run(g, [x, x, 1]))
assert cuda.cuCtxEnablePeerAccess(contexts[1], 0) == 704
at(3); g = kernel(f); assert run(g, [x, x, 1]) == 700 and "memory of device 1" in words(700)
at(4); g = kernel(f)
size, where, handle = c_size_t(2 << 20), c_ulonglong(), c_ulonglong()
properties = (c_int * 8)(1, 0, 1, 4)
ok(cuda.cuMemAddressReserve(byref(where), c_size_t(8 << 20), c_size_t(0), c_ulonglong(0), c_ulonglong(0)))
ok(cuda.cuMemCreate(byref(handle), size, properties, c_ulonglong(0)))
free, total = c_size_t(), c_size_t()
ok(cuda.cuMemGetInfo_v2(byref(free), byref(total))); assert total.value - free.value == 2 << 20
ok(cuda.cuMemMap(where, size, c_size_t(0), handle, c_ulonglong(0)))
access = (c_int * 3)(1, 4, 3)
ok(cuda.cuMemSetAccess(where, size, access, c_size_t(1)))
ok(run(g, [where, where, 1])); assert read(where, 1)[0] == 1
ok(cuda.cuMemUnmap(where, size)); ok(cuda.cuMemRelease(handle))
ok(cuda.cuMemGetInfo_v2(byref(free), byref(total))); assert total.value == free.value
ok(cuda.cuMemCreate(byref(handle), size, properties, c_ulonglong(0)))
ok(cuda.cuMemMap(where, size, c_size_t(0), handle, c_ulonglong(0)))
assert run(g, [where, where, 1]) == 700 and "cuMemSetAccess" in words(700)
at(6); g = kernel(f); properties[3] = 6; access[1] = 6
ok(cuda.cuMemAddressReserve(byref(where), c_size_t(8 << 20), c_size_t(0), c_ulonglong(0), c_ulonglong(0)))
ok(cuda.cuMemCreate(byref(handle), size, properties, c_ulonglong(0)))
ok(cuda.cuMemMap(where, size, c_size_t(0), handle, c_ulonglong(0))); ok(cuda.cuMemSetAccess(where, size, access, c_size_t(1)))
ok(launch(g, [where, where, 1])); ok(cuda.cuMemUnmap(where, size))  # does not wait for the kernel
assert cuda.cuCtxSynchronize() == 700 and "was freed" in words(700), words(700)
at(5); g = kernel(f); host = np.zeros(8, np.float32)
assert run(g, [c_void_p(host.ctypes.data), x, 1]) == 700 and "memory of the host" in words(700)
"""
    run(DRIVE + code, CUSIM_DEVICES="7", CUSIM_CHECK="all", **simulator)


def test_copies_between_devices_need_access_to_virtual_memory(run, simulator):
    """Where the devices are peers: cuCtxEnablePeerAccess is for memory of cuMemAlloc."""
    code = """
contexts = [start(d) for d in range(2)]
size, where, handle = c_size_t(2 << 20), c_ulonglong(), c_ulonglong()
ok(cuda.cuMemAddressReserve(byref(where), size, c_size_t(0), c_ulonglong(0), c_ulonglong(0)))
ok(cuda.cuMemCreate(byref(handle), size, (c_int * 8)(1, 0, 1, 0), c_ulonglong(0)))
ok(cuda.cuMemMap(where, size, c_size_t(0), handle, c_ulonglong(0)))
ok(cuda.cuMemSetAccess(where, size, (c_int * 3)(1, 0, 3), c_size_t(1)))
x = given(np.zeros(8)); start(0); ok(cuda.cuMemsetD32Async(where, 5, c_size_t(8), None)); ok(cuda.cuCtxSynchronize()); start(1)
def copied(): return cuda.cuMemcpyPeerAsync(x, contexts[1], where, contexts[0], c_size_t(32), None)
ok(copied())
ok(cuda.cuCtxEnablePeerAccess(contexts[0], 0))
assert copied() == 1
ok(cuda.cuMemSetAccess(where, size, (c_int * 3)(1, 1, 3), c_size_t(1)))
ok(copied())
"""
    run(DRIVE + code, CUSIM_DEVICES="2", **simulator)


@pytest.mark.parametrize("count,status", [(1020, 0), (1022, 1)])
def test_parameters_of_a_kernel_are_4096_bytes_at_most(run, simulator, count, status):
    code = f"""
start(); x = given(np.zeros(1))
text = 'struct S {{ float at[{count}]; }}; extern "C" __global__ void rb_kernel(float* x, S s, int n) {{ x[0] = s.at[n]; }}'
assert launch(kernel(text), [x, (ctypes.c_float * {count})(), 1]) == {status}
"""
    run(DRIVE + code, **simulator)


def test_the_host_cannot_reach_into_a_device(run, simulator):
    code = """
import os, signal
start(); x = given(np.ones(8)); h = pinned(32)
ok(cuda.cuMemcpyDtoHAsync_v2(h, x, c_size_t(32), None)); ok(cuda.cuCtxSynchronize())
assert ctypes.cast(h, ctypes.POINTER(ctypes.c_float))[7] == 1
child = os.fork()
if child == 0: print(ctypes.cast(x.value, ctypes.POINTER(ctypes.c_float))[7]); os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSEGV
"""
    run(DRIVE + code, CUSIM_CHECK="all", **simulator)


def test_forgotten_waits_of_the_host_read_what_was_there(run, simulator):
    code = """
start(); one = stream()
f = kernel('extern "C" __global__ void rb_kernel(float* x, float* y, int n) { x[0] = 5; }')
x, h = given([1.0]), pinned(4)
number = ctypes.cast(h, ctypes.POINTER(ctypes.c_float))
ok(launch(f, [x, x, 1], on=one)); ok(cuda.cuMemcpyDtoHAsync_v2(h, x, c_size_t(4), one))
assert np.isnan(number[0])  # the copy has not run
ok(cuda.cuStreamSynchronize(one)); assert number[0] == 5
number[0] = 7; ok(cuda.cuMemcpyHtoDAsync_v2(x, h, c_size_t(4), one)); number[0] = 8
ok(cuda.cuStreamSynchronize(one)); assert read(x, 1)[0] == 8  # pinned memory is read when the copy runs
host = np.array([7], np.float32)
ok(cuda.cuMemcpyHtoDAsync_v2(x, c_void_p(host.ctypes.data), c_size_t(4), one)); host[0] = 8
ok(cuda.cuStreamSynchronize(one)); assert read(x, 1)[0] == 7  # other memory at the call
"""
    run(DRIVE + code, **simulator)


def test_what_a_capture_forbids(run, simulator):
    code = """
add = 'extern "C" __global__ void rb_kernel(float* x, float* y, int n) { x[0] += 1; }'
start(); f = kernel(add)
x, one, two, graph, state = given([0.0]), stream(), stream(), c_void_p(), c_int()
def capture(body, mode=0, blocking=False):
    on, made = stream(0 if blocking else 1), c_void_p()
    ok(cuda.cuStreamBeginCapture_v2(on, mode))
    return body(on), cuda.cuStreamEndCapture(on, byref(made)), made.value
done = event(); ok(cuda.cuEventRecord(done, two))
for body, want in [
    (cuda.cuStreamSynchronize, (900, 901)), (cuda.cuStreamQuery, (900, 901)),
    ((lambda on: cuda.cuCtxSynchronize()), (900, 901)),
    ((lambda on: cuda.cuMemAlloc_v2(byref(c_ulonglong()), c_size_t(4))), (900, 901)),
    ((lambda on: cuda.cuMemcpyHtoDAsync_v2(x, c_void_p(np.ones(1).ctypes.data), c_size_t(4), on)), (900, 901)),
    ((lambda on: cuda.cuStreamWaitEvent(on, done, 0)), (905, 901)),
    ((lambda on: (ok(cuda.cuEventRecord(done, on)), cuda.cuEventSynchronize(done))[1]), (907, 901)),
    ((lambda on: cuda.cuEventQuery(done)), (900, 901)), ((lambda on: cuda.cuEventSynchronize(done)), (900, 901)),
    ((lambda on, g=kernel(add, loaded=False): launch(g, [x, x, 1], on=on)), (900, 901)),
    ((lambda on: cuda.cuModuleLoadData(byref(c_void_p()), bytes(64))), (900, 901)),
    ((lambda on: (wait(on, two), launch(f, [x, x, 1], on=two))[1]), (0, 904)),
    ((lambda on: (wait(on, two), cuda.cuStreamEndCapture(two, byref(graph)))[1]), (903, 901)),
]:
    got = capture(body)
    assert got[:2] == want and got[2] is None, (got, want)
    done = event(); ok(cuda.cuEventRecord(done, one))
assert capture(lambda on: launch(f, [x, x, 1]), blocking=True)[:2] == (906, 901)
assert capture(lambda on: launch(f, [x, x, 1]))[:2] == (0, 0)
assert cuda.cuStreamBeginCapture_v2(None, 0) == 900
assert capture(lambda on: cuda.cuMemAlloc_v2(byref(c_ulonglong()), c_size_t(4)), mode=2)[:2] == (0, 0)
ok(cuda.cuCtxSynchronize()); before = read(x, 1)[0]
ok(cuda.cuStreamBeginCapture_v2(one, 0)); ok(launch(f, [x, x, 1], on=one)); wait(one, two)
ok(launch(f, [x, x, 1], on=two)); wait(two, one); ok(launch(f, [x, x, 1], on=one))
ok(cuda.cuStreamIsCapturing(two, byref(state))); assert state.value == 1
ok(cuda.cuStreamEndCapture(one, byref(graph)))
count, run_it = c_size_t(), c_void_p()
ok(cuda.cuGraphGetNodes(graph, None, byref(count))); assert count.value == 3
ok(cuda.cuGraphInstantiateWithFlags(byref(run_it), graph, c_ulonglong(0)))
ok(cuda.cuCtxSynchronize()); assert read(x, 1)[0] == before  # nothing has run yet
for _ in range(3): ok(cuda.cuGraphLaunch(run_it, one))
ok(cuda.cuGraphExecDestroy(run_it)); ok(cuda.cuGraphDestroy(graph))
assert read(x, 1)[0] == before + 9
"""
    wait = "def wait(one, two):\n    e = event(); ok(cuda.cuEventRecord(e, one)); ok(cuda.cuStreamWaitEvent(two, e, 0))\n"
    run(DRIVE + wait + code, **simulator)


@pytest.mark.parametrize("schedule", ["lazy", "random:7", "random:8"])
def test_an_ordinary_program_is_clean_under_all_checks(run, simulator, schedule):
    code = """
import rabbet
x = rabbet.arange(600.0).reshape(20, 30)
d = x.to("cuda")
side = rabbet.cuda.Stream()
side.wait_stream(rabbet.cuda.current_stream())
with rabbet.cuda.stream(side):
    s = d.softmax(1)
    s.record_stream(rabbet.cuda.current_stream())
rabbet.cuda.current_stream().wait_stream(side)
for f in (lambda x: x.t() @ x, lambda x: x.sum(0), lambda x: x.softmax(1), lambda x: x.exp().log() * 2, lambda x: x.t().contiguous(),
          lambda x: (x > 5) & (x < 9), lambda x: x.argmax(1), lambda x: x.half().float(), lambda x: rabbet.cat([x, x], 1)):
    assert rabbet.allclose(f(d).cpu().double(), f(x).double(), rtol=1e-4)
assert rabbet.allclose(s.cpu(), x.softmax(1))
"""
    run(code, CUSIM_CHECK="all", CUSIM_SCHEDULE=schedule, RABBET_CUDA_EXACT="1", **simulator)


def test_memory_is_shared_with_another_process(run, simulator):
    code = """
import subprocess, sys
start()
class Handle(ctypes.Structure): _fields_ = [("bytes", ctypes.c_ubyte * 64)]
add = 'extern "C" __global__ void rb_kernel(float* x, float* y, int n) { for (int i = 0; i < n; ++i) x[i] += 1; }'
def opened(bytes_):
    where = c_ulonglong()
    return cuda.cuIpcOpenMemHandle_v2(byref(where), Handle.from_buffer_copy(bytes_), 1), where
if len(sys.argv) > 1:
    status, where = opened(bytes.fromhex(sys.argv[1])); ok(status)
    again = opened(bytes.fromhex(sys.argv[1])); assert again[1].value == where.value
    ok(run(kernel(add), [where, where, 4]))
    assert cuda.cuMemFree_v2(where) == 1
    ok(cuda.cuIpcCloseMemHandle(where)); ok(cuda.cuIpcCloseMemHandle(where)); assert cuda.cuIpcCloseMemHandle(where) == 1
    raise SystemExit
x, handle = given([1, 2, 3, 4]), Handle()
ok(cuda.cuIpcGetMemHandle(byref(handle), x))
assert opened(bytes(handle.bytes))[0] == 201 and opened(bytes(64))[0] == 1
subprocess.run([sys.executable, "-c", SELF, bytes(handle.bytes).hex()], check=True)
assert read(x, 4).tolist() == [2, 3, 4, 5]
ok(cuda.cuMemFree_v2(x))
"""
    code = DRIVE + code.replace("SELF", "open('/proc/self/cmdline').read().split(chr(0))[2]")
    run(code, CUSIM_CHECK="all", **simulator)
