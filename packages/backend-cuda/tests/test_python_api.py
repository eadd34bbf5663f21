"""rabbet.cuda on the simulator with two devices, beside PyTorch's documentation. Each test is one process."""

PRELUDE = """
import gc, pytest, numpy as np, rabbet
from rabbet import cuda, _C
X = np.array([1.0, 2.0, 3.0], np.float32)
def refused(kind, words, call):
    with pytest.raises(kind, match=words):
        call()
"""


def test_the_current_device_is_what_calls_without_an_index_mean(simulator, run):
    code = """
assert cuda.is_available() and cuda.device_count() == 2 and cuda.current_device() == 0
cuda.set_device(1)
assert rabbet.ones(3, device="cuda").device == rabbet.device("cuda:1")
assert rabbet.ones(3).cuda().get_device() == 1 and rabbet.ones(3).to("cuda").get_device() == 1
assert rabbet.ones(3).cuda(0).get_device() == 0 and rabbet.ones(3).cuda(device="cuda:0").get_device() == 0
with cuda.device(0):
    assert cuda.current_device() == 0 and cuda.Stream().device.index == 0
    with cuda.device("cuda:1"), cuda.device(None), cuda.device(-1):
        assert cuda.current_device() == 1
    with cuda.device_of(rabbet.ones(1, device="cuda:1")), cuda.device_of(rabbet.ones(1)):
        assert cuda.current_device() == 1
assert cuda.current_device() == 1
cuda.set_device(-1)
assert cuda.current_device() == 1
for wrong in (2, "cuda:7"):
    refused(RuntimeError, "invalid device ordinal", lambda: cuda.set_device(wrong))
refused(ValueError, "Expected a cuda device", lambda: cuda.set_device("cpu"))
refused(RuntimeError, "expected a cuda device", lambda: rabbet.ones(1).cuda("cpu"))

s = cuda.Stream(0)
assert s.device == rabbet.device("cuda:0") and s.cuda_stream == s.stream_id and isinstance(s, rabbet.Stream)
with cuda.stream(s):  # the stream's device is the current one inside
    assert cuda.current_stream() == s and cuda.current_device() == 0
assert cuda.current_device() == 1 and cuda.current_stream() == cuda.default_stream(1)
with cuda.stream(None):
    pass
cuda.set_stream(s)
assert cuda.current_device() == 0 and cuda.current_stream(0) == s
cuda.set_stream(cuda.default_stream(0))
assert cuda.ExternalStream(s.cuda_stream, 0) == s == cuda.get_stream_from_external(s.cuda_stream)
event = s.record_event(cuda.Event(enable_timing=True))
event.synchronize()
assert event.query() and cuda.Event().query()
late = cuda.Event()
late.record(cuda.Stream(1))
assert late.device == rabbet.device("cuda:1")
refused(RuntimeError, "made without interprocess=True", event.ipc_handle)
refused(ValueError, "expected enable_timing=False", lambda: cuda.Event(enable_timing=True, interprocess=True))
refused(ValueError, "no handle of an event", lambda: cuda.Event.from_ipc_handle("cuda", b"x" * 7))
refused(TypeError, "handle must be bytes, not str", lambda: cuda.Event.from_ipc_handle("cuda", "x"))

cuda.manual_seed(3)
a = rabbet.rand(2, device="cuda:0")
cuda.set_device(1)
cuda.manual_seed(3)
assert (rabbet.rand(2, device="cuda").cpu() == a.cpu()).all() and cuda.initial_seed() == 3
assert len(cuda.default_generators) == 2 and rabbet.Generator("cuda").device.index == 1
assert cuda.get_device_capability() == (9, 0) and cuda.get_arch_list() == ["sm_90"]
assert cuda.get_gencode_flags() == "-gencode compute=compute_90,code=sm_90"
assert cuda.is_bf16_supported(False) and cuda.is_tf32_supported()
"""
    run(PRELUDE + code, **simulator, CUSIM_DEVICES="2")


