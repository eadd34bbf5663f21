"""L1: memory, copies, synchronisation, random numbers, exchange with others."""

import gc

import numpy as np
import pytest
import rabbet
from rabbet import _C, _plugins

from rabbet_testing.conformance.plugin import subject_of
from rabbet_testing.judges import numbers
from rabbet_testing.judges.calls import not_declared
from rabbet_testing.judges.gradients import offered
from rabbet_testing.judges.reference import ALL_DTYPES, array, declared_dtypes

SHAPES = ((2, 3, 4), (5,), (0,), (0, 3), ())


def pytest_generate_tests(metafunc):
    device = subject_of(metafunc.config).name
    if {"dtype", "draw"} <= set(metafunc.fixturenames):
        floats = [d for d in declared_dtypes(device) if d in numbers.ROUNDING] or ["float32"]
        pairs = [
            (w, d)
            for w in numbers.DRAWS
            for d in (floats if w not in ("randint", "randperm") else floats[:1])
        ]
        metafunc.parametrize(("draw", "dtype"), pairs, ids=[f"{w}-{d}" for w, d in pairs])
    elif "dtype" in metafunc.fixturenames:
        metafunc.parametrize("dtype", ALL_DTYPES)


def drawn(shape, dtype):
    """Numbers on the CPU that every dtype can hold."""
    n = int(np.prod(shape))
    return (rabbet.arange(n) % 5).reshape(shape).to(getattr(rabbet, dtype))


def same(there, here, what):
    assert there.dtype is here.dtype, f"{what}: expected dtype {here.dtype}, got {there.dtype}"
    assert there.shape == here.shape, (
        f"{what}: expected shape {tuple(here.shape)}, got {tuple(there.shape)}"
    )
    got, want = array(there), array(here)
    assert np.array_equal(got, want), f"{what}: expected {want.tolist()}, got {got.tolist()}"


def entry(device):
    gc.collect()
    _C.synchronize(rabbet.device(device))
    return next(b for b in _C.backends() if b["name"] == device.partition(":")[0])


# ---- copies


def test_values_go_there_and_back(dtype, device):
    for shape in SHAPES:
        x = drawn(shape, dtype)
        there = x.to(device)
        assert there.device.type == device.partition(":")[0]
        assert shape != () or there.item() == x.item()
        same(there.cpu(), x, f"copy of {dtype} {shape} to {device} and back")


def test_views_go_there_and_back(dtype, device):
    x = drawn((2, 3, 4), dtype)
    view = x.permute(2, 0, 1)[1:, :, ::2]
    with offered(f"views of {dtype}"):
        same(view.to(device).cpu(), view, f"copy of a strided {dtype} to {device}")
        there = x.to(device)
        same(
            there.permute(2, 0, 1)[1:, :, ::2].cpu(),
            view,
            f"copy of a strided {dtype} from {device}",
        )
        same(there[1, 2].cpu(), x[1, 2], f"copy of a part of a {dtype} from {device}")
        same(there[:, :0].cpu(), x[:, :0], f"copy of an empty view of a {dtype} from {device}")
        same(
            there.expand(2, 2, 3, 4).cpu(),
            x.expand(2, 2, 3, 4),
            f"copy of an expanded {dtype} from {device}",
        )


def test_memory_is_written(dtype, device):
    x, row = drawn((3, 4), dtype), drawn((4,), dtype)
    with offered(f"writing {dtype}"):
        there = x.to(device)
        there[1] = row.to(device)
        there[:, 2] = 1
        there.t()[0].copy_(drawn((3,), dtype))
        there[2:].zero_()
        filled = rabbet.full((2, 2), 1, dtype=getattr(rabbet, dtype), device=device)
        clone = there.clone()
    x[1], x[:, 2] = row, 1
    x.t()[0].copy_(drawn((3,), dtype))
    x[2:].zero_()
    same(there.cpu(), x, f"writes to {dtype} on {device}")
    same(clone.cpu(), x, f"clone of {dtype} on {device}")
    same(
        filled.cpu(),
        rabbet.full((2, 2), 1, dtype=getattr(rabbet, dtype)),
        f"full of {dtype} on {device}",
    )


