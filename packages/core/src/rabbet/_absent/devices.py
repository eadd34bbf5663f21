"""Devices for which there is no backend."""

from . import Absent


def _no_backend(name: str) -> str:
    return f"there is no backend for {name}"


TABLE: dict[str, Absent] = {
    "mps": Absent(
        _no_backend("mps"),
        functions="compile_shader current_allocated_memory driver_allocated_memory get_rng_state "
        "load_metallib recommended_max_memory set_per_process_memory_fraction set_rng_state "
        "synchronize",
        answers={
            "device_count": 0,
            "empty_cache": None,
            "is_available": False,
            "manual_seed": None,
            "seed": None,
        },
        imports={
            "mps.event": "Event",
        },
    ),
    "mps.event": Absent(
        _no_backend("mps"),
        classes="Event",
    ),
    "mps.profiler": Absent(
        _no_backend("mps"),
        functions="is_capturing_metal is_metal_capture_enabled metal_capture profile start stop",
    ),
    "mtia": Absent(
        _no_backend("mtia"),
        functions="attach_out_of_memory_observer current_device current_stream default_stream "
        "get_device_capability get_device_properties get_rng_state "
        "graph_pool_handle init initial_seed set_device set_rng_state set_rng_state_all "
        "set_stream snapshot stream synchronize",
        answers={
            "device_count": 0,
            "empty_cache": None,
            "get_rng_state_all": [],
            "is_available": False,
            "is_bf16_supported": False,
            "is_initialized": False,
            "manual_seed": None,
            "manual_seed_all": None,
            "record_memory_history": None,
            "seed": None,
            "seed_all": None,
        },
        classes="MTIAGraph device graph",
        imports={
            "mtia.memory": "max_memory_allocated memory_allocated memory_stats reset_peak_memory_stats",
        },
    ),
    "mtia.memory": Absent(
        _no_backend("mtia"),
        functions="memory_stats",
        answers={
            "max_memory_allocated": 0,
            "memory_allocated": 0,
            "reset_peak_memory_stats": None,
        },
    ),
    "xpu": Absent(
        _no_backend("xpu"),
        functions="_lazy_init can_device_access_peer clock_rate current_device current_stream device_memory_used "
        "get_arch_list get_device_capability get_device_name get_device_properties "
        "get_gencode_flags get_stream_from_external graph_pool_handle init "
        "make_graphed_callables memory_usage power_draw set_device set_stream stream "
        "synchronize temperature utilization",
        answers={
            "device_count": 0,
            "is_available": False,
            "is_bf16_supported": False,
            "is_current_stream_capturing": False,
            "is_initialized": False,
            "is_tf32_supported": False,
        },
        classes="StreamContext XPUGraph device device_of graph",
        imports={
            "xpu.memory": "MemPool XPUPluggableAllocator change_current_allocator empty_cache "
            "get_per_process_memory_fraction max_memory_allocated max_memory_reserved "
            "mem_get_info memory_allocated memory_reserved memory_snapshot memory_stats "
            "memory_stats_as_nested_dict reset_accumulated_memory_stats reset_peak_memory_stats "
            "set_per_process_memory_fraction use_mem_pool",
            "xpu.random": "get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed "
            "seed_all set_rng_state set_rng_state_all",
            "xpu.streams": "Event Stream",
        },
    ),
    "xpu.memory": Absent(
        _no_backend("xpu"),
        functions="change_current_allocator get_per_process_memory_fraction mem_get_info "
        "memory_snapshot memory_stats memory_stats_as_nested_dict memory_summary "
        "reset_accumulated_memory_stats set_per_process_memory_fraction use_mem_pool",
        answers={
            "empty_cache": None,
            "max_memory_allocated": 0,
            "max_memory_reserved": 0,
            "memory_allocated": 0,
            "memory_reserved": 0,
            "reset_peak_memory_stats": None,
        },
        classes="MemPool XPUPluggableAllocator",
    ),
    "xpu.random": Absent(
        _no_backend("xpu"),
        functions="get_rng_state initial_seed set_rng_state set_rng_state_all",
        answers={
            "get_rng_state_all": [],
            "manual_seed": None,
            "manual_seed_all": None,
            "seed": None,
            "seed_all": None,
        },
    ),
    "xpu.streams": Absent(
        _no_backend("xpu"),
        classes="Event Stream",
    ),
}