def test_memory_is_counted_and_reported(simulator, run):
    code = """
x = rabbet.ones(1 << 20, device="cuda:1")
assert cuda.memory_allocated(1) == 4 << 20 == cuda.memory_stats(1)["active_bytes.all.current"]
assert cuda.memory_allocated() == 0 and cuda.max_memory_allocated("cuda:1") >= 4 << 20
nested = cuda.memory_stats_as_nested_dict(1)
assert nested["allocated_bytes"]["all"]["current"] == 4 << 20
text = cuda.memory_summary(1)
widths = {len(line) for line in text.splitlines()}
assert "| Allocated memory      |   4096 KiB" in text and "device ID 1" in text and len(widths) == 1, text
assert "small pool" not in cuda.memory_summary(1, abbreviated=True)
assert {s["device"] for s in cuda.memory_snapshot()} == {1}
del x
gc.collect()
cuda.empty_cache()
cuda.reset_peak_memory_stats(1)
cuda.reset_accumulated_memory_stats(1)
assert cuda.max_memory_allocated(1) == 0 == cuda.memory_reserved(1) == cuda.memory_cached(1)
free, total = cuda.mem_get_info(1)
assert 0 < free <= total and cuda.device_memory_used(1) == total - free

address = cuda.caching_allocator_alloc(1000, 1)
assert cuda.memory_allocated(1) == 1024
cuda.caching_allocator_delete(address)
assert cuda.memory_allocated(1) == 0
refused(ValueError, "not allocated", lambda: cuda.caching_allocator_delete(address))

assert cuda.get_per_process_memory_fraction() == 1.0
cuda.set_per_process_memory_fraction(0.001)
assert cuda.get_per_process_memory_fraction(0) == 0.001
refused(cuda.OutOfMemoryError, "limit of this process", lambda: rabbet.ones(1 << 22, device="cuda:0"))
refused(TypeError, "must be `float`", lambda: cuda.set_per_process_memory_fraction(1))
refused(ValueError, "Allowed range: 0~1", lambda: cuda.set_per_process_memory_fraction(1.5))
cuda.set_per_process_memory_fraction(1.0)

pool = cuda.MemPool()
with cuda.use_mem_pool(pool, 1):
    y = rabbet.ones(3, device="cuda:1")
assert [s["segment_pool_id"] for s in pool.snapshot()] == [pool.id] and pool.use_count() >= 1
assert cuda.host_memory_stats()["allocated_bytes.current"] == 0
host = rabbet.ones(300, pin_memory=True)
assert host.is_pinned() and cuda.host_memory_stats()["allocated_bytes.current"] >= 1200
there = host.to("cuda:1", non_blocking=True)
address = host.data_ptr()
del host
assert (there.cpu() == 1).all()
back = there.to("cpu", non_blocking=True)
assert back.is_pinned()
cuda.synchronize(1)
assert (back == 1).all()
assert cuda.get_allocator_backend() == "native"
"""
    run(PRELUDE + code, **simulator, CUSIM_DEVICES="2")


