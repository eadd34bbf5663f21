"""Differentiation: the tape, grad modes, `Function`, `grad`, forward mode, checks."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from rabbet import Tensor
from rabbet._plugins import module_imported, require_layer

require_layer("autograd")

from . import _C, forward_ad, grad_mode, graph  # noqa: E402  (the binding needs the plugin)
from ._modes import (  # noqa: E402
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    is_multithreading_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from .anomaly_mode import detect_anomaly, set_detect_anomaly  # noqa: E402
from .function import Function  # noqa: E402
from .gradcheck import gradcheck, gradgradcheck  # noqa: E402
from .numerics import NumericsError, check_numerics  # noqa: E402
from .variable import Variable  # noqa: E402

__all__ = [
    "Function",
    "NumericsError",
    "Variable",
    "backward",
    "check_numerics",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "is_multithreading_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


def rabbet_tensor_attributes() -> dict[str, object]:
    """Descriptors that core puts on the Tensor type when this plugin loads."""
    return _C.tensor_attributes()


def _tuple(value: Tensor | Sequence[Tensor] | None) -> list[Tensor]:
    if value is None:
        return []
    return [value] if isinstance(value, Tensor) else list(value)


def _flags(retain_graph: bool | None, create_graph: bool) -> int:
    retain = create_graph if retain_graph is None else retain_graph
    return (_C.RETAIN if retain else 0) | (_C.CREATE if create_graph else 0)


def _checked(
    outputs: Tensor | Sequence[Tensor], grads: Tensor | Sequence[Tensor] | None, name: str
) -> tuple[list[Tensor], list[Tensor | None]]:
    outs = _tuple(outputs)
    given: list[Tensor | None] = [*_tuple(grads)] if grads is not None else [None] * len(outs)
    if len(given) != len(outs):
        raise ValueError(
            f"{name}: expected one gradient for each of the {len(outs)} outputs, got {len(given)}"
        )
    return outs, given


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of `tensors` with respect to all leaves (or to `inputs`) to their `.grad`.

    Args:
        tensors: the outputs.
        grad_tensors: one gradient per output, of its shape; None for scalar outputs.
        retain_graph: keep saved values for another run; defaults to `create_graph`.
        create_graph: record the run, for higher derivatives.

    Raises:
        RuntimeError: if an output does not require grad, or the graph was freed by an earlier run.
    """
    outs, given = _checked(tensors, grad_tensors, "backward")
    watched = _tuple(inputs)
    if inputs is not None and not watched:
        raise RuntimeError("backward: inputs must not be empty")
    _C.run(outs, given, watched, _flags(retain_graph, create_graph) | _C.ACCUMULATE)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of `outputs` with respect to `inputs`, without touching any `.grad`.

    Args:
        grad_outputs: one gradient per output, of its shape; None for scalar outputs.
        only_inputs: always so; False warns, as other leaves never get a gradient here.
        allow_unused: give None for an input that no output depends on instead of raising.
        materialize_grads: give zeros instead of None for such inputs.

    Raises:
        RuntimeError: if an input is unused and neither of the two is set.
    """
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
            "other parts of the graph, please use torch.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    if is_grads_batched:
        raise NotImplementedError("grad: is_grads_batched needs the wheel 'rabbet-vmap'")
    outs, given = _checked(outputs, grad_outputs, "grad")
    watched = _tuple(inputs)
    allow = materialize_grads if allow_unused is None else allow_unused
    flags = _flags(retain_graph, create_graph) | (
        _C.ALLOW_UNUSED if allow or materialize_grads else 0
    )
    results = _C.run(outs, given, watched, flags)
    if materialize_grads:
        import rabbet

        results = tuple(
            rabbet.zeros_like(x) if g is None else g for x, g in zip(watched, results, strict=True)
        )
    return results


def rabbet_conformance_params(level: str) -> dict[str, Any]:
    """How the conformance kit calls functions through the tape."""
    if level != "layer":
        return {}

    def through(f: Any, *xs: Any) -> Any:
        def recorded(x: Tensor) -> Tensor:
            if x.requires_grad or not (x.is_floating_point() or x.is_complex()):
                return x
            return x.detach().requires_grad_()

        return f(*map(recorded, xs))

    return {"call": through, "changes": "rounding"}  # it runs some operators step by step


module_imported(sys.modules[__name__])


from . import functional  # noqa: E402  (uses `grad`)
