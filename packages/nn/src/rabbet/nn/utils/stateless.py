"""Calls of a module with other parameters, under the name before `rabbet.func`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rabbet import Tensor

__all__ = ["functional_call"]


def functional_call(
    module: Any,
    parameters_and_buffers: Mapping[str, Tensor],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`rabbet.func.functional_call`; deprecated in its favour."""
    from rabbet.func import functional_call as call

    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed "
        "in a future version of PyTorch. Please use `torch.func.functional_call` instead which is a "
        "drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )


@contextmanager
def _reparametrize_module(
    module: Any,
    parameters_and_buffers: Mapping[str, Tensor],
    *,
    tie_weights: bool = False,
    strict: bool = False,
) -> Iterator[None]:
    """A block in which the module has other tensors under these names, for packages that import it."""
    from rabbet.func._functional_call import reparametrized

    given = dict(parameters_and_buffers)
    with reparametrized(module, given, tie_weights=tie_weights, strict=strict):
        yield