def test_tensors_pass_to_other_libraries_in_the_order_of_streams(simulator, run):
    code = """
class Producer:  # memory of `t`, whose work is on `stream`
    def __init__(self, t, stream):
        self.t, self.stream, self.asked = t, stream, []
    def __dlpack_device__(self):
        return self.t.__dlpack_device__()
    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked.append(stream)
        with cuda.stream(self.stream):
            return self.t.__dlpack__(stream=stream, max_version=max_version)
    @property
    def __cuda_array_interface__(self):
        with cuda.stream(self.stream):
            return self.t.__cuda_array_interface__

x = rabbet.tensor(X).to("cuda")
assert x.__dlpack_device__() == (2, 0) and rabbet.ones(1, device="cuda:1").__dlpack_device__() == (2, 1)
other, mine = cuda.Stream(), cuda.Stream()
with cuda.stream(other):
    y = x * 2
for consumer in (cuda.default_stream(), mine):
    with cuda.stream(consumer):
        p = Producer(y, other)
        shared = rabbet.from_dlpack(p)
        assert p.asked == [consumer.cuda_stream or 1] and shared.data_ptr() == y.data_ptr()
        assert ((shared + 1).cpu().numpy() == 2 * X + 1).all()
for good in (None, -1, 1, mine.cuda_stream):
    assert "dltensor" in repr(x.__dlpack__(stream=good))
refused(BufferError, "unsupported stream on CUDA: 0", lambda: x.__dlpack__(stream=0))
refused(BufferError, "per-thread default stream", lambda: x.__dlpack__(stream=2))
refused(TypeError, "stream must be", lambda: x.__dlpack__(stream="1"))
refused(AssertionError, "stream should be None", lambda: rabbet.ones(1).__dlpack__(stream=1))
rabbet.ones(1).__dlpack__(stream=None), rabbet.ones(1).__dlpack__(stream=-1)

described = x.__cuda_array_interface__
assert described == {"typestr": "<f4", "shape": (3,), "strides": None, "data": (x.data_ptr(), False), "version": 3, "stream": 1}
assert rabbet.ones(4, 6, device="cuda")[:, ::2].__cuda_array_interface__["strides"] == (24, 8)
shared = rabbet.as_tensor(Producer(y, other))
assert shared.data_ptr() == y.data_ptr() and shared.device == y.device
copied = rabbet.tensor(Producer(y, other))
assert copied.data_ptr() != y.data_ptr() and (copied.cpu().numpy() == 2 * X).all()
assert rabbet.as_tensor(Producer(y[1:], other), dtype=rabbet.float64, device="cpu").tolist() == [4.0, 6.0]
assert not hasattr(rabbet.ones(1), "__cuda_array_interface__")
refused(RuntimeError, "requires grad", lambda: x.clone().requires_grad_().__cuda_array_interface__)
refused(TypeError, "no type string", lambda: x.bfloat16().__cuda_array_interface__)

class Described:
    def __init__(self, **changes):
        self.__cuda_array_interface__ = {**described, **changes}
refused(TypeError, "no dtype", lambda: rabbet.as_tensor(Described(typestr=">f4")))
refused(ValueError, "masks", lambda: rabbet.as_tensor(Described(mask=x)))
refused(ValueError, "do not fit", lambda: rabbet.as_tensor(Described(strides=(3,))))
refused(ValueError, "stream 0 is ambiguous", lambda: rabbet.as_tensor(Described(stream=0)))
refused(ValueError, "address is null", lambda: rabbet.as_tensor(Described(data=(0, False))))
assert rabbet.as_tensor(Described(shape=(0, 3), data=(0, False))).shape == (0, 3)
import weakref
keeper = Described()
gone, t = weakref.ref(keeper), rabbet.as_tensor(keeper)
del keeper
assert gone() is not None and t.tolist() == X.tolist()
del t
gc.collect()
cuda.synchronize()
rabbet.ones(1 << 22, device="cuda")
gc.collect()
assert gone() is None
"""
    run(PRELUDE + code, **simulator, CUSIM_DEVICES="2")


def test_numbers_of_the_cpu_stand_beside_tensors_of_a_device(simulator, run):
    code = """
x = rabbet.arange(6.0, device="cuda").reshape(2, 3)
two, mask, i = rabbet.tensor(2.0), rabbet.tensor([[True, False, True], [False, True, False]]).cuda(), rabbet.tensor([1, 0])
host, host_mask = x.cpu(), mask.cpu()
for call in (
    lambda x, m, i: x + two, lambda x, m, i: two - x, lambda x, m, i: x.clone().mul_(two),
    lambda x, m, i: rabbet.where(m, two, x), lambda x, m, i: x.masked_fill(m, two),
    lambda x, m, i: x.clamp(two, two + 1), lambda x, m, i: rabbet.addcmul(x, x, two),
    lambda x, m, i: rabbet.index_put(x, (i.to(x.device),), two), lambda x, m, i: rabbet.index_put(x, (i,), two),
    lambda x, m, i: x[i], lambda x, m, i: x[:, m.cpu()[0]],
):
    found = call(x, mask, i)
    assert found.is_cuda and found.tolist() == call(host, host_mask, i).tolist()
y, number = x.clone().requires_grad_(), rabbet.tensor(3.0, requires_grad=True)
(y * number).sum().backward()
assert y.grad.is_cuda and number.grad.is_cpu and number.grad.item() == 15
for wrong in (lambda: x + rabbet.ones(3), lambda: rabbet.ones(3) + x.sum(), lambda: x @ rabbet.ones(3, 2),
              lambda: x + two.cuda(1), lambda: rabbet.index_put(x, (i,), rabbet.ones(3)),
              lambda: rabbet.cat([x, rabbet.ones(2, 3)])):
    refused(RuntimeError, "expected all tensors on one device", wrong)
"""
    run(PRELUDE + code, **simulator, CUSIM_DEVICES="2")


