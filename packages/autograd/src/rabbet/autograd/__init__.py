"""Differentiation: the tape, grad modes, `Function`, `grad`, forward mode, checks."""

import importlib
import sys
from typing import Any

from rabbet._plugins import module_imported, require_layer

require_layer("autograd")

from . import (  # noqa: E402, F401  (needs the plugin)
    _C,
    _function_levels,
    forward_ad,
    functional,
    grad_mode,
    graph,
)
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
from ._roots import backward, grad  # noqa: E402
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


def rabbet_conformance_params(level: str) -> dict[str, Any]:
    """How the conformance kit calls functions through the tape."""
    if level != "layer":
        return {}

    def through(f: Any, *xs: Any) -> Any:
        def recorded(x: Any) -> Any:
            if x.requires_grad or not (x.is_floating_point() or x.is_complex()):
                return x
            return x.detach().requires_grad_()

        return f(*map(recorded, xs))

    return {"call": through, "changes": "rounding"}  # it runs some operators step by step


module_imported(sys.modules[__name__])


def __getattr__(name: str) -> Any:
    if name in ("profiler", "profiler_legacy", "profiler_util"):  # of another wheel
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("_profiler_enabled", "_disable_profiler"):
        return getattr(importlib.import_module(f"{__name__}.profiler"), name)
    from rabbet._as_torch.names import missing_attribute

    raise missing_attribute("autograd", name)
