"""Parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable

import rabbet
from rabbet import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return all elements of `parameters`, in order, as one 1-d tensor."""
    return rabbet.cat([p.reshape([-1]) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give `parameters` the values of a vector that `parameters_to_vector` could have made."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected rabbet.Tensor, but got: {type(vec).__name__}")
    parameters = list(parameters)
    wanted = sum(p.numel() for p in parameters)
    if vec.numel() != wanted:
        raise ValueError(
            f"vector_to_parameters: expected {wanted} elements for these parameters, got {vec.numel()}"
        )
    begin = 0
    for parameter in parameters:
        end = begin + parameter.numel()
        parameter.data = vec[begin:end].reshape(parameter.shape).detach()
        begin = end
