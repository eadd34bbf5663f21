"""The private names of `torch._C` that packages import. Other names raise AttributeError."""

import enum
from collections.abc import Callable
from typing import Any

import rabbet

from .. import _C, _settings, accelerator
from .._absent import refusing_class, refusing_function
from .._C import (
    Generator,
    Size,
    _disabled_torch_dispatch_impl,
    _disabled_torch_function_impl,
    device,
    dtype,
    layout,
    memory_format,
)
from .._C import has_torch_function as _has_torch_function
from .._C import has_torch_function_variadic as _has_torch_function_variadic
from .._C import pop_function_mode as _pop_torch_function_stack
from .._C import push_function_mode as _push_on_torch_function_stack
from ..overrides import DisableTorchFunction, DisableTorchFunctionSubclass
from ..overrides import has_torch_function_unary as _has_torch_function_unary
from . import c_nn as _nn

__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "DispatchKey",
    "DispatchKeySet",
    "Generator",
    "Size",
    "_disabled_torch_dispatch_impl",
    "_disabled_torch_function_impl",
    "_has_torch_function",
    "_has_torch_function_unary",
    "_has_torch_function_variadic",
    "_nn",
    "_pop_torch_function_stack",
    "_push_on_torch_function_stack",
    "device",
    "dtype",
    "layout",
    "memory_format",
]

# Python imports `torch._C._functorch` and the others below this module only if it looks like a package.
__path__: list[str] = []

# Hardware and libraries for which rabbet has no backend.
_has_mkldnn = _has_mps = _has_xpu = False

# Names of dispatch keys that packages put into tables at import. rabbet does not dispatch by them.
DispatchKey = enum.Enum(
    "DispatchKey",
    "Undefined CPU CUDA Meta SparseCPU SparseCUDA QuantizedCPU QuantizedCUDA BackendSelect Python Functionalize "
    "ADInplaceOrView AutogradOther AutogradFunctionality AutogradCPU AutogradCUDA AutogradMeta Autograd "
    "AutocastCPU AutocastCUDA AutocastXPU Batched FuncTorchBatched CompositeImplicitAutograd "
    "CompositeExplicitAutograd",
    start=0,
)


class _Functions(type):
    def __getattr__(cls, name: str) -> Any:
        found = getattr(rabbet, name, None)
        if found is None or name.startswith("__"):
            raise AttributeError(f"torch.{name} is not in rabbet yet", name=name)
        return found


class _VariableFunctionsClass(metaclass=_Functions):
    """Has the operators as attributes, the form in which PyTorch's pickles refer to them."""


