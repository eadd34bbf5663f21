"""The device itself: asynchrony and what it reports late, errors, threads, fork, other backends.

Copies, memory, random numbers and every operator are the conformance kit's: `pytest --pyargs rabbet_testing --device=opencl`.
"""

import os
import threading

import pytest
import rabbet
from rabbet import _C


def test_every_primitive_has_a_kernel_but_the_complex_one():
    rabbet.zeros(1, device="opencl")
    infos = [_C.op_info(n) for n in _C.record_names()]
    primitives = [i for i in infos if not i["has_decomp"] and not i["view"]]
    by_core = {"empty", "empty_like", "to_device", "contiguous_clone"}
    without = {i["name"] for i in primitives if "opencl" not in i["kernels"]}
    assert without - by_core == {"complex"} and len(primitives) > 100


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
    with pytest.raises(RuntimeError, match="there is no device opencl:5"):
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
    with pytest.raises(ValueError, match="'lambd' must be positive"):
        x.exponential_(0.0)


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_is_told_what_to_do(run):
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


def test_a_build_failure_shows_the_compilers_words_the_device_and_the_operator(run):
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


def test_without_a_platform_only_this_device_is_missing(run, tmp_path):
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