def test_graphs_replay_what_they_captured(simulator, run):
    code = """
import rabbet.nn as nn
x = rabbet.tensor(X).to("cuda")
g = cuda.CUDAGraph()
refused(RuntimeError, "nothing was captured", g.replay)
with cuda.graph(g):
    assert cuda.is_current_stream_capturing()
    y = x * 2
assert not cuda.is_current_stream_capturing()
x.copy_(rabbet.tensor(10 * X))
g.replay()
assert (y.cpu().numpy() == 20 * X).all()
other = cuda.CUDAGraph()
with cuda.graph(other, pool=g.pool(), stream=cuda.Stream(), capture_error_mode="thread_local"):
    z = y + 1
other.replay()
assert other.pool() == g.pool() and (z.cpu().numpy() == 20 * X + 1).all()
g.reset()
refused(RuntimeError, "no graph was captured", g.replay)
handle = cuda.graph_pool_handle()
kept = cuda.CUDAGraph(keep_graph=True)
with cuda.graph(kept, pool=handle):
    y = x + 1
assert kept.pool() == handle and kept.raw_cuda_graph()
kept.instantiate()
assert kept.raw_cuda_graph_exec()
kept.replay()
assert (y.cpu().numpy() == 10 * X + 1).all()
refused(RuntimeError, "Unknown capture error mode", lambda: cuda.graph(cuda.CUDAGraph(), capture_error_mode="x").__enter__())
assert cuda.current_stream() == cuda.default_stream()

def capture_item():
    with cuda.graph(cuda.CUDAGraph()):
        (x + 1).sum().item()
refused(RuntimeError, "a copy between the device and the host cannot be captured", capture_item)
assert cuda.current_stream() == cuda.default_stream() and not cuda.is_current_stream_capturing()

# A whole step of a small network, as graphs and on the CPU.
data = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)
def losses(place, wrap):
    rabbet.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)).to(place)
    params = list(net.parameters())
    rabbet.manual_seed(1)
    @wrap
    def step(x, target):
        for p in params:
            p.grad = None
        loss = ((net(x) - target) ** 2).mean()
        loss.backward()
        with rabbet.no_grad():
            for p in params:
                p -= 0.1 * p.grad
        return loss
    found = []
    for n in range(5):
        x = rabbet.tensor(data * (n + 1)).to(place)
        found.append(float(step(x, x[:, :1])))
    return found
captured = losses("cuda", cuda.graph)
assert np.allclose(captured, losses("cpu", lambda f: f), rtol=1e-5), captured

net = nn.Linear(4, 2).cuda()
sample = rabbet.ones(6, 4, device="cuda")
expected = net(sample * 3).detach().cpu()
cuda.make_graphed_callables(net, (sample,))
found = net(sample * 3)
found.sum().backward()
assert rabbet.allclose(found.cpu(), expected) and (net.bias.grad.cpu() == 6).all()
"""
    run(PRELUDE + code, **simulator)


def test_graphs_are_written_to_files_if_that_was_asked_for(simulator, run, tmp_path):
    code = """
import pathlib
x = rabbet.tensor(X).to("cuda")
def captured(g):
    with cuda.graph(g):
        y = (x * 2).exp()
    g.replay()
    return g
g = cuda.CUDAGraph()
refused(RuntimeError, "nothing was captured", lambda: g.debug_dump(FILE))
captured(g)
with pytest.warns(UserWarning, match="CUDA Graphs debug not enabled"):
    g.debug_dump(FILE)
assert not pathlib.Path(FILE).exists()
g.enable_debug_mode()
captured(g).debug_dump(FILE)  # from the next capture on
text = pathlib.Path(FILE).read_text()
assert text.startswith("digraph") and text.count("label") == 2 and "->" in text, text
captured(cuda.CUDAGraph(keep_graph=True)).debug_dump(pathlib.Path(FILE + "2"))
assert pathlib.Path(FILE + "2").read_text() == text
refused(RuntimeError, "cuGraphDebugDotPrint", lambda: g.debug_dump(FILE + "/no/such/folder"))
"""
    run(PRELUDE + f"FILE = {str(tmp_path / 'graph.dot')!r}\n" + code, **simulator)


