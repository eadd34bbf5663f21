"""The names of `torch._C._profiler` and `torch._C._autograd` that programs use."""

from __future__ import annotations

from collections.abc import Sequence

from rabbet.autograd.profiler import _disable_profiler, _profiler_enabled

from ._events import DeviceType, RecordScope
from .profiler import ProfilerActivity, kineto_available
from .profiler import supported_activities as _supported_activities

__all__ = [
    "DeviceType",
    "ProfilerActivity",
    "RecordScope",
    "_ExperimentalConfig",
    "_disable_profiler",
    "_profiler_enabled",
    "_supported_activities",
    "kineto_available",
]


class _ExperimentalConfig:
    """Settings of PyTorch's library Kineto. They are kept and have no effect: rabbet has a recorder of its own."""

    def __init__(
        self,
        profiler_metrics: Sequence[str] = (),
        profiler_measure_per_kernel: bool = False,
        verbose: bool = False,
        performance_events: Sequence[str] = (),
        enable_cuda_sync_events: bool = False,
        adjust_profiler_step: bool = False,
        disable_external_correlation: bool = False,
        profile_all_threads: bool = False,
        capture_overload_names: bool = False,
        record_python_gc_info: bool = False,
        expose_kineto_event_metadata: bool = False,
        custom_profiler_config: str = "",
        adjust_timestamps: bool = False,
        trace_only: bool = False,
    ) -> None:
        self.verbose = verbose
        self.profile_all_threads = profile_all_threads
        self.custom_profiler_config = custom_profiler_config
        self.trace_only = trace_only
