"""Parts of torch.cuda that there is nothing behind here: they are named and refuse with the reason."""

import sys
from types import ModuleType
from typing import Any, NoReturn

from .. import _C

_MODULES = {
    "jiterator": (
        "kernels from source text are operators of a plugin here, see rabbet.library",
        ("_create_jit_fn", "_create_multi_output_jit_fn"),
    ),
    "tunable": (
        "the backend chooses among its kernels; there is no table of tuned products",
        (
            "enable", "tuning_enable", "record_untuned_enable", "set_max_tuning_duration", "set_max_tuning_iterations",
            "set_filename", "get_filename", "get_results", "get_validators", "read_file", "write_file", "tune_gemm_in_file",
            "mgpu_tune_gemm_in_file", "set_rotating_buffer_size", "get_rotating_buffer_size",
            "get_max_tuning_duration", "get_max_tuning_iterations", "set_numerical_check_tolerances",
        ),
    ),
    "nccl": (
        "rabbet has no distributed package yet; cuda.comm copies between the devices of a process",
        ("all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter", "version", "unique_id", "init_rank"),
    ),
    "gds": (
        "files are read through the host",
        ("GdsFile", "gds_deregister_buffer", "gds_register_buffer"),
    ),
    "green_contexts": ("a device is used as a whole", ("GreenContext",)),
}  # fmt: skip
_ANSWERS = {
    "tunable": ("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled"),
    "nccl": ("is_available",),
}
NAMES = frozenset(_MODULES)


def refuse(name: str, reason: str) -> Any:
    """A function that raises NotImplementedError."""

    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise _C.NotImplementedForError(f"cuda.{name}: {reason}")

    function.__name__ = function.__qualname__ = name.rsplit(".", 1)[-1]
    function.__doc__ = f"Refused: {reason}."
    return function


def _no(*args: Any) -> bool:
    """Whether it is there or on: no."""
    return False


def make(name: str) -> ModuleType:
    """The module `rabbet.cuda.NAME`."""
    full = f"rabbet.cuda.{name}"
    if full in sys.modules:
        return sys.modules[full]
    reason, functions = _MODULES[name]
    module = ModuleType(full, f"Refused: {reason}.")
    for function in functions:
        setattr(module, function, refuse(f"{name}.{function}", reason))
    for function in _ANSWERS.get(name, ()):
        setattr(module, function, _no)
    sys.modules[full] = module
    return module
