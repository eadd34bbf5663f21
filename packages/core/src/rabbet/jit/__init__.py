"""`rabbet.jit` as eager programs use it: scripted functions run eagerly, as PyTorch's do under PYTORCH_JIT=0.

There is no script compiler and no tracer yet. What needs one refuses by name.
"""

import builtins
import collections
import contextlib
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from .. import _C
from .._settings import warn_once
from ..futures import Future

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "Future", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "TracerWarning", "annotate", "enable_onednn_fusion", "export", "export_opnames",
    "freeze", "fork", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load",
    "optimize_for_inference", "optimized_execution", "save", "script", "script_if_tracing", "script_method", "onednn_fusion_enabled", "set_fusion_strategy", "strict_fusion", "trace",
    "trace_module", "unused", "wait",
]  # fmt: skip

_REASON = "rabbet has no script compiler and no tracer yet; call the function or module itself"
_T = TypeVar("_T")

Attribute = collections.namedtuple("Attribute", ["value", "type"])


class Error(RuntimeError):
    """What scripted code raises."""


def _refusal(name: str) -> Exception:
    return _C.NotImplementedForError(f"jit.{name}: {_REASON}")


class ScriptFunction:
    """The class of scripted functions: no object is one."""

    __refused__ = _REASON

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _refusal(type(self).__name__)


class ScriptModule(ScriptFunction):
    """The class of scripted modules: no object is one."""


class CompilationUnit(ScriptFunction):
    """The class of scripted source texts: no object is one."""


class RecursiveScriptModule(ScriptModule):
    """The class of modules that were scripted with their parts: no object is one."""


def _refusing(name: str) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise _refusal(name)

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = f"Not implemented: {_REASON}."
    refused.__refused__ = _REASON  # type: ignore[attr-defined]
    return refused


trace, trace_module = _refusing("trace"), _refusing("trace_module")
save, load = _refusing("save"), _refusing("load")
_get_trace_graph = _refusing("_get_trace_graph")
freeze, optimize_for_inference = _refusing("freeze"), _refusing("optimize_for_inference")
fork, wait = _refusing("fork"), _refusing("wait")
export_opnames = _refusing("export_opnames")


def script(obj: _T, *args: Any, **kwargs: Any) -> _T:
    """Return a function, module or class as it is: it runs eagerly, which a warning says once.

    Raises:
        TypeError: if it cannot be called.
    """
    if not callable(obj):
        raise TypeError(
            f"jit.script: expected a function, module or class, got {type(obj).__name__}"
        )
    warn_once("jit.script: rabbet has no script compiler yet, the program runs eagerly")
    return obj


def script_if_tracing(fn: _T) -> _T:
    """A function that a tracer would script; there is none."""
    return fn


_script_if_tracing = script_if_tracing


def script_method(fn: _T) -> _T:
    """A method of a ScriptModule; runs eagerly."""
    return fn


def export(fn: _T) -> _T:
    """Mark a method to be scripted beside forward()."""
    return fn


def unused(fn: _T) -> _T:
    """Mark a function that scripted code must not call."""
    return fn


def _overload(fn: _T) -> _T:
    """Mark a signature for the script compiler; eager code calls the function that follows."""
    return fn


_overload_method = _overload


class strict_fusion:
    """A block whose scripted code must be fused completely. Eager code in it runs as usual."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


_onednn_fusion = False
_fusion_strategy: list[tuple[str, int]] = [("STATIC", 2), ("DYNAMIC", 10)]


def enable_onednn_fusion(enabled: bool) -> None:
    """Set whether scripted code uses oneDNN fusion. Rabbet has no scripted code, so only the flag changes."""
    global _onednn_fusion
    _onednn_fusion = bool(enabled)


def onednn_fusion_enabled() -> bool:
    """What `enable_onednn_fusion` has set."""
    return _onednn_fusion


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Set how often scripted code specialises on shapes; returns what was set before. There is no scripted code.

    Raises:
        ValueError: if a kind is neither "STATIC" nor "DYNAMIC".
    """
    global _fusion_strategy
    for kind, _ in strategy:
        if kind not in ("STATIC", "DYNAMIC"):
            raise ValueError(f"set_fusion_strategy: expected 'STATIC' or 'DYNAMIC', got {kind!r}")
    before, _fusion_strategy = _fusion_strategy, list(strategy)
    return before


class TracerWarning(Warning):
    """What a tracer warns of."""


def interface(obj: _T) -> _T:
    """Mark a class as an interface of scripted code."""
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Mark a function that scripted code leaves to Python; a decorator with and without arguments."""
    if callable(drop):
        return drop
    if not builtins.isinstance(drop, bool):
        raise RuntimeError(
            f"Argument to @torch.jit.ignore must be a bool or a function but got {drop}"
        )
    return lambda fn: fn


def annotate(the_type: Any, the_value: _T) -> _T:
    """The value; scripted code would take its type from the first argument."""
    return the_value


def is_scripting() -> bool:
    """Whether code is being scripted: no."""
    return False


def is_tracing() -> bool:
    """Whether code is being traced: no."""
    return False


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Whether scripted code is optimised, of which there is none."""
    yield


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether an object, its elements included, is of a type such as `List[Tensor]` or `Optional[int]`."""
    kinds = target_type if builtins.isinstance(target_type, tuple) else (target_type,)
    return any(_fits(obj, kind) for kind in kinds)


def _fits(obj: Any, kind: Any) -> bool:
    origin: Any = typing.get_origin(kind)
    args = typing.get_args(kind)
    items: Any = obj
    if origin is None:
        return builtins.isinstance(obj, type(None) if kind is None else kind)
    if not builtins.isinstance(origin, type) or origin.__name__ == "UnionType":
        return any(_fits(obj, arg) for arg in args)
    if not builtins.isinstance(obj, origin):
        return False
    if origin is dict:
        return all(_fits(k, args[0]) and _fits(v, args[1]) for k, v in items.items())
    if origin is tuple:
        return len(items) == len(args) and all(map(_fits, items, args))
    return all(_fits(item, args[0]) for item in items)
