"""Programs written for PyTorch: what packages do with torch.profiler runs unchanged under `rabbet run`."""

import json
import subprocess
import sys

PROGRAM = """
import contextlib, json, sys
import torch
import torch.autograd.profiler as autograd_profiler
from torch.autograd.profiler import record_function as also
from torch.autograd.profiler_util import EventList, FunctionEvent
from torch.profiler import (
    ProfilerAction, ProfilerActivity, profile, record_function, schedule, supported_activities,
    tensorboard_trace_handler,
)
from torch._C._autograd import DeviceType, _supported_activities
from torch._C._profiler import RecordScope, _ExperimentalConfig
from torch.profiler.profiler import _default_schedule_fn, _KinetoProfile

folder = sys.argv[1]
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
activities = [ProfilerActivity.CPU]
if torch.cuda.is_available():
    activities.append(ProfilerActivity.CUDA)
plan = schedule(wait=1, warmup=1, active=2, repeat=1)
with profile(
    activities=activities, schedule=plan, on_trace_ready=tensorboard_trace_handler(folder),
    record_shapes=True, profile_memory=True, with_stack=True, with_flops=True,
    experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True),
) as prof:
    for _ in range(5):
        with record_function("model_inference"):
            loss = model(torch.randn(4, 8)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        prof.step()
averages = prof.key_averages()
assert also is record_function and issubclass(profile, _KinetoProfile)
assert isinstance(averages, EventList) and isinstance(prof.events()[0], FunctionEvent)
assert prof.events()[0].device_type == DeviceType.CPU and RecordScope.USER_SCOPE == 7
assert _supported_activities() == supported_activities() and _ExperimentalConfig().verbose is False
assert _default_schedule_fn(3) == ProfilerAction.RECORD
with autograd_profiler.profile(use_cuda=False, record_shapes=True) as old, torch.no_grad():
    with torch.autograd.profiler.record_function("old"):
        torch.mm(torch.ones(2, 3), torch.ones(3, 2))
print(json.dumps({
    "counts": {e.key: e.count for e in averages},
    "table": averages.table(sort_by="self_cpu_time_total", row_limit=10),
    "module": FunctionEvent.__module__,
    "old": [e.name for e in old.function_events],
    "aten": sorted(e.key for e in averages if e.key.startswith("aten::")),
    "cpu": ProfilerActivity.CPU in supported_activities(),
}))
"""


def test_a_training_loop_with_a_schedule(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "rabbet", "run", str(program), str(tmp_path / "traces")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    counts = found["counts"]
    assert counts["ProfilerStep*"] == counts["model_inference"] == 2
    assert counts["aten::linear"] == 4 and counts["AddmmBackward0"] + counts["MmBackward0"] == 4
    assert counts["Optimizer.step#SGD.step"] == 2 and counts["torch::autograd::AccumulateGrad"] == 8
    assert "Self CPU time total" in found["table"] and found["cpu"]
    assert found["module"] == "torch.autograd.profiler_util" and "aten::sum" in found["aten"]
    assert found["old"] == ["old", "aten::ones", "aten::ones", "aten::mm", "aten::matmul"]
    (trace,) = (tmp_path / "traces").iterdir()
    names = {e["name"] for e in json.loads(trace.read_text())["traceEvents"]}
    assert {"ProfilerStep#2", "ProfilerStep#3", "aten::linear", "nn.Module: Linear_0"} <= names
