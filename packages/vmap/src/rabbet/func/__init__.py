"""Functions of functions: `vmap`, and modules as functions of their parameters."""

from rabbet.vmap import vmap

from ._functional_call import functional_call
from ._module_state import stack_module_state

__all__ = ["functional_call", "stack_module_state", "vmap"]
