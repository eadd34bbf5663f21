"""The profiler: what runs, how long it takes, and which memory it keeps.

    from rabbet.profiler import profile, record_function

    with profile(record_shapes=True) as prof:
        with record_function("forward"):
            model(inputs)
    print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    prof.export_html("profile.html")

It records calls on the CPU, of all threads. What kernels do on a GPU is not recorded.
"""

from . import itt, profiler
from ._events import DeviceType
from ._record_function import record_function
from ._step_tracker import KinetoStepTracker
from .profiler import (
    ExecutionTraceObserver,
    ProfilerAction,
    ProfilerActivity,
    _KinetoProfile,  # noqa: F401
    kineto_available,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "DeviceType",
    "ExecutionTraceObserver",
    "KinetoStepTracker",
    "ProfilerAction",
    "ProfilerActivity",
    "itt",
    "kineto_available",
    "profile",
    "profiler",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