def test_a_copy_has_memory_of_its_own(device):
    x = drawn((8,), "float32")
    there = x.to(device)
    back = there.cpu() if device != "cpu" else there.clone()
    back += 1
    same(there.cpu(), x, f"a tensor on {device} whose copy was written")


def others(device):
    """The other devices of the process: those of all installed backends that load."""
    for plugin in _plugins.plugins().values():
        if plugin.manifest.get("kind") == "backend":
            _plugins.load(plugin)
    found = []
    for b in _C.backends():
        if b["name"] in ("meta", device.partition(":")[0]):
            continue
        try:
            rabbet.tensor([1.0]).to(b["name"]).cpu()
            found.append(b["name"])
        except (RuntimeError, MemoryError):
            continue  # it is installed, but does not work here
    return found


def test_values_reach_every_other_device(device, report):
    reached = others(device)
    report.note(f"copies between {device} and {', '.join(reached) or 'no other device'}")
    if not reached:
        report.not_implemented("no other device is installed")
    x = drawn((3, 4), "float32")
    for other in reached:
        same(x.to(other).to(device).to(other).cpu(), x, f"copy {other} -> {device} -> {other}")
        with offered("copies of views"):
            view = x.to(device).t().to(other)
        same(view, x.t(), f"copy of a view {device} -> {other}")


# ---- memory


def test_memory_is_counted_and_comes_back(device):
    before = entry(device)["bytes_in_use"]
    x = drawn((1 << 16,), "float32").to(device)
    used = entry(device)["bytes_in_use"] - before
    assert used >= 4 << 16, f"{device}: 256 KiB are in use, but only {used} bytes are counted"
    view = x[1:]
    del x
    assert entry(device)["bytes_in_use"] - before >= 4 << 16, (
        f"{device}: a view does not keep the memory"
    )
    same(view[:4].cpu(), drawn((5,), "float32")[1:], f"a view on {device} of a tensor that is gone")
    del view
    after = entry(device)["bytes_in_use"]
    assert after == before, f"{device}: {after - before} bytes are still in use"


def test_cycles_of_calls_leave_nothing(device):
    host = rabbet.tensor([[1.0, 2.0], [3.0, 4.0]])

    def cycle():
        x = host.to(device)
        for f in (
            lambda: x + x,
            lambda: x @ x,
            lambda: (x * x).sum().item(),
            lambda: x.t().clone(),
        ):
            try:
                f()
            except NotImplementedError as error:
                assert not_declared(error), f"{device}: {error}"
        x.cpu()

    cycle()
    before, live = entry(device)["bytes_in_use"], _C.live_counts()["tensors"]
    for _ in range(200):
        cycle()
    after, still = entry(device)["bytes_in_use"], _C.live_counts()["tensors"]
    assert after == before, f"{device}: 200 cycles of calls leave {after - before} bytes in use"
    assert still == live, f"200 cycles of calls leave {still - live} tensors"


def test_the_cache_is_given_back(device):
    x = drawn((1 << 18,), "float32").to(device)
    del x
    entry(device)
    _C.empty_cache()
    cached = entry(device)["bytes_cached"]
    assert cached == 0, f"{device}: {cached} bytes are cached after empty_cache()"
    same(
        drawn((5,), "int64").to(device).cpu(),
        drawn((5,), "int64"),
        f"a copy on {device} after empty_cache()",
    )


def test_lack_of_memory_is_an_error_and_not_the_end(device):
    with pytest.raises(MemoryError, match=f"out of memory on {device.partition(':')[0]}"):
        rabbet.empty(1 << 56, dtype=rabbet.uint8, device=device)
    same(
        drawn((5,), "float32").to(device).cpu(),
        drawn((5,), "float32"),
        f"a copy on {device} after it was full",
    )


def test_a_device_that_is_not_there_is_named(device):
    name = f"{device.partition(':')[0]}:4096"
    with pytest.raises(RuntimeError, match="4096"):
        rabbet.empty(1, device=name)


# ---- what a device may offer beyond


def optional(call, report):
    """What the call gives, or not implemented where the backend does not offer it."""
    try:
        return call()
    except NotImplementedError as error:
        report.not_implemented(str(error).splitlines()[0])


