"""The device itself: copies, memory, asynchrony and what it reports late, errors, threads, fork, other backends."""

import gc
import os
import subprocess
import sys
import threading

import pytest
import rabbet
from rabbet import _C


def test_copies_keep_values_dtypes_and_strides():
    x = rabbet.arange(24).reshape(2, 3, 4)
    for dtype in (rabbet.bool, rabbet.int32, rabbet.int64, rabbet.float32, rabbet.float64):
        there = x.to(dtype).to("opencl")
        assert there.dtype == dtype and there.cpu().tolist() == x.to(dtype).tolist()
    there = x.to("opencl")
    assert there.permute(2, 0, 1)[1:].cpu().tolist() == x.permute(2, 0, 1)[1:].tolist()
    target = rabbet.zeros(2, 4, device="opencl")
    target[:, 1:3] = rabbet.tensor([[1.0, 2.0], [3.0, 4.0]]).to("opencl")
    target.t()[0].copy_(rabbet.tensor([7, 8]))
    assert target.tolist() == [[7, 1, 2, 0], [8, 3, 4, 0]]
    assert rabbet.zeros(0, 2).to("opencl").cpu().shape == (0, 2) and there[1, 2, 3].item() == 23


def test_gradients_cross_devices_with_what_they_belong_to():
    x = rabbet.tensor([1.0, 2.0], requires_grad=True)
    y = rabbet.zeros(3, 2, device="opencl").copy_(x * 2)
    (y * y).sum().backward()
    assert x.grad.device.type == "cpu" and x.grad.tolist() == [24, 48]
    z = rabbet.tensor([3.0], device="opencl", requires_grad=True)
    (z.cpu() * 5).sum().backward()
    assert z.grad.device.type == "opencl" and z.grad.tolist() == [5]


def test_dtypes_without_kernels_can_be_stored_but_say_so_when_used():
    half = rabbet.tensor([1.5, 2.5], dtype=rabbet.float16).to("opencl")
    assert half.cpu().tolist() == [1.5, 2.5]
    with pytest.raises(
        NotImplementedError, match=r"exp on 'opencl' supports .*float32.*; got float16"
    ):
        half.exp()
    with pytest.raises(NotImplementedError, match=r"cast on 'opencl' supports .*; got float16"):
        half.float()


def test_mixed_devices_are_named():
    x = rabbet.ones(2, device="opencl")
    with pytest.raises(RuntimeError, match="'input' is on opencl and 'other' is on cpu"):
        x + rabbet.ones(2)
    with pytest.raises(RuntimeError, match=r"on one device, but .* cpu .* opencl"):
        rabbet.ones(2, 2) @ x
    with pytest.raises(RuntimeError, match="opencl: there is no device 5"):
        rabbet.zeros(1, device="opencl:5")


def test_indices_from_the_host_are_moved():
    x = rabbet.arange(6.0, device="opencl").reshape(2, 3)
    assert x[[1, 0]].tolist() == [[3, 4, 5], [0, 1, 2]] and x[rabbet.tensor([1]), 2].tolist() == [5]
    x[rabbet.tensor([True, False])] = 9
    assert x.tolist() == [[9, 9, 9], [3, 4, 5]]


def bad_index_calls():
    x = rabbet.ones(3, 4, device="opencl")
    index = rabbet.tensor([1, 9], device="opencl")
    square = index.reshape(1, 2)
    yield "gather", lambda: x.gather(0, square)
    yield "index_select", lambda: x.index_select(1, index)
    yield "index", lambda: x[index]
    yield "index_put", lambda: x.index_put((index,), rabbet.tensor(2.0, device="opencl"))
    yield "scatter_add", lambda: x.scatter_add(0, square, rabbet.ones(1, 2, device="opencl"))
    yield "index_add", lambda: x.index_add(0, index, rabbet.ones(2, 4, device="opencl"))
    yield "embedding", lambda: rabbet.ops("embedding")(x, index)


@pytest.mark.parametrize("name", [name for name, _ in bad_index_calls()])
def test_an_index_out_of_range_is_reported_at_the_next_wait(name):
    result = dict(bad_index_calls())[name]()  # returns: the device works on
    with pytest.raises(
        IndexError, match=f"opencl:0: an earlier call of {name} had an index out of"
    ):
        _C.synchronize(rabbet.device("opencl"))
    assert (
        max(abs(v) for row in result.tolist() for v in (row if isinstance(row, list) else [row]))
        <= 2
    )


