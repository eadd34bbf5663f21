"""The current device of a backend, copies that do not wait, and the switches that backends read, on the backend `lazy` with
its two devices."""

import gc
import threading

import numpy as np
import pytest
import rabbet
from rabbet import _C, accelerator

X = np.array([1.0, 2.0, 3.0], np.float32)


pytestmark = pytest.mark.usefixtures("lazy")


@pytest.fixture(autouse=True)
def first_device():
    yield
    _C.set_current_device(rabbet.device("lazy:0"))
    for index in range(2):
        _C.synchronize(rabbet.device("lazy", index))
    gc.collect()
    _C.empty_cache()


MADE = {
    "factory": lambda: rabbet.zeros(3, device="lazy"),
    "tensor": lambda: rabbet.tensor([1.0], device="lazy"),
    "as_tensor": lambda: rabbet.as_tensor(X, device="lazy"),
    "to": lambda: rabbet.ones(3).to("lazy"),
    "to a device object": lambda: rabbet.ones(3).to(rabbet.device("lazy")),
    "stream": lambda: rabbet.Stream("lazy"),
    "event": lambda: rabbet.Event("lazy"),
    "generator": lambda: rabbet.Generator("lazy"),
    "current stream": lambda: accelerator.current_stream("lazy"),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
@pytest.mark.parametrize("index", [0, 1])
def test_a_device_without_an_index_is_the_current_one(make, index):
    _C.set_current_device(rabbet.device("lazy", index))
    assert make().device == rabbet.device("lazy", index)


def test_a_named_device_is_that_one():
    _C.set_current_device(rabbet.device("lazy:1"))
    assert rabbet.zeros(1, device="lazy:0").device == rabbet.device("lazy:0")
    assert rabbet.device("lazy").index is None


def test_the_current_device_is_the_threads_own():
    _C.set_current_device(rabbet.device("lazy:1"))
    seen = []
    thread = threading.Thread(target=lambda: seen.append(_C.current_device("lazy")))
    thread.start()
    thread.join()
    assert seen == [0] and _C.current_device("lazy") == 1


def test_device_index_chooses_for_a_while():
    name = accelerator.current_accelerator().type
    if name != "lazy":
        pytest.skip("another accelerator is loaded")
    with accelerator.device_index(1):
        assert accelerator.current_device_index() == 1
        with accelerator.device_index(None), accelerator.device_index(0):
            assert accelerator.current_device_index() == 0
        assert accelerator.current_device_index() == 1
    assert accelerator.current_device_index() == 0
    accelerator.set_device_index(1)
    accelerator.set_device_index(-1)  # as PyTorch: changes nothing
    assert accelerator.current_device_index() == 1


def test_a_device_that_is_not_there_cannot_be_current():
    with pytest.raises(_C.DeviceError, match="no device"):
        _C.set_current_device(rabbet.device("lazy:2"))
    with pytest.raises(_C.DeviceError, match="no device lazy:2"):
        accelerator.set_device_index("lazy:2")
    assert _C.current_device("lazy") == 0


# ---- copies that do not wait


def pinned(values):
    return rabbet.tensor(values).pin_memory("lazy")


def test_a_copy_from_pinned_memory_runs_later():
    host = pinned(X)
    there = host.to("lazy", non_blocking=True)
    host.fill_(7.0)  # a program's mistake: the copy has not run
    assert there.cpu().tolist() == [7.0] * 3
    there.copy_(host.fill_(1.0), non_blocking=True)
    host.fill_(2.0)
    assert there.cpu().tolist() == [2.0] * 3


def test_without_non_blocking_or_pinned_memory_a_copy_waits():
    for host, waits in ((pinned(X), True), (rabbet.tensor(X), False)):
        there = host.to("lazy", non_blocking=not waits)
        host.fill_(7.0)
        assert there.cpu().tolist() == X.tolist()


def test_a_copy_to_the_host_that_need_not_wait_is_in_pinned_memory():
    there = rabbet.tensor(X).to("lazy")
    back = there.to("cpu", non_blocking=True)
    assert back.is_pinned()
    _C.synchronize(rabbet.device("lazy"))
    assert back.tolist() == X.tolist()
    assert not there.cpu().is_pinned() and not there.to("cpu").is_pinned()


@pytest.mark.parametrize("stream", [None, "lazy:0", "lazy:1"])
def test_pinned_memory_is_not_given_again_before_the_copy_has_run(stream):
    device = rabbet.device(stream or "lazy:0")
    queue = rabbet.Stream(device) if stream else accelerator.current_stream(device)
    with queue:
        host = pinned(X)
        address = host.data_ptr()
        there = host.to(device, non_blocking=True)
        del host
        other = pinned(X * 5)
        assert other.data_ptr() != address
        queue.synchronize()
        assert there.cpu().tolist() == X.tolist()
    assert pinned(X).data_ptr() == address


def test_memory_that_a_failed_wait_kept_is_given_back():
    there = pinned(X).to("lazy", non_blocking=True)
    _C.synchronize(rabbet.device("lazy"))
    del there
    gc.collect()
    _C.empty_cache()
    assert [s for s in accelerator.memory_snapshot() if s["kind"] == "pinned"] == []


CREATED = {
    "ones": lambda: rabbet.ones(3, pin_memory=True),
    "empty": lambda: rabbet.empty(2, 3, pin_memory=True),
    "tensor": lambda: rabbet.tensor([1.0, 2.0], pin_memory=True),
    "arange": lambda: rabbet.arange(4.0, pin_memory=True, requires_grad=True),
}


@pytest.mark.parametrize("make", CREATED.values(), ids=CREATED)
def test_creations_take_pin_memory(make, lazy):
    if accelerator.current_accelerator().type != "lazy":
        pytest.skip("another accelerator is loaded")
    made = make()
    assert made.is_pinned() and made.is_leaf and made.is_cpu


def test_a_creation_on_a_device_cannot_be_pinned():
    with pytest.raises(RuntimeError, match="only tensors of the CPU can be pinned"):
        rabbet.ones(3, device="lazy", pin_memory=True)


# ---- calls that wait, as set_sync_debug_mode tells


def test_waiting_copies_warn_or_fail_where_asked():
    there = rabbet.tensor(X).to("lazy")
    try:
        _C.set_setting("sync_debug_mode", 1)
        with pytest.warns(
            UserWarning, match="synchronizing operation of lazy:0.*test_current_device"
        ):
            there.sum().item()
        _C.set_setting("sync_debug_mode", 2)
        with pytest.raises(RuntimeError, match="called a synchronizing operation"):
            there.cpu()
        there.to("cpu", non_blocking=True)
        there.add(1)
    finally:
        _C.set_setting("sync_debug_mode", 0)
    assert there.cpu().tolist() == X.tolist()


# ---- switches


def test_backends_see_what_switches_are_set_to():
    b = rabbet.backends
    with b.cudnn.flags(benchmark=True, allow_tf32=False):
        assert _C.setting("cudnn.benchmark", -1) == 1 and _C.setting("cudnn.allow_tf32", -1) == 0
    assert _C.setting("cudnn.benchmark", -1) == 0
    b.cuda.matmul.allow_tf32 = True
    assert rabbet.get_float32_matmul_precision() == "high"
    assert _C.setting("cuda.matmul.allow_tf32", -1) == 1
    rabbet.set_float32_matmul_precision("highest")
    assert not b.cuda.matmul.allow_tf32 and _C.setting("float32_matmul_precision", -1) == 0
    with b.cuda.sdp_kernel(enable_flash=False):
        assert _C.setting("cuda.flash_sdp", -1) == 0
    assert _C.setting("cuda.flash_sdp", -1) == 1
    assert _C.setting("never set", 17) == 17
    with pytest.raises(AttributeError, match="Unknown attribute"):
        b.cuda.matmul.allow_tf64 = True