def test_blocks_of_a_segment_are_apart(device):
    """Parts of one segment are addresses: writing one leaves the others."""

    def filled(n):
        return rabbet.full((n,), n, dtype=rabbet.float32)

    kept = [filled(n).to(device) for n in (3, 1300, 130_000)]
    del kept[1]
    kept += [filled(n).to(device) for n in (600, 601, 5)]
    for t in kept:
        same(t.cpu(), filled(t.shape[0]), f"a block of {t.shape[0]} elements on {device}")


def test_free_memory_follows_what_is_allocated(device, report):
    free, total = optional(lambda: rabbet.accelerator.get_memory_info(device), report)
    assert 0 < free <= total, f"{device}: {free} of {total} bytes are free"
    _C.empty_cache()
    kept = rabbet.empty(24 << 20, dtype=rabbet.uint8, device=device)
    assert rabbet.accelerator.get_memory_info(device)[1] == total, f"{device}: the total changes"
    del kept


def test_properties_have_names(device, report):
    found = vars(optional(lambda: rabbet.accelerator.get_device_properties(device), report))
    assert all(name.isidentifier() for name in found), (
        f"{device}: names are no identifiers: {found}"
    )
    assert found.get("name"), f"{device}: expected a property 'name', got {sorted(found)}"


def test_pinned_memory_holds_values(device, report):
    x = drawn((3, 5), "float32")
    pinned = optional(lambda: x.pin_memory(device), report)
    assert pinned.is_pinned() and pinned.device.type == "cpu"
    same(pinned, x, f"pinned memory for {device}")
    same(pinned.to(device).cpu(), x, f"a copy from pinned memory to {device}")
    pinned[:, 1:].copy_(x.to(device)[:, 1:] if device == "cpu" else x[:, 1:].to(device))
    same(pinned, x, f"a copy from {device} to pinned memory")


def test_a_graph_runs_at_each_replay(device, report):
    """What is captured runs at each replay, on the values that are there by then."""
    x = drawn((5,), "float32").to(device)
    graph = rabbet.accelerator.Graph(device=device)
    stream = optional(lambda: rabbet.Stream(device), report)
    stream.wait_stream(rabbet.accelerator.current_stream(device))
    with stream:
        optional(graph.capture_begin, report)
        with offered("add"):
            y = x + x
            z = y + y
            del y
        graph.capture_end()
        for step in range(3):
            x.copy_(drawn((5,), "float32") + step)
            graph.replay()
            stream.synchronize()
            same(
                z.cpu(),
                4 * (drawn((5,), "float32") + step),
                f"replay {step} of a graph on {device}",
            )
        with pytest.raises(RuntimeError, match="cannot be captured"), graph_again(graph):
            z.cpu()
    del graph, z


def graph_again(graph):
    graph.reset()
    return graph


# ---- time


def test_waiting_for_the_device(device):
    with offered("add"):
        x = drawn((1000,), "float32").to(device)
        for _ in range(20):
            x = x + x
        _C.synchronize(rabbet.device(device))
    assert x[4].item() == 4 * 2**20


# ---- random numbers


def test_a_seed_gives_the_numbers_of_the_cpu(draw, dtype, device):
    numbers.judge_seed(draw, dtype, device)


def test_a_state_of_the_generator_can_be_put_back(device):
    numbers.judge_state(device)


def test_devices_count_their_own_random_numbers(device, report):
    if device == "cpu":
        report.not_implemented("it needs a device beside the CPU")
    rabbet.manual_seed(1)
    here = numbers.generator_of("cpu").get_state().tolist()
    with offered("random numbers"):
        rabbet.rand(10, device=device)
    assert numbers.generator_of("cpu").get_state().tolist() == here


# ---- exchange


def test_dlpack_shares_memory_or_refuses(device, report):
    x = drawn((3, 4), "float32").to(device)
    try:
        again = rabbet.from_dlpack(x.t())
    except BufferError as error:
        report.not_implemented(f"DLPack: {error}")
    assert again.device == x.device
    same(again, x.t(), f"DLPack on {device}")
    assert again.data_ptr() == x.data_ptr(), (
        f"DLPack on {device}: expected the same memory, got a copy"
    )
    del x
    gc.collect()
    same(again, drawn((3, 4), "float32").t(), f"DLPack on {device}, of a tensor that is gone")
