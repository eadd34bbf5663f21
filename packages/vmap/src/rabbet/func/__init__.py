"""Functions of functions: `vmap`, derivatives, programs without writes, modules as functions.

The derivatives need rabbet-autograd, and say so where it is missing.
"""

from typing import TYPE_CHECKING, Any

from rabbet.vmap import vmap
from rabbet.vmap._functionalize import functionalize

from ._debug import debug_unwrap
from ._functional_call import functional_call
from ._module_state import replace_all_batch_norm_modules_, stack_module_state
from ._rearrange import rearrange

_DERIVATIVES = (
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "vjp",
)

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vmap",
    *_DERIVATIVES,
]


def _load(name: str) -> Any:
    if name not in _DERIVATIVES:
        raise AttributeError(f"module 'rabbet.func' has no attribute '{name}'")
    from . import _differential

    value = globals()[name] = getattr(_differential, name)
    return value


if TYPE_CHECKING:
    from ._differential import grad as grad
    from ._differential import grad_and_value as grad_and_value
    from ._differential import hessian as hessian
    from ._differential import jacfwd as jacfwd
    from ._differential import jacrev as jacrev
    from ._differential import jvp as jvp
    from ._differential import linearize as linearize
    from ._differential import vjp as vjp
else:
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_DERIVATIVES))
