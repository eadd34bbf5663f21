"""Settings of PyTorch's that programs make, and what they mean here; queries about tensors and this build."""

import math
import warnings
from types import ModuleType
from typing import Any

import rabbet

from . import _C
from ._C import Tensor

__all__ = [
    "SymBool", "SymFloat", "SymInt", "are_deterministic_algorithms_enabled", "compiled_with_cxx11_abi",
    "get_autocast_cpu_dtype", "get_autocast_gpu_dtype", "get_default_device", "get_deterministic_debug_mode",
    "get_device_module", "get_float32_matmul_precision", "get_num_interop_threads", "has_cuda", "has_lapack", "has_mkl",
    "has_openmp", "has_spectral", "is_autocast_cpu_enabled", "is_conj",
    "is_deterministic_algorithms_warn_only_enabled", "is_distributed", "is_inference", "is_neg", "is_nonzero",
    "is_same_size", "is_signed", "is_vulkan_available", "is_warn_always_enabled", "set_autocast_cpu_dtype",
    "set_autocast_cpu_enabled", "set_autocast_gpu_dtype", "set_default_device",
    "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal",
    "set_num_interop_threads", "set_warn_always", "sym_constrain_range",
    "sym_constrain_range_for_size", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "typename", "use_deterministic_algorithms",
]  # fmt: skip

has_cuda = False  # whether PyTorch was built for CUDA, which rabbet loads as a plugin
has_lapack = True
has_mkl = False
has_openmp = False
has_spectral = False


class _State:
    """What was set. The CPU's kernels are deterministic and compute float32 in float32 whatever it says."""

    deterministic = False
    warn_only = False
    precision = "highest"
    interop_threads = 1
    warn_always = False


_state = _State()
_PRECISIONS = ("highest", "high", "medium")
_DEBUG_MODES = ("default", "warn", "error")


