"""rabbet.accelerator: PyTorch's names, for every backend, and numbers that follow what was allocated."""

import inspect
import json
import subprocess
import sys

import pytest
import rabbet
from plugin_wheels import MANIFEST, build, build_backend, install, run
from rabbet import accelerator

MB = 1 << 20


def test_signatures_are_those_of_torch():
    torch = pytest.importorskip("torch")
    for name in accelerator.__all__:
        here = inspect.signature(getattr(accelerator, name)).parameters.values()
        home = torch.accelerator if hasattr(torch.accelerator, name) else torch.cuda
        there = inspect.signature(getattr(home, name)).parameters.values()
        # Several accelerators may be there: a graph can be asked for one of them.
        beyond = [p for p in here if name == "Graph" and p.name == "device"]
        assert all(p.kind is p.KEYWORD_ONLY for p in beyond)
        assert [(p.name, p.kind, p.default) for p in here if p not in beyond] == [
            (p.name, p.kind, p.default) for p in there
        ]


def test_the_module_is_found_without_an_import_of_its_own():
    code = "import rabbet\nprint(rabbet.accelerator.memory_allocated('cpu') >= 0)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).stdout == b"True\n"


def test_numbers_follow_what_is_allocated():
    rabbet.ones(1)
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats("cpu")
    accelerator.reset_accumulated_memory_stats("cpu")
    before = accelerator.memory_stats("cpu")
    x = rabbet.empty(24 * MB, dtype=rabbet.uint8)
    y = rabbet.empty(28 * MB, dtype=rabbet.uint8, device="cpu:0")
    del x
    after = accelerator.memory_stats(rabbet.device("cpu:0"))

    def rise(key):
        return after[key] - before[key]

    assert rise("allocated_bytes.all.current") == 28 * MB and rise("allocation.all.current") == 1
    assert after["allocated_bytes.all.allocated"] == 52 * MB
    assert after["allocated_bytes.all.freed"] == 24 * MB
    assert (after["allocation.all.allocated"], after["allocation.all.freed"]) == (2, 1)
    assert after["allocated_bytes.all.peak"] == before["allocated_bytes.all.current"] + 52 * MB
    assert rise("reserved_bytes.all.current") == 52 * MB  # x is kept for reuse
    assert after["num_device_alloc"] == 2 and after["num_device_free"] == 0
    assert list(after) == sorted(after)
    for function, key in (
        (accelerator.memory_allocated, "allocated_bytes.all.current"),
        (accelerator.max_memory_allocated, "allocated_bytes.all.peak"),
        (accelerator.memory_reserved, "reserved_bytes.all.current"),
        (accelerator.max_memory_reserved, "reserved_bytes.all.peak"),
    ):
        assert function("cpu") == after[key]
    accelerator.empty_cache()
    assert accelerator.memory_reserved("cpu") == after["reserved_bytes.all.current"] - 24 * MB
    assert accelerator.memory_stats("cpu")["num_device_free"] == 1
    del y
    accelerator.reset_peak_memory_stats("cpu")
    assert accelerator.max_memory_allocated("cpu") == accelerator.memory_allocated("cpu")


def test_keys_are_among_those_of_pytorch():
    """Those of torch.cuda.memory_stats, which its documentation lists."""
    quantities = ("allocation", "allocated_bytes", "segment", "reserved_bytes", "requested_bytes", "inactive_split",
                  "inactive_split_bytes")  # fmt: skip
    known = {
        f"{q}.{pool}.{m}"
        for q in quantities
        for pool in ("all", "small_pool", "large_pool")
        for m in ("current", "peak", "allocated", "freed")
    }
    known |= {"num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"}
    assert set(accelerator.memory_stats("cpu")) == known


def test_lack_of_memory_is_counted():
    rabbet.ones(1)
    before = accelerator.memory_stats("cpu")
    with pytest.raises(MemoryError):
        rabbet.empty(1 << 50, dtype=rabbet.float64)
    after = accelerator.memory_stats("cpu")
    assert after["num_ooms"] == before["num_ooms"] + 1
    assert after["num_alloc_retries"] == before["num_alloc_retries"] + 1
    assert after["allocated_bytes.all.current"] == before["allocated_bytes.all.current"]


@pytest.mark.parametrize(
    "device,error,message",
    [
        ("cpu:7", rabbet.DeviceError, "memory_allocated: there is no device cpu:7, 'cpu' has 1"),
        ("nowhere", rabbet.PluginError, "nowhere"),
        (1.5, TypeError, "memory_allocated: expected a device, its name or an index, got float"),
        (True, TypeError, "got bool"),
    ],
)
def test_a_device_that_is_not_there(device, error, message):
    with pytest.raises(error, match=message):
        accelerator.memory_allocated(device)