def test_what_the_shapes_say_is_checked_at_once():
    x = rabbet.ones(3, 4, device="opencl")
    with pytest.raises(TypeError, match="gather"):
        x.gather(0, x)
    with pytest.raises(
        ValueError, match="gather: 'index' and the input must have as many dimensions"
    ):
        x.gather(0, rabbet.zeros(2, dtype=rabbet.int64, device="opencl"))
    with pytest.raises(ValueError, match="divisor_override"):
        rabbet.ops("avg_pool")(x, [2], [2], [0], False, True, 0)
    with pytest.raises(ValueError, match="`lambd` must be positive"):
        x.exponential_(0.0)


def test_memory_is_counted_and_comes_back():
    device = rabbet.device("opencl")

    def counts():
        gc.collect()
        return memory(device)

    before = counts()
    x = rabbet.zeros(1 << 20, device="opencl")
    y = (x + 1).sum()
    assert counts()["bytes_in_use"] - before["bytes_in_use"] >= 4 << 20 and y.item() == 1 << 20
    del x, y
    assert counts()["bytes_in_use"] == before["bytes_in_use"]
    for _ in range(50):
        z = rabbet.randn(64, 64, device="opencl")
        (z @ z).softmax(1).sort(1)[0].sum().item()
    del z
    assert counts()["bytes_in_use"] == before["bytes_in_use"]


def memory(device):
    return next(b for b in _C.backends() if b["name"] == device.type)


def test_lack_of_memory_is_an_error_with_sizes_and_not_the_end():
    with pytest.raises(
        MemoryError, match=r"out of memory on opencl: could not allocate \d+ bytes \(\d+ are in use"
    ):
        rabbet.empty(1 << 42, device="opencl")
    assert rabbet.ones(3, device="opencl").sum().item() == 3


def test_threads_share_the_device():
    results = {}

    def work(seed):
        x = rabbet.full((64, 64), float(seed), device="opencl")
        for _ in range(20):
            x = (x @ rabbet.eye(64, device="opencl")).relu() + 0
        results[seed] = x.sum().item()

    threads = [threading.Thread(target=work, args=(s,)) for s in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {s: s * 4096.0 for s in range(1, 5)}


def run(code, **env):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_is_told_what_to_do():
    code = """
import os, rabbet
x = rabbet.ones(3, device="opencl"); x.tolist()
child = os.fork()
if child == 0:
    try:
        x + 1
    except RuntimeError as error:
        del x
        os._exit(7 if "start processes by 'spawn'" in str(error) and (rabbet.ones(2) + 1).tolist() == [2, 2] else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (x + 1).tolist())
"""
    assert run(code) == "7 [2.0, 2.0, 2.0]\n"


def test_a_build_failure_shows_the_compilers_words_the_device_and_the_operator():
    code = """
import rabbet
x = rabbet.tensor([1.0], device="opencl")
try:
    x.exp()
except RuntimeError as error:
    print(error)
"""
    text = run(code, RABBET_OPENCL_OPTIONS="-Dlong=nonsense")
    assert "opencl:0 (" in text and "the kernels for float32 do not build: CL_BUILD_PROGRAM" in text
    assert "error:" in text and "while running exp on opencl" in text


def test_without_a_platform_only_this_device_is_missing(tmp_path):
    code = """
import rabbet
try:
    rabbet.zeros(1, device="opencl")
except RuntimeError as error:
    print(error)
print((rabbet.ones(2) + 1).tolist())
"""
    first, second = run(code, OCL_ICD_VENDORS=str(tmp_path)).splitlines()
    assert "no OpenCL platform has a device: install a driver" in first and second == "[2.0, 2.0]"


def test_four_backends_in_one_process():
    pytest.importorskip("rabbet_backend_null", reason="rabbet-backend-null is not installed")
    x = rabbet.tensor([[1.0, 2.0], [3.0, 4.0]])
    for path in (("null", "opencl", "null2"), ("opencl", "null2", "null")):
        y = x
        for device in path:
            y = y.to(device)
            assert (y + y).cpu().tolist() == [[2, 4], [6, 8]] and (y @ y).cpu().tolist() == [
                [7, 10],
                [15, 22],
            ]
    with pytest.raises(RuntimeError, match="'input' is on opencl and 'other' is on null2"):
        x.to("opencl") + x.to("null2")
