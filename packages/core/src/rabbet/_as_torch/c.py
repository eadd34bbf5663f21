"""The private names of `torch._C` that packages import. What is not here is missing, as for any module."""

import contextlib
import enum
from collections.abc import Callable
from typing import Any

from .. import _C
from .._C import Generator, Size, device, dtype, layout, memory_format
from . import c_nn as _nn

__all__ = ["DispatchKey", "DispatchKeySet", "Generator", "Size", "_nn", "device", "dtype", "layout", "memory_format"]  # fmt: skip

# Names of layers and devices that packages put in tables when they are imported; rabbet dispatches by its own.
DispatchKey = enum.Enum(
    "DispatchKey",
    "Undefined CPU CUDA Meta SparseCPU SparseCUDA QuantizedCPU QuantizedCUDA BackendSelect Python Functionalize "
    "ADInplaceOrView AutogradOther AutogradFunctionality AutogradCPU AutogradCUDA AutogradMeta Autograd "
    "AutocastCPU AutocastCUDA AutocastXPU Batched FuncTorchBatched CompositeImplicitAutograd "
    "CompositeExplicitAutograd",
    start=0,
)


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
    """Take a name for usage statistics, which rabbet does not keep."""


def _get_tracing_state() -> Any:
    """The state of jit.trace: None, as nothing is ever traced."""
    return None


def _is_tracing() -> bool:
    """Whether jit.trace runs."""
    return False


def _disabled_torch_function_impl(
    func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """The `__torch_function__` of classes that override nothing: the call itself."""
    return func(*args, **(kwargs or {}))


class DisableTorchFunctionSubclass(contextlib.nullcontext[None]):
    """A block in which no `__torch_function__` of subclasses is called: no operator of rabbet calls it yet."""


def _are_functorch_transforms_active() -> bool:
    """Whether the call runs inside of vmap or another transform."""
    return _C.transform_depth() > 0