def test_live_tensors_are_counted_where_they_are():
    rabbet.ones(1)
    before = rabbet._C.live_by_backend()
    x = rabbet.ones(3, 4)
    views = [x.t(), x[0]]
    meta = rabbet.ones(5, device="meta")
    after = rabbet._C.live_by_backend()
    rise = {
        name: {key: after[name][key] - before[name][key] for key in after[name]} for name in after
    }
    assert rise["cpu"] == {"tensors": 3, "storages": 1, "bytes": 48}
    assert rise["meta"] == {"tensors": 1, "storages": 1, "bytes": 0}
    meta.data = x  # it is a tensor of the CPU now
    moved = rabbet._C.live_by_backend()
    assert moved["cpu"]["tensors"] == after["cpu"]["tensors"] + 1
    assert moved["meta"] == before["meta"]
    del x, views, meta
    assert rabbet._C.live_by_backend() == before


def test_tensors_with_a_slot_are_counted():
    def tensors():
        (slot,) = (s for s in rabbet._C.slots() if s["name"] == "autograd")
        return slot["tensors"]

    rabbet.ones(1, requires_grad=True)
    before = tensors()
    x = rabbet.ones(3, requires_grad=True)
    y = x * 2
    assert tensors() == before + 2
    x.requires_grad_(False)
    y.detach_()
    del x, y
    assert tensors() == before


REPORT = """
import json
import rabbet
from rabbet import accelerator as a
"""


def test_without_an_accelerator(tmp_path):
    code = (
        REPORT
        + """
print(a.current_accelerator(), a.is_available(), a.device_count())
for f in (a.memory_allocated, a.synchronize, a.current_device_index, lambda: a.memory_stats(0)):
    try:
        f()
    except rabbet.DeviceError as error:
        print(error)
"""
    )
    lines = run(tmp_path, code, RABBET_PLUGINS="cpu").splitlines()
    assert lines[0] == "None False 0"
    assert lines[1:] == [
        f"accelerator.{name}: no accelerator is available; give a device, such as 'cpu'"
        for name in ("memory_allocated", "synchronize", "current_device_index", "memory_stats")
    ]


@pytest.fixture
def strangers(tmp_path):
    """Two healthy backends and a broken one, whose name comes first."""
    for name in ("far", "further"):
        install(tmp_path, name, MANIFEST.format(name, "backend"), build_backend(tmp_path, name))
    broken = build(tmp_path, "broken", init='(void)txn; return host->err_set(1, "no board");')
    install(tmp_path, "broken", MANIFEST.format("broken", "backend"), broken)
    return tmp_path


CHOSEN = {"RABBET_PLUGINS": "cpu,far,further,broken"}


def test_the_first_backend_that_loads_is_the_current_one(strangers):
    code = (
        REPORT
        + "print(a.is_available(), a.current_accelerator(), a.device_count(), a.current_device_index())"
    )
    assert run(strangers, code, **CHOSEN) == "True far 1 0\n"
    code = REPORT + "rabbet.ones(1).to('further')\nprint(a.current_accelerator(True))"
    assert run(strangers, code, **CHOSEN) == "further\n"


def test_each_device_of_strangers_has_its_own_numbers(strangers):
    code = (
        REPORT
        + """
x, y = rabbet.ones(1024).to("far"), rabbet.ones(512).to("further")
z = x.to("further")
a.synchronize(); a.synchronize("further"); a.synchronize(rabbet.device("far", 0)); a.synchronize(0)
first = [a.memory_allocated(d) for d in (None, 0, "far", "far:0", "further")]
del z
print(json.dumps([first, [a.max_memory_allocated(d) for d in ("far", "further")], [a.memory_reserved(d) for d in ("far", "further")]]))
a.empty_cache()
a.reset_peak_memory_stats()
print(a.memory_reserved("further"), a.max_memory_allocated("further"), a.memory_stats("far")["num_device_alloc"])
for device in (1, -1, "far:1"):
    try:
        a.memory_stats(device)
    except rabbet.DeviceError as error:
        print(error)
"""
    )
    numbers, after, *errors = run(strangers, code, **CHOSEN).splitlines()
    assert json.loads(numbers) == [[4096, 4096, 4096, 4096, 6144], [4096, 6144], [4096, 6144]]
    assert after == "2048 6144 1"
    assert errors == [
        "accelerator.memory_stats: there is no device far:1, 'far' has 1",
        "accelerator.memory_stats: expected the index of a device, from 0 on, got -1",
        "accelerator.memory_stats: there is no device far:1, 'far' has 1",
    ]