def _checked_bool(function: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{function}: {name} must be a bool, got {type(value).__name__}")
    return value


# ---- determinism


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for deterministic algorithms; those of the CPU backend always are.

    Args:
        mode: whether to ask.
        warn_only: to warn of operators that have none; kept for its query.
    """
    _state.deterministic = _checked_bool("use_deterministic_algorithms", "mode", mode)
    _state.warn_only = mode and _checked_bool(
        "use_deterministic_algorithms", "warn_only", warn_only
    )
    _C.set_setting("deterministic", int(_state.deterministic))
    _C.set_setting("deterministic.warn_only", int(_state.warn_only))


def are_deterministic_algorithms_enabled() -> bool:
    """What use_deterministic_algorithms() was last told."""
    return _state.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether use_deterministic_algorithms() was told to warn only."""
    return _state.warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """The same as use_deterministic_algorithms(), as a mode: 0 'default', 1 'warn', 2 'error'."""
    if isinstance(debug_mode, bool) or not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _DEBUG_MODES:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}"
            )
        debug_mode = _DEBUG_MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(
            f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}"
        )
    use_deterministic_algorithms(debug_mode != 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode() -> int:
    """0 (off), 1 (warn) or 2 (error)."""
    return 0 if not _state.deterministic else 1 if _state.warn_only else 2


# ---- numbers and threads


def set_float32_matmul_precision(precision: str) -> None:
    """How exact products of float32 matrices must be. The CPU computes with 'highest' in each case.

    Backends read it as "float32_matmul_precision": 0 (highest), 1 or 2.

    Raises:
        RuntimeError: for other texts than 'highest', 'high' and 'medium'.
    """
    if precision not in _PRECISIONS:
        raise RuntimeError(
            f"set_float32_matmul_precision: expected one of {', '.join(_PRECISIONS)}, got {precision!r}"
        )
    _state.precision = precision
    _C.set_setting("float32_matmul_precision", _PRECISIONS.index(precision))
    _C.set_setting("cuda.matmul.allow_tf32", int(precision != "highest"))


def get_float32_matmul_precision() -> str:
    """What set_float32_matmul_precision() was last told."""
    return _state.precision


def get_num_interop_threads() -> int:
    """Threads that run operators beside each other: what was set, as calls never overlap on their own."""
    return _state.interop_threads


def set_num_interop_threads(num: int) -> None:
    """Set what get_num_interop_threads() answers; there is one pool, whose size set_num_threads() sets."""
    if isinstance(num, bool) or not isinstance(num, int):
        raise TypeError(f"set_num_interop_threads expects an int, but got {type(num).__name__}")
    if num < 1:
        raise RuntimeError("Expected positive number of threads")
    _state.interop_threads = num


def set_flush_denormal(mode: bool) -> bool:
    """Ask to round tiny numbers to zero, or not to; whether it is so: kernels keep them."""
    return not _checked_bool("set_flush_denormal", "mode", mode)


def set_warn_always(b: bool) -> None:
    """Whether warnings that are given once come each time; kept for its query."""
    _state.warn_always = _checked_bool("set_warn_always", "b", b)


def is_warn_always_enabled() -> bool:
    """What set_warn_always() was last told."""
    return _state.warn_always


# ---- devices


def get_default_device() -> _C.device:
    """Where this thread makes tensors that name no device: the innermost `with device`, or the default."""
    return _C.chosen_device() or _C.device("cpu")


def set_default_device(device: Any) -> None:
    """Say where this thread makes tensors that name no device.

    Creations from nothing (`zeros`, `randn`, `arange`, ...) and from data (`tensor`, `as_tensor`) follow it; what is
    made like a tensor (`zeros_like`) is made beside it.

    Args:
        device: None is the CPU again.

    Example:
        >>> rabbet.set_default_device("meta")
        >>> rabbet.ones(2).device.type
        'meta'
        >>> rabbet.set_default_device(None)
    """
    _C.set_base_device(None if device is None else _C.device(device))


def get_device_module(device: Any = None) -> ModuleType:
    """The module of a kind of device, such as rabbet.cpu."""
    import importlib

    name = "cpu" if device is None else _C.device(device).type
    try:
        return importlib.import_module(f"rabbet.{name}")
    except ModuleNotFoundError:
        raise RuntimeError(f"Device '{name}' does not have a corresponding module") from None


# ---- queries


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element of a tensor is not zero.

    Raises:
        RuntimeError: if it has another number of elements.
    """
    if input.numel() != 1:
        what = "no values" if input.numel() == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {what} is ambiguous")
    return bool(input)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether the shapes are the same."""
    return input.shape == other.shape


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.dtype is not _C.bool and not input.dtype.name.startswith("uint")


def is_inference(input: Tensor) -> bool:
    """Whether the tensor was made in inference mode."""
    return input.is_inference()


def is_conj(input: Tensor) -> bool:
    """Whether conjugation is pending: no, it is done at once."""
    return False


def is_neg(input: Tensor) -> bool:
    """Whether negation is pending: no, it is done at once."""
    return False


def is_distributed(input: Tensor) -> bool:
    """Whether the tensor is spread over processes: no."""
    return False


def is_vulkan_available() -> bool:
    """Whether there is a backend for Vulkan: no."""
    return False


def compiled_with_cxx11_abi() -> bool:
    """Whether the library uses the C++11 form of std::string: yes."""
    return True


def typename(obj: Any) -> str:
    """The name of an object's type with its module; of a tensor `Tensor.type()`."""
    if isinstance(obj, Tensor):
        return obj.type()
    module = getattr(obj, "__module__", None) or ""
    name = getattr(obj, "__qualname__", None)
    if name is None:
        kind = type(obj)
        module, name = kind.__module__, kind.__qualname__
    return name if module in ("", "builtins") else f"{module}.{name}"


# ---- numbers that a tracer would see as symbols


def sym_int(a: Any) -> int:
    """An integer: towards zero."""
    return int(a)


def sym_float(a: Any) -> float:
    """A float."""
    return float(a)


def sym_sqrt(a: Any) -> float:
    """The square root."""
    return math.sqrt(a)


def sym_constrain_range(size: Any, *, min: int | None = None, max: int | None = None) -> None:
    """Check that a size is at least `min` and at most `max`.

    Raises:
        RuntimeError: if it is not.
    """
    low = -math.inf if min is None else min
    high = math.inf if max is None else max
    if not low <= size <= high:
        raise RuntimeError(f"Invalid value range for {size} between [{low}, {high}].")


def sym_constrain_range_for_size(
    size: Any, *, min: int | None = None, max: int | None = None
) -> None:
    """`sym_constrain_range` for a size, which is not negative.

    Raises:
        RuntimeError: if the size is outside of the range.
    """
    sym_constrain_range(size, min=0 if min is None else min, max=max)


def sym_not(a: Any) -> bool:
    """The opposite."""
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger number, a float if one of them is."""
    found = max(a, b)
    return float(found) if isinstance(a, float) or isinstance(b, float) else found


def sym_min(a: Any, b: Any) -> Any:
    """The smaller number, a float if one of them is."""
    found = min(a, b)
    return float(found) if isinstance(a, float) or isinstance(b, float) else found


def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """`t` if `b` holds, else `f`."""
    return t if b else f


class _Symbol:
    """A number that follows from the sizes of a captured program's inputs."""

    def __init__(self, *args: Any) -> None:
        raise _C.NotImplementedForError(
            f"{type(self).__name__}: sizes are numbers; only captures of rabbet.graph make symbols"
        )


class SymInt(_Symbol):
    """A size as a captured program sees it (rabbet.graph)."""


class SymFloat(_Symbol):
    """The class of symbolic floats, which captured programs never contain."""


class SymBool(_Symbol):
    """The class of symbolic bools, which captured programs never contain."""


# ---- autocast by device, under its older names


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on for the CPU."""
    return bool(rabbet.is_autocast_enabled("cpu"))


def get_autocast_cpu_dtype() -> _C.dtype:
    """The dtype of autocast on the CPU."""
    return rabbet.get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> _C.dtype:
    """The dtype of autocast on CUDA devices."""
    return rabbet.get_autocast_dtype("cuda")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Switch autocast on or off for the CPU."""
    rabbet.set_autocast_enabled("cpu", enabled)


def set_autocast_cpu_dtype(dtype: _C.dtype) -> None:
    """Set the dtype of autocast on the CPU."""
    rabbet.set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: _C.dtype) -> None:
    """Set the dtype of autocast on CUDA devices."""
    rabbet.set_autocast_dtype("cuda", dtype)


# ---- warnings

_said: set[str] = set()


def warn_once(text: str, stacklevel: int = 3) -> None:
    """A warning that a process gives once, or each time after set_warn_always(True)."""
    if text not in _said or _state.warn_always:
        _said.add(text)
        warnings.warn(text, UserWarning, stacklevel=stacklevel)
