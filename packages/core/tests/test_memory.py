"""rabbet.memory: snapshots, holders, leaks, reports of missing memory, and summaries of models."""

import functools
import gc
import subprocess
import sys
import weakref

import pytest
import rabbet
from rabbet import memory, nn

SIZE = 61 * 1024  # bytes of a tensor that no other test makes
KEPT: dict[str, object] = {}


def big(n=1):
    return rabbet.ones(n, SIZE // 4)


@pytest.fixture(autouse=True)
def nothing_kept():
    yield
    KEPT.clear()


def of_size(found, n=1):
    return [s for s in found.storages if s.nbytes == n * SIZE]


# ---- snapshots


def test_a_snapshot_has_the_tensors_of_variables_containers_and_objects():
    class Slots:
        __slots__ = ("x",)

    local = big(2)
    slots = Slots()
    slots.x = big(3)
    KEPT["deep"] = [{"a": (big(4),)}]
    partial = functools.partial(print, big(5))
    bound = big(6).add  # a method
    found = memory.snapshot()
    for n, shape in (
        (2, (2, SIZE // 4)),
        (3, (3, SIZE // 4)),
        (4, (4, SIZE // 4)),
        (5, (5, SIZE // 4)),
    ):
        (storage,) = of_size(found, n)
        (tensor,) = storage.tensors
        assert (tensor.kind, tensor.dtype, tensor.shape) == ("Tensor", rabbet.float32, shape)
        assert (storage.device, tensor.is_saved, storage.line) == ("cpu", False, None)
    assert of_size(found, 2)[0].address == local.data_ptr()
    assert found.storages == sorted(found.storages, key=lambda s: -s.nbytes)
    assert found.nbytes == sum(s.nbytes for s in found.storages)
    del partial, bound


def test_views_share_a_storage():
    x = big(2)
    row, column = x[0], x[:, :3]
    (storage,) = of_size(memory.snapshot(), 2)
    assert {t.shape for t in storage.tensors} == {(2, SIZE // 4), (SIZE // 4,), (2, 3)}
    assert {id(t) for t in storage.alive()} == {id(x), id(row), id(column)}


def test_a_snapshot_holds_no_tensors():
    x = big()
    found = memory.snapshot()
    kept = weakref.ref(x)
    (storage,) = of_size(found)
    del x
    gc.collect()
    assert kept() is None and storage.alive() == [] and storage.holders() == []
    assert not of_size(memory.snapshot())


def test_gradients_and_what_graphs_keep_are_found():
    x = big(2).requires_grad_()
    out = (x * 2).sin().sum()  # the argument of sin is kept by the graph only
    (saved,) = [
        s
        for s in of_size(memory.snapshot(), 2)
        if any(t.is_saved for t in s.tensors) and not s.alive()
    ]
    assert saved.holders() == ["a graph that waits for backward"]
    assert "saved for backward" in str(saved)
    out.backward()
    del out
    found = of_size(memory.snapshot(), 2)
    assert {s.address for s in found} == {x.data_ptr(), x.grad.data_ptr()}


def test_snapshots_of_one_device():
    x = big()
    assert of_size(memory.snapshot("cpu")) and of_size(memory.snapshot(rabbet.device("cpu")))
    meta = memory.snapshot("meta")
    assert meta.storages == [] and meta.nbytes == 0 and "0 storages" in str(meta)
    with pytest.raises(RuntimeError):
        memory.snapshot("nowhere")
    del x


def test_classes_that_replace_attributes_are_not_asked():
    class Odd(rabbet.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError("asked")

    odd = big(3).as_subclass(Odd)
    (storage,) = of_size(memory.snapshot(), 3)
    assert {t.kind for t in storage.tensors} == {"Odd"} and odd is not None


def test_text_of_a_snapshot():
    kept = [big(7), big(8)]
    lines = memory.snapshot().text(1).splitlines()
    assert lines[0].split()[1:3] == ["storages", "with"] and lines[2].endswith(" more")
    (storage,) = of_size(memory.snapshot(), 7)
    assert str(storage).split(maxsplit=2) == [
        f"{7 * SIZE:,}", "cpu", f"Tensor float32(7, {SIZE // 4})",
    ]  # fmt: skip
    assert len(kept) == 2


def test_memory_that_was_freed_and_given_again_is_new():
    x = big(9)
    before = memory.snapshot()
    address = x.data_ptr()
    del x
    x = big(9)
    new = of_size(memory.snapshot().since(before), 9)
    assert [s.address for s in new] == [x.data_ptr()]
    assert not of_size(memory.snapshot().since(memory.snapshot()), 9) and address
    with pytest.raises(TypeError, match=r"Snapshot\.since: expected a Snapshot, got int"):
        before.since(3)


# ---- recording


def test_lines_and_modules_of_allocations():
    net = nn.Sequential(nn.Linear(8, 4), nn.Sequential(nn.Tanh()))
    x = rabbet.rand(501, 8)
    with memory.record():
        first = big(2)
        out = net(x)
        view = first[0]
        first.add_(1)
    after = big(3)
    found = {s.address: s for s in memory.snapshot().storages}
    made = found[first.data_ptr()]
    assert made.line.startswith(f"{__file__}:") and made.line.endswith(" in big")
    assert made.module == "Global" and len(made.tensors) == 2 and view is not None
    assert found[out.data_ptr()].line.endswith(" in test_lines_and_modules_of_allocations")
    assert found[out.data_ptr()].module == "Sequential.1.0"
    assert found[after.data_ptr()].line is None and found[x.data_ptr()].line is None
    assert "Sequential.1.0" in str(found[out.data_ptr()])


def test_backward_is_recorded_with_its_line():
    net = nn.Linear(300, 7)
    with memory.record():
        net(rabbet.rand(2, 300)).sum().backward()
    found = {s.address: s for s in memory.snapshot().storages}
    gradient = found[net.weight.grad.data_ptr()]
    assert "test_backward_is_recorded_with_its_line" in gradient.line
    assert gradient.module == "Linear"


def test_a_recording_is_entered_once():
    recording = memory.record()
    with recording, pytest.raises(RuntimeError, match=r"memory\.record: the context is active"):
        recording.__enter__()
    with recording:  # once more
        x = big(2)
    assert of_size(memory.snapshot(), 2)[0].line is not None and x is not None


def test_what_was_recorded_of_freed_memory_is_dropped(monkeypatch):
    from rabbet.memory import _recording

    monkeypatch.setattr(_recording, "_MOST", 50)
    kept = []
    with memory.record():
        for n in range(200):
            kept.append(rabbet.ones(n + 2000))
            if n % 2:
                kept.clear()
        x = big()
    assert len(_recording._origins) < 100 and of_size(memory.snapshot())[0].line and x is not None


# ---- holders


def test_paths_to_a_tensor():
    x = big()
    KEPT["a"] = [x]
    local, other = sorted(memory.holders(x))
    assert local.startswith(f"local 'x' of test_paths_to_a_tensor ({__file__}:")
    assert other == f"{__name__}.KEPT['a'][0]"
    assert len(memory.holders(x, 1)) == 1
    with pytest.raises(ValueError, match=r"memory\.holders: limit must be at least 1, got 0"):
        memory.holders(x, 0)


def test_paths_through_modules_closures_and_classes():
    net = nn.Sequential(nn.Linear(2, 2))
    weight = net[0].weight
    paths = memory.holders(weight, 5)
    steps = "._modules['0']._parameters['weight']"
    assert any(p.startswith("local 'net' of test_paths") and p.endswith(steps) for p in paths)

    def closure():
        x = big()

        def inner():
            return x

        return inner

    KEPT["f"] = closure()
    (storage,) = of_size(memory.snapshot())
    (path,) = storage.holders()
    assert path.startswith(f"{__name__}.KEPT['f'] of the closure of ") and path.endswith("inner: x")

    class Cache:
        value = big(2)

    (storage,) = of_size(memory.snapshot(), 2)
    (path,) = storage.holders()
    assert path.startswith("class ") and path.endswith("Cache.value")


def test_paths_through_tracebacks():
    def fails():
        x = big(3)
        raise ValueError(x.shape)

    try:
        fails()
    except ValueError as error:
        KEPT["error"] = error
    (storage,) = of_size(memory.snapshot(), 3)
    (path,) = storage.holders()
    assert path.startswith("local of fails (") and path.endswith(
        "kept by a traceback or generator: 'x'"
    )


def test_searches_leave_no_references_in_frames():
    x = big(3)
    named = locals()
    memory.snapshot(), memory.holders(x)
    assert named["x"] is x  # the program's own dict stays
    del named
    kept = weakref.ref(x)
    memory.snapshot(), memory.holders(x)
    del x
    gc.collect()
    assert kept() is None


# ---- leaks


def test_a_leak_is_named_with_its_line_and_holder():
    with memory.LeakFinder() as finder, memory.record():
        for _ in range(3):
            KEPT.setdefault("leak", []).append((big(2),))
        freed = big(4)
        del freed
    report = finder.report()
    assert [s.nbytes for s in report.storages] == [2 * SIZE] * 3 and report.nbytes == 6 * SIZE
    assert [len(group) for group in report.groups()] == [3] and report
    lines = str(report).splitlines()
    assert lines[0] == f"3 new storages with {6 * SIZE:,} bytes"
    assert lines[1].startswith(f"3 x {2 * SIZE:,}  cpu     Tensor float32(2, {SIZE // 4})")
    assert lines[1].endswith(" in big") and f"{__file__}:" in lines[1]
    assert lines[2].startswith(f"    kept by {__name__}.KEPT['leak'][") and lines[2].endswith(
        "][0]"
    )
    assert len(report.text(limit=0).splitlines()) == 1
    assert "kept by" not in report.text(holders=0)


def test_a_loop_that_keeps_nothing_has_no_leaks():
    net = nn.Linear(4, 4)
    net(rabbet.rand(2, 4)).sum().backward()  # gradients exist
    with memory.LeakFinder() as finder:
        for _ in range(3):
            net.zero_grad(set_to_none=False)
            net(rabbet.rand(2, 4)).sum().backward()
            cycle = [big()]
            cycle.append(cycle)
        del cycle
    report = finder.report()
    assert not report and str(report) == "nothing new"


def test_points_of_a_leak_finder():
    finder = memory.LeakFinder()
    for name in ("stop", "report"):
        with pytest.raises(RuntimeError, match=rf"LeakFinder\.{name}: start\(\) comes first"):
            getattr(finder, name)()
    finder.start()
    assert not finder.report()
    x = big(5)
    assert [s.nbytes for s in finder.report().storages] == [5 * SIZE]  # now
    finder.stop()
    del x
    assert [s.nbytes for s in finder.report().storages] == [5 * SIZE]  # of the second point


# ---- missing memory


def out_of_memory():
    with pytest.raises(rabbet.OutOfMemoryError) as caught:
        rabbet.empty(2**44)
    return caught.value


def test_an_error_of_missing_memory_names_the_largest_tensors():
    KEPT["large"] = big(200)
    with memory.record():
        KEPT["larger"] = big(300)
    error = out_of_memory()
    (note,) = error.__notes__
    lines = note.splitlines()
    assert lines[0].startswith("The largest of ") and " live storages with " in lines[0]
    at = next(n for n, line in enumerate(lines) if line.startswith(f"  {300 * SIZE:,}  cpu"))
    assert (
        f"{__file__}:" in lines[at] and lines[at + 1] == f"      kept by {__name__}.KEPT['larger']"
    )
    assert any(line == f"      kept by {__name__}.KEPT['large']" for line in lines)
    assert "could not allocate" in str(error) and "The largest of" not in str(error)


def test_reports_can_be_switched_off_and_never_hide_the_error(monkeypatch):
    memory.report_out_of_memory(False)
    try:
        assert not hasattr(out_of_memory(), "__notes__")
    finally:
        memory.report_out_of_memory()
    with pytest.raises(TypeError, match="report_out_of_memory: expected a bool, got int"):
        memory.report_out_of_memory(1)

    def fails(*args):
        raise ValueError

    monkeypatch.setattr("rabbet.memory._out_of_memory.snapshot", fails)
    assert not hasattr(out_of_memory(), "__notes__")


def test_programs_that_end_for_lack_of_memory_print_the_report():
    code = (
        "import rabbet\n"
        "weights = rabbet.zeros(1000, 1000)\n"
        "def f():\n"
        "    x = rabbet.zeros(500, 1000)\n"
        "    rabbet.empty(2**44)\n"
        "f()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    errors = done.stderr
    assert "could not allocate" in errors and "4,000,000  cpu" in errors
    assert "kept by __main__.weights" in errors and "kept by local 'x' of f (<string>:" in errors
    assert "inside of rabbet.memory.record()" in errors


# ---- summaries


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU())
        self.second = nn.Linear(3, 3)
        self.second.weight = nn.Parameter(rabbet.zeros(3, 3), requires_grad=False)
        self.shared = self.second
        self.unused = nn.Linear(3, 2, bias=False)

    def forward(self, x, scale=None):
        x = self.second(self.second(self.first(x)))
        return {"out": x if scale is None else x * scale, "parts": [x, x.sum(1)]}


def test_a_summary_counts_outputs_parameters_and_memory():
    net = Net()
    found = memory.summary(net, rabbet.rand(8, 4))
    rows = {layer.path: layer for layer in found.layers}
    assert list(rows) == ["", "first", "first.0", "first.1", "first.2", "second", "unused"]
    assert [rows[p].depth for p in ("", "first", "first.0")] == [0, 1, 2]
    assert rows[""].output_shapes == [(8, 3), (8, 3), (8,)] and rows[""].kind == "Net"
    assert (rows["first.0"].parameters, rows["first.0"].output_shapes) == (15, [(8, 3)])
    assert (rows["second"].parameters, rows["second"].trainable, rows["second"].calls) == (12, 3, 2)
    assert rows["unused"].output_shapes == [] and rows["unused"].calls == 0
    assert found.parameters == sum(p.numel() for p in net.parameters()) == 15 + 6 + 12 + 6
    assert found.trainable == found.parameters - 9
    assert found.parameter_bytes == 4 * found.parameters
    assert found.buffer_bytes == 4 * 3 * 2 + 8 and found.input_bytes == 128
    assert found.output_bytes == 5 * 96  # five calls of leaves
    assert found.nbytes == 128 + found.parameter_bytes + found.buffer_bytes + 480
    assert not any(m._forward_hooks for m in net.modules())
    lines = str(found).splitlines()
    assert lines[0].split() == ["Layer", "Output", "Parameters", "Output", "bytes"]
    assert lines[2].split()[0] == "Net" and lines[4].strip().startswith("0: Linear")
    assert "39 parameters, 30 trainable, 9 fixed" in lines[-2]
    assert repr(found) == str(found)


def test_a_summary_takes_several_arguments_and_leaves_the_model_as_it_is():
    net = Net()
    x, scale = rabbet.rand(2, 4), rabbet.tensor(2.0)
    assert memory.summary(net, (x, scale)).input_bytes == 36
    assert memory.summary(net, x, scale=scale).input_bytes == 36
    assert net.training and all(p.grad is None for p in net.parameters())
    with pytest.raises(RuntimeError):
        memory.summary(net, rabbet.rand(2, 5))
    assert not any(m._forward_hooks for m in net.modules())
    with pytest.raises(TypeError, match=r"memory\.summary: expected a module, got int"):
        memory.summary(3, x)
    with pytest.raises(
        TypeError, match=r"memory\.summary: the model runs once, so it needs an input"
    ):
        memory.summary(net)