def test_devices_exchange_tensors_and_what_is_missing_says_so(simulator, run):
    code = """
import sys, types, warnings
from rabbet.cuda import comm, nvtx
x = rabbet.arange(6.0, device="cuda:0").reshape(3, 2)
copies = comm.broadcast(x, [0, 1])
assert [c.get_device() for c in copies] == [0, 1] and copies[0] is x and copies[1].tolist() == x.tolist()
assert [c.tolist() for c in comm.broadcast(x, out=[rabbet.zeros(3, 2, device="cuda:1")])] == [x.tolist()]
total = comm.reduce_add(copies, destination=1)
assert total.get_device() == 1 and total.tolist() == (2 * x).tolist()
parts = comm.scatter(x, [0, 1], chunk_sizes=[1, 2])
assert [(p.get_device(), p.shape) for p in parts] == [(0, (1, 2)), (1, (2, 2))]
assert comm.gather(parts, destination="cpu").tolist() == x.tolist() == comm.gather(parts).tolist()
assert comm.gather(parts, destination=1).get_device() == 1
pairs = comm.broadcast_coalesced([x, x + 1], [0, 1])
assert comm.reduce_add_coalesced(pairs, 0)[1].tolist() == (2 * x + 2).tolist()
refused(RuntimeError, "Exactly one of", lambda: comm.broadcast(x))
refused(ValueError, "different size", lambda: comm.reduce_add([x, x[:1]]))
assert cuda.can_device_access_peer(0, 1) in (True, False)

assert nvtx.range_push("a") == 0 and nvtx.range_push("b") == 1 and nvtx.range_pop() == 1 and nvtx.range_pop() == 0
with nvtx.range("step {}", 3):
    nvtx.mark("m")
for call in (cuda.cudart, cuda.current_blas_handle, cuda.tunable.enable, cuda.nccl.all_reduce,
             cuda.jiterator._create_jit_fn, lambda: cuda.CUDAPluggableAllocator("a", "b", "c"),
             lambda: cuda.change_current_allocator(None), lambda: cuda.caching_allocator_enable(False)):
    refused(NotImplementedError, "cuda|caching_allocator|change_current|CUDAPluggable", call)
refused(ModuleNotFoundError, "nvidia-ml-py does not seem to be installed", cuda.utilization)
assert cuda.list_gpu_processes() == "pynvml module not found, please install nvidia-ml-py"
nvml = types.ModuleType("pynvml")
nvml.nvmlInit = lambda: None
nvml.nvmlDeviceGetHandleByIndex = lambda i: i
nvml.nvmlDeviceGetTemperature = lambda handle, kind: 40 + handle
nvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: []
sys.modules["pynvml"] = nvml
assert cuda.temperature(1) == 41 and cuda.list_gpu_processes(1) == "GPU:1\\nno processes are running"

cuda.set_sync_debug_mode("error")
assert cuda.get_sync_debug_mode() == 2
refused(RuntimeError, "called a synchronizing operation of cuda:0", x.sum().item)
refused(RuntimeError, "cuda:0: nonzero: its kernel waits", x.nonzero)
refused(RuntimeError, "nonzero: its kernel waits", lambda: x[x > 1])
refused(RuntimeError, "cuda:0: Stream.synchronize waits", cuda.current_stream().synchronize)
refused(RuntimeError, "a copy between the device and the host waits", lambda: x.copy_(rabbet.tensor(X)))
refused(RuntimeError, "a copy between the device and the host waits", lambda: x.to("cpu", non_blocking=True).to("cuda"))
cuda.synchronize()  # which is asked for
cuda.set_sync_debug_mode(1)
with pytest.warns(UserWarning, match="synchronizing"):
    x.tolist()
cuda.set_sync_debug_mode("default")
refused(RuntimeError, "invalid value of debug_mode", lambda: cuda.set_sync_debug_mode(3))
cuda.check_error(cuda.cudaStatus.SUCCESS)
refused(cuda.CudaError, "34", lambda: cuda.check_error(cuda.cudaStatus.ERROR_NOT_READY))
b = rabbet.backends
assert b.cuda.is_built() and b.cuda.cufft_plan_cache[0].size == 0 == b.cuda.cufft_plan_cache.size
assert b.cudnn.version() is None or b.cudnn.is_available()
missing = [name for name in cuda.__all__ if not hasattr(cuda, name)]
assert missing == [], missing
"""
    run(PRELUDE + code, **simulator, CUSIM_DEVICES="2")