class DispatchKeySet:
    """A set of dispatch keys."""

    def __init__(self, *keys: DispatchKey) -> None:
        for key in keys:
            if not isinstance(key, DispatchKey):
                raise TypeError(f"DispatchKeySet: expected dispatch keys, got {type(key).__name__}")
        self._keys = frozenset(keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether a key is in the set."""
        return key in self._keys

    def _with(self, keys: frozenset[DispatchKey]) -> "DispatchKeySet":
        return DispatchKeySet(*keys)

    def __or__(self, other: "DispatchKeySet") -> "DispatchKeySet":
        return self._with(self._keys | other._keys)

    def __and__(self, other: "DispatchKeySet") -> "DispatchKeySet":
        return self._with(self._keys & other._keys)

    def __sub__(self, other: "DispatchKeySet") -> "DispatchKeySet":
        return self._with(self._keys - other._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)


def _log_api_usage_once(event: str) -> None:
    """Does nothing: rabbet keeps no usage statistics."""


def _get_tracing_state() -> Any:
    """The state of jit.trace. It is None: nothing is ever traced."""
    return None


def _is_tracing() -> bool:
    """Whether jit.trace runs."""
    return False


def _is_torch_function_enabled() -> bool:
    """Whether `__torch_function__` of arguments is called in this thread."""
    return _C.overrides_disabled() == 0


def _is_torch_function_all_disabled() -> bool:
    """Whether neither `__torch_function__` of arguments nor that of modes is called in this thread."""
    return _C.overrides_disabled() == 2


def _is_torch_function_mode_enabled() -> bool:
    """Whether a TorchFunctionMode is active in this thread."""
    return _len_torch_function_stack() > 0 and not _is_torch_function_all_disabled()


def _len_torch_function_stack() -> int:
    """How many modes of `__torch_function__` are active in this thread."""
    return len(_C.function_modes())


def _get_function_stack_at(level: int) -> Any:
    """The mode at a level, 0 for the outermost one."""
    return _C.function_modes()[level]


def _are_functorch_transforms_active() -> bool:
    """Whether the call runs inside vmap or another transform."""
    return _C.transform_depth() > 0


def _get_accelerator(check: Any = None) -> Any:
    """The device of the current accelerator; the CPU without one."""
    return accelerator.current_accelerator() or device("cpu")


def _get_default_device() -> str:
    """The device of new tensors."""
    return str(_settings.get_default_device())


def _get_privateuse1_backend_name() -> str:
    """The name of the device type that PyTorch reserves for extensions, as long as none renames it."""
    return "privateuseone"


_NO_NUMBER = "rabbet does not number the backward passes that run"
_current_graph_task_id = refusing_function("torch._C", "_current_graph_task_id", _NO_NUMBER)
_current_autograd_node = refusing_function("torch._C", "_current_autograd_node", _NO_NUMBER)


class _ExcludeDispatchKeyGuard:
    """A block that excludes dispatch keys. It refuses: rabbet's layers are not PyTorch's dispatch keys."""

    def __init__(self, keys: Any) -> None:
        raise _C.NotImplementedForError(
            "torch._C._ExcludeDispatchKeyGuard: rabbet dispatches by layers of its own"
        )


_storage_Use_Count = refusing_function(
    "torch._C", "_storage_Use_Count", "rabbet does not count the users of a storage"
)
_NO_GRAPHS = "rabbet has none of PyTorch's compilers; rabbet.graph captures programs"
Graph = refusing_class("torch._C", "Graph", _NO_GRAPHS)
Value = refusing_class("torch._C", "Value", _NO_GRAPHS)
Node = refusing_class("torch._C", "Node", _NO_GRAPHS)
ScriptModule = refusing_class("torch._C", "ScriptModule", _NO_GRAPHS)
ScriptObject = refusing_class("torch._C", "ScriptObject", _NO_GRAPHS)
_TensorMeta = type(_C.Tensor)
_TensorBase = TensorBase = _C.Tensor


def _unset(name: str, before: Any) -> Callable[..., Any]:
    """A switch of PyTorch's TorchScript executor, which never runs: it returns what was set before."""

    def switch(*value: Any) -> Any:
        nonlocal before
        last = before
        if value:
            before = value[0]
        return last

    switch.__name__ = switch.__qualname__ = name
    switch.__doc__ = "A switch of PyTorch's TorchScript executor, which never runs."
    return switch


_jit_set_profiling_executor = _unset("_jit_set_profiling_executor", True)
_jit_set_profiling_mode = _unset("_jit_set_profiling_mode", True)
_jit_set_texpr_fuser_enabled = _unset("_jit_set_texpr_fuser_enabled", False)
_jit_set_nvfuser_enabled = _unset("_jit_set_nvfuser_enabled", False)
_jit_set_nvfuser_guard_mode = _unset("_jit_set_nvfuser_guard_mode", False)
_jit_override_can_fuse_on_cpu = _unset("_jit_override_can_fuse_on_cpu", False)
_jit_override_can_fuse_on_gpu = _unset("_jit_override_can_fuse_on_gpu", False)
_set_math_sdp_allow_fp16_bf16_reduction = _unset("_set_math_sdp_allow_fp16_bf16_reduction", False)


def _jit_can_fuse_on_cpu() -> bool:
    """Whether TorchScript fuses operators on the CPU: it never runs."""
    return False


_jit_can_fuse_on_gpu = _jit_can_fuse_on_cpu


# ---- __torch_dispatch__, whose layer loads when a program first uses it


def _len_torch_dispatch_stack() -> int:
    """How many modes of `__torch_dispatch__` are active in this thread."""
    from ..utils import _python_dispatch

    return _python_dispatch._len_torch_dispatch_stack()


def _get_dispatch_stack_at(level: int) -> Any:
    """The mode at a level, 0 for the outermost one."""
    from ..utils import _python_dispatch

    return _python_dispatch._get_dispatch_stack_at(level)


def _push_on_torch_dispatch_stack(mode: Any) -> None:
    """Make a mode the innermost one of this thread."""
    from ..utils import _python_dispatch

    _python_dispatch._push_mode(mode)


def _pop_torch_dispatch_stack(key: Any = None) -> Any:
    """Take the innermost mode of this thread off and return it."""
    from ..utils import _python_dispatch

    return _python_dispatch._pop_mode(key)


class _DisableTorchDispatch:
    """A block in which neither classes nor modes of `__torch_dispatch__` are called, in this thread."""

    def __enter__(self) -> None:
        from .._torch_dispatch import without_dispatch

        self._block = without_dispatch()
        self._block.__enter__()

    def __exit__(self, *error: object) -> None:
        self._block.__exit__(*error)


def _get_dispatch_mode(key: Any) -> Any:
    """The framework's own mode of a kind. rabbet has none."""
    return None
