"""Inspection of memory: snapshots, references that keep tensors alive, leaks, and the memory of a model's layers.

    with memory.record():                        # note the lines that allocate
        step()
    print(memory.snapshot())                     # the largest tensors of all devices
    print(memory.holders(x))                     # what keeps x alive
    print(memory.summary(model, batch))          # layers, outputs, parameters, bytes

Statistics of the allocators are in `rabbet.accelerator`.
"""

from ._leaks import LeakFinder, LeakReport
from ._out_of_memory import report_out_of_memory
from ._recording import record
from ._snapshot import LiveStorage, LiveTensor, Snapshot, holders, snapshot
from ._summary import LayerSummary, Summary, summary

__all__ = [
    "LayerSummary", "LeakFinder", "LeakReport", "LiveStorage", "LiveTensor", "Snapshot", "Summary", "holders",
    "record", "report_out_of_memory", "snapshot", "summary",
]  # fmt: skip
