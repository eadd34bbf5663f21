"""Operators of your own, kernels for existing ones, and an explanation of what a call does."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

from . import _C
from ._C import KernelHandle, Op, Tensor
from ._plugins import require_layer, require_ops

__all__ = ["explain", "impl", "op", "register_records", "require_layer", "require_ops"]


def _provider(depth: int = 2) -> str:
    frame = sys._getframe(depth)
    return f"{frame.f_globals.get('__name__', '?')} ({frame.f_code.co_filename}:{frame.f_lineno})"


def register_records(text: str, file: str = "<records>") -> None:
    """Register operators from text in the record language (docs/reference/records).

    Raises:
        PluginError: naming file and line of what is wrong; nothing is registered then.
    """
    _C.add_ops(text, file, _provider())


class _Registered:
    """An operator that `op` registered: call it, or give it kernels with `impl`."""

    def __init__(self, name: str, call: Op) -> None:
        self.name, self._call = name, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def impl(self, backend: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: the kernel for a backend."""
        return impl(self.name, backend)


def op(
    schema: str, *, vjp: dict[str, str] | None = None, fields: dict[str, str] | None = None
) -> Any:
    """Decorator: register an operator whose Python function is its CPU kernel.

    Args:
        schema: e.g. "my::scale(Tensor x, float a) -> Tensor".
        vjp: a derivative formula for each differentiable argument, e.g. {"x": "grad * a"}.
        fields: further fields of the record, e.g. {"kind": "elementwise", "autocast": "fp32"}.

    Raises:
        PluginError: if the schema or a formula is wrong, or the operator exists with another schema.
    """
    provider = _provider()

    def register(function: Callable[..., Any]) -> _Registered:
        name = schema.split("(", 1)[0].strip()
        record = {"kind": "opaque", "shape": "data", "expose": "none", **(fields or {})}
        lines = [schema, *(f"  {key} {value}" for key, value in record.items())]
        lines += [f"  vjp {arg} {formula}" for arg, formula in (vjp or {}).items()]
        if doc := inspect.getdoc(function):
            lines.append(f"  doc {doc.splitlines()[0]}")
        file = f"{function.__module__}.{function.__qualname__}"
        _C.add_ops("\n".join(lines) + "\n", file, provider)
        _C.add_python_kernel(name, "cpu", function, provider)
        return _Registered(name, _C.op(name))

    return register


_handles: dict[tuple[str, str], KernelHandle] = {}


def impl(name: str, backend: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a Python kernel of operator `name` for `backend`; it returns the result.

    The backend may be one that is not loaded yet. The handle is the function's `kernel` attribute: call
    `function.kernel.revoke()` to take it back.
    """
    provider = _provider()

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        handle = _C.add_python_kernel(name, backend, function, provider)
        _handles[name, backend] = handle
        function.kernel = handle  # type: ignore[attr-defined]
        return function

    return register


def _layer_state(
    layer: str, info: dict[str, Any], tensors: list[Tensor], device: str
) -> tuple[bool, str]:
    """Whether a layer runs for such a call, and why."""
    if layer == "autocast":
        from rabbet import amp

        on = amp.is_autocast_available(device) and amp.is_autocast_enabled(device)
        return on, f"the record says {info['autocast']}" if on else f"autocast is off for {device}"
    active = layer == "autograd" and any(t.requires_grad for t in tensors)
    return active, "an argument requires grad" if active else "no argument asks for it"


def explain(name: str, *args: Any) -> str:
    """Say what a call of operator `name` with these arguments goes through, and who registered it."""
    info = _C.op_info(name)
    tensors = [a for a in args if isinstance(a, Tensor)]
    lines = [info["schema"], f"  registered by {info['provider']} ({info['file']})"]
    device = tensors[0].device.type if tensors else "cpu"
    for layer in list(_C.layers()):
        active, why = _layer_state(layer["name"], info, tensors, device)
        lines.append(
            f"  layer {layer['name']} [{layer['provider']}]: {'runs' if active else 'skipped'}, {why}"
        )
    if device in info["kernels"]:
        lines.append(f"  kernel for {device} [{info['kernels'][device]}]")
    elif info["has_decomp"]:
        lines.append(f"  no kernel for {device}: decomposition `{info['formulas']['decomp']}`")
    elif info["view"]:
        lines.append("  a view: core derives its geometry")
    else:
        lines.append(f"  no kernel for {device} and no decomposition: the call raises")
    return "\n".join(lines)
