"""rabbet.memory on a device: snapshots, lines, and the report of missing memory."""


def test_snapshots_name_tensors_of_the_device(run, simulator):
    out = run(
        """
import rabbet
from rabbet import memory

host = rabbet.ones(500, 500)
with memory.record():
    x = rabbet.ones(1000, 1000, device="cuda")
    y = (x[:10].requires_grad_() * 2).sin()
found = memory.snapshot("cuda")
assert {s.device for s in found.storages} == {"cuda:0"}, found
first = found.storages[0]
assert first.nbytes == 4_000_000 and "<string>:7" in first.line and first.holders() == ["__main__.x"]
assert any(t.is_saved for s in found.storages for t in s.tensors)
assert memory.snapshot("cuda:0").nbytes == found.nbytes and found.counted.keys() == {"cuda"}
assert memory.snapshot("cpu").storages[0].nbytes == 1_000_000
assert len(memory.snapshot().storages) > len(found.storages)
print("done")
""",
        **simulator,
    )
    assert out == "done\n"


def test_a_lack_of_device_memory_is_reported(run, simulator):
    out = run(
        """
import rabbet
from rabbet import accelerator, memory

kept = {"large": rabbet.ones(1000, 1000, device="cuda")}
accelerator.set_per_process_memory_fraction(0.01)
try:
    while True:
        kept[len(kept)] = rabbet.ones(500, 500, device="cuda")
except rabbet.OutOfMemoryError as error:
    (note,) = error.__notes__
lines = note.splitlines()
assert lines[1] == "  4,000,000  cuda:0  Tensor float32(1000, 1000)", lines
assert lines[2] == "      kept by __main__.kept['large']", lines
assert lines[3].startswith("  1,000,000  cuda:0"), lines
print("done")
""",
        **simulator,
    )
    assert out == "done\n"
